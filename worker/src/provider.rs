use std::fmt;
use std::future::Future;
use std::time::{Duration, SystemTime};

pub use sendslot_shared::settle::Scope;

/// One send as the provider gets it. Its payload is left out when it is printed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outgoing {
    /// The send ID: pass it on as the provider's idempotency key, so that even a send that Redis forgot is made once.
    pub id: String,
    /// The budget it is charged to.
    pub budget: String,
    /// The lane it was scheduled in.
    pub lane: String,
    /// What was scheduled, unchanged.
    pub payload: Vec<u8>,
    /// Units.
    pub cost: u32,
    /// Which call this is, from 1.
    pub attempt: u32,
    /// The latest instant.
    pub deadline: Option<SystemTime>,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, budget, lane, payload, cost, attempt, deadline } = self;
        f.debug_struct("Outgoing")
            .field("id", id)
            .field("budget", budget)
            .field("lane", lane)
            .field("payload_bytes", &payload.len())
            .field("cost", cost)
            .field("attempt", attempt)
            .field("deadline", deadline)
            .finish()
    }
}

impl Outgoing {
    /// The first call of a send of cost 1 in the default lane, for tests of a provider.
    pub fn new(id: impl Into<String>, budget: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            id: id.into(),
            budget: budget.into(),
            lane: "default".to_owned(),
            payload: payload.into(),
            cost: 1,
            attempt: 1,
            deadline: None,
        }
    }
}

/// How a provider call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The provider took it.
    Sent {
        /// What the provider calls it.
        provider_id: Option<String>,
    },
    /// Refused for the rate (429 or the provider's own code for it); nothing was submitted.
    Throttled {
        /// The provider's hint.
        retry_after: Option<Duration>,
        /// Whom it concerns.
        scope: Scope,
    },
    /// Not taken, may be tried again: no connection, or a 5xx of a provider that takes nothing with it.
    Unavailable {
        /// The provider's hint, for this send alone.
        retry_after: Option<Duration>,
        /// For the dead letter and the log; no payload, no recipient.
        error: String,
    },
    /// The request was written and nobody knows what came of it.
    Unknown {
        /// For the dead letter and the log; no payload, no recipient.
        error: String,
    },
    /// This message can never be sent.
    Rejected {
        /// For the dead letter and the log; no payload, no recipient.
        reason: String,
    },
}

/// Sends one message through one provider account.
pub trait Provider: Send + Sync + 'static {
    /// The longest that one call takes; the worker ends it then, as [`Outcome::Unknown`]. Default 10 s.
    fn call_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Makes exactly one attempt: no retries of its own.
    fn send(&self, send: &Outgoing) -> impl Future<Output = Outcome> + Send;
}
