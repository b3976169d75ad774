//! The queue and its dead-letter queue.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::QueueAttributeName;
use sendslot_shared::deployment::{DLQ_RETENTION, MAX_MESSAGE_BYTES, MIN_RECEIVE_COUNT, visibility};
use serde_json::Value;

use super::finding::Findings;

/// What the environment names.
pub(super) struct Urls {
    pub(super) queue: Option<String>,
    pub(super) dead_letters: Option<String>,
}

/// The queue, as far as others need to know.
pub(super) struct Known {
    pub(super) arn: String,
    visibility: Option<Duration>,
}

type Attributes = HashMap<QueueAttributeName, String>;

pub(super) async fn check(findings: &mut Findings, sqs: &Client, urls: &Urls) -> Option<Known> {
    let queue = match &urls.queue {
        Some(url) => one(findings, sqs, "queue", url).await,
        None => {
            findings.error("queue.exists", "SENDSLOT_QUEUE_URL is not set", "give the URL of a standard queue");
            None
        }
    };
    let dead = match &urls.dead_letters {
        Some(url) if Some(url) == urls.queue.as_ref() => {
            let remedy = "give SENDSLOT_DLQ_URL a queue of its own: dead letters would come round for ever";
            findings.error("dlq.exists", "the dead-letter queue is the queue itself", remedy);
            None
        }
        Some(url) => one(findings, sqs, "dlq", url).await,
        None => {
            let remedy = "give the URL of the dead-letter queue: workers do not start without it";
            findings.error("dlq.exists", "SENDSLOT_DLQ_URL is not set", remedy);
            None
        }
    };
    if let Some(attributes) = &queue {
        redrive(findings, sqs, attributes, urls.queue.as_deref().unwrap_or_default(), dead.as_ref()).await;
    }
    if let Some(attributes) = &dead {
        retention(findings, attributes, urls.dead_letters.as_deref().unwrap_or_default());
    }
    let queue = queue?;
    let seconds = number(&queue, &QueueAttributeName::VisibilityTimeout);
    Some(Known {
        arn: queue.get(&QueueAttributeName::QueueArn).cloned().unwrap_or_default(),
        visibility: seconds.map(Duration::from_secs),
    })
}

fn number(attributes: &Attributes, name: &QueueAttributeName) -> Option<u64> {
    attributes.get(name)?.parse().ok()
}

/// `queue` and `dlq` are checked in the same way; the names of the checks differ.
async fn one(findings: &mut Findings, sqs: &Client, which: &str, url: &str) -> Option<Attributes> {
    let name = |of_queue: &'static str, of_dlq: &'static str| if which == "queue" { of_queue } else { of_dlq };
    let (exists, standard, size) =
        (name("queue.exists", "dlq.exists"), name("queue.standard", "dlq.standard"), name("queue.size", "dlq.size"));
    let asked = sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All).send().await;
    let attributes = match asked {
        Ok(answer) => answer.attributes.unwrap_or_default(),
        Err(error) => {
            let reason = DisplayErrorContext(&error).to_string();
            let remedy = "create it, or mend the URL, AWS_REGION and the credentials (sqs:GetQueueAttributes)";
            findings.error(exists, &format!("{url} cannot be used: {reason}"), remedy);
            return None;
        }
    };
    findings.ok(exists, url);
    if url.ends_with(".fifo") || attributes.get(&QueueAttributeName::FifoQueue).is_some_and(|fifo| fifo == "true") {
        let found = format!("{url} is a FIFO queue, which has no per-message delay");
        findings.error(standard, &found, "make a standard queue: the kind of a queue cannot be changed");
    } else {
        findings.ok(standard, "it is a standard queue");
    }
    if let Some(bytes) = number(&attributes, &QueueAttributeName::MaximumMessageSize)
        && bytes < MAX_MESSAGE_BYTES as u64
    {
        let found =
            format!("{url} takes messages of up to {bytes} bytes; schedulers make them of up to {MAX_MESSAGE_BYTES}");
        let remedy = set(url, &format!("MaximumMessageSize={MAX_MESSAGE_BYTES}"));
        findings.info(size, &found, &format!("unless all payloads are smaller: {remedy}"));
    }
    Some(attributes)
}

fn set(url: &str, attribute: &str) -> String {
    format!("aws sqs set-queue-attributes --queue-url {url} --attributes {attribute}")
}

