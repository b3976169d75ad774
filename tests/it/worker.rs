//! The worker as a library: batches, failures, holding, hops.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use aws_lambda_events::event::sqs::SqsEvent;
use sendslot_scheduler::{Message, Scheduler, SendState};
use sendslot_shared::audit;
use sendslot_shared::budget;
use sendslot_shared::claim::{self, Claim, Verdict};
use sendslot_shared::envelope::{Envelope, PendingReport};
use sendslot_shared::id::BudgetName;
use sendslot_shared::queue::Queue;
use sendslot_shared::receipt;
use sendslot_shared::settle::Ending;
use sendslot_shared::status;
use sendslot_shared::store::Store;
use sendslot_shared::time::Timer;
use sendslot_tests::per_second;
use sendslot_tests::proxy::{Proxy, Stop};
use sendslot_tests::queues::{TestQueue, localstack};
use sendslot_worker::{
    Backoff, BatchError, Outcome, Outgoing, PolicyFile, Provider, RedisPolicies, Worker, WorkerConfig,
};

/// Remembers what it was asked to send; panics at an ID that says so.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<(Instant, Outgoing)>>>);

impl Provider for Recorder {
    fn call_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn send(&self, send: &Outgoing) -> Outcome {
        assert!(!send.id.contains("panic"), "the provider's code panics");
        self.0.lock().unwrap().push((Instant::now(), send.clone()));
        Outcome::Sent { provider_id: Some("p1".into()) }
    }
}

struct Bench {
    queue: TestQueue,
    dead: TestQueue,
    scheduler: Scheduler,
    config: WorkerConfig,
    recorder: Recorder,
    budget: &'static str,
}

impl Bench {
    async fn start(budget: &'static str, timer: Timer) -> Self {
        let stack = localstack().await;
        let (queue, dead) = (TestQueue::create(budget).await, TestQueue::create(&format!("{budget}-dead")).await);
        let store = Store::new(&stack.redis_url()).unwrap();
        budget::set(&store, &BudgetName::new(budget).unwrap(), &per_second(100, 0.9)).await.unwrap();
        let builder =
            Scheduler::builder().store(store.clone()).sqs(queue.sqs.clone()).queue_url(&queue.url).timer(timer);
        let config = WorkerConfig {
            store,
            queue: Queue::new(queue.sqs.clone(), &queue.url).unwrap(),
            dead_letters: Queue::new(dead.sqs.clone(), &dead.url).unwrap(),
            timer,
            backoff: Backoff::default(),
            hold: Duration::from_secs(1),
            redis_policies: RedisPolicies::default(),
            policy_file: PolicyFile::default(),
            receipts: false,
        };
        let scheduler = builder.build().await.unwrap();
        Self { queue, dead, scheduler, config, recorder: Recorder::default(), budget }
    }

    fn worker(&self) -> Worker<Recorder> {
        Worker::new(self.config.clone(), self.recorder.clone())
    }

    fn message(&self, id: &str) -> Message {
        Message::new(self.budget, id, "x")
    }

    /// Schedules and receives these.
    async fn copies(&self, ids: &[&str]) -> Vec<Envelope> {
        for id in ids {
            self.scheduler.schedule(self.message(id)).await.unwrap();
        }
        self.queue.receive(ids.len()).await
    }

    async fn state(&self, id: &str) -> SendState {
        self.scheduler.status(self.budget, id).await.unwrap().unwrap().state
    }

    fn sent(&self) -> Vec<String> {
        let mut ids: Vec<String> = self.recorder.0.lock().unwrap().iter().map(|(_, send)| send.id.clone()).collect();
        ids.sort();
        ids
    }
}

fn event(bodies: &[String]) -> SqsEvent {
    let record = |(i, body): (usize, &String)| serde_json::json!({ "messageId": format!("id-{i}"), "body": body });
    let records: Vec<_> = bodies.iter().enumerate().map(record).collect();
    serde_json::from_value(serde_json::json!({ "Records": records })).unwrap()
}

fn bodies(copies: &[Envelope]) -> Vec<String> {
    copies.iter().map(|copy| copy.to_body().unwrap()).collect()
}

/// The answer as Lambda gets it.
async fn handle(worker: &Worker<Recorder>, bodies: &[String]) -> String {
    serde_json::to_string(&worker.handle(event(bodies), None).await.unwrap()).unwrap()
}

