//! Each metric of the table is there with a right value, and what documents them agrees with the table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use aws_lambda_events::event::sqs::SqsEvent;
use metrics_exporter_prometheus::PrometheusHandle;
use sendslot_localstack::RedisServer;
use sendslot_localstack::event_source::WorkerLog;
use sendslot_receipts::mapper::Mapper;
use sendslot_scheduler::{Gauges, Message, Scheduled, Scheduler, SchedulerBuilder};
use sendslot_shared::budget;
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::{BudgetName, LaneName};
use sendslot_shared::limits::Lane;
use sendslot_shared::metrics::{self, Kind, Metric, Origin, TABLE};
use sendslot_shared::policy::Policy;
use sendslot_shared::queue::Queue;
use sendslot_shared::store::Store;
use sendslot_shared::time::Timer;
use sendslot_tests::per_second;
use sendslot_tests::pipeline::{Pipeline, Setup};
use sendslot_tests::queues::{TestQueue, localstack};
use sendslot_worker::{Backoff, Outcome, Outgoing, PolicyFile, Provider, Scope, Worker, WorkerConfig};
use serde_json::Value;

const README: &str = include_str!("../../README.md");

/// A row of the README's table.
fn row(metric: &Metric) -> String {
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    let from = match metric.origin {
        Origin::Scheduler => "scheduler",
        Origin::Worker => "worker",
        Origin::Both => "both",
        Origin::Scrape => "scrape",
        Origin::Receipts => "receipts",
    };
    format!("| `{}` | {kind} | {} | {from} | {} |", metric.name, metric.labels.join(", "), metric.meaning)
}

#[test]
fn the_readmes_table_is_the_codes() {
    let lines: BTreeSet<&str> = README.lines().collect();
    let missing: Vec<String> = TABLE.iter().map(|metric| row(metric)).filter(|row| !lines.contains(&**row)).collect();
    assert!(missing.is_empty(), "these rows are not in README.md:\n{}", missing.join("\n"));
    let rows = README.lines().filter(|line| line.starts_with("| `sendslot_")).count();
    assert_eq!(rows, TABLE.len(), "README.md has rows that the code has not");
}

/// The value of the series with these labels, all of them; 0 when there is none.
pub(crate) fn series(text: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let wanted: BTreeSet<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    let mut found = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (series_name, rest) = series.split_once('{').unwrap_or((series, "}"));
        let own: BTreeSet<String> =
            rest.trim_end_matches('}').split(',').filter(|l| !l.is_empty()).map(str::to_owned).collect();
        (series_name == name && own == wanted).then(|| value.parse::<f64>().unwrap())
    });
    found.next().unwrap_or(0.0)
}

/// Answers as a send's ID says.
#[derive(Clone)]
struct Scripted;

impl Provider for Scripted {
    fn call_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn send(&self, send: &Outgoing) -> Outcome {
        match send.id.as_str() {
            "throttled" if send.attempt == 1 => Outcome::Throttled { retry_after: None, scope: Scope::Account },
            id if id.starts_with("blocking") => {
                std::thread::sleep(Duration::from_millis(80));
                Outcome::Sent { provider_id: None }
            }
            "rejected" => Outcome::Rejected { reason: "no".into() },
            _ => Outcome::Sent { provider_id: None },
        }
    }
}

struct Rig {
    redis: RedisServer,
    store: Store,
    scheduler: Scheduler,
    worker: Worker<Scripted>,
    gauges: Gauges,
    rendered: PrometheusHandle,
    queue: TestQueue,
}

const PLAIN: &str = "metrics-plain";

impl Rig {
    async fn start(rendered: PrometheusHandle) -> Self {
        let redis = RedisServer::start_durable().await.unwrap();
        let store = Store::new(&redis.url()).unwrap();
        let (queue, dead) = (TestQueue::create("metrics").await, TestQueue::create("metrics-dead").await);
        let policies = "metrics-plain/local=local:100".parse::<sendslot_worker::RedisPolicies>().unwrap();
        let builder: SchedulerBuilder = Scheduler::builder().store(store.clone()).sqs(queue.sqs.clone());
        let scheduler = builder.queue_url(&queue.url).redis_policies(policies.clone()).build().await.unwrap();
        let config = WorkerConfig {
            store: store.clone(),
            queue: Queue::new(queue.sqs.clone(), &queue.url).unwrap(),
            dead_letters: Queue::new(dead.sqs.clone(), &dead.url).unwrap(),
            timer: Timer::SQS,
            backoff: Backoff::default(),
            hold: Duration::from_secs(1),
            redis_policies: policies,
            policy_file: PolicyFile::default(),
            receipts: false,
        };
        let worker = Worker::new(config, Scripted);
        let gauges = Gauges::new(store.clone());
        let rig = Self { redis, store, scheduler, worker, gauges, rendered, queue };
        let lanes = ["local", "otp"].map(|name| Lane::new(LaneName::new(name).unwrap())).to_vec();
        rig.set(PLAIN, &Policy { lanes, ..per_second(100, 0.5) }).await;
        rig
    }

