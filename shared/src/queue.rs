//! The SQS side: one standard queue, its batches, delays and errors.

use std::fmt;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::{DisplayErrorContext, ErrorMetadata};
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, Message, MessageAttributeValue, MessageSystemAttributeName, QueueAttributeName,
    SendMessageBatchRequestEntry,
};

use crate::envelope::MAX_BODY_BYTES;
use crate::time::DelaySeconds;

/// The most entries of one SendMessageBatch (SQS).
pub const MAX_ENTRIES: usize = 10;

/// Why a queue cannot be used, or a message was not put on it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum QueueError {
    /// A FIFO queue.
    #[error("{url} is a FIFO queue, which has no per-message delay: give the URL of a standard queue")]
    Fifo {
        /// Its URL.
        url: String,
    },
    /// No such queue, or no permission, or no SQS.
    #[error(
        "the queue {url} cannot be used: {reason}. Check the URL, AWS_REGION and the credentials, or create the queue"
    )]
    Unusable {
        /// Its URL.
        url: String,
        /// What SQS or the SDK says.
        reason: String,
        /// SQS itself said so; else nobody answered.
        answered: bool,
    },
    /// SQS refused this message, alone.
    #[error("SQS refused the message: {code}: {reason}")]
    Refused {
        /// SQS' code.
        code: String,
        /// SQS' words.
        reason: String,
    },
    /// The call failed; the message may be on the queue all the same.
    #[error("SQS could not be asked: {reason}")]
    Unreachable {
        /// What the SDK says.
        reason: String,
    },
}

impl QueueError {
    /// Whether waiting may help: nobody answered.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unusable { answered: false, .. })
    }

    /// Refused where SQS answered, else unreachable.
    fn of(error: &(dyn std::error::Error + 'static), answered: Option<&ErrorMetadata>) -> Self {
        match answered {
            Some(meta) => Self::Refused {
                code: meta.code().unwrap_or("unknown").to_owned(),
                reason: meta.message().unwrap_or_default().to_owned(),
            },
            None => Self::Unreachable { reason: DisplayErrorContext(error).to_string() },
        }
    }
}

/// One message to be put on the queue. Its body is left out when it is printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The body, at most 1 MiB.
    pub body: String,
    /// When it shows up.
    pub delay: DelaySeconds,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { body, delay } = self;
        f.debug_struct("Entry").field("body_bytes", &body.len()).field("delay", delay).finish()
    }
}

