//! The SQS side: batches, refusals between good messages, SQS down, strange IDs and payloads.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::{StreamExt as _, stream};
use sendslot_scheduler::{
    Booked, ConfigError, InvalidMessage, Message, QueueError, Refusal, ScheduleError, Scheduled, Scheduler,
};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::SendId;
use sendslot_shared::status;
use sendslot_tests::proxy::Proxy;
use sendslot_tests::queues::{TestQueue, localstack};
use sendslot_tests::{Bench, per_second};
use serde_json::{Value, json};

/// A scheduler on a virtual clock that stands, so that no slot passes during a test; 80 sends a second.
async fn scheduler(bench: &Bench, queue: &TestQueue) -> Scheduler {
    bench.policy(&per_second(100, 0.8)).await;
    scheduler_with(bench, queue.sqs.clone(), &queue.url).await
}

async fn scheduler_with(bench: &Bench, sqs: Client, url: &str) -> Scheduler {
    let builder = Scheduler::builder().store(bench.store.clone()).sqs(sqs).queue_url(url);
    builder.build().await.expect("Redis and SQS are there")
}

async fn schedule_all(scheduler: &Scheduler, messages: Vec<Message>) -> Vec<Result<Booked, ScheduleError>> {
    let booked = |scheduled: Scheduled| scheduled.booked().expect("Redis is there");
    scheduler.schedule_all(stream::iter(messages)).map(|result| result.map(booked)).collect().await
}

async fn schedule(scheduler: &Scheduler, message: Message) -> Booked {
    scheduler.schedule(message).await.unwrap().booked().expect("Redis is there")
}

fn message(id: impl Into<String>) -> Message {
    Message::new("b", id, "payload")
}

/// The client of a test queue, led to another port.
fn at_port(sqs: &Client, port: u16) -> Client {
    let config = sqs.config().to_builder().endpoint_url(format!("http://127.0.0.1:{port}"));
    Client::from_conf(config.build())
}

/// A small SQS that answers each batch and each single send as it is told, and keeps what it was asked.
struct FakeSqs {
    url: String,
    sqs: Client,
    asked: Asked,
}

/// The actions, with the send IDs of their messages.
type Asked = Arc<Mutex<Vec<(String, Vec<String>)>>>;
type Answer = fn(&str, &[String]) -> (StatusCode, Value);

impl FakeSqs {
    async fn start(answer: Answer) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Asked::default();
        let app = Router::new().route("/", post(answer_sqs)).with_state((asked.clone(), answer));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let sqs = at_port(&localstack().await.sqs(), port);
        Self { url: format!("http://127.0.0.1:{port}/000000000000/fake"), sqs, asked }
    }

    /// Everything but the look at start.
    fn asked(&self) -> Vec<(String, Vec<String>)> {
        let asked = self.asked.lock().expect("no panic");
        asked.iter().filter(|(action, _)| action != "GetQueueAttributes").cloned().collect()
    }
}

