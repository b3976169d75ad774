//! claim.lua: the worker's question just before sending.

use std::time::Duration;

use redis::Value;

use crate::envelope::Envelope;
use crate::keys;
use crate::reply;
use crate::reserve::micros;
use crate::store::{Call, Store, StoreError};
use crate::time::Instant;

/// One copy asking.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// The copy.
    pub envelope: &'a Envelope,
    /// Drawn once per delivery, kept while this delivery asks again, until it gives a claim back. Never 0.
    pub nonce: u32,
    /// How long the record is held for this delivery if it may send.
    pub lease: Duration,
}

/// Why a copy is dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadReason {
    /// Its content differs from what was booked under its ID.
    Conflict,
    /// It had failed before, and this copy was told so.
    FailedBefore,
    /// Its deadline has passed.
    Expired,
    /// A worker died between claim and settle, or no answer came: nobody knows whether it was sent.
    UnknownOutcome,
    /// Redis has no record and the slot is longer ago than records are kept.
    UnknownHistory,
    /// All attempts were used.
    Attempts,
    /// The cost is above what the budget takes by now.
    Cost,
    /// There is no free slot within 14 days.
    TooFar,
    /// The provider will never take it.
    Rejected,
    /// A more urgent send took its place, and there was none for it before its deadline.
    ExpiredDisplaced,
    /// A cooldown delayed it, and there was no place before its deadline.
    ExpiredCooldown,
    /// It was too late for its slot, and there was no other place before its deadline.
    ExpiredLate,
}

impl DeadReason {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Conflict,
        Self::FailedBefore,
        Self::Expired,
        Self::UnknownOutcome,
        Self::UnknownHistory,
        Self::Attempts,
        Self::Cost,
        Self::TooFar,
        Self::Rejected,
        Self::ExpiredDisplaced,
        Self::ExpiredCooldown,
        Self::ExpiredLate,
    ];

    /// As it stands in the dead letter's attribute `reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::FailedBefore => "failed",
            Self::Expired => "expired",
            Self::UnknownOutcome => "unknown_outcome",
            Self::UnknownHistory => "unknown_history",
            Self::Attempts => "attempts",
            Self::Cost => "cost",
            Self::TooFar => "too_far",
            Self::Rejected => "rejected",
            Self::ExpiredDisplaced => "expired_displaced",
            Self::ExpiredCooldown => "expired_cooldown",
            Self::ExpiredLate => "expired_late",
        }
    }

    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            1 => Self::Conflict,
            2 => Self::FailedBefore,
            3 => Self::Expired,
            4 => Self::UnknownOutcome,
            5 => Self::UnknownHistory,
            6 => Self::Attempts,
            7 => Self::Cost,
            8 => Self::TooFar,
            9 => Self::Rejected,
            10 => Self::ExpiredDisplaced,
            11 => Self::ExpiredCooldown,
            12 => Self::ExpiredLate,
            _ => return None,
        })
    }
}

/// Why a send was moved to another slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveReason {
    /// Its booking was lost with Redis' data, or it never had one.
    Lost,
    /// Its slot lies in a cooldown.
    Cooldown,
    /// It was too late for its slot.
    Missed,
    /// The rate was lowered.
    Capacity,
    /// An earlier worker's lease ended and the policy says `resend`.
    LeaseEnded,
    /// A more urgent send, or one that was booked again, took its place.
    Displaced,
    /// The rate was raised, and there was an earlier place.
    Raised,
    /// A quota's window was used up.
    Quota,
    /// Another send to its recipient had just left.
    Spacing,
    /// The provider refused it for the rate.
    Throttled,
    /// The provider could not be reached.
    Unavailable,
    /// Nobody knows how its call ended, and the policy says `resend`.
    Unknown,
    /// The fence held its call back.
    NotStarted,
    /// It was scheduled again after its slot had passed.
    ScheduledAgain,
    /// It was taken back from the dead letters.
    Redrive,
}

impl MoveReason {
    /// For logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Cooldown => "cooldown",
            Self::Missed => "missed",
            Self::Capacity => "capacity",
            Self::LeaseEnded => "lease_ended",
            Self::Displaced => "displaced",
            Self::Raised => "raised",
            Self::Quota => "quota",
            Self::Spacing => "spacing",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::NotStarted => "not_started",
            Self::ScheduledAgain => "scheduled_again",
            Self::Redrive => "redrive",
        }
    }
}

impl MoveReason {
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            20 => Self::Lost,
            21 => Self::Cooldown,
            22 => Self::Missed,
            23 => Self::Capacity,
            24 => Self::LeaseEnded,
            25 => Self::Displaced,
            26 => Self::Raised,
            27 => Self::Quota,
            29 => Self::Spacing,
            31 => Self::Throttled,
            32 => Self::Unavailable,
            33 => Self::Unknown,
            35 => Self::NotStarted,
            40 => Self::ScheduledAgain,
            41 => Self::Redrive,
            _ => return None,
        })
    }
}

/// What the worker does now.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Call the provider, after `delay` and while the lease lasts.
    Send {
        /// The rest of the lease.
        lease: Duration,
        /// Until the call: the guard is charged for that instant.
        delay: Duration,
        /// The call should have been made so long ago: the claim's reply was lost.
        late: Duration,
        /// No more may pass between that instant and the call; else the claim is given back.
        jitter: Duration,
        /// Which attempt this is, from 1.
        attempt: u32,
        /// How often the provider refused it for the rate before.
        throttles: u32,
    },
    /// Sleep that long and ask again.
    Wait {
        /// Until the slot.
        wait: Duration,
        /// Set when the slot is a new one.
        moved: Option<MoveReason>,
    },
    /// Acknowledge.
    Done,
    /// Dead-letter.
    Dead {
        /// Why.
        reason: DeadReason,
        /// Attempts made.
        attempts: u32,
    },
    /// Put this copy back unchanged for `wait`.
    Busy {
        /// Until the lease of whoever holds it ends.
        wait: Duration,
    },
    /// Put a copy with this seq and a new tag on the queue.
    PutBack {
        /// Where it waits.
        slot: NextSlot,
        /// What for.
        why: PutBack,
    },
    /// The budget has no policy: as if Redis were down.
    Hold,
}

