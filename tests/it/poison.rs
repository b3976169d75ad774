//! What no scheduler would put on a queue, and more than is comfortable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

use futures_util::{StreamExt as _, stream};
use sendslot_localstack::event_source::WorkerLog;
use sendslot_localstack::provider::{Arrival, Body, max_units_in_rolling_window};
use sendslot_scheduler::{Message, ScheduleError, Scheduled, Scheduler, SendState};
use sendslot_shared::envelope::{Envelope, MAX_BODY_BYTES};
use sendslot_tests::pipeline::{Pipeline, Setup};
use sendslot_tests::queues::{TestQueue, localstack};
use sendslot_tests::{Bench, per_second};
use serde_json::{Value, json};

const WORKER: &str = env!("CARGO_BIN_EXE_sendslot-worker-under-test");
const SECOND: Duration = Duration::from_secs(1);

/// The body of a copy that was never booked, as JSON.
fn body_of(message: Message) -> Value {
    let envelope = Envelope::unbooked(message.check().unwrap());
    serde_json::from_str(&envelope.to_body().unwrap()).unwrap()
}

/// A good body with these fields set otherwise; null takes one out.
fn edited(id: &str, changes: Value) -> String {
    let mut body = body_of(Message::new("poison", id, format!("payload of {id}")));
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => body.as_object_mut().unwrap().remove(name),
            value => body.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    body.to_string()
}

/// Bodies that are no envelopes, whatever a hand did to them.
fn malformed() -> Vec<String> {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let mut bodies = vec!["payload".to_owned(), "{".to_owned(), "\"{}\"".to_owned(), nested(500_000)];
    // as large as a message can be: there is no room for attributes beside it
    bodies.push("x".repeat(MAX_BODY_BYTES));
    let changes = [
        json!({ "seq": -1 }),
        json!({ "seq": 65_536 }),
        json!({ "seq": 1.5 }),
        json!({ "seq": "1" }),
        json!({ "seq": 1e30 }),
        json!({ "tag": 0 }),
        json!({ "cost": 0 }),
        json!({ "cost": -3 }),
        json!({ "cost": 1_u64 << 40 }),
        json!({ "cost": 2 }),
        json!({ "at_us": -1 }),
        json!({ "at_us": 1e300 }),
        json!({ "deadline_us": -1 }),
        json!({ "deadline_us": 1 }),
        json!({ "not_before_us": "soon" }),
        json!({ "text": 7 }),
        json!({ "text": "another payload" }),
        json!({ "base64": "AAAA" }),
        json!({ "text": null, "base64": "%%%" }),
        json!({ "text": null }),
        json!({ "digest": "" }),
        json!({ "digest": "zz" }),
        json!({ "digest": null }),
        json!({ "recipient": "0123456789abcdef" }),
        json!({ "lane": "other" }),
        json!({ "lane": "A lane" }),
        json!({ "budget": "../{poison}" }),
        json!({ "budget": null }),
        json!({ "id": "" }),
        json!({ "id": "x".repeat(257) }),
        json!({ "id": { "deep": [] } }),
        json!({ "v": 2 }),
        json!({ "v": null }),
        json!({ "report": { "nonce": -1, "ending": "sent" } }),
        json!({ "report": { "nonce": 1, "ending": "exploded" } }),
        json!({ "report": "sent" }),
    ];
    bodies.extend(changes.iter().enumerate().map(|(i, change)| edited(&format!("bad{i}"), change.clone())));
    bodies
}

/// Envelopes with strange values, and the reason of their dead letters; empty: each is sent once.
fn strange() -> Vec<(&'static str, String, &'static str)> {
    let now_us = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64;
    let nested = format!("{{\"new\":{}{},", "[".repeat(10_000), "]".repeat(10_000));
    let deep = edited("deep", json!({})).replacen('{', &nested, 1);
    let of = |id: &str, change: fn(Message) -> Message| {
        body_of(change(Message::new("poison", id, format!("payload of {id}")))).to_string()
    };
    vec![
        ("seq-0", edited("seq-0", json!({})), ""),
        ("slot-0", edited("slot-0", json!({ "at_us": 0, "seq": 1 })), ""),
        ("slot-ahead", edited("slot-ahead", json!({ "at_us": u64::MAX, "seq": 3 })), ""),
        ("slot-2255", edited("slot-2255", json!({ "at_us": 1_u64 << 53, "seq": 3 })), ""),
        ("slot-now", edited("slot-now", json!({ "at_us": now_us, "seq": 9 })), ""),
        ("deep", deep, ""),
        ("new-fields", edited("new-fields", json!({ "new": [{ "x": -1e9 }], "": "" })), ""),
        ("slot-1970", edited("slot-1970", json!({ "at_us": 1, "seq": 1 })), "unknown_history"),
        ("slot-old", edited("slot-old", json!({ "at_us": now_us - 90_000_000_000, "seq": 1 })), "unknown_history"),
        ("seq-max", edited("seq-max", json!({ "seq": 65_535, "at_us": now_us })), "attempts"),
        ("expired", of("expired", |m| m.deadline(SystemTime::UNIX_EPOCH + SECOND)), "expired"),
        ("cost", of("cost", |m| m.cost(10_000_000)), "cost"),
        ("far", of("far", |m| m.not_before(SystemTime::now() + Duration::from_secs(15 * 86_400))), "too_far"),
        (
            "too-far",
            of("too-far", |m| m.not_before(SystemTime::now() + Duration::from_secs(200 * 365 * 86_400))),
            "too_far",
        ),
        ("lane", of("lane", |m| m.lane("unknown")), ""),
    ]
}

