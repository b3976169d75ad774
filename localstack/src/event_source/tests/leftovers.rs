//! Nothing is left running.

use std::time::{Duration, Instant};

use super::rig::{LIMIT, Rig, until, until_nothing_runs};
use crate::event_source::{EventSource, EventSourceOptions};

#[tokio::test]
async fn stop_lets_a_running_invocation_finish() {
    let rig = Rig::new("es-stop", 10).await;
    rig.send(&["sleep 1"]).await;
    let source = EventSource::start(rig.options()).await.unwrap();
    until(&source, |stats| stats.in_flight == 1).await;
    let stats = source.stop(LIMIT).await;
    assert_eq!((stats.deleted, stats.environments, stats.crashes), (1, 0, 0));
    assert_eq!(rig.processes(), Vec::<String>::new());
}

#[tokio::test]
async fn stop_kills_what_takes_longer_than_its_limit() {
    let rig = Rig::new("es-stop-hang", 10).await;
    rig.send(&["hang"]).await;
    let options = EventSourceOptions { function_timeout: Duration::from_secs(10), ..rig.options() };
    let source = EventSource::start(options).await.unwrap();
    until(&source, |stats| stats.in_flight == 1).await;
    let asked = Instant::now();
    source.stop(Duration::from_millis(300)).await;
    assert!(asked.elapsed() < Duration::from_secs(2));
    assert_eq!(rig.processes(), Vec::<String>::new());
}

#[tokio::test]
async fn drop_kills_busy_and_idle_environments() {
    let rig = Rig::new("es-drop", 10).await;
    rig.send(&["hang"]).await;
    let source = EventSource::start(EventSourceOptions { min_environments: 3, ..rig.options() }).await.unwrap();
    until(&source, |stats| stats.in_flight == 1).await;
    assert!(rig.processes().len() >= 3);
    drop(source);
    until_nothing_runs(&rig).await;
}

#[test]
fn the_end_of_the_runtime_kills_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rig = runtime.block_on(Rig::new("es-runtime", 10));
    let options = EventSourceOptions { min_environments: 1, ..rig.options() };
    let source = runtime.block_on(EventSource::start(options)).unwrap();
    assert!(!rig.processes().is_empty());
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    other.block_on(until_nothing_runs(&rig));
    drop(source);
}

const QUEUE: &str = "EVENT_SOURCE_TEST_QUEUE";
const ENDPOINT: &str = "EVENT_SOURCE_TEST_ENDPOINT";
const WORKER: &str = "EVENT_SOURCE_TEST_WORKER";

#[tokio::test]
#[ignore = "not a test: the process that a_killed_process_takes_its_workers_along kills"]
async fn holds_an_event_source_until_it_is_killed() {
    let variable = |name| std::env::var(name).unwrap();
    let sqs = crate::access::SqsAccess::local(variable(ENDPOINT)).client();
    let options = EventSourceOptions {
        min_environments: 2,
        function_timeout: Duration::from_secs(60),
        ..EventSourceOptions::new(sqs, variable(QUEUE), variable(WORKER))
    };
    let _source = EventSource::start(options).await.unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_killed_process_takes_its_workers_along() {
    let rig = Rig::new("es-killed", 60).await;
    rig.send(&["hang"]).await;
    let mut holder = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "event_source::tests::leftovers::holds_an_event_source_until_it_is_killed"])
        .env(QUEUE, &rig.queue_url)
        .env(ENDPOINT, rig.endpoint)
        .env(WORKER, rig.worker())
        .stdout(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let end = Instant::now() + LIMIT;
    while rig.counts().await != (0, 1) || rig.processes().len() < 4 {
        assert!(Instant::now() < end, "{:?} {:?}", rig.counts().await, rig.processes());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    holder.kill().await.unwrap();
    until_nothing_runs(&rig).await;
}
