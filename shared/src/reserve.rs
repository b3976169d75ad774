//! reserve.lua: booking a batch of sends.

use std::time::{Duration, Instant as Monotonic};

use redis::Value;

use crate::id::BudgetName;
use crate::keys;
use crate::message::Draft;
use crate::reply;
use crate::store::{Call, Store, StoreError};
use crate::time::{DelaySeconds, Instant, Timer};

/// The most sends that one call books.
pub const MAX_BATCH: usize = 500;

/// Why a slot is not earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundBy {
    /// Nothing: it is the first one that SQS and a worker can meet (`transit`).
    Transit,
    /// The rate: earlier slots are taken.
    Rate,
    /// Its own `not_before`.
    NotBefore,
    /// A cooldown.
    Cooldown,
    /// A quota.
    Quota,
    /// The spacing between sends to its recipient.
    Spacing,
    /// What is reserved for other lanes.
    Lanes,
    /// Nothing: it takes the place of a send of another lane.
    TakeOver,
    /// The budget is paused.
    Pause,
}

/// A pause of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// It has an end, and all that is booked leaves behind it.
    Until,
    /// It has none: nobody knows when what is booked will leave.
    Open,
}

impl BoundBy {
    /// For people, logs and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transit => "transit",
            Self::Rate => "rate",
            Self::NotBefore => "not_before",
            Self::Cooldown => "cooldown",
            Self::Quota => "quota",
            Self::Spacing => "spacing",
            Self::Lanes => "lanes",
            Self::TakeOver => "take_over",
            Self::Pause => "pause",
        }
    }

    /// RULES in book.lua.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Transit,
            1 => Self::Rate,
            2 => Self::NotBefore,
            3 => Self::Cooldown,
            4 => Self::Quota,
            5 => Self::Spacing,
            6 => Self::Lanes,
            7 => Self::TakeOver,
            _ => return None,
        })
    }
}

/// A booked slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booking {
    /// 1, 2, 3 … for each re-booking of the same send.
    pub seq: u32,
    /// Second and position in it: what is stored. The instant follows from them and the rate in force.
    pub slot: (u32, u32),
    /// The slot's instant on Redis' clock.
    pub at: Instant,
    /// Redis' clock at the answer.
    pub booked: Instant,
    /// The booking stood before this call.
    pub existing: bool,
    /// Which rule bound the slot; not known of a booking that stood before.
    pub bound_by: Option<BoundBy>,
    /// The budget is paused. Without an end the instant is as if it went on at the answer.
    pub paused: Option<Paused>,
    wait: Duration,
    lead: Duration,
    answered: Monotonic,
}

impl Booking {
    /// How far the slot is ahead now, by this process's own monotonic clock since Redis answered.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.wait.saturating_sub(self.answered.elapsed())
    }

    /// The delay of the booking's copy when it is sent now.
    #[must_use]
    pub fn delay(&self, timer: Timer) -> DelaySeconds {
        timer.delay(self.wait(), self.lead)
    }
}

