use std::env;
use std::fmt;
use std::sync::{Arc, Mutex};

use aws_sdk_sqs::Client;
use sendslot_shared::outage::Outages;
use sendslot_shared::policy_file::{PolicyFile, PolicyFileError};
use sendslot_shared::queue::{self, Queue, QueueError};
use sendslot_shared::redis_policy::{InvalidRedisPolicy, RedisPolicies};
use sendslot_shared::store::{Store, StoreError};
use sendslot_shared::time::Timer;
use tokio::sync::Semaphore;

use crate::scheduler::{Inner, Scheduler};

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
    /// `SENDSLOT_REDIS_POLICY` cannot be read.
    #[error(transparent)]
    RedisPolicy(#[from] InvalidRedisPolicy),
    /// `SENDSLOT_POLICY_FILE` cannot be used.
    #[error(transparent)]
    PolicyFile(#[from] PolicyFileError),
}

/// Settings of a [`Scheduler`]. What is not set here comes from the environment.
#[derive(Default)]
#[must_use]
pub struct SchedulerBuilder {
    redis_url: Option<String>,
    store: Option<Store>,
    queue_url: Option<String>,
    sqs: Option<Client>,
    timer: Option<Timer>,
    sends_in_flight: Option<usize>,
    redis_policies: Option<RedisPolicies>,
    start_without_redis: bool,
    start_without_sqs: bool,
    policy_file: Option<PolicyFile>,
}

impl fmt::Debug for SchedulerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // the Redis URL may hold a password
        f.debug_struct("SchedulerBuilder").field("queue_url", &self.queue_url).finish_non_exhaustive()
    }
}

impl SchedulerBuilder {
    /// Redis: one server, a cluster or a primary behind Sentinel, in the forms that [`Store::new`] lists. Else `REDIS_URL`.
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

    /// What becomes of sends while Redis cannot be asked. Else `SENDSLOT_REDIS_POLICY` (`hold`, `local:5`,
    /// `codes=local:5,sendgrid/news=hold`), else all are held. Give the same to the workers.
    pub fn redis_policies(mut self, policies: RedisPolicies) -> Self {
        self.redis_policies = Some(policies);
        self
    }

    /// Policies for budgets that have none in Redis, which may have lost them. Else those of the file that `SENDSLOT_POLICY_FILE`
    /// names, as `sendslot budget get --json` prints them.
    pub fn policy_file(mut self, policies: PolicyFile) -> Self {
        self.policy_file = Some(policies);
        self
    }

    /// Makes the scheduler though Redis does not answer yet: it accepts sends unbooked until it does. Not by default, since a
    /// wrong address looks the same.
    pub fn start_without_redis(mut self) -> Self {
        self.start_without_redis = true;
        self
    }

    /// Makes the scheduler though SQS does not answer yet: it accepts nothing until it does. Not by default, since a wrong address
    /// looks the same.
    pub fn start_without_sqs(mut self) -> Self {
        self.start_without_sqs = true;
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
        let redis_policies = match (self.redis_policies, env::var("SENDSLOT_REDIS_POLICY")) {
            (Some(policies), _) => policies,
            (None, Ok(text)) if !text.is_empty() => text.parse()?,
            _ => RedisPolicies::default(),
        };
        let policy_file = match (self.policy_file, env::var("SENDSLOT_POLICY_FILE")) {
            (Some(policies), _) => policies,
            (None, Ok(path)) if !path.is_empty() => PolicyFile::read(path)?,
            _ => PolicyFile::default(),
        };
        match store.check().await {
            Err(error) if self.start_without_redis && error.is_temporary() => {}
            checked => checked?,
        }
        match queue.check().await {
            Err(error) if self.start_without_sqs && error.is_temporary() => {}
            checked => checked?,
        }
        let timer = self.timer.unwrap_or(Timer::SQS);
        let in_flight = Semaphore::new(self.sends_in_flight.unwrap_or(16));
        Ok(Scheduler(Arc::new(Inner {
            store,
            queue,
            timer,
            in_flight,
            redis_policies,
            policy_file,
            outages: Outages::default(),
            counters: Mutex::default(),
        })))
    }
}
