//! What all requests share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use sendslot_receipts::config::Providers;
use sendslot_scheduler::{Gauges, Scheduler};
use sendslot_shared::queue::Queue;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::coalesce::Coalescer;
use crate::config::Limits;
use crate::keys::Keys;
use crate::problem::{Kind, Problem};

pub use sendslot_prometheus::Render as RenderMetrics;

/// What a server is made of besides the scheduler.
#[derive(Default)]
pub struct Options {
    /// Who may do what; none: everybody everything.
    pub keys: Keys,
    /// What bounds its work.
    pub limits: Limits,
    /// What `/metrics` answers; `None`: 404.
    pub metrics: Option<RenderMetrics>,
    /// How single sends are put together.
    pub coalescing: Coalescing,
    /// Whose receipts are taken, and where they are kept; `None`: nobody's.
    pub receipts: Option<Receipts>,
}

/// Whose receipts a server takes, and where it keeps them.
#[derive(Debug, Clone)]
pub struct Receipts {
    /// The providers, with their secrets.
    pub providers: Arc<Providers>,
    /// Where their calls wait for a mapper.
    pub queue: Queue,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// How single sends of one budget that arrive together share a booking call and a SendMessageBatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalescing {
    /// How long the first waits for others while a call of its budget is under way; default 5 ms. Zero: not at all, though those
    /// that arrive while all calls are busy still share.
    pub linger: Duration,
    /// Calls of one budget in flight; default 8.
    pub calls: usize,
}

impl Default for Coalescing {
    fn default() -> Self {
        Self { linger: Duration::from_millis(5), calls: 8 }
    }
}

/// What all requests share. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    scheduler: Scheduler,
    coalescer: Coalescer,
    options: Options,
    requests: Arc<Semaphore>,
    body_kib: Arc<Semaphore>,
    draining: AtomicBool,
    readiness: Mutex<Option<(Instant, Readiness)>>,
    gauges: Gauges,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// Which of the servers behind do what is asked of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) redis: bool,
    pub(crate) sqs: bool,
}

/// Readiness is asked for at most that often, whoever asks for it.
const READINESS_AGE: Duration = Duration::from_secs(1);
/// An answer that takes longer is none.
const READINESS_WAIT: Duration = Duration::from_millis(2500);

impl App {
    pub(crate) fn new(scheduler: Scheduler, mut options: Options) -> Self {
        let limits = &mut options.limits;
        // a semaphore that could hold more panics
        limits.requests = limits.requests.min(Semaphore::MAX_PERMITS);
        let body_kib = (limits.body_memory_mib as usize).saturating_mul(1024).min(Semaphore::MAX_PERMITS);
        let requests = Arc::new(Semaphore::new(limits.requests));
        let gauges = Gauges::new(scheduler.store().clone());
        Self(Arc::new(Inner {
            coalescer: Coalescer::new(scheduler.clone(), options.coalescing),
            scheduler,
            requests,
            body_kib: Arc::new(Semaphore::new(body_kib)),
            options,
            draining: AtomicBool::new(false),
            readiness: Mutex::default(),
            gauges,
        }))
    }

    /// The scheduler.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        &self.0.scheduler
    }

    /// What metrics ask of Redis.
    pub(crate) fn gauges(&self) -> &Gauges {
        &self.0.gauges
    }

    pub(crate) fn coalescer(&self) -> &Coalescer {
        &self.0.coalescer
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    /// Room for one more request.
    pub(crate) fn admit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.0.requests.clone().try_acquire_owned().map_err(|_| overloaded())
    }

    /// Requests that are not answered yet.
    pub(crate) fn in_hand(&self) -> usize {
        self.0.options.limits.requests - self.0.requests.available_permits()
    }

    /// Room for a body of so many bytes.
    pub(crate) fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Problem> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        self.0.body_kib.clone().try_acquire_many_owned(kib).map_err(|_| overloaded())
    }

    /// It is told to stop: not ready any more.
    pub(crate) fn drain(&self) {
        self.0.draining.store(true, Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.0.draining.load(Relaxed)
    }

    /// Whether Redis takes writes and SQS answers, asked within the last second.
    pub(crate) async fn readiness(&self) -> Readiness {
        let mut known = self.0.readiness.lock().await;
        if let Some((asked, readiness)) = *known
            && asked.elapsed() < READINESS_AGE
        {
            return readiness;
        }
        let (store, queue) = (self.scheduler().store(), self.scheduler().queue());
        let redis = tokio::time::timeout(READINESS_WAIT, store.probe());
        let sqs = tokio::time::timeout(READINESS_WAIT, queue.check());
        let (redis, sqs) = tokio::join!(redis, sqs);
        let readiness = Readiness { redis: matches!(redis, Ok(Ok(()))), sqs: matches!(sqs, Ok(Ok(()))) };
        *known = Some((Instant::now(), readiness));
        readiness
    }
}

fn overloaded() -> Problem {
    let detail = "too many requests are in hand; nothing was done: send this one again";
    Problem::new(Kind::Overloaded, detail).retry_after(Duration::from_secs(1))
}