/// A standard queue.
#[derive(Clone)]
pub struct Queue {
    client: Client,
    url: String,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Queue {
    /// A queue by its URL. Nothing is asked yet.
    ///
    /// # Errors
    /// [`QueueError::Fifo`].
    pub fn new(client: Client, url: impl Into<String>) -> Result<Self, QueueError> {
        let url = url.into();
        if url.trim_end_matches('/').ends_with(".fifo") {
            return Err(QueueError::Fifo { url });
        }
        Ok(Self { client, url })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Asks SQS whether the queue is there.
    ///
    /// # Errors
    /// [`QueueError::Unusable`].
    pub async fn check(&self) -> Result<(), QueueError> {
        let asked = self.client.get_queue_attributes().queue_url(&self.url);
        let answer = asked.attribute_names(QueueAttributeName::QueueArn).send().await;
        answer.map(drop).map_err(|e| {
            let answered = e.raw_response().is_some_and(|response| !response.status().is_server_error());
            QueueError::Unusable { url: self.url.clone(), reason: DisplayErrorContext(&e).to_string(), answered }
        })
    }

    /// Puts up to [`MAX_ENTRIES`] messages of together at most 1 MiB on the queue, in one call. What the call did not
    /// take is sent once more on its own, so that one bad entry fails alone.
    pub async fn send_batch(&self, entries: &[Entry]) -> Vec<Result<(), QueueError>> {
        if let [entry] = entries {
            return vec![self.send(entry, &[]).await];
        }
        let mut results = match self.try_batch(entries).await {
            Ok(results) => results,
            // nobody answered: ten single calls would not be heard either
            Err(unreachable @ QueueError::Unreachable { .. }) => return vec![Err(unreachable); entries.len()],
            Err(refused) => vec![Err(refused); entries.len()],
        };
        for (entry, result) in entries.iter().zip(&mut results) {
            if result.is_err() {
                *result = self.send(entry, &[]).await;
            }
        }
        results
    }

    async fn try_batch(&self, entries: &[Entry]) -> Result<Vec<Result<(), QueueError>>, QueueError> {
        let requests: Vec<_> = entries.iter().enumerate().filter_map(|(i, e)| batch_entry(i, e)).collect();
        let answer = self.client.send_message_batch().queue_url(&self.url).set_entries(Some(requests)).send().await;
        let answer = answer.map_err(|e| QueueError::of(&e, e.as_service_error().map(|s| s.meta())))?;
        // an entry in neither list is one that SQS did not answer for
        let silent = QueueError::Unreachable { reason: "no answer for this entry".to_owned() };
        let mut results = vec![Err(silent); entries.len()];
        let index = |id: &str| id.parse::<usize>().ok().filter(|i| *i < entries.len());
        for entry in &answer.successful {
            if let Some(i) = index(&entry.id) {
                results[i] = Ok(());
            }
        }
        for entry in &answer.failed {
            if let Some(i) = index(&entry.id) {
                let reason = entry.message.clone().unwrap_or_default();
                results[i] = Err(QueueError::Refused { code: entry.code.clone(), reason });
            }
        }
        Ok(results)
    }

    /// Puts one message on the queue, with string attributes (empty values are left out, since SQS refuses them).
    ///
    /// # Errors
    /// [`QueueError::Refused`], [`QueueError::Unreachable`].
    pub async fn send(&self, entry: &Entry, attributes: &[(&str, &str)]) -> Result<(), QueueError> {
        let mut request = self.client.send_message().queue_url(&self.url).message_body(&entry.body);
        for (name, value) in attributes.iter().filter(|(_, value)| !value.is_empty()) {
            let value = MessageAttributeValue::builder().data_type("String").string_value(attribute_text(value));
            if let Ok(value) = value.build() {
                request = request.message_attributes(*name, value);
            }
        }
        match request.delay_seconds(entry.delay.get()).send().await {
            Ok(_) => Ok(()),
            Err(e) => Err(QueueError::of(&e, e.as_service_error().map(|s| s.meta()))),
        }
    }
}

impl Queue {
    /// Takes up to [`MAX_ENTRIES`] messages, with all their attributes; waits for the first one for so long, whole seconds up to 20.
    /// They are hidden from others for the queue's visibility timeout.
    ///
    /// # Errors
    /// [`QueueError::Refused`], [`QueueError::Unreachable`].
    pub async fn receive(&self, most: usize, wait: Duration) -> Result<Vec<Message>, QueueError> {
        let request = self.client.receive_message().queue_url(&self.url);
        let request = request.max_number_of_messages(most.clamp(1, MAX_ENTRIES) as i32);
        let request = request.wait_time_seconds(wait.as_secs().min(20) as i32);
        let request = request.message_system_attribute_names(MessageSystemAttributeName::All);
        let answer = request.message_attribute_names("All").send().await;
        let answer = answer.map_err(|e| QueueError::of(&e, e.as_service_error().map(|s| s.meta())))?;
        Ok(answer.messages.unwrap_or_default())
    }

    /// Deletes messages by their receipt handles, [`MAX_ENTRIES`] in one call; what fails is tried once more. Answers how many are
    /// left: they come back.
    pub async fn delete(&self, handles: &[&str]) -> usize {
        let mut left = 0;
        for handles in handles.chunks(MAX_ENTRIES) {
            let failed = self.delete_some(handles).await;
            left += if failed.is_empty() { 0 } else { self.delete_some(&failed).await.len() };
        }
        left
    }

    /// One call; the handles that are still to be deleted.
    async fn delete_some<'a>(&self, handles: &[&'a str]) -> Vec<&'a str> {
        let entry = |(i, handle): (usize, &&str)| {
            DeleteMessageBatchRequestEntry::builder().id(i.to_string()).receipt_handle(*handle).build()
        };
        let Ok(entries) = handles.iter().enumerate().map(entry).collect() else { return handles.to_vec() };
        let request = self.client.delete_message_batch().queue_url(&self.url).set_entries(Some(entries));
        match request.send().await {
            Ok(answer) => {
                let failed = answer.failed.iter().filter_map(|entry| handles.get(entry.id.parse::<usize>().ok()?));
                failed.copied().collect()
            }
            Err(error) => {
                tracing::warn!(error = %DisplayErrorContext(&error), "messages could not be deleted");
                handles.to_vec()
            }
        }
    }
}