/// Why a send was not booked. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The same ID was scheduled with other content.
    #[error("this ID was scheduled before with another payload, cost or time: give the new message an ID of its own")]
    Conflict,
    /// A worker is sending it just now.
    #[error("a worker is sending this message just now")]
    InProgress,
    /// It was sent.
    #[error("this message was sent before")]
    AlreadySent,
    /// It was cancelled.
    #[error("this message was cancelled")]
    Cancelled,
    /// It ended as failed and was dead-lettered.
    #[error("this message failed and was dead-lettered: redrive it, or give the new one an ID of its own")]
    Failed,
    /// Its deadline passed before it could be sent.
    #[error("this message's deadline passed before it could be sent")]
    Expired,
    /// Nobody knows whether it was sent.
    #[error("nobody knows whether this message was sent: it is in the dead-letter queue")]
    Unknown,
    /// The first free slot lies behind the deadline.
    #[error("the first free slot is in {would_be_in:?}, behind the deadline")]
    PastDeadline {
        /// The instant of that slot.
        would_be_at: Instant,
        /// How far it is ahead.
        would_be_in: Duration,
    },
    /// The first free slot lies behind the policy's horizon.
    #[error(
        "the first free slot is in {would_be_in:?}, behind the budget's horizon: try again later, or raise the horizon"
    )]
    TooFar {
        /// How far it is ahead, at least.
        would_be_in: Duration,
    },
    /// The cost is above what the policy takes.
    #[error("the cost is above {max_cost} units, the most that this budget takes for one send: split the message")]
    CostTooLarge {
        /// The largest cost allowed.
        max_cost: u32,
    },
    /// The policy has no such lane.
    #[error(
        "this budget has no such lane: `sendslot budget get NAME` lists them, `sendslot budget set NAME --lane …` adds one"
    )]
    UnknownLane,
    /// The policy has a spacing, and the message names no recipient.
    #[error("this budget spaces sends to one recipient: name the message's recipient")]
    NoRecipient,
    /// The first free slot is further ahead than the lane's longest wait.
    #[error("this lane is full: offer the message again in {retry_after:?}")]
    Full {
        /// When it may be offered again; whole seconds, at least 1 s.
        retry_after: Duration,
    },
    /// The budget has no policy.
    #[error("this budget has no policy: set one with `sendslot budget set NAME --limit UNITS`")]
    UnknownBudget,
}

impl Refusal {
    /// Its name, for JSON and for counts.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::InProgress => "in_progress",
            Self::AlreadySent => "already_sent",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Unknown => "unknown_outcome",
            Self::PastDeadline { .. } => "past_deadline",
            Self::TooFar { .. } => "too_far",
            Self::CostTooLarge { .. } => "cost_too_large",
            Self::UnknownLane => "unknown_lane",
            Self::NoRecipient => "no_recipient",
            Self::Full { .. } => "full",
            Self::UnknownBudget => "unknown_budget",
        }
    }
}

/// Books up to [`MAX_BATCH`] sends of one budget in one call, in their order. Asked again, a send gets the booking that
/// stands, so a call whose answer was lost can be repeated blindly.
///
/// # Errors
/// [`StoreError`] when Redis cannot be asked: then any part of the batch may be booked, and asking again is safe.
///
/// # Panics
/// Never; more than [`MAX_BATCH`] drafts are a [`StoreError::Reply`].
pub async fn reserve(
    store: &Store,
    budget: &BudgetName,
    drafts: &[&Draft],
) -> Result<Vec<Result<Booking, Refusal>>, StoreError> {
    book(store, budget, drafts, 0).await
}

/// Books a send anew that had ended as failed, expired or unknown: from a dead letter. All other answers are those of
/// [`reserve`]; past its deadline it is refused.
///
/// # Errors
/// [`StoreError`]; asking again is safe.
pub async fn redrive(store: &Store, draft: &Draft) -> Result<Result<Booking, Refusal>, StoreError> {
    let mut answers = book(store, &draft.budget, &[draft], REDRIVE).await?;
    answers.pop().ok_or_else(|| reply::wrong("reserve", &"no answer"))
}

const REDRIVE: u8 = 1;

async fn book(
    store: &Store,
    budget: &BudgetName,
    drafts: &[&Draft],
    flags: u8,
) -> Result<Vec<Result<Booking, Refusal>>, StoreError> {
    if drafts.is_empty() {
        return Ok(vec![]);
    }
    if drafts.len() > MAX_BATCH {
        return Err(StoreError::Reply { script: "reserve", reply: format!("a batch of {}", drafts.len()) });
    }
    let mut answers = Vec::with_capacity(drafts.len());
    let mut vain = 0;
    while answers.len() < drafts.len() {
        let some = book_some(store, budget, &drafts[answers.len()..], flags).await?;
        vain = if some.is_empty() { vain + 1 } else { 0 };
        if vain > MOST_IN_VAIN {
            return Err(reply::wrong("reserve", &"no answer"));
        }
        answers.extend(some);
    }
    Ok(answers)
}

/// Calls that a script may look for one slot, some ms each.
const MOST_IN_VAIN: usize = 5_000;

