use std::env;

use aws_sdk_sqs::Client;
use sendslot_shared::queue::{self, Queue, QueueError};
use sendslot_shared::store::{Store, StoreError};
use sendslot_shared::time::Timer;

use crate::Scheduler;

/// Why a scheduler could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A setting is missing.
    #[error("{name} is not set: {what}")]
    Missing {
        /// The environment variable.
        name: &'static str,
        /// What it is for.
        what: &'static str,
    },
    /// Redis cannot be used.
    #[error(transparent)]
    Redis(#[from] StoreError),
    /// The queue cannot be used.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// Settings of a [`Scheduler`]. What is not set here comes from the environment.
#[derive(Debug, Default)]
#[must_use]
pub struct SchedulerBuilder {
    redis_url: Option<String>,
    store: Option<Store>,
    queue_url: Option<String>,
    sqs: Option<Client>,
    timer: Option<Timer>,
    sends_in_flight: Option<usize>,
}

impl SchedulerBuilder {
    /// Redis, as `redis://host:port` or `rediss://host:port`. Else `REDIS_URL`.
    pub fn redis_url(mut self, url: impl Into<String>) -> Self {
        self.redis_url = Some(url.into());
        self
    }

    /// A store that is there already, instead of a URL.
    pub fn store(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// A standard queue's URL. Else `SENDSLOT_QUEUE_URL`.
    pub fn queue_url(mut self, url: impl Into<String>) -> Self {
        self.queue_url = Some(url.into());
        self
    }

    /// An SQS client. Else one from the usual AWS environment variables.
    pub fn sqs(mut self, client: Client) -> Self {
        self.sqs = Some(client);
        self
    }

    /// How waits are cut into SQS timers; [`Timer::SQS`] by default. Others are for tests.
    pub fn timer(mut self, timer: Timer) -> Self {
        self.timer = Some(timer);
        self
    }

    /// The most SendMessageBatch calls in flight at once; default 16, at least 1.
    pub fn sends_in_flight(mut self, calls: usize) -> Self {
        self.sends_in_flight = Some(calls.max(1));
        self
    }

    /// Makes the scheduler, and checks that Redis is there and new enough and that the queue exists.
    ///
    /// # Errors
    /// [`ConfigError`]: what is missing or wrong, and what to do.
    pub async fn build(self) -> Result<Scheduler, ConfigError> {
        let redis_url = self.redis_url.or_else(|| env::var("REDIS_URL").ok());
        let store = match (self.store, redis_url) {
            (Some(store), _) => store,
            (None, Some(url)) => Store::new(&url)?,
            (None, None) => {
                return Err(ConfigError::Missing {
                    name: "REDIS_URL",
                    what: "give redis://host:port or rediss://host:port",
                });
            }
        };
        let url = self
            .queue_url
            .or_else(|| env::var("SENDSLOT_QUEUE_URL").ok())
            .ok_or(ConfigError::Missing { name: "SENDSLOT_QUEUE_URL", what: "give the URL of a standard SQS queue" })?;
        let client = match self.sqs {
            Some(client) => client,
            None => queue::client_from_env().await,
        };
        let queue = Queue::new(client, url)?;
        store.check().await?;
        queue.check().await?;
        let timer = self.timer.unwrap_or(Timer::SQS);
        Ok(Scheduler::assemble(store, queue, timer, self.sends_in_flight.unwrap_or(16)))
    }
}