/// At most 1,000 bytes, and only characters that SQS takes.
fn attribute_text(value: &str) -> String {
    let taken = |c: &char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    let mut text: String = value.chars().filter(taken).take(1000).collect();
    text.truncate(text.floor_char_boundary(1000));
    text
}

/// The entry's ID is its index: send IDs are no batch entry IDs.
fn batch_entry(index: usize, entry: &Entry) -> Option<SendMessageBatchRequestEntry> {
    let builder = SendMessageBatchRequestEntry::builder().id(index.to_string());
    builder.message_body(&entry.body).delay_seconds(entry.delay.get()).build().ok()
}

/// Cuts bodies, by their sizes and in their order, into batches that SendMessageBatch takes: count and total bytes.
#[must_use]
pub fn pack(sizes: &[usize]) -> Vec<std::ops::Range<usize>> {
    let mut batches = vec![];
    let (mut start, mut bytes) = (0, 0);
    for (i, size) in sizes.iter().enumerate() {
        if i > start && (i - start == MAX_ENTRIES || bytes + size > MAX_BODY_BYTES) {
            batches.push(start..i);
            (start, bytes) = (i, 0);
        }
        bytes += size;
    }
    if start < sizes.len() {
        batches.push(start..sizes.len());
    }
    batches
}

/// A client for SQS from the usual AWS environment variables; `AWS_ENDPOINT_URL` leads it elsewhere.
pub async fn client_from_env() -> Client {
    Client::new(&config_from_env().await)
}

/// What clients for AWS share: the usual environment variables, and timeouts.
pub async fn config_from_env() -> aws_config::SdkConfig {
    let timeouts = aws_config::timeout::TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(3))
        .operation_attempt_timeout(Duration::from_secs(15))
        .build();
    aws_config::defaults(aws_config::BehaviorVersion::latest()).timeout_config(timeouts).load().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn batches_hold_ten_entries_and_one_mebibyte() {
        // Q6, localstack#4135
        assert_eq!(pack(&[]), []);
        assert_eq!(pack(&[200_000; 12]), [0..5, 5..10, 10..12]);
        assert_eq!(pack(&[1; 25]), [0..10, 10..20, 20..25]);
        assert_eq!(pack(&[MAX_BODY_BYTES, 1, MAX_BODY_BYTES]), [0..1, 1..2, 2..3]);
    }

    #[test]
    fn attributes_lose_what_sqs_refuses() {
        assert_eq!(attribute_text("a\u{0}b\u{ffff}é"), "abé");
    }

    proptest! {
        #[test]
        fn packing_keeps_every_entry_in_order(sizes in prop::collection::vec(0..=MAX_BODY_BYTES, 0..60)) {
            let batches = pack(&sizes);
            let flat: Vec<usize> = batches.iter().cloned().flatten().collect();
            prop_assert_eq!(flat, (0..sizes.len()).collect::<Vec<_>>());
            for batch in batches {
                prop_assert!(batch.len() <= MAX_ENTRIES);
                prop_assert!(sizes[batch].iter().sum::<usize>() <= MAX_BODY_BYTES);
            }
        }
    }
}
