//! The wiring to Lambda.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lambda_events::event::sqs::SqsEvent;
use lambda_runtime::{LambdaEvent, service_fn};

use crate::batch::Worker;
use crate::config::{ConfigError, WorkerConfig};
use crate::provider::Provider;

/// Why a worker ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not start.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Lambda's Runtime API failed.
    #[error("the Lambda runtime failed: {0}")]
    Lambda(#[source] lambda_runtime::Error),
}

/// Runs a worker for this provider as a Lambda function, configured from the environment, until Lambda stops it.
///
/// # Errors
/// [`RunError`].
pub async fn run<P: Provider>(provider: P) -> Result<(), RunError> {
    let worker = Worker::new(WorkerConfig::from_env().await?, provider);
    let handler = service_fn(|event: LambdaEvent<SqsEvent>| {
        let worker = worker.clone();
        async move {
            let end = invocation_end(event.context.deadline);
            worker.handle(event.payload, end).await.map_err(lambda_runtime::Error::from)
        }
    });
    lambda_runtime::run(handler).await.map_err(RunError::Lambda)
}

/// Lambda's deadline (ms since 1970) on this process's own clock. One that has passed before the handler starts is none:
/// `cargo lambda watch` always sends an instant in 1970.
fn invocation_end(deadline_ms: u64) -> Option<Instant> {
    let deadline = UNIX_EPOCH.checked_add(Duration::from_millis(deadline_ms))?;
    let left = deadline.duration_since(SystemTime::now()).ok()?;
    Instant::now().checked_add(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_in_the_past_is_none() {
        assert_eq!(invocation_end(600_000), None);
        assert_eq!(invocation_end(0), None);
        let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(30);
        let end = invocation_end(soon.as_millis() as u64).unwrap();
        assert!(end.duration_since(Instant::now()) > Duration::from_secs(28));
        assert!(invocation_end(u64::MAX).is_none_or(|end| end > Instant::now()));
    }
}
