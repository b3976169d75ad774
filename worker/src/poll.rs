//! The long-lived worker: polls the queue itself, and hands each batch to the same code as Lambda.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use sendslot_shared::aws_sdk_sqs::types::Message;
use sendslot_shared::queue::MAX_ENTRIES;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::batch::Worker;
use crate::config::{ConfigError, millis, parsed};
use crate::provider::Provider;

/// How a long-lived worker polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollConfig {
    /// ReceiveMessage calls under way at once. Each brings up to 10 messages.
    pub pollers: usize,
    /// The most messages in hand: the sends per second of this process times lead + 1 s + the provider's answer time.
    pub in_hand: usize,
    /// The longest that a batch may take; the queue's visibility timeout is six times as much.
    pub batch_limit: Duration,
    /// How long what is in hand may go on after a stop. What is not done by then comes back after the visibility timeout.
    pub stop_limit: Duration,
}

impl Default for PollConfig {
    fn default() -> Self {
        let (batch_limit, stop_limit) = (Duration::from_secs(30), Duration::from_secs(30));
        Self { pollers: 4, in_hand: 500, batch_limit, stop_limit }
    }
}

impl PollConfig {
    /// From `SENDSLOT_POLL_POLLERS` (4), `SENDSLOT_POLL_IN_HAND` (500), `SENDSLOT_POLL_BATCH_MS` and `SENDSLOT_POLL_STOP_MS` (30,000 each).
    ///
    /// # Errors
    /// [`ConfigError::Unreadable`].
    pub fn from_env() -> Result<Self, ConfigError> {
        let default = Self::default();
        let count = |name, default| {
            parsed(name, default, "give a whole number above 0", |text| text.parse().ok().filter(|n| *n > 0))
        };
        Ok(Self {
            pollers: count("SENDSLOT_POLL_POLLERS", default.pollers)?,
            in_hand: count("SENDSLOT_POLL_IN_HAND", default.in_hand)?.min(Semaphore::MAX_PERMITS),
            batch_limit: millis("SENDSLOT_POLL_BATCH_MS", default.batch_limit)?,
            stop_limit: millis("SENDSLOT_POLL_STOP_MS", default.stop_limit)?,
        })
    }
}

/// The longest that SQS lets a poll wait for a message.
const LONG_POLL: Duration = Duration::from_secs(20);
/// How long a poll may still go on after a stop: long enough for messages that are being handed out just then.
const POLL_AFTER_STOP: Duration = Duration::from_millis(500);
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);

/// Polls until `stop` is over; then takes no more messages, and ends when what is in hand is done or its time is up. Answers how
/// many batches were left undone: their messages come back after the visibility timeout.
pub async fn poll<P: Provider>(worker: Worker<P>, config: PollConfig, stop: impl Future<Output = ()>) -> usize {
    let (stopping, stopped) = watch::channel(false);
    let permits = Arc::new(Semaphore::new(config.in_hand));
    let mut pollers = JoinSet::new();
    for _ in 0..config.pollers {
        pollers.spawn(one_poller(worker.clone(), config, permits.clone(), stopped.clone()));
    }
    tracing::info!(queue = worker.config.queue.url(), pollers = config.pollers, in_hand = config.in_hand, "polling");
    stop.await;
    tracing::info!("stopping: no more messages are taken");
    let _ = stopping.send(true);
    let done = async { while pollers.join_next().await.is_some() {} };
    if tokio::time::timeout(config.stop_limit, done).await.is_ok() {
        return 0;
    }
    let left = config.in_hand - permits.available_permits();
    tracing::warn!(messages = left, "not all was done in time: the rest comes back after the visibility timeout");
    left
}

async fn one_poller<P: Provider>(
    worker: Worker<P>,
    config: PollConfig,
    permits: Arc<Semaphore>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut batches = JoinSet::new();
    while !*stopped.borrow() {
        while batches.try_join_next().is_some() {}
        let first = tokio::select! {
            permit = permits.clone().acquire_owned() => permit,
            _ = stopped.changed() => break,
        };
        let Ok(mut permit) = first else { break };
        let more = permits.available_permits().min(MAX_ENTRIES - 1);
        if let Ok(more) = permits.clone().try_acquire_many_owned(more as u32) {
            permit.merge(more);
        }
        let ended = async {
            let _ = stopped.changed().await;
            tokio::time::sleep(POLL_AFTER_STOP).await;
        };
        let answer = tokio::select! {
            answer = worker.config.queue.receive(permit.num_permits(), LONG_POLL) => answer,
            () = ended => break,
        };
        match answer {
            Ok(messages) if messages.is_empty() => {}
            Ok(messages) => {
                let spare = permit.num_permits().saturating_sub(messages.len());
                drop(permit.split(spare));
                let worker = worker.clone();
                batches.spawn(async move {
                    batch(&worker, messages, config.batch_limit).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the queue cannot be polled");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
    while batches.join_next().await.is_some() {}
}

/// One batch, as Lambda would hand it over, and what Lambda does then: what succeeded is deleted, the rest comes back.
async fn batch<P: Provider>(worker: &Worker<P>, messages: Vec<Message>, limit: Duration) {
    let handles: Vec<(String, String)> = messages
        .iter()
        .map(|m| (m.message_id.clone().unwrap_or_default(), m.receipt_handle.clone().unwrap_or_default()))
        .collect();
    let mut event = SqsEvent::default();
    event.records = messages.into_iter().map(record).collect();
    match worker.handle(event, Instant::now().checked_add(limit)).await {
        Ok(response) => {
            let failed = |id: &str| response.batch_item_failures.iter().any(|item| item.item_identifier == id);
            let done: Vec<&str> = handles.iter().filter(|(id, _)| !failed(id)).map(|(_, handle)| &**handle).collect();
            worker.config.queue.delete(&done).await;
        }
        Err(error) => tracing::error!(%error, "a batch was not touched"),
    }
}

fn record(message: Message) -> SqsMessage {
    let mut record = SqsMessage::default();
    record.message_id = message.message_id;
    record.receipt_handle = message.receipt_handle;
    record.body = message.body;
    let attributes = message.attributes.unwrap_or_default();
    record.attributes = attributes.into_iter().map(|(name, value)| (name.as_str().to_owned(), value)).collect();
    record
}
