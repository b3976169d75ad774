use std::env;
use std::time::Duration;

use sendslot_shared::policy_file::{PolicyFile, PolicyFileError};
use sendslot_shared::queue::{self, Queue, QueueError};
use sendslot_shared::redis_policy::{InvalidRedisPolicy, RedisPolicies};
use sendslot_shared::store::{Store, StoreError};
use sendslot_shared::time::Timer;

use crate::backoff::Backoff;

/// Why a worker cannot start.
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
    /// A setting cannot be read.
    #[error("{name}={given} cannot be used: {what}")]
    Unreadable {
        /// The environment variable.
        name: &'static str,
        /// What was given.
        given: String,
        /// What is taken.
        what: &'static str,
    },
    /// An address that was to be listened on.
    #[error("{name}={given} cannot be listened on: {source}; give a free HOST:PORT of this machine, port 0 for any")]
    Listen {
        /// The environment variable.
        name: &'static str,
        /// The address.
        given: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The Redis URL.
    #[error(transparent)]
    Redis(#[from] StoreError),
    /// A queue's URL.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// `SENDSLOT_REDIS_POLICY`.
    #[error(transparent)]
    RedisPolicy(#[from] InvalidRedisPolicy),
    /// `SENDSLOT_POLICY_FILE`.
    #[error(transparent)]
    PolicyFile(#[from] PolicyFileError),
}

/// What a worker needs besides its provider. Nothing is connected before the first batch.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Redis.
    pub store: Store,
    /// Where copies are put back.
    pub queue: Queue,
    /// Where sends end that cannot be made.
    pub dead_letters: Queue,
    /// How waits are cut into SQS timers.
    pub timer: Timer,
    /// How long a send waits after a failure.
    pub backoff: Backoff,
    /// Copies that cannot be claimed come back after half to all of this, in whole seconds. Default 3 s, so that sends leave
    /// soon after Redis is back; each costs 1,700 SQS requests per hour until then.
    pub hold: Duration,
    /// What becomes of sends while Redis cannot be asked. Default: all are held.
    pub redis_policies: RedisPolicies,
    /// Policies for budgets that have none in Redis, which may have lost them.
    pub policy_file: PolicyFile,
    /// Remember in Redis what the provider calls each send, so that receipts find it that do not carry its ID. Default: no, since
    /// each takes some 150 bytes for the budget's `dedup_ttl`.
    pub receipts: bool,
}

/// A setting from the environment; an empty one is none.
pub(crate) fn setting(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// A setting that must be there.
pub(crate) fn required(name: &'static str, what: &'static str) -> Result<String, ConfigError> {
    setting(name).ok_or(ConfigError::Missing { name, what })
}

/// A setting that need not be there.
pub(crate) fn parsed<T>(
    name: &'static str,
    default: T,
    what: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, ConfigError> {
    let Some(given) = setting(name) else { return Ok(default) };
    parse(&given).ok_or(ConfigError::Unreadable { name, given, what })
}

/// A number of milliseconds.
pub(crate) fn millis(name: &'static str, default: Duration) -> Result<Duration, ConfigError> {
    parsed(name, default, "give milliseconds, a whole number above 0", |text| {
        text.parse().ok().filter(|ms| *ms > 0).map(Duration::from_millis)
    })
}

impl WorkerConfig {
    /// From `REDIS_URL`, `SENDSLOT_QUEUE_URL`, `SENDSLOT_DLQ_URL`, `SENDSLOT_HOLD_MS`, `SENDSLOT_REDIS_POLICY` (`hold`, `local:5`,
    /// `codes=local:5,sendgrid/news=hold`), `SENDSLOT_POLICY_FILE`, `SENDSLOT_RECEIPTS` (`true` or `false`) and the usual AWS
    /// variables.
    ///
    /// # Errors
    /// [`ConfigError`]: what is missing or wrong, and what to do.
    pub async fn from_env() -> Result<Self, ConfigError> {
        let redis_url =
            required("REDIS_URL", "give redis://host:port, redis+cluster://… or redis+sentinel://…; rediss for TLS")?;
        let queue_url = required("SENDSLOT_QUEUE_URL", "give the URL of the queue that this function is mapped to")?;
        let dlq_url = required("SENDSLOT_DLQ_URL", "give the URL of the dead-letter queue")?;
        if dlq_url == queue_url {
            let what = "give another queue than SENDSLOT_QUEUE_URL: dead letters would come round for ever";
            return Err(ConfigError::Unreadable { name: "SENDSLOT_DLQ_URL", given: dlq_url, what });
        }
        let client = queue::client_from_env().await;
        Ok(Self {
            store: Store::new(&redis_url)?,
            queue: Queue::new(client.clone(), queue_url)?,
            dead_letters: Queue::new(client, dlq_url)?,
            timer: Timer::SQS,
            backoff: Backoff::default(),
            hold: millis("SENDSLOT_HOLD_MS", Duration::from_secs(3))?,
            receipts: parsed("SENDSLOT_RECEIPTS", false, "give true or false", |text| text.parse().ok())?,
            policy_file: setting("SENDSLOT_POLICY_FILE").map(PolicyFile::read).transpose()?.unwrap_or_default(),
            redis_policies: setting("SENDSLOT_REDIS_POLICY").map(|text| text.parse()).transpose()?.unwrap_or_default(),
        })
    }
}