#[tokio::test]
async fn bodies_edited_by_hand_are_sent_once_or_dead_lettered_once_and_stop_nobody() {
    let log = Arc::new(std::sync::Mutex::new(vec![]));
    let sink = log.clone();
    let sink = WorkerLog::Lines(Arc::new(move |_, line| sink.lock().unwrap().push(line.to_owned())));
    let environment = vec![("AWS_LAMBDA_LOG_LEVEL".to_owned(), "debug".to_owned())];
    let setup = Setup { log: sink, environment, max_environments: 4, ..Setup::new("poison") };
    let pipeline = Pipeline::start(localstack().await, WORKER, setup).await;
    let (malformed, strange) = (malformed(), strange());
    let mut bodies: Vec<String> = malformed.iter().cloned().chain(strange.iter().map(|(_, b, _)| b.clone())).collect();
    // good ones in between
    for i in 0..10 {
        bodies.insert(i * 4, edited(&format!("good{i}"), json!({})));
    }
    for body in &bodies {
        let request = pipeline.sqs.send_message().queue_url(&pipeline.queues.queue_url).message_body(body);
        request.send().await.unwrap();
    }
    let dead: Vec<(&str, &str)> = strange.iter().filter(|s| !s.2.is_empty()).map(|s| (s.0, s.2)).collect();
    let letters = pipeline.dead_letters(malformed.len() + dead.len()).await;
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for letter in &letters {
        by_reason.entry(&letter.reason).or_default().push(if letter.reason == "malformed" { "" } else { &letter.id });
    }
    assert_eq!(by_reason.remove("").map(|whole| whole.len()), Some(1), "the one that leaves no room");
    assert_eq!(by_reason.remove("malformed").map(|bad| bad.len()), Some(malformed.len() - 1));
    let mut told: Vec<(&str, &str)> =
        by_reason.into_iter().flat_map(|(reason, ids)| ids.into_iter().map(move |id| (id, reason))).collect();
    let mut expected = dead;
    told.sort_unstable();
    expected.sort_unstable();
    assert_eq!(told, expected);
    let mut ids: Vec<String> = (0..10).map(|i| format!("good{i}")).collect();
    ids.extend(strange.iter().filter(|s| s.2.is_empty()).map(|s| s.0.to_owned()));
    ended(&pipeline, &ids).await;
    let receives: Vec<String> = log.lock().unwrap().iter().filter(|line| line.contains("received")).cloned().collect();
    assert!(receives.iter().all(|line| line.contains("receives=\"1\"")), "{receives:?}");
    each_once(&pipeline.stop().await, &ids);
}