/// One call: answers for as many drafts as it came to, in some ms of Redis.
async fn book_some(
    store: &Store,
    budget: &BudgetName,
    drafts: &[&Draft],
    flags: u8,
) -> Result<Vec<Result<Booking, Refusal>>, StoreError> {
    let mut call = Call { keys: vec![keys::calendar(budget), keys::policy(budget)], args: vec![] };
    for draft in drafts {
        call.keys.push(keys::record(budget, &draft.id));
        call.args.push(pack(draft, flags));
    }
    let mut items = reply::array("reserve", store.run(sendslot_lua::RESERVE, call).await?)?.into_iter();
    let answered = Monotonic::now();
    let mut head = || items.next().as_ref().and_then(reply::integer).and_then(|n| u64::try_from(n).ok());
    let (now, lead) = (head(), head());
    let now = now.ok_or_else(|| reply::wrong("reserve", &"no now"))?;
    let Some(lead) = lead else { return Ok(vec![Err(Refusal::UnknownBudget); drafts.len()]) };
    let read = Read { now, lead: Duration::from_micros(lead), answered };
    let answers: Option<Vec<_>> = items.map(|item| read.answer(&item)).collect();
    answers.filter(|a| a.len() <= drafts.len()).ok_or_else(|| reply::wrong("reserve", &"another number of answers"))
}

/// '<c8BI4dd' digest, extended, cost, not_before, deadline
fn pack(draft: &Draft, flags: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend(draft.digest.0);
    out.push(draft.extended(flags).into());
    out.extend(draft.cost.to_le_bytes());
    out.extend(micros(draft.not_before));
    out.extend(micros(draft.deadline));
    draft.extend(&mut out, flags);
    out
}

/// An optional instant as scripts take it: a double, 0 for none.
pub(crate) fn micros(at: Option<Instant>) -> [u8; 8] {
    (at.map_or(0, Instant::as_micros) as f64).to_le_bytes()
}

/// What all answers of one call share.
struct Read {
    now: u64,
    lead: Duration,
    answered: Monotonic,
}

impl Read {
    /// '<BI4I4I4i8' code, seq, second, position, wait
    fn answer(&self, item: &Value) -> Option<Result<Booking, Refusal>> {
        let Value::BulkString(bytes) = item else { return None };
        let mut fields = reply::Fields(bytes);
        let code = fields.u8()?;
        let (seq, second, position, wait_us) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.i64()?);
        let wait = Duration::from_micros(u64::try_from(wait_us).unwrap_or(0));
        let at = Instant::from_micros(self.now.checked_add_signed(wait_us)?);
        let booked = Instant::from_micros(self.now);
        let Read { lead, answered, .. } = *self;
        let paused = match code {
            15 | 17 => Some(Paused::Until),
            16 | 18 => Some(Paused::Open),
            _ => None,
        };
        let bound_by = match code {
            15 | 16 => Some(BoundBy::Pause),
            _ if code % 32 == 0 => Some(BoundBy::from_code(code / 32)?),
            _ => None,
        };
        Some(match code % 32 {
            0 | 1 | 15..=18 => Ok(Booking {
                seq,
                slot: (second, position),
                at,
                booked,
                existing: matches!(code, 1 | 17 | 18),
                bound_by,
                paused,
                wait,
                lead,
                answered,
            }),
            2 => Err(Refusal::Conflict),
            3 => Err(Refusal::InProgress),
            4 => Err(Refusal::AlreadySent),
            5 => Err(Refusal::Cancelled),
            6 => Err(Refusal::Failed),
            7 => Err(Refusal::Expired),
            8 => Err(Refusal::Unknown),
            9 => Err(Refusal::PastDeadline { would_be_at: at, would_be_in: wait }),
            10 => Err(Refusal::TooFar { would_be_in: wait }),
            11 => Err(Refusal::CostTooLarge { max_cost: position }),
            12 => Err(Refusal::UnknownLane),
            13 => Err(Refusal::NoRecipient),
            14 => {
                Err(Refusal::Full { retry_after: Duration::from_secs(wait.as_millis().div_ceil(1000).max(1) as u64) })
            }
            _ => return None,
        })
    }
}
