//! The long-lived worker: the real binary, without Lambda.

mod metrics;

use std::collections::BTreeSet;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use sendslot_localstack::QueueOptions;
use sendslot_localstack::provider::{Arrival, ProviderOptions, StrictProvider, max_units_in_rolling_window};
use sendslot_scheduler::{Message, Scheduler, SendState};
use sendslot_shared::aws_sdk_sqs::Client;
use sendslot_shared::budget;
use sendslot_shared::id::BudgetName;
use sendslot_shared::store::Store;
use sendslot_tests::per_second;
use sendslot_tests::queues::{TestQueue, localstack};
use tokio::process::{Child, Command};

const WORKER: &str = env!("CARGO_BIN_EXE_sendslot-worker-under-test");
const LIMIT: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    budget: &'static str,
    scheduler: Scheduler,
    provider: StrictProvider,
    environment: Vec<(String, String)>,
}

impl Bench {
    async fn start(budget: &'static str, latency: Duration) -> Self {
        let stack = localstack().await;
        let queues = stack.create_queues(budget, QueueOptions::default()).await.unwrap();
        let store = Store::new(&stack.redis_url()).unwrap();
        budget::set(&store, &BudgetName::new(budget).unwrap(), &per_second(LIMIT, 0.9)).await.unwrap();
        let provider = StrictProvider::start(ProviderOptions { latency, ..ProviderOptions::new(LIMIT) }).unwrap();
        let builder = Scheduler::builder().store(store).sqs(stack.sqs()).queue_url(&queues.queue_url);
        let mut environment = stack.environment();
        let own = [
            ("SENDSLOT_QUEUE_URL", queues.queue_url),
            ("SENDSLOT_DLQ_URL", queues.dlq_url),
            ("SENDSLOT_HTTP_URL", provider.url()),
            ("SENDSLOT_HTTP_TIMEOUT_MS", "5000".to_owned()),
        ];
        environment.extend(own.map(|(name, value)| (name.to_owned(), value)));
        Self { budget, scheduler: builder.build().await.unwrap(), provider, environment }
    }

    fn worker(&self, more: &[(&str, &str)]) -> Child {
        self.command(more).arg("poll").spawn().unwrap()
    }

    fn command(&self, more: &[(&str, &str)]) -> Command {
        let mut command = Command::new(WORKER);
        command.env_clear().envs(self.environment.iter().cloned()).envs(more.iter().copied());
        command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    fn queue(&self, sqs: Client) -> TestQueue {
        let variable = |name: &str| self.environment.iter().find(|(n, _)| n == name).unwrap().1.clone();
        TestQueue { sqs, url: variable("SENDSLOT_QUEUE_URL"), dlq_url: variable("SENDSLOT_DLQ_URL") }
    }

    async fn schedule(&self, n: usize) -> Vec<String> {
        let ids: Vec<String> = (0..n).map(|i| format!("m{i:04}")).collect();
        let messages: Vec<_> = ids.iter().map(|id| Message::new(self.budget, id, "x")).collect();
        let results: Vec<_> = self.scheduler.schedule_all(stream::iter(messages)).collect().await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        ids
    }

    async fn arrivals(&self, n: usize) {
        let give_up = Instant::now() + 180 * SECOND;
        while self.provider.stats().arrivals < n as u64 {
            assert!(Instant::now() < give_up, "{} of {n} arrivals", self.provider.stats().arrivals);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn sent(&self, ids: &[String]) -> usize {
        let mut sent = 0;
        for id in ids {
            let known = self.scheduler.status(self.budget, id).await.unwrap().unwrap();
            sent += usize::from(known.state == SendState::Sent);
        }
        sent
    }
}

/// SIGTERM.
fn stop(worker: &Child) {
    let id = worker.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
}

/// SIGTERM, and how the process ends.
async fn stopped(mut worker: Child) -> ExitStatus {
    stop(&worker);
    tokio::time::timeout(60 * SECOND, worker.wait()).await.expect("it ends").unwrap()
}

fn assert_each_once(arrivals: &[Arrival], ids: &[String]) {
    let once: BTreeSet<&str> = arrivals.iter().map(|arrival| &*arrival.send_id).collect();
    assert_eq!((arrivals.len(), once.len()), (ids.len(), ids.len()));
    let units: Vec<(u64, u32)> = arrivals.iter().map(|arrival| (arrival.at_us, arrival.units)).collect();
    assert!(max_units_in_rolling_window(&units, SECOND) <= u64::from(LIMIT));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_send_everything_once_and_leave_the_queue_empty() {
    let bench = Bench::start("polling", Duration::from_millis(50)).await;
    let workers = [bench.worker(&[]), bench.worker(&[("SENDSLOT_POLL_IN_HAND", "7"), ("SENDSLOT_POLL_POLLERS", "1")])];
    let ids = bench.schedule(300).await;
    bench.arrivals(300).await;
    for worker in workers {
        assert!(stopped(worker).await.success());
    }
    assert_eq!(bench.sent(&ids).await, 300);
    assert!(bench.queue(localstack().await.sqs()).is_empty().await);
    assert_each_once(&bench.provider.stop(), &ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_told_to_stop_finishes_what_it_has_in_hand() {
    let bench = Bench::start("polling-stop", SECOND).await;
    let worker = bench.worker(&[("SENDSLOT_POLL_IN_HAND", "60")]);
    let (ids, ()) = tokio::join!(bench.schedule(400), bench.arrivals(1));
    // calls are under way, and take a second
    assert!(stopped(worker).await.success());
    let called = bench.provider.stats().arrivals as usize;
    assert!((1..400).contains(&called), "{called}");
    // each call was heard to its end, and recorded
    assert_eq!(bench.sent(&ids).await, called);
    let next = bench.worker(&[]);
    bench.arrivals(400).await;
    assert!(stopped(next).await.success());
    assert_eq!(bench.sent(&ids).await, 400);
    assert_each_once(&bench.provider.stop(), &ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_cannot_work_says_why() {
    let bench = Bench::start("polling-wrong", Duration::ZERO).await;
    let missing =
        bench.environment.iter().find(|(name, _)| name == "SENDSLOT_QUEUE_URL").unwrap().1.replace("wrong", "no");
    for (setting, words) in [
        (("SENDSLOT_POLL_BATCH_MS", "6000"), "SENDSLOT_POLL_BATCH_MS"),
        (("SENDSLOT_POLL_IN_HAND", "0"), "SENDSLOT_POLL_IN_HAND"),
        (("SENDSLOT_METRICS", "statsd"), "SENDSLOT_METRICS=statsd cannot be used: give prometheus, emf or none"),
        (("SENDSLOT_QUEUE_URL", missing.as_str()), "cannot be used"),
    ] {
        let output = bench.worker(&[setting]).wait_with_output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(words), "{setting:?}: {said}");
    }
    let output = Command::new(WORKER).arg("pole").output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("sendslot-worker poll"));
}
