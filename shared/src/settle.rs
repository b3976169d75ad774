//! settle.lua: the worker's report just after the provider call.

use std::time::Duration;

use redis::Value;
use serde::{Deserialize, Serialize};

use crate::claim::{DeadReason, NextSlot};
use crate::envelope::Envelope;
use crate::keys;
use crate::reply;
use crate::reserve::micros;
use crate::store::{Call, Store, StoreError};
use crate::time::{Instant, micros_up};

/// How a provider call ended, as the record learns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Accepted.
    Sent,
    /// Refused for the rate; nothing was submitted.
    Throttled,
    /// Not accepted; may be tried again.
    Unavailable,
    /// Written, and no answer came.
    Unknown,
    /// Can never be sent.
    Rejected,
    /// The call was held back, since it would have come too late after its claim: the claim is given back, and nothing counts.
    NotStarted,
}

impl Ending {
    /// For people, counts and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Rejected => "rejected",
            Self::NotStarted => "not_started",
        }
    }
}

/// A rest that a provider asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cooldown {
    /// How long.
    pub rest: Duration,
    /// Whom it concerns.
    pub scope: Scope,
}

/// Whom a throttle concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// The whole budget rests.
    #[default]
    Account,
    /// Only sends to this recipient rest; of a send that names none, only the send itself.
    Recipient,
}

/// One report.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The copy.
    pub envelope: &'a Envelope,
    /// The delivery that claimed it.
    pub nonce: u32,
    /// How the call ended.
    pub ending: Ending,
    /// Not booked again before this is over.
    pub delay: Duration,
    /// How long the whole budget rests, or its recipient.
    pub cooldown: Option<Cooldown>,
    /// Since the call began; of one that was not started, since it should have begun.
    pub elapsed: Duration,
    /// How long the call was held up between the instant that was claimed for it and its begin. The record of a send that was sent
    /// keeps it, to the millisecond and 1,022 of them at most.
    pub held_up: Duration,
}

/// What the worker does with the copy.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Acknowledge.
    Acknowledge,
    /// Put a copy with this seq and a new tag on the queue.
    PutBack(NextSlot),
    /// Put the copy back unchanged: the claim decides.
    Again,
    /// Dead-letter.
    Dead {
        /// Why.
        reason: DeadReason,
        /// Attempts made.
        attempts: u32,
    },
}

/// Reports one outcome. Asked again, it answers the same.
///
/// # Errors
/// [`StoreError`]: the report may or may not have been recorded.
pub async fn settle(store: &Store, report: Report<'_>) -> Result<Action, StoreError> {
    let draft = &report.envelope.draft;
    let keys = vec![keys::calendar(&draft.budget), keys::policy(&draft.budget), keys::record(&draft.budget, &draft.id)];
    let value = store.run(sendslot_lua::SETTLE, Call { keys, args: vec![pack(&report)] }).await?;
    action(value)
}

/// '<BI4I4I4c8BI4dddI4d' outcome, seq, tag, nonce, digest, extended, cost, delay, cooldown, elapsed, held up, deadline
fn pack(report: &Report<'_>) -> Vec<u8> {
    let draft = &report.envelope.draft;
    let of_recipient = report.cooldown.is_some_and(|cooldown| cooldown.scope == Scope::Recipient);
    let cooldown = report.cooldown.filter(|_| !of_recipient || draft.recipient.is_some());
    let flags = u8::from(of_recipient);
    let mut arg = Vec::with_capacity(96);
    arg.push(match report.ending {
        Ending::Sent => 0,
        Ending::Throttled => 1,
        Ending::Unavailable => 2,
        Ending::Unknown => 3,
        Ending::Rejected => 4,
        Ending::NotStarted => 5,
    });
    arg.extend(report.envelope.seq.to_le_bytes());
    arg.extend(report.envelope.tag.to_le_bytes());
    arg.extend(report.nonce.to_le_bytes());
    arg.extend(draft.digest.0);
    arg.push(draft.extended(flags).into());
    arg.extend(draft.cost.to_le_bytes());
    arg.extend(micros_up(report.delay).to_le_bytes());
    arg.extend(micros_up(cooldown.map(|c| c.rest).unwrap_or_default()).to_le_bytes());
    arg.extend(micros_up(report.elapsed).to_le_bytes());
    arg.extend(u32::try_from(report.held_up.as_micros()).unwrap_or(u32::MAX).to_le_bytes());
    arg.extend(micros(draft.deadline));
    draft.extend(&mut arg, flags);
    arg
}

fn action(value: Value) -> Result<Action, StoreError> {
    let fields = reply::integers::<7>("settle", value)?;
    read(fields).ok_or_else(|| reply::wrong("settle", &fields))
}

fn read([code, now, wait_us, seq, attempts, reason, lead_us]: [i64; 7]) -> Option<Action> {
    let now = Instant::from_micros(u64::try_from(now).ok()?);
    let wait = Duration::from_micros(u64::try_from(wait_us).unwrap_or(0));
    Some(match code {
        0 => Action::Acknowledge,
        1 => Action::PutBack(NextSlot {
            seq: u32::try_from(seq).ok()?,
            at: now.plus(wait),
            wait,
            lead: Duration::from_micros(u64::try_from(lead_us).ok()?),
        }),
        2 => Action::Again,
        3 => Action::Dead { reason: DeadReason::from_code(reason)?, attempts: u32::try_from(attempts).ok()? },
        _ => return None,
    })
}
