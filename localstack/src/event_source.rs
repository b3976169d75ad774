//! An emulator of the AWS Lambda event-source mapping for SQS, which runs the real worker binary.
//!
//! Pollers take a concurrency permit, gather a batch from the queue and invoke one environment: a process of the
//! worker that speaks the Lambda Runtime API. What the worker does not name as failed is deleted; the rest comes
//! back when its visibility timeout ends, as on AWS (`ReportBatchItemFailures` is always on).
//!
//! Not emulated: freezing between invocations, scaling down, filter criteria, provisioned pollers.

mod batch;
mod core;
mod delete;
mod environment;
mod error;
mod handover;
mod invocation;
mod lifecycle;
mod log;
mod options;
mod partial_batch;
mod poller;
mod pool;
mod queue_address;
mod ramp;
mod record;
mod runtime_api;
mod stats;
mod worker_process;

use std::sync::Arc;
use std::time::Duration;

pub use error::EventSourceError;
pub use log::{LineSink, WorkerLog};
pub use options::EventSourceOptions;
pub use partial_batch::{CompleteFailure, failed_items};
pub use ramp::{Ramp, RampState};
pub use stats::EventSourceStats;

use self::core::Core;
use lifecycle::Phase;

/// A running event source; dropping it kills every environment.
#[derive(Debug)]
pub struct EventSource {
    core: Arc<Core>,
}

impl EventSource {
    /// Checks the options and the queue, starts the warm environments, then polls.
    ///
    /// Must be called within a Tokio runtime, which then carries the pollers and the Runtime API.
    ///
    /// # Errors
    /// [`EventSourceError`], when an option is out of AWS's bounds, the queue does not answer or hides messages for
    /// a shorter time than the function may run, or a warm environment does not come up.
    pub async fn start(options: EventSourceOptions) -> Result<Self, EventSourceError> {
        options.check()?;
        options.check_queue().await?;
        let listener = runtime_api::listen().await?;
        let source = Self { core: Arc::new(Core::new(options, &listener)?) };
        runtime_api::serve(&source.core, listener);
        pool::start_warm(&source.core).await?;
        ramp::start(&source.core);
        poller::start(&source.core);
        Ok(source)
    }

    /// What has been counted so far.
    #[must_use]
    pub fn stats(&self) -> EventSourceStats {
        self.core.counters.snapshot()
    }

    /// The last lines that any environment wrote, oldest first.
    #[must_use]
    pub fn last_log_lines(&self) -> Vec<String> {
        self.core.log.tail()
    }

    /// Stops polling, lets polls, invocations and deletes finish for at most `limit`, then kills all environments
    /// and waits until they are gone.
    ///
    /// A long poll is given another 250 ms, since SQS may just be handing out messages; what it hands out to a poll
    /// that was given up comes back when its visibility timeout ends.
    pub async fn stop(self, limit: Duration) -> EventSourceStats {
        self.core.lifecycle.advance(Phase::Draining);
        if tokio::time::timeout(limit, self.core.lifecycle.idle()).await.is_err() {
            tracing::warn!(limit_ms = limit.as_millis(), "event source stops with work under way");
        }
        self.core.kill();
        self.core.counters.no_environments().await;
        self.stats()
    }
}

impl Drop for EventSource {
    fn drop(&mut self) {
        self.core.kill();
    }
}

#[cfg(test)]
mod tests;
