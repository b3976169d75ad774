//! One batch: invoke an environment with it, read the answer, delete what succeeded.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::batch::Batch;
use super::core::Core;
use super::handover::{Done, Job, Outcome};
use super::partial_batch::failed_items;
use super::{delete, pool};

pub(super) async fn run(core: Arc<Core>, batch: Batch, permit: OwnedSemaphorePermit) {
    core.counters.invocation_started(batch.len());
    let outcome = invoke(&core, &batch, permit).await;
    core.counters.invocation_ended();
    let Some(outcome) = outcome else { return };
    let deletable = succeeded(&core, batch, outcome);
    delete::all(&core, deletable).await;
}

/// `None`, when the event source is killed meanwhile.
pub(super) async fn invoke(core: &Arc<Core>, batch: &Batch, mut permit: OwnedSemaphorePermit) -> Option<Outcome> {
    let payload = batch.payload();
    loop {
        let (done, back) = oneshot::channel();
        pool::dispatch(core, Job { payload: payload.clone(), permit, done });
        match back.await.ok()? {
            Done::Finished(outcome) => return Some(outcome),
            Done::Untaken(again) if !core.lifecycle.is_killed() => permit = again,
            Done::Untaken(_) => return None,
        }
    }
}

/// Receipt handles of the messages that the worker is done with.
fn succeeded(core: &Core, batch: Batch, outcome: Outcome) -> Vec<String> {
    let reason = match outcome {
        Outcome::Response(response) => match failed_items(&response, &batch.message_ids()) {
            Ok(failed) => {
                core.counters.failed_items.fetch_add(failed.len() as u64, Relaxed);
                return batch.receipt_handles(|id| !failed.contains(id));
            }
            Err(failure) => failure.to_string(),
        },
        Outcome::FunctionError(error) => error,
        Outcome::Crashed(reason) => reason,
        Outcome::TimedOut => "function timeout".to_owned(),
    };
    core.counters.failed_invocations.fetch_add(1, Relaxed);
    tracing::warn!(reason, records = batch.len(), "invocation failed: the whole batch comes back");
    Vec::new()
}