    async fn set(&self, name: &str, policy: &Policy) {
        budget::set(&self.store, &BudgetName::new(name).unwrap(), policy).await.unwrap();
    }

    /// Books a send and gives the body of its copy.
    async fn body(&self, message: Message) -> String {
        let draft = message.clone().check().unwrap();
        let booked = self.scheduler.reserve(message).await.unwrap();
        let at = booked.at().into();
        let now = SystemTime::now().into();
        Envelope { accepted: Some(now), ..Envelope::first(draft, booked.seq(), at) }.to_body().unwrap()
    }

    async fn handle(&self, body: &str) {
        self.handle_all(&[body.to_owned()]).await;
    }

    async fn handle_all(&self, bodies: &[String]) {
        let record = |(i, body)| serde_json::json!({ "messageId": format!("m{i}"), "body": body });
        let event = serde_json::json!({ "Records": bodies.iter().enumerate().map(record).collect::<Vec<_>>() });
        let event: SqsEvent = serde_json::from_value(event).unwrap();
        let answer = self.worker.handle(event, None).await.unwrap();
        assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
    }

    async fn send(&self, id: &str) {
        let body = self.body(Message::new(PLAIN, id, "x")).await;
        self.handle(&body).await;
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        series(&self.rendered.render(), name, labels)
    }

    fn plain(&self, name: &str) -> f64 {
        self.value(name, &[("budget", PLAIN), ("lane", "default")])
    }

    fn plain_by(&self, name: &str, label: &str, value: &str) -> f64 {
        self.value(name, &[("budget", PLAIN), ("lane", "default"), (label, value)])
    }

    fn budget(&self, name: &str, budget: &str) -> f64 {
        self.value(name, &[("budget", budget)])
    }
}

