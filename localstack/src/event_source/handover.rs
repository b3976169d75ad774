//! What passes between invocations, environments and the Runtime API.

use axum::body::Bytes;
use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// A batch on its way to an environment, with the right to run it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) payload: Bytes,
    /// Held until the environment has asked for its next event, or is gone.
    pub(super) permit: OwnedSemaphorePermit,
    pub(super) done: oneshot::Sender<Done>,
}

/// How a job came back.
#[derive(Debug)]
pub(super) enum Done {
    /// The worker had it.
    Finished(Outcome),
    /// The environment ended before it took the job: another one may have it.
    Untaken(OwnedSemaphorePermit),
}

/// How an invocation ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Response(Bytes),
    FunctionError(String),
    TimedOut,
    Crashed(String),
}

/// An invocation as the Runtime API gives it to the worker.
#[derive(Debug)]
pub(super) struct Invocation {
    pub(super) request_id: String,
    pub(super) deadline_ms: u64,
    pub(super) payload: Bytes,
}

/// What a worker said to the Runtime API; each waits for an answer.
#[derive(Debug)]
pub(super) enum Call {
    Next(oneshot::Sender<Invocation>),
    Answer { request_id: String, result: Result<Bytes, String>, reply: oneshot::Sender<StatusCode> },
    InitError(String),
}

impl Job {
    /// Hands the job back as not taken.
    pub(super) fn untaken(self) {
        // Nobody listens only when the event source has been killed.
        let _ = self.done.send(Done::Untaken(self.permit));
    }

    /// Reports an end and keeps the permit for as long as the environment lives.
    pub(super) fn finish(self, outcome: Outcome) -> OwnedSemaphorePermit {
        let _ = self.done.send(Done::Finished(outcome));
        self.permit
    }
}
