//! Makes and removes the queues.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::QueueAttributeName;

use crate::error::StackError;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How the queues are to behave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOptions {
    /// How long a received message stays hidden: 0 s to 12 h, whole seconds.
    pub visibility_timeout: Duration,
    /// After so many receives without a delete, the next one moves the message to the dead-letter queue.
    pub max_receive_count: u32,
    /// How long the queue keeps a message: 60 s to 14 days, whole seconds. The dead-letter queue keeps it for 14 days.
    pub retention: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        QueueOptions { visibility_timeout: Duration::from_secs(30), max_receive_count: 5, retention: 4 * DAY }
    }
}

/// A queue and its dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queues {
    /// The URL of the queue.
    pub queue_url: String,
    /// The URL of its dead-letter queue.
    pub dlq_url: String,
}

/// Makes the standard queues `name` and `name-dlq`, or gives the existing ones these options.
///
/// # Errors
/// When SQS refuses or cannot be reached.
pub async fn create_queues(sqs: &Client, name: &str, options: QueueOptions) -> Result<Queues, StackError> {
    let dlq_name = format!("{name}-dlq");
    let dlq_url = create(sqs, &dlq_name).await?;
    let queue_url = create(sqs, name).await?;
    let dlq_arn = arn(sqs, &dlq_url).await?;
    let redrive = format!(r#"{{"deadLetterTargetArn":"{dlq_arn}","maxReceiveCount":"{}"}}"#, options.max_receive_count);
    let seconds = |duration: Duration| duration.as_secs().to_string();
    let attributes = [(QueueAttributeName::MessageRetentionPeriod, seconds(14 * DAY))];
    set(sqs, &dlq_url, HashMap::from(attributes)).await?;
    let attributes = [
        (QueueAttributeName::VisibilityTimeout, seconds(options.visibility_timeout)),
        (QueueAttributeName::MessageRetentionPeriod, seconds(options.retention)),
        (QueueAttributeName::RedrivePolicy, redrive),
    ];
    set(sqs, &queue_url, HashMap::from(attributes)).await?;
    Ok(Queues { queue_url, dlq_url })
}

/// Deletes the queue, then its dead-letter queue, with all their messages.
///
/// # Errors
/// When SQS refuses or cannot be reached.
pub async fn delete_queues(sqs: &Client, queues: &Queues) -> Result<(), StackError> {
    for url in [&queues.queue_url, &queues.dlq_url] {
        sqs.delete_queue().queue_url(url).send().await.map_err(failed("delete", url))?;
    }
    Ok(())
}

/// Without attributes the call also succeeds on a queue that exists, whatever attributes that one has.
async fn create(sqs: &Client, name: &str) -> Result<String, StackError> {
    let output = sqs.create_queue().queue_name(name).send().await.map_err(failed("create", name))?;
    output.queue_url.ok_or_else(|| missing("create", name, "the reply has no URL"))
}

async fn arn(sqs: &Client, url: &str) -> Result<String, StackError> {
    let request = sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::QueueArn);
    let output = request.send().await.map_err(failed("describe", url))?;
    let arn = output.attributes.and_then(|mut attributes| attributes.remove(&QueueAttributeName::QueueArn));
    arn.ok_or_else(|| missing("describe", url, "the reply has no ARN"))
}

async fn set(sqs: &Client, url: &str, attributes: HashMap<QueueAttributeName, String>) -> Result<(), StackError> {
    let request = sqs.set_queue_attributes().queue_url(url).set_attributes(Some(attributes));
    request.send().await.map_err(failed("configure", url))?;
    Ok(())
}

fn failed<E: std::error::Error>(action: &'static str, queue: &str) -> impl FnOnce(E) -> StackError {
    let queue = queue.to_owned();
    move |error| StackError::Sqs { action, queue, message: DisplayErrorContext(&error).to_string() }
}

fn missing(action: &'static str, queue: &str, message: &str) -> StackError {
    StackError::Sqs { action, queue: queue.to_owned(), message: message.to_owned() }
}
