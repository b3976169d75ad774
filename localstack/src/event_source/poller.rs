//! Gathers batches from the queue, each with the right to run it already in hand.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::MessageSystemAttributeName;
use tokio::time::Instant;

use super::batch::Batch;
use super::core::Core;
use super::invocation;
use super::lifecycle::Phase;
use super::record::Record;

/// SQS hands out at most ten messages at once.
const MOST_AT_ONCE: usize = 10;
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);
/// How long a poll may still go on after a stop: long enough for messages that are being handed out just then.
const POLL_AFTER_STOP: Duration = Duration::from_millis(250);

/// Starts all pollers.
pub(super) fn start(core: &Arc<Core>) {
    for _ in 0..core.options.pollers {
        let core_of_poller = Arc::clone(core);
        core.lifecycle.spawn(poll(core_of_poller));
    }
}

async fn poll(core: Arc<Core>) {
    let mut waiting = Vec::new();
    while core.lifecycle.is_running() || !waiting.is_empty() {
        let permit = tokio::select! {
            permit = Arc::clone(&core.permits).acquire_owned() => permit,
            () = core.lifecycle.reached(Phase::Draining), if waiting.is_empty() => return,
        };
        let Ok(permit) = permit else { return };
        let batch = gather(&core, &mut waiting).await;
        if !batch.is_empty() {
            core.lifecycle.spawn(invocation::run(Arc::clone(&core), batch, permit));
        }
    }
}

/// Waits for a first message, then for more until the batch is full or the window ends.
async fn gather(core: &Core, waiting: &mut Vec<Record>) -> Batch {
    let options = &core.options;
    let mut batch = Batch::new(options.batch_size);
    batch.take_from(waiting);
    let mut last_was_full = true;
    if batch.is_empty() {
        last_was_full = receive(core, &mut batch, waiting, options.long_poll).await;
    }
    let end = Instant::now() + options.window;
    while batch.missing() > 0 && waiting.is_empty() && !batch.is_empty() && core.lifecycle.is_running() {
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            break;
        }
        if !last_was_full {
            sleep_or_drain(core, rest.min(slice(options.window))).await;
        }
        last_was_full = receive(core, &mut batch, waiting, Duration::ZERO).await;
    }
    batch
}

/// How long messages may gather in the queue before they are fetched, while a window is open.
///
/// A long poll would return with the first of them, which costs a request for each message.
fn slice(window: Duration) -> Duration {
    (window / 10).clamp(Duration::from_millis(100), Duration::from_secs(1))
}

/// Receives once; whether SQS gave as much as was asked for.
async fn receive(core: &Core, batch: &mut Batch, waiting: &mut Vec<Record>, wait: Duration) -> bool {
    let asked = batch.missing().min(MOST_AT_ONCE);
    let request = core.options.sqs.receive_message().queue_url(&core.options.queue_url);
    let request = request.max_number_of_messages(asked as i32).wait_time_seconds(wait.as_secs() as i32);
    let request = request.message_system_attribute_names(MessageSystemAttributeName::All);
    let sent = request.message_attribute_names("All").send();
    let reply = tokio::select! {
        reply = sent => reply,
        () = stopped(core), if !wait.is_zero() => return false,
    };
    match reply {
        Ok(reply) => {
            let messages = reply.messages();
            waiting.extend(messages.iter().filter_map(|message| Record::new(message, &core.options)));
            batch.take_from(waiting);
            messages.len() == asked
        }
        Err(error) => {
            tracing::warn!(error = %DisplayErrorContext(&error), "queue cannot be polled");
            sleep_or_drain(core, PAUSE_AFTER_ERROR).await;
            false
        }
    }
}

async fn stopped(core: &Core) {
    core.lifecycle.reached(Phase::Draining).await;
    tokio::time::sleep(POLL_AFTER_STOP).await;
}

async fn sleep_or_drain(core: &Core, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = core.lifecycle.reached(Phase::Draining) => {}
    }
}
