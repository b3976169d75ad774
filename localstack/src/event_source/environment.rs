//! One execution environment: a worker process, and one invocation at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;

use super::core::Core;
use super::handover::{Call, Invocation, Job, Outcome};
use super::pool::Handle;
use super::worker_process::WorkerProcess;

/// Lambda's limit for the init phase.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);

/// An environment and all its ends of channels.
pub(super) struct Environment {
    pub(super) core: Arc<Core>,
    pub(super) handle: Handle,
    pub(super) process: WorkerProcess,
    pub(super) calls: mpsc::Receiver<Call>,
    pub(super) jobs: mpsc::Receiver<Job>,
    /// The worker's unanswered question for its next event.
    pub(super) parked: Option<oneshot::Sender<Invocation>>,
    /// Held by a warm environment that starts while invocations run, until it is idle.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// Told when the first question comes.
    pub(super) ready: Option<oneshot::Sender<()>>,
    /// Why the environment ended, for jobs that it can no longer take.
    pub(super) end: Option<String>,
}

impl Environment {
    /// Lives until the process ends, is killed, or the event source stops.
    pub(super) async fn run(mut self) {
        let mut permit = self.permit.take();
        let mut limit = INIT_TIMEOUT.max(self.core.options.function_timeout);
        while self.wait_for_question(limit).await {
            limit = self.core.options.function_timeout;
            let Some(job) = self.next_job(permit.take()).await else { break };
            permit = self.invoke(job).await;
            if self.end.is_some() {
                break;
            }
        }
        self.bury(permit).await;
    }

    pub(super) fn was_ready(&self) -> bool {
        self.ready.is_none()
    }

    /// Whether the worker has asked for its next event in time.
    async fn wait_for_question(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.parked.is_none() {
            tokio::select! {
                biased;
                Some(call) = self.calls.recv() => self.outside_invocation(call),
                reason = self.process.exited() => {
                    self.crashed(reason);
                    return false;
                }
                () = tokio::time::sleep_until(until) => {
                    self.crashed("it did not ask for an event in time".to_owned());
                    return false;
                }
            }
        }
        if let Some(ready) = self.ready.take() {
            self.core.pool.forget_failed_inits();
            // Only a caller that waits for warm environments listens.
            let _ = ready.send(());
        }
        true
    }

    /// The job that is already there, or the next one after a time among the idle.
    async fn next_job(&mut self, permit: Option<OwnedSemaphorePermit>) -> Option<Job> {
        if let Ok(job) = self.jobs.try_recv() {
            return Some(job);
        }
        self.core.pool.put_idle(self.handle.clone());
        drop(permit);
        loop {
            tokio::select! {
                biased;
                reason = self.process.exited() => {
                    self.crashed(reason);
                    return None;
                }
                Some(call) = self.calls.recv() => self.outside_invocation(call),
                job = self.jobs.recv() => return job,
            }
        }
    }

    async fn invoke(&mut self, job: Job) -> Option<OwnedSemaphorePermit> {
        let timeout = self.core.options.function_timeout;
        let (request_id, until) = (request_id(), Instant::now() + timeout);
        let deadline_ms = unix_ms(SystemTime::now() + timeout);
        let invocation = Invocation { request_id: request_id.clone(), deadline_ms, payload: job.payload.clone() };
        let handed = self.parked.take().is_some_and(|parked| parked.send(invocation).is_ok());
        if !handed {
            self.crashed("its connection to the Runtime API is gone".to_owned());
            job.untaken();
            return None;
        }
        let outcome = self.outcome(&request_id, until).await;
        Some(job.finish(outcome))
    }

    async fn outcome(&mut self, current: &str, until: Instant) -> Outcome {
        loop {
            tokio::select! {
                biased;
                Some(call) = self.calls.recv() => {
                    if let Some(outcome) = self.inside_invocation(call, current) {
                        return outcome;
                    }
                }
                reason = self.process.exited() => {
                    self.crashed(reason.clone());
                    return Outcome::Crashed(reason);
                }
                () = tokio::time::sleep_until(until) => return self.time_out().await,
            }
        }
    }

    fn inside_invocation(&mut self, call: Call, current: &str) -> Option<Outcome> {
        match call {
            Call::Answer { request_id, result, reply } if request_id == current => {
                let _ = reply.send(StatusCode::ACCEPTED);
                Some(result.map_or_else(Outcome::FunctionError, Outcome::Response))
            }
            Call::Next(parked) => {
                self.parked = Some(parked);
                Some(Outcome::FunctionError("it asked for the next event without an answer to this one".to_owned()))
            }
            other => {
                self.outside_invocation(other);
                None
            }
        }
    }

    fn outside_invocation(&mut self, call: Call) {
        match call {
            Call::Next(parked) => self.parked = Some(parked),
            Call::Answer { reply, .. } => {
                let _ = reply.send(StatusCode::BAD_REQUEST);
            }
            Call::InitError(error) => tracing::warn!(environment = self.handle.number, error, "worker init failed"),
        }
    }

    async fn time_out(&mut self) -> Outcome {
        self.core.counters.timeouts.fetch_add(1, Relaxed);
        self.lost("function timeout".to_owned());
        self.process.kill_switch().throw();
        // The batch fails only when nobody works on it any more.
        self.process.exited().await;
        Outcome::TimedOut
    }

    fn crashed(&mut self, reason: String) {
        if self.core.lifecycle.is_killed() {
            self.end = Some(reason);
            return;
        }
        self.core.counters.crashes.fetch_add(1, Relaxed);
        self.lost(reason);
    }

    fn lost(&mut self, reason: String) {
        tracing::warn!(environment = self.handle.number, reason, "environment lost");
        self.core.counters.environment_lost();
        self.end = Some(reason);
    }

    /// Kills what is left and gives back jobs, permit and place.
    async fn bury(mut self, permit: Option<OwnedSemaphorePermit>) {
        self.core.forget(self.handle.number);
        self.jobs.close();
        self.process.kill_switch().throw();
        self.process.exited().await;
        self.core.counters.environment_gone();
        let reason = self.end.take().unwrap_or_else(|| "stopped".to_owned());
        let mut held = Vec::from_iter(permit);
        while let Ok(job) = self.jobs.try_recv() {
            if self.was_ready() {
                job.untaken();
            } else {
                held.push(job.finish(Outcome::Crashed(reason.clone())));
            }
        }
        if !self.was_ready() {
            drop(self.ready.take());
            self.core.pool.pause_after_failed_init().await;
        }
        drop(held);
        super::pool::replace(&self.core);
    }
}

fn request_id() -> String {
    let (high, low) = (fastrand::u64(..), fastrand::u64(..));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