#[tokio::test]
async fn after_a_scenario_each_metric_is_there_with_a_right_value() {
    let recorder = sendslot_prometheus::recorder();
    let rig = Rig::start(recorder.handle()).await;
    // this test's tasks run on this thread alone
    let _recorder = ::metrics::set_default_local_recorder(&recorder);
    metrics::describe();

    // offers
    let sent = rig.scheduler.schedule(Message::new(PLAIN, "offered", "x")).await.unwrap();
    assert!(matches!(sent, Scheduled::Booked(_)));
    let past = SystemTime::now() - Duration::from_secs(1);
    rig.scheduler.schedule(Message::new(PLAIN, "late", "x").deadline(past)).await.unwrap_err();
    rig.scheduler.schedule(Message::new("metrics-none", "a", "x")).await.unwrap_err();
    rig.scheduler.schedule(Message::new(PLAIN, "lane", "x").lane("nobodys")).await.unwrap_err();
    rig.scheduler.schedule(Message::new(PLAIN, "cost", "x").cost(0)).await.unwrap_err();
    assert_eq!((rig.plain("sendslot_offered_total"), rig.plain("sendslot_admitted_total")), (2.0, 1.0));
    assert_eq!(rig.plain_by("sendslot_refused_total", "reason", "past_deadline"), 1.0);
    let unknown = |lane| [("budget", "unknown"), ("lane", lane)];
    assert_eq!(rig.value("sendslot_offered_total", &unknown("unknown")), 2.0, "no budget, and no message");
    let of_lane = [("budget", PLAIN), ("lane", "unknown"), ("reason", "unknown_lane")];
    assert_eq!(rig.value("sendslot_refused_total", &of_lane), 1.0);

    // sends
    for id in ["a", "b", "c"] {
        rig.send(id).await;
    }
    let deadline = SystemTime::now() + Duration::from_secs(60);
    let body = rig.body(Message::new(PLAIN, "deadline", "x").deadline(deadline)).await;
    rig.handle(&body).await;
    assert_eq!(rig.plain_by("sendslot_sends_total", "outcome", "sent"), 4.0);
    assert_eq!(rig.plain("sendslot_wait_seconds_count"), 4.0);
    // a claim that was given back on a busy machine was one more
    let given_back = rig.plain_by("sendslot_sends_total", "outcome", "not_started");
    let claims = |verdict| rig.plain_by("sendslot_lateness_seconds_count", "verdict", verdict);
    assert_eq!(claims("send") + claims("delayed"), 4.0 + given_back);
    assert_eq!(rig.plain("sendslot_call_delay_seconds_count"), 4.0 + given_back);
    let held_up = rig.plain("sendslot_call_delay_seconds_sum");
    assert!(
        held_up > 0.0 && (given_back > 0.0 || held_up < 4.0 * 0.05),
        "each was called within the jitter: {held_up}"
    );
    assert_eq!(rig.plain("sendslot_deadline_used_ratio_count"), 1.0);
    let used = rig.plain("sendslot_deadline_used_ratio_sum");
    assert!(used > 0.0 && used < 1.0, "{used}");
    let waited = rig.plain("sendslot_wait_seconds_sum");
    assert!((0.5..60.0).contains(&waited), "each waited for the transit of 250 ms: {waited}");
    rig.send("throttled").await;
    rig.send("rejected").await;
    assert_eq!(rig.plain_by("sendslot_sends_total", "outcome", "throttled"), 1.0);
    assert_eq!(rig.plain_by("sendslot_rebooked_total", "reason", "throttled"), 1.0);
    assert_eq!(rig.plain_by("sendslot_dead_letters_total", "reason", "rejected"), 1.0);
    rig.handle("no envelope").await;
    let malformed = [("budget", "unknown"), ("lane", "unknown"), ("reason", "malformed")];
    assert_eq!(rig.value("sendslot_dead_letters_total", &malformed), 1.0);

    // two claims in one answer, and the first one's provider holds up the other's call: it is given back, asked for again and made
    let give_up = Instant::now() + Duration::from_secs(60);
    for run in 0.. {
        let [before, made] =
            [("not_started", "sendslot_call_delay_seconds_count"), ("sent", "sendslot_call_delay_seconds_sum")]
                .map(|(outcome, name)| (rig.plain_by("sendslot_sends_total", "outcome", outcome), rig.plain(name)));
        let (held_up, mut bodies) = (format!("held-up{run}"), vec![]);
        for id in [format!("blocking{run}"), held_up.clone()] {
            bodies.push(rig.body(Message::new(PLAIN, id, "x")).await);
        }
        let last = Envelope::from_body(&bodies[1]).unwrap().at.unwrap().to_system_time();
        tokio::time::sleep(last.duration_since(SystemTime::now()).unwrap_or_default() + Duration::from_millis(20))
            .await;
        rig.handle_all(&bodies).await;
        if rig.plain_by("sendslot_sends_total", "outcome", "not_started") == before.0 {
            // late beyond the patience, on a busy machine: they were booked apart
            assert!(Instant::now() < give_up, "{}", rig.rendered.render());
            continue;
        }
        assert_eq!(rig.plain_by("sendslot_sends_total", "outcome", "sent"), made.0 + 2.0);
        assert!(
            rig.plain("sendslot_call_delay_seconds_count") >= before.1 + 3.0,
            "the claim that was given back is one"
        );
        assert!(rig.plain("sendslot_call_delay_seconds_sum") >= made.1 + 0.08);
        let send = rig.scheduler.status(PLAIN, &held_up).await.unwrap().unwrap();
        let kept = send.held_up.unwrap();
        assert!(kept >= Duration::from_millis(80), "{kept:?}: the longest of its claims'");
        break;
    }

    // a wait that no worker sits out, a pause, a slot that is missed
    let ahead = SystemTime::now() + Duration::from_secs(30);
    let body = rig.body(Message::new(PLAIN, "ahead", "x").not_before(ahead)).await;
    rig.handle(&body).await;
    assert_eq!(rig.plain_by("sendslot_hops_total", "reason", "timer"), 1.0);
    rig.set("metrics-paused", &per_second(100, 0.9)).await;
    // those at the head of a pause would stay with the worker
    for i in 0..100 {
        rig.body(Message::new("metrics-paused", format!("first{i}"), "x")).await;
    }
    let paused = rig.body(Message::new("metrics-paused", "paused", "x")).await;
    let name = BudgetName::new("metrics-paused").unwrap();
    budget::pause(&rig.store, &name, Some(Duration::from_secs(60))).await.unwrap();
    rig.handle(&paused).await;
    let of_paused = [("budget", "metrics-paused"), ("lane", "default"), ("reason", "paused")];
    assert_eq!(rig.value("sendslot_hops_total", &of_paused), 1.0);
    rig.set("metrics-late", &per_second(10, 0.9)).await;
    let mut late = vec![];
    for id in ["late1", "late2", "late3"] {
        late.push(rig.body(Message::new("metrics-late", id, "x")).await);
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;
    rig.handle_all(&late).await;
    let of_late = [("budget", "metrics-late"), ("lane", "default")];
    let missed = rig.value("sendslot_rebooked_total", &[&of_late[..], &[("reason", "missed")]].concat());
    assert!(missed >= 1.0, "one goes where capacity lies idle, the others have no slot");
    // they may not send, and their lateness is there all the same
    let by_verdict = |part, verdict| {
        let of = [&of_late[..], &[("verdict", verdict)]].concat();
        rig.value(&format!("sendslot_lateness_seconds_{part}"), &of)
    };
    assert_eq!(by_verdict("count", "rebooked"), missed);
    let by = by_verdict("sum", "rebooked") / missed;
    assert!((0.25..60.0).contains(&by), "{by}");

    // gauges, from Redis: 600 sends of 50 a second, of which nobody sends any
    rig.set("metrics-idle", &Policy { limit: 100, ..per_second(100, 0.5) }).await;
    let backlog = (0..600).map(|i| Message::new("metrics-idle", format!("i{i}"), "x"));
    let drafts: Vec<_> = backlog.map(|message| message.check().unwrap()).collect();
    for some in drafts.chunks(300) {
        sendslot_shared::reserve::reserve(&rig.store, &some[0].budget, &some.iter().collect::<Vec<_>>()).await.unwrap();
    }
    rig.gauges.refresh().await;
    let of_idle = |lane| rig.value("sendslot_booked_horizon_seconds", &[("budget", "metrics-idle"), ("lane", lane)]);
    assert!((9.0..13.0).contains(&of_idle("default")), "{}", of_idle("default"));
    let otp = rig.value("sendslot_booked_horizon_seconds", &[("budget", PLAIN), ("lane", "otp")]);
    assert!((0.2..60.0).contains(&otp), "{otp}");
    let jitters = [PLAIN, "metrics-late"].map(|budget| rig.budget("sendslot_jitter_seconds", budget));
    assert_eq!(jitters, [0.05, 0.05], "0.6 of what the headroom buys, 50 ms at most");
    assert_eq!(
        (rig.budget("sendslot_paused", "metrics-paused"), rig.budget("sendslot_paused", "metrics-idle")),
        (1.0, 0.0)
    );
    assert_eq!(rig.value("sendslot_redis_up", &[]), 1.0);
    // until so much of it lies behind that calls would be settled
    let give_up = Instant::now() + Duration::from_secs(60);
    while rig.budget("sendslot_unused_ratio", "metrics-idle") < 1.0 {
        assert!(Instant::now() < give_up, "{}", rig.rendered.render());
        tokio::time::sleep(Duration::from_millis(500)).await;
        rig.gauges.refresh().await;
    }
    assert!(rig.budget("sendslot_overdue_seconds", "metrics-idle") > 10.0);
    assert_eq!(rig.budget("sendslot_utilisation_ratio", "metrics-idle"), 0.0);
    assert!(rig.budget("sendslot_utilisation_ratio", PLAIN) > 0.0, "five were called");
    assert_eq!(rig.budget("sendslot_unused_ratio", PLAIN), 0.0, "nobody waited for the rate");

    // a budget without a policy is held, with the alarm, until it has one
    let draft = Message::new("metrics-ghost", "g", "x").check().unwrap();
    let ghost = Envelope::unbooked(draft).to_body().unwrap();
    rig.handle(&ghost).await;
    let of_ghost = [("budget", "metrics-ghost"), ("lane", "default")];
    let held = [&of_ghost[..], &[("reason", "no_policy")]].concat();
    assert_eq!(rig.value("sendslot_held_total", &held), 1.0);
    assert_eq!(rig.value("sendslot_redis_policy_state", &of_ghost), 1.0);
    assert_eq!(rig.worker.counters().held, 1, "fed from the same place");
    rig.set("metrics-ghost", &per_second(100, 0.9)).await;
    rig.handle(&ghost).await;
    assert_eq!(rig.value("sendslot_redis_policy_state", &of_ghost), 0.0);

    // a webhook call that nobody can read
    let mapper = Mapper::new(rig.store.clone(), rig.queue.sqs.clone(), &rig.queue.dlq_url, Arc::default());
    let call = rig.queue.sqs.send_message().queue_url(&rig.queue.dlq_url).message_body("no receipt");
    call.send().await.unwrap();
    let of_nobody = [("provider", "unknown"), ("outcome", "unreadable")];
    let give_up = Instant::now() + Duration::from_secs(60);
    while rig.value("sendslot_receipts_total", &of_nobody) == 0.0 {
        assert!(Instant::now() < give_up);
        mapper.once(Duration::from_secs(2)).await.unwrap();
    }

    // Redis is away
    let (held, local) = (rig.body(Message::new("metrics-ghost", "held", "x")).await, LaneName::new("local").unwrap());
    let local = rig.body(Message::new(PLAIN, "local", "x").lane(local.as_str())).await;
    let mut rig = rig;
    rig.redis.kill();
    rig.handle(&held).await;
    rig.handle(&local).await;
    let by_redis = [&of_ghost[..], &[("reason", "redis")]].concat();
    assert_eq!(rig.value("sendslot_held_total", &by_redis), 1.0);
    let of_local = [("budget", PLAIN), ("lane", "local")];
    assert_eq!(rig.value("sendslot_sent_locally_total", &of_local), 1.0);
    assert_eq!(rig.value("sendslot_redis_policy_state", &of_local), 2.0);
    let unbooked = rig.scheduler.schedule(Message::new(PLAIN, "unbooked", "x")).await.unwrap();
    assert!(matches!(unbooked, Scheduled::Unbooked { .. }));
    assert_eq!(rig.plain("sendslot_unbooked_total"), 1.0);
    assert!(rig.budget("sendslot_redis_unavailable_total", PLAIN) >= 2.0);
    assert!(rig.scheduler.status(PLAIN, "any").await.is_err());
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.gauges.refresh().await;
    assert_eq!(rig.value("sendslot_redis_up", &[]), 0.0);
    // and SQS too
    rig.queue.sqs.delete_queue().queue_url(&rig.queue.url).send().await.unwrap();
    rig.scheduler.schedule(Message::new(PLAIN, "nowhere", "x")).await.unwrap_err();
    assert_eq!(rig.plain_by("sendslot_failed_total", "server", "sqs"), 1.0);

    let text = rig.rendered.render();
    for metric in TABLE {
        assert!(text.contains(&format!("# HELP {} {}", metric.name, metric.meaning)), "{}", metric.name);
        let shown = |line: &str| {
            line.starts_with(metric.name) && metric.labels.iter().all(|label| line.contains(&format!("{label}=\"")))
        };
        assert!(text.lines().any(shown), "{} with {:?}", metric.name, metric.labels);
    }
}

#[tokio::test]
async fn a_lambda_function_writes_its_metrics_at_the_end_of_each_invocation() {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = lines.clone();
    let log = WorkerLog::Lines(Arc::new(move |_, line| sink.lock().unwrap().push(line.to_owned())));
    let worker = env!("CARGO_BIN_EXE_sendslot-worker-under-test");
    let pipeline = Pipeline::start(localstack().await, worker, Setup { log, ..Setup::new("metrics-emf") }).await;
    let ids = pipeline.schedule(25).await;
    pipeline.ended(&ids, Duration::from_secs(60)).await;
    pipeline.drained(Duration::from_secs(60)).await;
    let total = |name: &str| {
        let (mut sum, mut values) = (0.0, 0);
        for line in lines.lock().unwrap().iter().filter(|line| line.starts_with("{\"_aws\"")) {
            let document: Value = serde_json::from_str(line).unwrap();
            let of = &document["_aws"]["CloudWatchMetrics"][0];
            assert_eq!(of["Namespace"], "Sendslot");
            let labels: BTreeMap<String, Value> = serde_json::from_value(document.clone()).unwrap();
            for name in of["Dimensions"].as_array().unwrap().iter().flat_map(|set| set.as_array().unwrap()) {
                assert!(labels[name.as_str().unwrap()].is_string(), "{line}");
            }
            match &document[name] {
                Value::Number(n) => (sum, values) = (sum + n.as_f64().unwrap(), values + 1),
                Value::Array(many) => {
                    (sum, values) = (sum + many.iter().map(|n| n.as_f64().unwrap()).sum::<f64>(), values + many.len());
                }
                _ => {}
            }
        }
        (sum, values)
    };
    // the last invocation's lines come with its end
    let give_up = Instant::now() + Duration::from_secs(30);
    while total("sendslot_sends_total").0 < 25.0 {
        assert!(Instant::now() < give_up, "{:?}", lines.lock().unwrap());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(total("sendslot_sends_total").0, 25.0);
    assert_eq!(total("sendslot_wait_seconds").1, 25);
    for name in ["sendslot_lateness_seconds", "sendslot_call_delay_seconds"] {
        assert!(total(name).1 >= 25, "{name}");
    }
    pipeline.stop().await;
}
