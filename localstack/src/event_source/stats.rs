//! Counters of an event source.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use tokio::sync::watch;

/// What an event source has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventSourceStats {
    /// Worker processes that exist now.
    pub environments: usize,
    /// The most worker processes at one time.
    pub environments_peak: usize,
    /// Batches handed to the worker.
    pub invocations: u64,
    /// Batches that the worker has in hand now.
    pub in_flight: usize,
    /// Messages in those invocations.
    pub records: u64,
    /// Messages deleted from the queue.
    pub deleted: u64,
    /// Messages of answered invocations that the worker named as failed.
    pub failed_items: u64,
    /// Invocations that failed as a whole, for whatever reason.
    pub failed_invocations: u64,
    /// Invocations that ran into the function timeout.
    pub timeouts: u64,
    /// Worker processes that ended by themselves.
    pub crashes: u64,
    /// Environments started in place of ones that crashed or timed out.
    pub restarts: u64,
}

#[derive(Debug)]
pub(super) struct Counters {
    environments: watch::Sender<usize>,
    environments_peak: AtomicUsize,
    pub(super) invocations: AtomicU64,
    in_flight: AtomicUsize,
    recent_peak: AtomicUsize,
    pub(super) records: AtomicU64,
    pub(super) deleted: AtomicU64,
    pub(super) failed_items: AtomicU64,
    pub(super) failed_invocations: AtomicU64,
    pub(super) timeouts: AtomicU64,
    pub(super) crashes: AtomicU64,
    restarts: AtomicU64,
    lost: AtomicU64,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            environments: watch::Sender::new(0),
            environments_peak: AtomicUsize::new(0),
            invocations: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            recent_peak: AtomicUsize::new(0),
            records: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
            failed_items: AtomicU64::new(0),
            failed_invocations: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            crashes: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    pub(super) fn environment_started(&self) {
        self.environments.send_modify(|count| *count += 1);
        self.environments_peak.fetch_max(self.environments(), Relaxed);
        if self.lost.fetch_update(Relaxed, Relaxed, |lost| lost.checked_sub(1)).is_ok() {
            self.restarts.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn environment_gone(&self) {
        self.environments.send_modify(|count| *count -= 1);
    }

    /// The next environment that starts stands in for one that crashed or timed out.
    pub(super) fn environment_lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    pub(super) fn environments(&self) -> usize {
        *self.environments.borrow()
    }

    /// Waits until no worker process is left.
    pub(super) async fn no_environments(&self) {
        // The sender lives in self, so the wait cannot fail.
        let _ = self.environments.subscribe().wait_for(|count| *count == 0).await;
    }

    pub(super) fn invocation_started(&self, records: usize) {
        self.invocations.fetch_add(1, Relaxed);
        self.records.fetch_add(records as u64, Relaxed);
        let now = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.recent_peak.fetch_max(now, Relaxed);
    }

    pub(super) fn invocation_ended(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// The most concurrent invocations since this was last asked.
    pub(super) fn take_recent_peak(&self) -> usize {
        self.recent_peak.swap(self.in_flight.load(Relaxed), Relaxed)
    }

    pub(super) fn snapshot(&self) -> EventSourceStats {
        EventSourceStats {
            environments: self.environments(),
            environments_peak: self.environments_peak.load(Relaxed),
            invocations: self.invocations.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            records: self.records.load(Relaxed),
            deleted: self.deleted.load(Relaxed),
            failed_items: self.failed_items.load(Relaxed),
            failed_invocations: self.failed_invocations.load(Relaxed),
            timeouts: self.timeouts.load(Relaxed),
            crashes: self.crashes.load(Relaxed),
            restarts: self.restarts.load(Relaxed),
        }
    }
}
