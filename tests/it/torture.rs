//! Short torture runs; the long one is `cargo run --release -p sendslot-tests --bin torture -- --minutes 10`.

use std::time::Duration;

use sendslot_tests::torture::{Kind, Outage, Programs, Torture};

fn programs() -> Programs {
    Programs {
        worker: env!("CARGO_BIN_EXE_sendslot-worker-under-test").into(),
        torture: env!("CARGO_BIN_EXE_torture").into(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_made_twice_while_processes_die() {
    let only = vec![Kind::WorkerKill, Kind::RedisRewind, Kind::SqsUnanswered, Kind::SchedulerKill];
    let gap = Duration::from_secs(2);
    // each kind once
    let torture = Torture {
        length: Duration::ZERO,
        least: only.len(),
        gap,
        seed: 3,
        load: 0.4,
        only: Some(only.clone()),
        programs: programs(),
    };
    let report = torture.run().await.unwrap();
    assert_eq!(report.violations, 0, "{report}");
    for kind in only {
        assert!(report.injected(kind) > 0, "{report}");
    }
    assert!(report.ends.get("sent").is_some_and(|sent| *sent > 100), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_outlives_its_workers_and_leaves_within_the_limit() {
    let (before, length) = (Duration::from_secs(4), Duration::from_secs(10));
    let outage = Outage { limit: 100, backlog: 500, before, length, programs: programs() };
    let report = outage.run().await.unwrap();
    assert_eq!(report.report.violations, 0, "{report}");
    assert_eq!((report.accepted, report.window.limit), (500, 100), "{report}");
    assert!(report.window.at_claim <= 100, "{report}");
}
