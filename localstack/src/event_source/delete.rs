//! Deletes the messages that succeeded, ten at a time and side by side.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use tokio::task::JoinSet;

use super::core::Core;

/// SQS takes at most ten entries in one call.
const MOST_AT_ONCE: usize = 10;

pub(super) async fn all(core: &Arc<Core>, handles: Vec<String>) {
    if handles.len() <= MOST_AT_ONCE {
        return some(core, handles).await;
    }
    let mut calls = JoinSet::new();
    for handles in handles.chunks(MOST_AT_ONCE) {
        let (core, handles) = (Arc::clone(core), handles.to_vec());
        calls.spawn(async move { some(&core, handles).await });
    }
    while calls.join_next().await.is_some() {}
}

/// Deletes up to ten; entries that fail are tried once more, then left to come back.
async fn some(core: &Core, handles: Vec<String>) {
    if handles.is_empty() {
        return;
    }
    let failed = once(core, handles).await;
    if failed.is_empty() {
        return;
    }
    let left = once(core, failed).await;
    if !left.is_empty() {
        tracing::warn!(messages = left.len(), "messages cannot be deleted and will come back");
    }
}

/// One call; the receipt handles that are still to be deleted.
async fn once(core: &Core, handles: Vec<String>) -> Vec<String> {
    let entry = |(index, handle): (usize, &String)| {
        DeleteMessageBatchRequestEntry::builder().id(index.to_string()).receipt_handle(handle).build()
    };
    let Ok(entries) = handles.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>() else { return handles };
    let request = core.options.sqs.delete_message_batch().queue_url(&core.options.queue_url);
    match request.set_entries(Some(entries)).send().await {
        Ok(reply) => {
            core.counters.deleted.fetch_add(reply.successful().len() as u64, Relaxed);
            let failed: Vec<usize> = reply.failed().iter().filter_map(|entry| entry.id().parse().ok()).collect();
            handles
                .into_iter()
                .enumerate()
                .filter(|(index, _)| failed.contains(index))
                .map(|(_, handle)| handle)
                .collect()
        }
        Err(error) => {
            tracing::warn!(error = %DisplayErrorContext(&error), "messages cannot be deleted");
            handles
        }
    }
}
