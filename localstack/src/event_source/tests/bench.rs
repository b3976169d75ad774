//! How fast messages pass; run by hand: `cargo test -p sendslot-localstack --release -- --ignored bench --nocapture`.

use std::time::{Duration, Instant};

use super::rig::{LIMIT, Rig, until};
use crate::event_source::batch::Batch;
use crate::event_source::record::Record;
use crate::event_source::{EventSource, EventSourceOptions, invocation};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; takes the whole machine"]
async fn bench_throughput_and_overhead() {
    for (name, batch_size, window_s) in [("es-bench-10", 10, 0), ("es-bench-100", 100, 1)] {
        let rig = Rig::new(name, 60).await;
        let messages = 10_000;
        for _ in 0..messages / 1_000 {
            rig.send(&["ok"; 1_000]).await;
        }
        let options = EventSourceOptions {
            worker: worker(&rig),
            batch_size,
            window: Duration::from_secs(window_s),
            min_environments: 4,
            max_environments: 8,
            log: crate::event_source::WorkerLog::Discard,
            ..rig.options()
        };
        let (source, started) = (EventSource::start(options).await.unwrap(), Instant::now());
        let stats = until(&source, |stats| stats.deleted == messages as u64).await;
        let took = started.elapsed();
        println!("{name}: {:.0} messages/s, {stats:?}", messages as f64 / took.as_secs_f64());
        source.stop(LIMIT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; takes the whole machine"]
async fn bench_invocation_overhead() {
    let rig = Rig::new("es-bench-overhead", 60).await;
    let options = EventSourceOptions { worker: worker(&rig), min_environments: 1, ..rig.options() };
    let source = EventSource::start(options).await.unwrap();
    let mut times = Vec::new();
    for _ in 0..1_000 {
        let json = r#"{"messageId":"a","body":"ok","attributes":{},"messageAttributes":{}}"#.to_owned();
        let mut batch = Batch::new(1);
        batch.take_from(&mut vec![Record { message_id: "a".to_owned(), receipt_handle: "r".to_owned(), json }]);
        let permit = source.core.permits.clone().acquire_owned().await.unwrap();
        let started = Instant::now();
        invocation::invoke(&source.core, &batch, permit).await.unwrap();
        times.push(started.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    times.sort();
    println!("invocation: p50 {:?}, p99 {:?}, max {:?}", times[500], times[990], times[999]);
    source.stop(LIMIT).await;
}

/// `BENCH_WORKER` names a worker; without it the scripted one is measured.
fn worker(rig: &Rig) -> std::path::PathBuf {
    std::env::var("BENCH_WORKER").map_or_else(|_| rig.worker(), Into::into)
}
