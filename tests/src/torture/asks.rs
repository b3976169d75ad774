//! What run and scheduler process say to each other: one JSON document a line.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sendslot_scheduler::{Cancelled, Message, ScheduleError, Scheduled};
use serde::{Deserialize, Serialize};

/// What the scheduler process is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(super) enum Ask {
    Send(Offer),
    Cancel { budget: String, id: String },
}

/// A send that is offered. Offered again, it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) budget: String,
    pub(super) id: String,
    pub(super) lane: String,
    pub(super) cost: u32,
    /// us since 1970.
    pub(super) not_before_us: Option<u64>,
    pub(super) deadline_us: Option<u64>,
    /// It goes through `schedule_all`, with others; else through `schedule`.
    pub(super) together: bool,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) said: Said,
}

/// The answer itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    /// Accepted, with a slot that is so far ahead.
    Booked { wait_ms: u64, again: bool },
    /// Accepted without a slot, since Redis could not be asked.
    Unbooked,
    /// Refused; the word says as what.
    Refused(String),
    /// Not done, or nobody knows: it may be offered again.
    Failed(String),
    /// A cancel: it will not be sent.
    Cancelled,
    /// A cancel that came too late, or failed.
    NotCancelled(String),
}

impl Offer {
    pub(super) fn message(&self) -> Message {
        let at = |us: u64| -> SystemTime { UNIX_EPOCH + Duration::from_micros(us) };
        let payload = format!("{{\"id\":\"{}\"}}", self.id);
        let mut message = Message::new(&self.budget, &self.id, payload).lane(&self.lane).cost(self.cost);
        if let Some(us) = self.not_before_us {
            message = message.not_before(at(us));
        }
        if let Some(us) = self.deadline_us {
            message = message.deadline(at(us));
        }
        message
    }
}

impl From<Result<Scheduled, ScheduleError>> for Said {
    fn from(result: Result<Scheduled, ScheduleError>) -> Self {
        match result {
            Ok(Scheduled::Unbooked { .. }) => Self::Unbooked,
            Ok(Scheduled::Booked(booked)) => Self::Booked {
                wait_ms: u64::try_from(booked.wait().as_millis()).unwrap_or(u64::MAX),
                again: booked.was_booked(),
            },
            Err(ScheduleError::Refused(refusal)) => {
                let word = format!("{refusal:?}");
                Self::Refused(word.chars().take_while(char::is_ascii_alphabetic).collect())
            }
            Err(error) => Self::Failed(error.to_string()),
        }
    }
}

impl From<Result<Cancelled, ScheduleError>> for Said {
    fn from(result: Result<Cancelled, ScheduleError>) -> Self {
        match result {
            Ok(Cancelled::Cancelled | Cancelled::Unknown) => Self::Cancelled,
            Ok(other) => Self::NotCancelled(format!("{other:?}")),
            Err(error) => Self::NotCancelled(error.to_string()),
        }
    }
}