async fn redrive(findings: &mut Findings, sqs: &Client, queue: &Attributes, url: &str, dead: Option<&Attributes>) {
    let (receives, target) = ("queue.receives", "queue.dead_letters");
    let policy =
        queue.get(&QueueAttributeName::RedrivePolicy).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(policy) = policy else {
        let remedy = format!(
            "give it a RedrivePolicy with the dead-letter queue's ARN and a maxReceiveCount of {MIN_RECEIVE_COUNT} or more"
        );
        return findings.error(
            target,
            &format!("{url} has no redrive policy: a message that kills workers comes for ever"),
            &remedy,
        );
    };
    // as text or as a number
    let count =
        policy["maxReceiveCount"].as_u64().or_else(|| policy["maxReceiveCount"].as_str()?.parse().ok()).unwrap_or(0);
    if count < MIN_RECEIVE_COUNT.into() {
        let found = format!("maxReceiveCount is {count}: messages that were only unlucky become dead letters");
        findings.error(
            receives,
            &found,
            &format!("set it to {MIN_RECEIVE_COUNT} or more in the queue's RedrivePolicy"),
        );
    } else {
        findings.ok(receives, &format!("maxReceiveCount is {count}"));
    }
    let arn = policy["deadLetterTargetArn"].as_str().unwrap_or_default();
    let name = arn.rsplit(':').next().unwrap_or_default();
    if dead.and_then(|dead| dead.get(&QueueAttributeName::QueueArn)).is_some_and(|own| own == arn) {
        return findings.ok(target, &format!("SQS moves messages to {name} as well"));
    }
    match sqs.get_queue_url().queue_name(name).send().await {
        Err(error) if error.as_service_error().is_some_and(|error| error.is_queue_does_not_exist()) => {
            let found = format!("the redrive policy points to {name}, which does not exist");
            findings.error(target, &found, "create it, or name the queue of SENDSLOT_DLQ_URL there");
        }
        Err(error) => {
            let found = format!("whether {name} exists could not be asked: {}", DisplayErrorContext(&error));
            findings.info(target, &found, "allow sqs:GetQueueUrl, or look for it in the console");
        }
        Ok(_) if dead.is_some() => {
            let found = format!("SQS moves messages to {name}, workers put dead letters elsewhere");
            let remedy = "name the queue of SENDSLOT_DLQ_URL in the redrive policy: `sendslot dlq` sees one";
            findings.warning(target, &found, remedy);
        }
        Ok(_) => findings.ok(target, &format!("SQS moves messages to {name}")),
    }
}

fn retention(findings: &mut Findings, dead: &Attributes, url: &str) {
    let check = "dlq.retention";
    let days = |seconds: u64| seconds as f64 / 86_400.0;
    let kept = number(dead, &QueueAttributeName::MessageRetentionPeriod).unwrap_or(0);
    if kept < DLQ_RETENTION.as_secs() {
        let found = format!("dead letters are kept for {:.1} days, and may be lost before anybody looks", days(kept));
        findings.warning(check, &found, &set(url, &format!("MessageRetentionPeriod={}", DLQ_RETENTION.as_secs())));
    } else {
        findings.ok(check, &format!("dead letters are kept for {:.0} days", days(kept)));
    }
    if dead.contains_key(&QueueAttributeName::RedrivePolicy) {
        let found = "the dead-letter queue has a redrive policy: dead letters that are looked at often are moved on";
        findings.warning("dlq.receives", found, "remove it");
    }
}

/// The rule of the queue that needs the worker's timeout.
pub(super) fn check_visibility(findings: &mut Findings, queue: Option<&Known>, timeout: Option<Duration>) {
    let check = "queue.visibility";
    let Some(given) = queue.and_then(|queue| queue.visibility) else { return };
    let Some(timeout) = timeout else {
        let found = format!("the visibility timeout is {given:?}; the worker's timeout is not known");
        return findings.info(check, &found, "not checked: give --function, or --function-timeout");
    };
    let needed = visibility(timeout);
    let found = format!("the visibility timeout is {given:?}, the worker's {timeout:?}");
    if given < needed {
        let remedy = format!(
            "set VisibilityTimeout to {} or more: a batch that runs or waits for Lambda comes twice",
            needed.as_secs()
        );
        findings.error(check, &found, &remedy);
    } else {
        findings.ok(check, &found);
    }
}
