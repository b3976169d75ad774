//! What reaches the worker, in which portions.

use std::time::{Duration, Instant};

use aws_sdk_sqs::types::MessageAttributeValue;
use serde_json::json;

use super::rig::{LIMIT, Rig, until};
use crate::event_source::{EventSource, EventSourceError, EventSourceOptions, Ramp};

#[tokio::test]
async fn the_worker_sees_the_event_that_lambda_sends() {
    let rig = Rig::new("es-event", 10).await;
    let attribute = MessageAttributeValue::builder().data_type("String").string_value("x").build().unwrap();
    let request =
        rig.sqs.send_message().queue_url(&rig.queue_url).message_body("ok").message_attributes("t", attribute);
    request.send().await.unwrap();
    let source = EventSource::start(rig.options()).await.unwrap();
    until(&source, |stats| stats.deleted == 1).await;
    let event = rig.events().remove(0);
    let left_ms = event["left_ms"].as_f64().unwrap();
    assert!((1_000.0..=2_001.0).contains(&left_ms), "{left_ms}");
    let record = &event["event"]["Records"][0];
    let attribute = json!({"stringValue": "x", "stringListValues": [], "binaryListValues": [], "dataType": "String"});
    assert_eq!(record["messageAttributes"], json!({ "t": attribute }));
    for name in ["ApproximateReceiveCount", "SentTimestamp", "SenderId", "ApproximateFirstReceiveTimestamp"] {
        assert!(record["attributes"][name].is_string(), "{name} in {record}");
    }
    assert_eq!(record["eventSourceARN"], "arn:aws:sqs:us-east-1:000000000000:es-event");
    assert_eq!(record["eventSource"], "aws:sqs");
    let stats = source.stop(LIMIT).await;
    assert_eq!((stats.invocations, stats.records, stats.failed_invocations, stats.crashes), (1, 1, 0, 0));
    assert_eq!(rig.counts().await, (0, 0));
}

#[tokio::test]
async fn a_window_gathers_a_batch_of_a_hundred() {
    let rig = Rig::new("es-window", 30).await;
    rig.send(&["ok"; 100]).await;
    let window = Duration::from_secs(3);
    let options = EventSourceOptions { batch_size: 100, window, pollers: 1, ..rig.options() };
    let (source, started) = (EventSource::start(options).await.unwrap(), Instant::now());
    let stats = until(&source, |stats| stats.deleted == 100).await;
    assert_eq!((stats.invocations, stats.records), (1, 100));
    assert!(started.elapsed() < window, "a full batch does not wait for the window's end");
    rig.send(&["ok"; 3]).await;
    let sent = Instant::now();
    let stats = until(&source, |stats| stats.deleted == 103).await;
    assert_eq!(stats.invocations, 2);
    assert!(sent.elapsed() >= window - Duration::from_millis(200), "{:?}", sent.elapsed());
    source.stop(LIMIT).await;
}

#[tokio::test]
async fn no_more_environments_than_allowed_and_no_message_taken_beyond_them() {
    let rig = Rig::new("es-cap", 20).await;
    rig.send(&["sleep 0.7"; 8]).await;
    let options = EventSourceOptions { batch_size: 1, max_environments: 2, min_environments: 2, ..rig.options() };
    let source = EventSource::start(options).await.unwrap();
    until(&source, |stats| stats.in_flight == 2).await;
    let (visible, hidden) = rig.counts().await;
    assert_eq!(visible + hidden, 8);
    assert!(hidden <= 2, "{hidden} messages were taken");
    let stats = until(&source, |stats| stats.deleted == 8).await;
    assert_eq!((stats.environments_peak, stats.invocations), (2, 8));
    source.stop(LIMIT).await;
}

#[tokio::test]
async fn a_ramp_starts_with_its_first_few() {
    let rig = Rig::new("es-ramp", 20).await;
    rig.send(&["sleep 1"; 12]).await;
    let ramp = Some(Ramp { initial: 1, per_minute: 60 });
    let options = EventSourceOptions { batch_size: 1, ramp, ..rig.options() };
    let (source, started) = (EventSource::start(options).await.unwrap(), Instant::now());
    let stats = until(&source, |stats| stats.deleted == 12).await;
    let most = 1 + started.elapsed().as_secs() as usize;
    assert!((2..=most).contains(&stats.environments_peak), "{stats:?}");
    source.stop(LIMIT).await;
}

#[tokio::test]
async fn an_idle_environment_is_reused() {
    let rig = Rig::new("es-reuse", 20).await;
    let source = EventSource::start(EventSourceOptions { min_environments: 1, ..rig.options() }).await.unwrap();
    for deleted in 1..=5 {
        rig.send(&["ok"]).await;
        until(&source, |stats| stats.deleted == deleted).await;
    }
    assert_eq!(source.stop(LIMIT).await.environments_peak, 1);
}

#[tokio::test]
async fn what_aws_refuses_is_refused() {
    let rig = Rig::new("es-refused", 5).await;
    let long = EventSourceOptions { function_timeout: Duration::from_secs(6), ..rig.options() };
    let error = EventSource::start(long).await.unwrap_err();
    assert!(matches!(error, EventSourceError::VisibilityTooShort { visibility_s: 5, function_s: 6 }), "{error}");
    let nowhere = EventSourceOptions { queue_url: format!("{}-none", rig.queue_url), ..rig.options() };
    assert!(matches!(EventSource::start(nowhere).await, Err(EventSourceError::Queue { .. })));
}