#[tokio::test]
async fn one_record_of_ten_panics_and_nine_are_sent() {
    // W5, oxbow#7; W4: the partial-batch response to the byte
    let bench = Bench::start("worker-panic", Timer::SQS).await;
    let ids = ["a0", "a1", "a2", "a3-panic", "a4", "a5", "a6", "a7", "a8", "a9"];
    let copies = bench.copies(&ids).await;
    let answer = handle(&bench.worker(), &bodies(&copies)).await;
    assert_eq!(answer, r#"{"batchItemFailures":[{"itemIdentifier":"id-3"}]}"#);
    assert_eq!(bench.sent().len(), 9);
    assert_eq!(bench.state("a3-panic").await, SendState::Claimed);
    assert_eq!(bench.state("a9").await, SendState::Sent);
}

#[tokio::test]
async fn strange_events_do_no_harm() {
    // W7, aws-lambda-rust-runtime#226; W4: a record without a message ID fails loudly
    let bench = Bench::start("worker-strange", Timer::SQS).await;
    let worker = bench.worker();
    assert_eq!(handle(&worker, &[]).await, r#"{"batchItemFailures":[]}"#);
    let none = serde_json::from_str(r#"{"Records":[{"messageId":"x","body":"{}"},{"body":"{}"}]}"#).unwrap();
    assert!(matches!(worker.handle(none, None).await, Err(BatchError::NoMessageId { index: 1 })));
    assert!(bench.dead.is_empty().await, "nothing of that event was touched");
    let answer = handle(&worker, &["not json".into(), "{}".into(), "{\"v\":2}".into()]).await;
    assert_eq!(answer, r#"{"batchItemFailures":[]}"#);
    assert_eq!(bench.dead.len().await, 3, "bodies that are no envelopes are dead-lettered");
    let unknown_fields = r#"{"Records":[],"newField":1}"#;
    assert!(serde_json::from_str::<SqsEvent>(unknown_fields).is_ok());
    assert!(serde_json::from_str::<SqsEvent>("[]").is_err(), "a bare body is no event");
}

/// What `cargo lambda invoke --data-file infra/events/sqs.json` gives to the function.
#[tokio::test]
async fn the_sample_event_is_booked_and_sent() {
    let bench = Bench::start("demo", Timer::SQS).await;
    let sample: SqsEvent = serde_json::from_str(include_str!("../../infra/events/sqs.json")).unwrap();
    let worker = bench.worker();
    let answer = worker.handle(sample, None).await.unwrap();
    assert_eq!(serde_json::to_string(&answer).unwrap(), r#"{"batchItemFailures":[]}"#);
    // nobody booked it: it is booked, and its copy goes back to the queue
    while bench.state("sample-1").await != SendState::Sent {
        let copies = bench.queue.receive(1).await;
        handle(&worker, &bodies(&copies)).await;
    }
    assert_eq!(bench.sent(), ["sample-1"]);
}

#[tokio::test]
async fn an_invocation_too_short_for_a_call_fails_loudly() {
    let bench = Bench::start("worker-short", Timer::SQS).await;
    let copies = bench.copies(&["a"]).await;
    let soon = Instant::now() + Duration::from_secs(2);
    let answer = bench.worker().handle(event(&bodies(&copies)), Some(soon)).await;
    assert!(matches!(answer, Err(BatchError::TooShort { .. })));
    assert_eq!(bench.state("a").await, SendState::Booked);
}

#[tokio::test]
async fn while_redis_is_down_copies_are_held_unchanged() {
    let bench = Bench::start("worker-hold", Timer::SQS).await;
    let copies = bench.copies(&["a", "b"]).await;
    let down = WorkerConfig { store: Store::new("redis://127.0.0.1:1").unwrap(), ..bench.config.clone() };
    let worker = Worker::new(down, bench.recorder.clone());
    assert_eq!(handle(&worker, &bodies(&copies)).await, r#"{"batchItemFailures":[]}"#);
    let held = bench.queue.receive(2).await;
    let same =
        |(held, copy): (&Envelope, &Envelope)| (held.seq, held.tag, &held.draft) == (copy.seq, copy.tag, &copy.draft);
    assert!(held.iter().zip(&copies).all(same), "the same copies, on the queue again");
    let not_started = |copy: &Envelope| copy.report.is_some_and(|report| report.ending == Ending::NotStarted);
    assert!(held.iter().all(not_started), "each says that nothing was started, should its claim have been heard");
    assert!(bench.sent().is_empty());
    // Redis is back
    assert_eq!(handle(&bench.worker(), &bodies(&held)).await, r#"{"batchItemFailures":[]}"#);
    assert_eq!(bench.sent(), ["a", "b"]);
}

#[tokio::test]
async fn a_claim_that_was_heard_though_its_worker_gave_up_is_given_back() {
    // Redis stalls: the claim runs when it goes on, nobody calls, and nobody may think that somebody did
    let bench = Bench::start("worker-stall", Timer::SQS).await;
    let mut copies = bench.copies(&["a"]).await;
    let at = bench.scheduler.status(bench.budget, "a").await.unwrap().unwrap().wait;
    tokio::time::sleep(at).await;
    let claim = Claim { envelope: &copies[0], nonce: 77, lease: Duration::from_secs(30) };
    let verdict = claim::claim(&bench.config.store, claim).await.unwrap().verdict;
    assert!(matches!(verdict, Verdict::Send { .. }), "{verdict:?}");
    copies[0].report =
        Some(PendingReport { nonce: 77, ending: Ending::NotStarted, unclaimed: false, called_at_us: None });
    assert_eq!(handle(&bench.worker(), &bodies(&copies)).await, r#"{"batchItemFailures":[]}"#);
    assert_eq!(bench.sent(), ["a"], "the delivery that gave it back asks anew");
    let status = bench.scheduler.status(bench.budget, "a").await.unwrap().unwrap();
    assert_eq!((status.state, status.attempts, status.seq), (SendState::Sent, 1, 1));
}

#[tokio::test]
async fn a_send_that_could_not_be_settled_is_settled_when_it_comes_back() {
    // model A13
    let bench = Bench::start("worker-settle", Timer::SQS).await;
    let mut copies = bench.copies(&["a"]).await;
    copies[0].report = Some(PendingReport { nonce: 5, ending: Ending::Sent, unclaimed: false, called_at_us: None });
    assert_eq!(handle(&bench.worker(), &bodies(&copies)).await, r#"{"batchItemFailures":[]}"#);
    assert_eq!(bench.state("a").await, SendState::Sent);
    assert!(bench.sent().is_empty(), "it is not sent again");
}

/// The calls that Redis noted.
async fn noted(bench: &Bench) -> Vec<audit::Call> {
    let name = BudgetName::new(bench.budget).unwrap();
    let now = status::budget_status(&bench.config.store, &name).await.unwrap().now;
    let from = sendslot_shared::time::Instant::from_micros(now.as_micros() - 600_000_000);
    let to = now.plus(Duration::from_secs(1));
    let mut minutes = audit::calls(&bench.config.store, &name, from, to);
    let mut calls = vec![];
    while let Some(minute) = minutes.next().await.unwrap() {
        calls.extend(minute);
    }
    calls
}

#[tokio::test]
async fn a_call_that_redis_hears_of_later_is_noted_once_when_it_began() {
    // two made without a claim, and one whose settle was not heard
    let bench = Bench::start("worker-noted", Timer::SQS).await;
    let copies = bench.copies(&["a", "b", "c"]).await;
    let cases = [(Ending::Unknown, true), (Ending::Sent, true), (Ending::Sent, false)];
    let mut expected = vec![];
    for (mut copy, (ending, unclaimed)) in copies.into_iter().zip(cases) {
        let called_at = SystemTime::now() - Duration::from_secs(30 + expected.len() as u64);
        expected.push(sendslot_shared::time::Instant::from(called_at));
        copy.report = Some(PendingReport { nonce: 5, ending, unclaimed, called_at_us: Some(called_at.into()) });
        for _ in 0..2 {
            let answer = handle(&bench.worker(), &bodies(std::slice::from_ref(&copy))).await;
            assert_eq!(answer, r#"{"batchItemFailures":[]}"#);
        }
    }
    assert_eq!(bench.state("a").await, SendState::Unknown);
    assert!(bench.sent().is_empty());
    let noted = noted(&bench).await;
    assert_eq!(noted.len(), 3, "{noted:?}");
    expected.sort();
    for (call, began) in noted.iter().zip(&expected) {
        let late_us = call.at.as_micros() as i64 - began.as_micros() as i64;
        assert!((-1000..20_000_000).contains(&late_us), "{late_us} us: {noted:?}");
    }
}

#[tokio::test]
async fn what_the_provider_calls_a_send_is_remembered_if_it_shall_be() {
    let mut bench = Bench::start("worker-provider-id", Timer::SQS).await;
    let name = BudgetName::new(bench.budget).unwrap();
    for (id, receipts) in [("a", false), ("b", true)] {
        bench.config.receipts = receipts;
        let copies = bench.copies(&[id]).await;
        assert_eq!(handle(&bench.worker(), &bodies(&copies)).await, r#"{"batchItemFailures":[]}"#);
        let found = receipt::find(&bench.config.store, &name, "p1").await.unwrap();
        assert_eq!(found.map(|id| id.to_string()), receipts.then(|| id.to_owned()));
    }
}

#[tokio::test]
async fn a_duplicate_of_a_running_send_comes_back_later_and_is_no_failure() {
    // W3, tomodachi#2074
    let bench = Bench::start("worker-busy", Timer::SQS).await;
    let copies = bench.copies(&["a"]).await;
    let twice = [bodies(&copies), bodies(&copies)].concat();
    assert_eq!(handle(&bench.worker(), &twice).await, r#"{"batchItemFailures":[]}"#);
    assert_eq!(bench.sent(), ["a"]);
    assert!(bench.queue.len().await <= 1, "put back while the other one ran, or done");
}

/// What a batch puts back goes in one call: an overdue backlog is mostly that.
#[tokio::test]
async fn a_batch_puts_its_copies_back_together() {
    let mut bench = Bench::start("worker-together", Timer::SQS).await;
    let stack = localstack().await;
    let port = stack.endpoint_url().rsplit(':').next().and_then(|port| port.trim_end_matches('/').parse().ok());
    let proxy = Proxy::to(port.unwrap()).await;
    let endpoint = format!("http://127.0.0.1:{}", proxy.port());
    let config = bench.queue.sqs.config().to_builder().endpoint_url(endpoint).build();
    bench.config.queue = Queue::new(aws_sdk_sqs::Client::from_conf(config), &bench.queue.url).unwrap();
    // those at the head of a pause would stay with the worker
    let first: Vec<String> = (0..100).map(|i| format!("first{i}")).collect();
    let _ = bench.copies(&first.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let ids: Vec<String> = (0..10).map(|i| format!("a{i}")).collect();
    let copies = bench.copies(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let name = BudgetName::new(bench.budget).unwrap();
    assert!(budget::pause(&bench.config.store, &name, Some(budget::UNTIL_RESUMED)).await.unwrap());
    let ten = proxy.stop(&["AmazonSQS.SendMessageBatch", r#""Id":"9""#], Stop::Request);
    let worker = bench.worker();
    let bodies = bodies(&copies);
    let (answer, ()) = tokio::join!(handle(&worker, &bodies), async { ten.sprung().await.go_on() });
    assert_eq!(answer, r#"{"batchItemFailures":[]}"#);
    assert!(budget::pause(&bench.config.store, &name, None).await.unwrap());
    for id in ids {
        assert_eq!(bench.scheduler.status(bench.budget, &id).await.unwrap().unwrap().hops, 1);
    }
}

#[tokio::test]
async fn a_wait_beyond_the_timer_hops_with_the_remainder_first() {
    // a timer of 4 s instead of 900 s, cut at 3 s
    let timer = Timer::shortened(4, 3);
    let bench = Bench::start("worker-hop", timer).await;
    let slot = SystemTime::now() + Duration::from_secs(9);
    let booked = bench.scheduler.schedule(bench.message("a").not_before(slot)).await.unwrap();
    let at = Instant::now() + booked.wait().expect("a slot");
    let began = Instant::now();
    let mut surfaced = vec![];
    while bench.sent().is_empty() {
        let copies = bench.queue.receive(1).await;
        surfaced.push(began.elapsed().as_secs_f64());
        assert_eq!(handle(&bench.worker(), &bodies(&copies)).await, r#"{"batchItemFailures":[]}"#);
    }
    let hops = bench.scheduler.status(bench.budget, "a").await.unwrap().unwrap().hops;
    assert_eq!(hops as usize, surfaced.len() - 1, "{surfaced:?}");
    assert_eq!(hops, 2, "{surfaced:?}");
    let steps: Vec<f64> = surfaced.windows(2).map(|w| w[1] - w[0]).collect();
    // DelaySeconds is whole: a wake-up is up to a second early, and the next one makes up for it
    assert!(surfaced[0] < 3.0, "the remainder comes first: {surfaced:?}");
    assert!(steps.iter().all(|s| (1.9..4.2).contains(s)), "then whole steps: {surfaced:?}");
    let late = bench.recorder.0.lock().unwrap()[0].0.duration_since(at);
    assert!(late < Duration::from_millis(500), "{late:?} after its slot");
}