/// AWS JSON 1.0.
async fn answer_sqs(State((asked, answer)): State<(Asked, Answer)>, headers: HeaderMap, body: String) -> Response {
    let target = headers["x-amz-target"].to_str().expect("ASCII");
    let action = target.strip_prefix("AmazonSQS.").expect("SQS").to_owned();
    let request: Value = serde_json::from_str(&body).expect("JSON");
    let id =
        |body: &Value| Envelope::from_body(body.as_str().expect("text")).expect("an envelope").draft.id.to_string();
    let ids: Vec<String> = match action.as_str() {
        "SendMessageBatch" => {
            request["Entries"].as_array().expect("entries").iter().map(|e| id(&e["MessageBody"])).collect()
        }
        "SendMessage" => vec![id(&request["MessageBody"])],
        _ => vec![],
    };
    let (status, reply) = match action.as_str() {
        "GetQueueAttributes" => {
            (StatusCode::OK, json!({ "Attributes": { "QueueArn": "arn:aws:sqs:us-east-1:0:fake" } }))
        }
        action => answer(action, &ids),
    };
    asked.lock().expect("no panic").push((action, ids));
    (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.0")], reply.to_string()).into_response()
}

const TAKEN: &str = r#"{ "MessageId": "m", "MD5OfMessageBody": "0" }"#;

fn taken() -> (StatusCode, Value) {
    (StatusCode::OK, serde_json::from_str(TAKEN).expect("JSON"))
}

fn refused(code: &str) -> (StatusCode, Value) {
    (StatusCode::BAD_REQUEST, json!({ "__type": format!("com.amazonaws.sqs#{code}"), "message": "no" }))
}

/// 200 with Successful [0, 2] and Failed [1]; entry 3 is in neither list.
fn some_of_four() -> (StatusCode, Value) {
    let taken = |id| json!({ "Id": id, "MessageId": "m", "MD5OfMessageBody": "0" });
    let failed = json!({ "Id": "1", "SenderFault": true, "Code": "InvalidMessageContents", "Message": "no" });
    (StatusCode::OK, json!({ "Successful": [taken("0"), taken("2")], "Failed": [failed] }))
}

fn asked(action: &str, ids: &[&str]) -> (String, Vec<String>) {
    (action.to_owned(), ids.iter().map(ToString::to_string).collect())
}

/// What was asked, without an order among single sends.
fn sorted(mut asked: Vec<(String, Vec<String>)>) -> Vec<(String, Vec<String>)> {
    asked.sort_by_key(|(action, ids)| (action == "SendMessage", ids.clone()));
    asked
}

#[tokio::test]
async fn a_thousand_messages_come_back_in_order_and_stand_on_the_queue() {
    let (bench, queue) = (Bench::start().await, TestQueue::create("q-thousand").await);
    let scheduler = scheduler(&bench, &queue).await;
    let results = schedule_all(&scheduler, (0..1000).map(|i| message(format!("m{i}"))).collect()).await;
    assert_eq!(results.len(), 1000);
    let ids: Vec<SendId> = (0..1000).map(|i| SendId::new(format!("m{i}")).unwrap()).collect();
    let known = status::status_all(&bench.store, &bench.budget, &ids.iter().collect::<Vec<_>>()).await.unwrap();
    let slots: Vec<_> = results.iter().map(|result| result.as_ref().unwrap().slot()).collect();
    assert_eq!(slots, known.iter().map(|send| send.as_ref().unwrap().slot).collect::<Vec<_>>());
    assert_eq!(slots.iter().collect::<HashSet<_>>().len(), 1000, "no slot twice");
    assert!(slots.is_sorted(), "B10: the order inside a lane is arrival order");
    assert_eq!(queue.len().await, 1000);
}

#[tokio::test]
async fn counters_tell_what_was_booked_and_enqueued() {
    let (bench, queue) = (Bench::start().await, TestQueue::create("q-counters").await);
    let scheduler = scheduler(&bench, &queue).await;
    let mut messages: Vec<Message> = (0..25).map(|i| message(format!("m{i}"))).collect();
    messages.push(message("refused").cost(101));
    schedule_all(&scheduler, messages).await;
    scheduler.schedule(message("single")).await.unwrap();
    scheduler.reserve(message("booked only")).await.unwrap();
    let counters = scheduler.counters();
    assert_eq!((counters.booked, counters.reserve_calls), (27, 3));
    assert_eq!((counters.enqueued, counters.enqueue_calls), (26, 4));
    assert!(counters.reserve_time > Duration::ZERO && counters.enqueue_time > Duration::ZERO);
}

#[tokio::test]
async fn refused_messages_keep_their_places_among_good_ones() {
    // F3, support-service-lambdas#660
    let (bench, queue) = (Bench::start().await, TestQueue::create("q-places").await);
    let scheduler = scheduler(&bench, &queue).await;
    scheduler.reserve(message("m407").cost(2)).await.unwrap();
    let of = |i: usize| match i % 100 {
        3 => message(format!("m{i}")).cost(0),
        4 => Message::new("nobody", format!("m{i}"), "payload"),
        5 => message(format!("m{i}")).cost(101),
        6 => Message::new("b", format!("m{i}"), vec![b'x'; 1 << 20]),
        7 => message(format!("m{}", i / 100 * 100)).cost(2),
        8 => message("é".repeat(129)),
        _ => message(format!("m{i}")),
    };
    let results = schedule_all(&scheduler, (0..1000).map(of).collect()).await;
    assert_eq!(results.len(), 1000);
    for (i, result) in results.iter().enumerate() {
        let as_expected = match (i % 100, result) {
            (3, Err(ScheduleError::Invalid(InvalidMessage::ZeroCost))) => true,
            (4, Err(ScheduleError::Refused(Refusal::UnknownBudget))) => true,
            (5, Err(ScheduleError::Refused(Refusal::CostTooLarge { max_cost: 100 }))) => true,
            (6, Err(ScheduleError::TooLarge(e))) => e.bytes > 1 << 20,
            (7, Err(ScheduleError::Refused(Refusal::Conflict))) => true,
            (8, Err(ScheduleError::Invalid(InvalidMessage::Name(_)))) => true,
            (place, Ok(_)) => !(3..=8).contains(&place),
            _ => false,
        };
        assert!(as_expected, "{i}: {result:?}");
    }
    assert_eq!(queue.len().await, 940);
    assert_eq!(bench.keys("s{*}r:*").await.len(), 941);
}

#[tokio::test]
async fn what_is_booked_while_sqs_is_down_is_enqueued_at_the_same_slot_later() {
    // F2, twenty#22895
    let (bench, queue) = (Bench::start().await, TestQueue::create("q-down").await);
    let good = scheduler(&bench, &queue).await;
    let endpoint = localstack().await.endpoint_url();
    let proxy = Proxy::to(endpoint.rsplit_once(':').unwrap().1.parse().unwrap()).await;
    let bad = scheduler_with(&bench, at_port(&queue.sqs, proxy.port()), &queue.url).await;
    proxy.close().await;
    let error = bad.schedule(message("one")).await.unwrap_err();
    assert!(matches!(error, ScheduleError::Queue(QueueError::Unreachable { .. })), "{error}");
    assert!(error.to_string().contains("same ID"), "{error}");
    let many = || (0..3).map(|i| message(format!("many{i}"))).collect();
    let results = schedule_all(&bad, many()).await;
    assert!(results.len() == 3 && results.iter().all(|r| matches!(r, Err(ScheduleError::Queue(_)))), "{results:?}");
    assert_eq!((bench.keys("*r:*").await.len(), queue.len().await), (4, 0));
    let kept = good.status("b", "one").await.unwrap().unwrap();
    let again = schedule(&good, message("one")).await;
    assert_eq!((again.slot(), again.seq(), again.was_booked()), (kept.slot, 1, true));
    assert!(schedule_all(&good, many()).await.iter().all(|r| r.as_ref().is_ok_and(Booked::was_booked)));
    assert_eq!((bench.keys("*r:*").await.len(), queue.len().await), (4, 4));
}

#[tokio::test]
async fn entries_that_a_batch_did_not_take_are_sent_again_on_their_own() {
    // Q5, aws-sdk-cpp#960
    let bench = Bench::start().await;
    bench.policy(&per_second(100, 0.8)).await;
    let fake = FakeSqs::start(|action, _| if action == "SendMessageBatch" { some_of_four() } else { taken() }).await;
    let scheduler = scheduler_with(&bench, fake.sqs.clone(), &fake.url).await;
    let results = schedule_all(&scheduler, ["m0", "m1", "m2", "m3"].map(message).into()).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let expected = [
        asked("SendMessageBatch", &["m0", "m1", "m2", "m3"]),
        asked("SendMessage", &["m1"]),
        asked("SendMessage", &["m3"]),
    ];
    assert_eq!(sorted(fake.asked()), expected);
}

#[tokio::test]
async fn one_bad_entry_fails_alone() {
    // Q6, localstack#4135
    let bench = Bench::start().await;
    bench.policy(&per_second(100, 0.8)).await;
    let fake = FakeSqs::start(|_, ids| match ids {
        [id] if id != "m1" => taken(),
        [_] => refused("InvalidMessageContents"),
        _ => refused("BatchRequestTooLong"),
    })
    .await;
    let scheduler = scheduler_with(&bench, fake.sqs.clone(), &fake.url).await;
    let results = schedule_all(&scheduler, ["m0", "m1", "m2", "m3"].map(message).into()).await;
    let taken: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(taken, [true, false, true, true]);
    let refused = matches!(&results[1], Err(ScheduleError::Queue(QueueError::Refused { code, .. })) if code.contains("InvalidMessageContents"));
    assert!(refused, "{results:?}");
    assert_eq!(fake.asked().len(), 5);
}

#[tokio::test]
async fn bodies_too_large_for_one_batch_go_in_two() {
    // Q6: 2 x 600,000 bytes
    let (bench, queue) = (Bench::start().await, TestQueue::create("q-large").await);
    let scheduler = scheduler(&bench, &queue).await;
    let sized = |id: &str, bytes| Message::new("b", id, vec![b'x'; bytes]);
    let messages = vec![sized("a", 1), sized("b", 600_000), sized("c", 600_000), sized("d", 1)];
    let results = schedule_all(&scheduler, messages).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let sizes: Vec<usize> = queue.receive(4).await.iter().map(|copy| copy.draft.payload.len()).collect();
    assert_eq!(sizes, [1, 600_000, 600_000, 1]);
}

#[tokio::test]
async fn send_ids_that_are_no_entry_ids_arrive_unchanged() {
    // Q7, NServiceBus.AmazonSQS#303
    let (bench, queue) = (Bench::start().await, TestQueue::create("q-ids").await);
    let scheduler = scheduler(&bench, &queue).await;
    let mut ids = ["order/42:a", "a b{c}", "\u{0}\n", "é😎", "12345678901234567"].map(str::to_owned).to_vec();
    ids.extend(["x".repeat(81), "y".repeat(256)]);
    let results = schedule_all(&scheduler, ids.iter().map(message).collect()).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    ids.sort();
    let received: Vec<String> = queue.receive(7).await.iter().map(|copy| copy.draft.id.to_string()).collect();
    assert_eq!(received, ids);
}

#[tokio::test]
async fn payloads_that_sqs_would_refuse_arrive_unchanged() {
    // Q8, aistudio#1525
    let (bench, queue) = (Bench::start().await, TestQueue::create("q-payloads").await);
    let scheduler = scheduler(&bench, &queue).await;
    let payloads: [&[u8]; 9] = [
        b"a\0b",
        b"\x0c",
        "\u{fffe}".as_bytes(),
        "\u{ffff}".as_bytes(),
        br#"["\ud800"]"#,
        b"\xff\xfe\x00",
        b"",
        "é😎\r\n\t\"\\".as_bytes(),
        br#"{"to":[]}"#,
    ];
    let messages =
        payloads.iter().enumerate().map(|(i, payload)| Message::new("b", format!("{i}"), *payload)).collect();
    let results = schedule_all(&scheduler, messages).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let received: Vec<Vec<u8>> = queue.receive(9).await.into_iter().map(|copy| copy.draft.payload).collect();
    assert_eq!(received, payloads);
}

#[tokio::test]
async fn a_copy_carries_what_was_booked() {
    let (bench, queue) = (Bench::start().await, TestQueue::create("q-copy").await);
    let scheduler = scheduler(&bench, &queue).await;
    let given = message("a").cost(3);
    let booked = schedule(&scheduler, given.clone()).await;
    let copy = queue.receive(1).await.remove(0);
    assert_eq!((copy.seq, copy.at.unwrap().to_system_time()), (booked.seq(), booked.at()));
    assert_eq!((copy.draft, copy.report), (given.check().unwrap(), None));
    assert_ne!(copy.tag, 0);
}

#[tokio::test]
async fn a_fifo_queue_is_refused_at_start() {
    // Q9, shoryuken#731
    let (bench, queue) = (Bench::start().await, TestQueue::create("q-fifo").await);
    for url in [format!("{}.fifo", queue.url), format!("{}.fifo/", queue.url)] {
        let builder = Scheduler::builder().store(bench.store.clone()).sqs(queue.sqs.clone()).queue_url(&url);
        let error = builder.build().await.unwrap_err();
        assert!(matches!(error, ConfigError::Queue(QueueError::Fifo { .. })), "{error}");
        assert!(error.to_string().contains("standard queue"), "{error}");
    }
}

#[tokio::test]
async fn a_queues_default_delay_delays_nothing() {
    // Q10, localstack#12881
    let (bench, queue) = (Bench::start().await, TestQueue::create("q-delay").await);
    let delay = HashMap::from([(QueueAttributeName::DelaySeconds, "5".to_owned())]);
    queue.sqs.set_queue_attributes().queue_url(&queue.url).set_attributes(Some(delay)).send().await.unwrap();
    let scheduler = scheduler(&bench, &queue).await;
    let booked = schedule(&scheduler, message("single")).await;
    assert!(booked.wait() < Duration::from_secs(1), "{booked:?}");
    assert_eq!(queue.depth().await, (1, 0), "visible at once");
    let results = schedule_all(&scheduler, (0..12).map(|i| message(format!("m{i}"))).collect()).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(queue.depth().await, (13, 0), "visible at once");
}