/// The booking that a copy is put back with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextSlot {
    /// The record's seq.
    pub seq: u32,
    /// The slot's instant.
    pub at: Instant,
    /// Until the slot.
    pub wait: Duration,
    /// How long before its slot the copy shall show up.
    pub lead: Duration,
}

/// What a copy is put back for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutBack {
    /// The rest of a wait that no timer holds.
    Hop,
    /// The budget is paused.
    Paused,
    /// The booking of a copy that may have been lost.
    Reissue,
    /// A new slot.
    Rebooked(MoveReason),
}

/// What a claim learned, with the instant it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What to do.
    pub verdict: Verdict,
    /// Redis' clock at the verdict.
    pub now: Instant,
}

/// Asks for many copies in one round trip; an error of one does not touch the others. An error is never permission to send.
pub async fn claim_all(store: &Store, claims: &[Claim<'_>]) -> Vec<Result<Answer, StoreError>> {
    let calls: Vec<Call> = claims.iter().map(call).collect();
    let replies = store.run_all(sendslot_lua::CLAIM, &calls).await;
    replies.into_iter().map(|reply| answer(reply?)).collect()
}

/// Asks for one copy.
///
/// # Errors
/// [`StoreError`]: never permission to send.
pub async fn claim(store: &Store, claim: Claim<'_>) -> Result<Answer, StoreError> {
    answer(store.run(sendslot_lua::CLAIM, call(&claim)).await?)
}

/// '<I4I4I4c8BI4dddI4' seq, tag, nonce, digest, extended, cost, slot, not_before, deadline, lease (ms)
fn call(claim: &Claim<'_>) -> Call {
    let draft = &claim.envelope.draft;
    let mut arg = Vec::with_capacity(53);
    arg.extend(claim.envelope.seq.to_le_bytes());
    arg.extend(claim.envelope.tag.to_le_bytes());
    arg.extend(claim.nonce.to_le_bytes());
    arg.extend(draft.digest.0);
    arg.push(draft.extended(0).into());
    arg.extend(draft.cost.to_le_bytes());
    arg.extend(micros(claim.envelope.at));
    arg.extend(micros(draft.not_before));
    arg.extend(micros(draft.deadline));
    arg.extend(u32::try_from(claim.lease.as_millis()).unwrap_or(u32::MAX).to_le_bytes());
    draft.extend(&mut arg, 0);
    let keys = vec![keys::calendar(&draft.budget), keys::policy(&draft.budget), keys::record(&draft.budget, &draft.id)];
    Call { keys, args: vec![arg] }
}

fn answer(value: Value) -> Result<Answer, StoreError> {
    let fields = reply::integers::<8>("claim", value)?;
    read(fields).ok_or_else(|| reply::wrong("claim", &fields))
}

fn read([code, now, wait_us, seq, attempts, reason, lead_us, throttles]: [i64; 8]) -> Option<Answer> {
    let now = Instant::from_micros(u64::try_from(now).ok()?);
    let wait = Duration::from_micros(u64::try_from(wait_us).unwrap_or(0));
    let (seq, attempts) = (u32::try_from(seq).ok()?, u32::try_from(attempts).ok()?);
    let lead = Duration::from_micros(u64::try_from(lead_us).ok()?);
    let put_back = |why| Verdict::PutBack { slot: NextSlot { seq, at: now.plus(wait), wait, lead }, why };
    let verdict = match code {
        0 => Verdict::Send {
            lease: wait,
            delay: Duration::from_micros(u64::try_from(reason).unwrap_or(0)),
            late: Duration::from_micros(u64::try_from(-reason).unwrap_or(0)),
            jitter: lead,
            attempt: attempts,
            throttles: u32::try_from(throttles).ok()?,
        },
        1 => Verdict::Wait { wait, moved: if reason == 0 { None } else { Some(MoveReason::from_code(reason)?) } },
        2 => Verdict::Done,
        3 => Verdict::Dead { reason: DeadReason::from_code(reason)?, attempts },
        4 => Verdict::Busy { wait },
        5 => put_back(PutBack::Reissue),
        6 if reason == 28 => put_back(PutBack::Paused),
        6 => put_back(PutBack::Hop),
        7 => put_back(PutBack::Rebooked(MoveReason::from_code(reason)?)),
        8 => Verdict::Hold,
        _ => return None,
    };
    Some(Answer { verdict, now })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_no_script_gives_is_an_error() {
        let int = |n| Value::Int(n);
        let odd = [
            Value::Nil,
            Value::Okay,
            Value::Array(vec![]),
            Value::Array(vec![int(0); 7]),
            Value::Array([9, 1, 0, 1, 0, 0, 0, 0].map(int).to_vec()),
            Value::Array([3, 1, 0, 1, 0, 99, 0, 0].map(int).to_vec()),
            Value::Array([0, -1, 0, 1, 0, 0, 0, 0].map(int).to_vec()),
        ];
        for value in odd {
            assert!(matches!(answer(value.clone()), Err(StoreError::Reply { script: "claim", .. })), "{value:?}");
        }
    }
}
