//! The environments: idle ones are reused, most recently used first, and new ones start on demand.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::EventSourceError;
use super::core::Core;
use super::environment::Environment;
use super::handover::{Call, Job, Outcome};
use super::lifecycle::Phase;
use super::worker_process::{KillSwitch, Program, WorkerProcess};

/// First pause after an environment that did not come up; doubled for each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// An environment, as those see it who have a job for it.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    pub(super) number: u64,
    jobs: mpsc::Sender<Job>,
}

#[derive(Debug)]
struct Member {
    calls: mpsc::Sender<Call>,
    /// Set once the process exists.
    kill_switch: Option<KillSwitch>,
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Handle>>,
    members: Mutex<HashMap<u64, Member>>,
    last_number: AtomicU64,
    failed_inits: AtomicU32,
}

impl Pool {
    pub(super) fn put_idle(&self, handle: Handle) {
        lock(&self.idle).push(handle);
    }

    /// Where the Runtime API finds an environment.
    pub(super) fn calls(&self, number: u64) -> Option<mpsc::Sender<Call>> {
        lock(&self.members).get(&number).map(|member| member.calls.clone())
    }

    pub(super) fn forget(&self, number: u64) {
        lock(&self.idle).retain(|handle| handle.number != number);
        lock(&self.members).remove(&number);
    }

    pub(super) fn kill_all(&self) {
        lock(&self.idle).clear();
        lock(&self.members).values().filter_map(|member| member.kill_switch.as_ref()).for_each(KillSwitch::throw);
    }

    /// Must come before the process starts, which may ask for its first event at once.
    fn enrol(&self, number: u64) -> mpsc::Receiver<Call> {
        let (calls, incoming) = mpsc::channel(4);
        lock(&self.members).insert(number, Member { calls, kill_switch: None });
        incoming
    }

    fn arm(&self, number: u64, kill_switch: KillSwitch) {
        if let Some(member) = lock(&self.members).get_mut(&number) {
            member.kill_switch = Some(kill_switch);
        }
    }

    pub(super) fn forget_failed_inits(&self) {
        self.failed_inits.store(0, Relaxed);
    }

    /// Keeps a worker that cannot start from burning through the queue.
    pub(super) async fn pause_after_failed_init(&self) {
        let before = self.failed_inits.fetch_add(1, Relaxed);
        tokio::time::sleep((FIRST_PAUSE * 2_u32.pow(before.min(10))).min(LONGEST_PAUSE)).await;
    }

    /// Gives the job to the idle environment that was used last; hands it back when none is idle.
    fn give_to_idle(&self, mut job: Job) -> Option<Job> {
        loop {
            let Some(handle) = lock(&self.idle).pop() else { return Some(job) };
            match handle.jobs.try_send(job) {
                Ok(()) => return None,
                // It ended while it was idle.
                Err(error) => job = error.into_inner(),
            }
        }
    }
}

/// Gives the job to an environment, old or new.
pub(super) fn dispatch(core: &Arc<Core>, job: Job) {
    let Some(job) = core.pool.give_to_idle(job) else { return };
    let (jobs, inbox) = mpsc::channel(1);
    match jobs.try_send(job) {
        Ok(()) => start(core, Start { jobs, inbox, ready: oneshot::channel().0, permit: None }),
        Err(error) => error.into_inner().untaken(),
    }
}

/// Starts the environments that are kept warm, and waits for them.
pub(super) async fn start_warm(core: &Arc<Core>) -> Result<(), EventSourceError> {
    let starting: Vec<_> = (0..core.options.min_environments).map(|_| start_idle(core, None)).collect();
    for ready in starting {
        if ready.await.is_err() {
            let log = core.log.tail().join("\n");
            core.kill();
            let reason = "it ended before it asked for its first event".to_owned();
            return Err(EventSourceError::Worker { reason, log });
        }
    }
    Ok(())
}

/// Starts an environment in place of one that ended, when too few are warm.
///
/// It holds a permit until it is idle, so that an invocation that finds no idle one cannot exceed the maximum.
pub(super) fn replace(core: &Arc<Core>) {
    let few = |core: &Core| core.lifecycle.is_running() && core.counters.environments() < core.options.min_environments;
    if !few(core) {
        return;
    }
    let core = Arc::clone(core);
    let lifecycle = Arc::clone(&core.lifecycle);
    lifecycle.spawn(async move {
        let permit = tokio::select! {
            permit = Arc::clone(&core.permits).acquire_owned() => permit.ok(),
            () = core.lifecycle.reached(Phase::Draining) => return,
        };
        if few(&core) {
            drop(start_idle(&core, permit));
        }
    });
}

/// What a new environment starts with.
struct Start {
    jobs: mpsc::Sender<Job>,
    inbox: mpsc::Receiver<Job>,
    ready: oneshot::Sender<()>,
    permit: Option<OwnedSemaphorePermit>,
}

fn start_idle(core: &Arc<Core>, permit: Option<OwnedSemaphorePermit>) -> oneshot::Receiver<()> {
    let (ready, is_ready) = oneshot::channel();
    let (jobs, inbox) = mpsc::channel(1);
    start(core, Start { jobs, inbox, ready, permit });
    is_ready
}

fn start(core: &Arc<Core>, Start { jobs, inbox, ready, permit }: Start) {
    let number = core.pool.last_number.fetch_add(1, Relaxed) + 1;
    let calls = core.pool.enrol(number);
    let program = Program { path: &core.options.worker, environment: core.worker_environment(number), number };
    let process = match WorkerProcess::start(program, Arc::clone(&core.log)) {
        Ok(process) => process,
        Err(error) => {
            tracing::error!(%error, "worker cannot be started");
            core.pool.forget(number);
            return not_started(core, inbox, error.to_string());
        }
    };
    core.counters.environment_started();
    core.pool.arm(number, process.kill_switch());
    if core.lifecycle.is_killed() {
        core.pool.kill_all();
    }
    let environment = Environment {
        core: Arc::clone(core),
        handle: Handle { number, jobs },
        process,
        calls,
        jobs: inbox,
        parked: None,
        permit,
        ready: Some(ready),
        end: None,
    };
    tokio::spawn(environment.run());
}

fn not_started(core: &Arc<Core>, mut inbox: mpsc::Receiver<Job>, reason: String) {
    let held = inbox.try_recv().ok().map(|job| job.finish(Outcome::Crashed(reason)));
    let core = Arc::clone(core);
    tokio::spawn(async move {
        core.pool.pause_after_failed_init().await;
        drop(held);
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
