//! What a failing worker costs.

use super::rig::{LIMIT, Rig, until};
use crate::event_source::{EventSource, EventSourceError, EventSourceOptions};

#[tokio::test]
async fn a_partial_failure_leaves_just_that_message() {
    let rig = Rig::new("es-partial", 2).await;
    rig.send(&["ok", "ok", "fail-once", "ok"]).await;
    let source = EventSource::start(rig.options()).await.unwrap();
    until(&source, |stats| stats.deleted == 3 && stats.failed_items == 1).await;
    assert_eq!(rig.counts().await, (0, 1));
    let stats = until(&source, |stats| stats.deleted == 4).await;
    assert_eq!((rig.deliveries("ok"), rig.deliveries("fail-once")), (3, 2));
    assert_eq!((stats.failed_items, stats.failed_invocations), (1, 0));
    source.stop(LIMIT).await;
}

#[tokio::test]
async fn a_crash_returns_the_whole_batch() {
    let rig = Rig::new("es-crash", 2).await;
    rig.send(&["crash-once", "ok"]).await;
    let source = EventSource::start(EventSourceOptions { pollers: 1, ..rig.options() }).await.unwrap();
    let stats = until(&source, |stats| stats.crashes == 1 && stats.failed_invocations == 1).await;
    assert_eq!(stats.deleted, 0);
    let stats = until(&source, |stats| stats.deleted == 2).await;
    assert_eq!((stats.restarts, stats.environments_peak, rig.deliveries("ok")), (1, 1, 2));
    source.stop(LIMIT).await;
}

#[tokio::test]
async fn a_lost_warm_environment_is_replaced_at_once_and_the_cap_holds() {
    let rig = Rig::new("es-warm", 3).await;
    rig.send(&["crash-once", "crash-once", "ok", "ok", "ok", "ok"]).await;
    let options = EventSourceOptions { batch_size: 1, min_environments: 2, max_environments: 2, ..rig.options() };
    let source = EventSource::start(options).await.unwrap();
    let stats = until(&source, |stats| stats.deleted == 6 && stats.environments == 2).await;
    assert_eq!((stats.crashes, stats.environments_peak), (2, 2));
    source.stop(LIMIT).await;
}

#[tokio::test]
async fn a_timeout_kills_the_environment_and_returns_the_batch() {
    let rig = Rig::new("es-timeout", 3).await;
    rig.send(&["hang-once"]).await;
    let source = EventSource::start(rig.options()).await.unwrap();
    let stats = until(&source, |stats| stats.timeouts == 1 && stats.failed_invocations == 1).await;
    assert_eq!((stats.deleted, stats.crashes), (0, 0));
    let stats = until(&source, |stats| stats.deleted == 1).await;
    assert_eq!((stats.timeouts, stats.restarts, stats.environments), (1, 1, 1));
    source.stop(LIMIT).await;
}

#[tokio::test]
async fn an_error_or_garbage_returns_the_batch_and_keeps_the_environment() {
    for (name, body) in [("es-error", "error"), ("es-garbage", "garbage")] {
        let rig = Rig::new(name, 30).await;
        rig.send(&[body, "ok"]).await;
        let source = EventSource::start(EventSourceOptions { pollers: 1, ..rig.options() }).await.unwrap();
        let stats = until(&source, |stats| stats.failed_invocations == 1).await;
        assert_eq!((stats.deleted, stats.crashes, stats.environments), (0, 0, 1));
        source.stop(LIMIT).await;
        assert_eq!(rig.counts().await, (0, 2));
    }
}

#[tokio::test]
async fn a_worker_that_ends_after_its_answer_fails_nothing() {
    let rig = Rig::new("es-exit", 30).await;
    rig.send(&["exit-after"]).await;
    let source = EventSource::start(rig.options()).await.unwrap();
    until(&source, |stats| stats.crashes == 1).await;
    rig.send(&["ok"]).await;
    let stats = until(&source, |stats| stats.deleted == 2).await;
    assert_eq!((stats.failed_invocations, stats.restarts), (0, 1));
    source.stop(LIMIT).await;
}

#[tokio::test]
async fn a_worker_that_cannot_start_is_reported_with_its_last_words() {
    let rig = Rig::new("es-broken", 30).await;
    let environment = vec![("BROKEN".to_owned(), "1".to_owned())];
    let options = EventSourceOptions { min_environments: 2, environment: environment.clone(), ..rig.options() };
    let error = EventSource::start(options).await.unwrap_err();
    assert!(matches!(&error, EventSourceError::Worker { log, .. } if log.contains("cannot start")), "{error}");
    rig.send(&["ok"]).await;
    let source = EventSource::start(EventSourceOptions { environment, ..rig.options() }).await.unwrap();
    until(&source, |stats| stats.failed_invocations == 1).await;
    source.stop(LIMIT).await;
}
