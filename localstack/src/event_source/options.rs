//! What an event source is told at its start.

use std::path::PathBuf;
use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName;

use super::queue_address::QueueAddress;
use super::{EventSourceError, Ramp, WorkerLog};

/// Largest batch without a window, as on AWS.
const BATCH_WITHOUT_WINDOW: usize = 10;

/// Everything about an event source; [`EventSourceOptions::new`] gives AWS's defaults.
#[derive(Debug, Clone)]
pub struct EventSourceOptions {
    /// Client for the queue.
    pub sqs: aws_sdk_sqs::Client,
    /// The queue to poll.
    pub queue_url: String,
    /// The worker binary, which speaks the Lambda Runtime API.
    pub worker: PathBuf,
    /// Environment of the worker on top of Lambda's own; nothing else is inherited but PATH.
    pub environment: Vec<(String, String)>,
    /// Most messages in a batch: 1..=10,000, above 10 only with a window of at least 1 s.
    pub batch_size: usize,
    /// MaximumBatchingWindowInSeconds: how long to gather after the first message, 0..=300 s.
    pub window: Duration,
    /// Most environments, and so most concurrent invocations.
    pub max_environments: usize,
    /// Environments that are started at once and replaced when they end.
    pub min_environments: usize,
    /// How concurrency grows; `None` allows `max_environments` from the start.
    pub ramp: Option<Ramp>,
    /// The function's timeout: an environment that takes longer is killed.
    pub function_timeout: Duration,
    /// Parallel pollers of the queue.
    pub pollers: usize,
    /// WaitTimeSeconds of a poll, whole seconds in 0..=20 s.
    pub long_poll: Duration,
    /// AWS_LAMBDA_FUNCTION_NAME.
    pub function_name: String,
    /// Lambda-Runtime-Invoked-Function-Arn.
    pub function_arn: String,
    /// eventSourceARN of every record.
    pub queue_arn: String,
    /// awsRegion of every record, and AWS_REGION of the worker.
    pub region: String,
    /// Where the worker's output goes.
    pub log: WorkerLog,
}

impl EventSourceOptions {
    /// AWS's defaults: batches of 10, no window, 1,000 environments, a timeout of 30 s, no ramp, five pollers that
    /// wait for 20 s. Names are taken from the URL.
    #[must_use]
    pub fn new(sqs: aws_sdk_sqs::Client, queue_url: impl Into<String>, worker: impl Into<PathBuf>) -> Self {
        let queue_url = queue_url.into();
        let configured = sqs.config().region().map(ToString::to_string);
        let address = QueueAddress::of(&queue_url, configured.as_deref());
        let function_name = "sendslot-worker".to_owned();
        Self {
            sqs,
            worker: worker.into(),
            environment: Vec::new(),
            batch_size: 10,
            window: Duration::ZERO,
            max_environments: 1_000,
            min_environments: 0,
            ramp: None,
            function_timeout: Duration::from_secs(30),
            pollers: 5,
            long_poll: Duration::from_secs(20),
            function_arn: address.function_arn(&function_name),
            function_name,
            queue_arn: address.queue_arn(),
            region: address.region,
            queue_url,
            log: WorkerLog::Discard,
        }
    }

    pub(super) fn check(&self) -> Result<(), EventSourceError> {
        if let Some(complaint) = self.complaint() {
            return Err(EventSourceError::Options(complaint.to_owned()));
        }
        if !self.worker.is_file() {
            return Err(EventSourceError::NoWorker(self.worker.clone()));
        }
        Ok(())
    }

    fn complaint(&self) -> Option<&'static str> {
        let window_s = self.window.as_secs_f64();
        if !(1..=10_000).contains(&self.batch_size) {
            Some("batch_size must be 1..=10,000")
        } else if window_s > 300.0 {
            Some("window must be 0..=300 s")
        } else if self.batch_size > BATCH_WITHOUT_WINDOW && window_s < 1.0 {
            Some("a batch_size above 10 needs a window of at least 1 s")
        } else if self.queue_url.ends_with(".fifo") && self.batch_size > BATCH_WITHOUT_WINDOW {
            Some("a FIFO queue allows batches of at most 10")
        } else if self.max_environments == 0 || self.pollers == 0 {
            Some("max_environments and pollers must be at least 1")
        } else if self.min_environments > self.max_environments {
            Some("min_environments must not be above max_environments")
        } else if self.function_timeout.is_zero() || self.function_timeout > Duration::from_secs(900) {
            Some("function_timeout must be above 0 and at most 900 s")
        } else if self.long_poll > Duration::from_secs(20) {
            Some("long_poll must be at most 20 s")
        } else {
            None
        }
    }

    pub(super) async fn check_queue(&self) -> Result<(), EventSourceError> {
        let name = QueueAttributeName::VisibilityTimeout;
        let request = self.sqs.get_queue_attributes().queue_url(&self.queue_url).attribute_names(name.clone());
        let url = || self.queue_url.clone();
        let reply =
            request.send().await.map_err(|error| EventSourceError::Queue { url: url(), source: error.into() })?;
        let value = reply.attributes().and_then(|attributes| attributes.get(&name));
        let visibility_s = value.and_then(|text| text.parse().ok()).unwrap_or(30);
        if Duration::from_secs(visibility_s) < self.function_timeout {
            let function_s = self.function_timeout.as_secs_f64().ceil() as u64;
            return Err(EventSourceError::VisibilityTooShort { visibility_s, function_s });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> EventSourceOptions {
        let config = aws_sdk_sqs::Config::builder().behavior_version_latest().build();
        let sqs = aws_sdk_sqs::Client::from_conf(config);
        EventSourceOptions::new(sqs, "http://127.0.0.1:4566/000000000000/q", "/bin/sh")
    }

    #[tokio::test]
    async fn defaults_pass_and_names_come_from_the_url() {
        let options = options();
        assert!(options.check().is_ok());
        assert_eq!(options.queue_arn, "arn:aws:sqs:us-east-1:000000000000:q");
    }

    #[tokio::test]
    async fn aws_bounds_are_kept() {
        let second = Duration::from_secs(1);
        assert!(EventSourceOptions { batch_size: 11, ..options() }.check().is_err());
        assert!(EventSourceOptions { batch_size: 11, window: second, ..options() }.check().is_ok());
        assert!(EventSourceOptions { batch_size: 10_001, window: second, ..options() }.check().is_err());
        assert!(EventSourceOptions { window: second * 301, ..options() }.check().is_err());
        assert!(EventSourceOptions { min_environments: 2_000, ..options() }.check().is_err());
        assert!(EventSourceOptions { long_poll: second * 21, ..options() }.check().is_err());
        let missing = EventSourceOptions { worker: "/no/such/worker".into(), ..options() };
        assert!(matches!(missing.check(), Err(EventSourceError::NoWorker(_))));
    }
}
