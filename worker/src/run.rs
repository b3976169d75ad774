//! The wiring: to Lambda, and of the long-lived worker.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lambda_events::event::sqs::SqsEvent;
use lambda_runtime::{LambdaEvent, service_fn};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::batch::Worker;
use crate::config::{ConfigError, WorkerConfig};
use crate::export::{self, Export};
use crate::message::lease;
use crate::poll::{PollConfig, poll};
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
    /// Signals cannot be heard.
    #[error("SIGTERM and SIGINT cannot be heard: {0}")]
    Signals(#[source] std::io::Error),
    /// A long-lived worker was stopped, and `SENDSLOT_POLL_STOP_MS` was too short.
    #[error("stopped with {messages} messages in hand: they come back after the visibility timeout")]
    Unfinished {
        /// Messages.
        messages: usize,
    },
    /// A long-lived worker was told a second time to stop.
    #[error("stopped at once by a second signal: what was in hand comes back after the visibility timeout")]
    SecondSignal,
}

/// Runs a worker for this provider as a Lambda function, configured from the environment, until Lambda stops it.
///
/// In Lambda it writes its metrics to standard output in CloudWatch's embedded metric format, unless `SENDSLOT_METRICS` is `none` or
/// the program has installed a recorder of its own (`SENDSLOT_METRICS=emf`: elsewhere as well); `SENDSLOT_METRICS_NAMESPACE`
/// [default: Sendslot].
///
/// # Errors
/// [`RunError`].
pub async fn run<P: Provider>(provider: P) -> Result<(), RunError> {
    let worker = Worker::new(WorkerConfig::from_env().await?, provider);
    let emf = export::of_function()?;
    let handler = service_fn(|event: LambdaEvent<SqsEvent>| {
        let (worker, emf) = (worker.clone(), emf.clone());
        async move {
            let end = invocation_end(event.context.deadline);
            let answer = worker.handle(event.payload, end).await.map_err(lambda_runtime::Error::from);
            if let Some(emf) = &emf {
                export::write(emf);
            }
            answer
        }
    });
    lambda_runtime::run(handler).await.map_err(RunError::Lambda)
}

/// Runs a long-lived worker for this provider, configured from the environment, until SIGTERM or SIGINT: then it takes no more
/// messages and ends when what it has in hand is done, or after `SENDSLOT_POLL_STOP_MS`. A second signal ends it at once.
///
/// `SENDSLOT_METRICS` says how its metrics leave it [default: none]: `prometheus` serves them at `/metrics` of
/// `SENDSLOT_METRICS_LISTEN` [default: 127.0.0.1:9464], with 200 at `/healthz`; `emf` writes them as in Lambda, each minute and at
/// the end.
///
/// # Errors
/// [`RunError`].
pub async fn run_polling<P: Provider>(provider: P) -> Result<(), RunError> {
    let (config, polling) = (WorkerConfig::from_env().await?, PollConfig::from_env()?);
    let needed = lease(provider.call_timeout());
    if polling.batch_limit < needed {
        return Err(ConfigError::Unreadable {
            name: "SENDSLOT_POLL_BATCH_MS",
            given: polling.batch_limit.as_millis().to_string(),
            what: "a wait and a provider call do not fit: give more than the call's timeout and 5.1 s",
        }
        .into());
    }
    let export = Export::of_process().await?;
    config.queue.check().await.map_err(ConfigError::from)?;
    let (mut first, mut second) = signals().map(|signals| (signals.clone(), signals)).map_err(RunError::Signals)?;
    let stop = async move { drop(first.wait_for(|n| *n >= 1).await) };
    let ended = tokio::select! {
        left = poll(Worker::new(config, provider), polling, stop) => match left {
            0 => Ok(()),
            messages => Err(RunError::Unfinished { messages }),
        },
        _ = second.wait_for(|n| *n >= 2) => Err(RunError::SecondSignal),
        never = export.run() => match never {},
    };
    export.finish();
    ended
}

/// How many times SIGTERM or SIGINT came.
fn signals() -> std::io::Result<watch::Receiver<u32>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            count.send_modify(|n| *n += 1);
        }
    });
    Ok(counted)
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