/// Waits until each of these is recorded as sent.
async fn ended(pipeline: &Pipeline, ids: &[String]) {
    let give_up = Instant::now() + Duration::from_secs(120);
    for id in ids {
        loop {
            let status = pipeline.scheduler.status(pipeline.budget, id).await.unwrap();
            if status.as_ref().is_some_and(|send| send.state == SendState::Sent) {
                break;
            }
            assert!(Instant::now() < give_up, "{id}: {status:?}; {:?}", pipeline.source.last_log_lines());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn each_once(arrivals: &[Arrival], ids: &[String]) {
    let mut seen: Vec<&str> = arrivals.iter().filter(|a| a.accepted).map(|a| &*a.send_id).collect();
    let mut ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    seen.sort_unstable();
    ids.sort_unstable();
    assert_eq!(seen, ids);
    let units: Vec<_> = arrivals.iter().map(|a| (a.at_us, a.units)).collect();
    assert!(max_units_in_rolling_window(&units, SECOND) <= 100);
}

#[tokio::test]
async fn the_largest_payload_goes_through_and_one_byte_more_is_refused_before_it_is_booked() {
    let pipeline = Pipeline::start(localstack().await, WORKER, Setup::new("poison-large")).await;
    let (scheduler, budget) = (&pipeline.scheduler, pipeline.budget);
    let mut sizes = vec![];
    // text, and bytes that travel as base64
    for (id, filler) in [("text", b'x'), ("bytes", 0xff)] {
        let message = |n: usize| Message::new(budget, id, vec![filler; n]);
        // near enough that what is kept free for a worker's report is counted
        let near = if filler == b'x' { MAX_BODY_BYTES - 4096 } else { (MAX_BODY_BYTES - 4096) / 4 * 3 };
        let much = scheduler.schedule(message(near)).await;
        let Err(ScheduleError::TooLarge(error)) = much else { panic!("{much:?}") };
        let over = error.bytes - MAX_BODY_BYTES;
        let mut n = near - if filler == b'x' { over } else { over / 4 * 3 } + 8;
        let booked = loop {
            match scheduler.schedule(message(n)).await {
                Err(ScheduleError::TooLarge(error)) => {
                    assert!(error.bytes <= MAX_BODY_BYTES + 16, "{error}");
                    assert_eq!(scheduler.status(budget, id).await.unwrap(), None, "nothing was booked");
                    n -= 1;
                }
                accepted => break accepted,
            }
        };
        assert!(matches!(booked, Ok(Scheduled::Booked(_))), "{booked:?}");
        assert!(
            n > MAX_BODY_BYTES / 2
                && matches!(scheduler.schedule(message(n + 1)).await, Err(ScheduleError::TooLarge(_)))
        );
        sizes.push((id.to_owned(), Body::Length(n)));
    }
    ended(&pipeline, &sizes.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>()).await;
    let mut arrived: Vec<(String, Body)> =
        pipeline.stop().await.into_iter().map(|a| (a.send_id.to_string(), a.body)).collect();
    arrived.sort_by(|a, b| b.0.cmp(&a.0));
    assert_eq!(arrived, sizes);
}

#[tokio::test]
async fn a_stream_is_scheduled_in_order_and_never_read_far_ahead() {
    let (bench, queue) = (Bench::start().await, TestQueue::create("poison-many").await);
    bench.policy(&per_second(10_000, 0.9)).await;
    let builder = Scheduler::builder().store(bench.store.clone()).sqs(queue.sqs.clone()).queue_url(&queue.url);
    let scheduler = builder.build().await.unwrap();
    let read = Arc::new(AtomicUsize::new(0));
    let counter = read.clone();
    let messages = stream::iter((0..4000).map(move |i| {
        counter.fetch_add(1, SeqCst);
        Message::new("b", format!("m{i}"), "payload")
    }));
    let mut results = std::pin::pin!(scheduler.schedule_all(messages));
    let (mut slots, mut ahead) = (vec![], 0);
    while let Some(result) = results.next().await {
        slots.push(result.unwrap().booked().unwrap().slot());
        ahead = ahead.max(read.load(SeqCst) - slots.len());
    }
    assert_eq!(slots.len(), 4000);
    assert!(slots.is_sorted_by(|a, b| a < b), "one place each, in the order given");
    assert!(ahead <= 700, "{ahead} messages were in memory");
    assert_eq!(queue.len().await, 4000);
}

/// Schedules 100 at once for workers of which so many run at a time.
async fn with_concurrency(name: &'static str, environments: usize, batch_size: usize) {
    let setup = Setup { max_environments: environments, batch_size, ..Setup::new(name) };
    let pipeline = Pipeline::start(localstack().await, WORKER, setup).await;
    let ids: Vec<String> = (0..100).map(|i| format!("m{i:03}")).collect();
    let messages: Vec<Message> = ids.iter().map(|id| pipeline.message(id)).collect();
    let results: Vec<_> = pipeline.scheduler.schedule_all(stream::iter(messages)).collect().await;
    assert!(results.iter().all(Result::is_ok));
    ended(&pipeline, &ids).await;
    let stats = pipeline.source.stats();
    assert!(stats.environments_peak <= environments, "{stats:?}");
    each_once(&pipeline.stop().await, &ids);
}

#[tokio::test]
async fn with_two_workers_sends_come_late_and_within_the_limit() {
    with_concurrency("poison-two", 2, 10).await;
}

#[tokio::test]
async fn with_a_hundred_workers_each_send_is_made_once() {
    with_concurrency("poison-hundred", 100, 1).await;
}
