//! status.lua: what Redis knows of a send and of its budget.

use std::time::Duration;

use redis::Value;

use crate::claim::MoveReason;
use crate::id::{BudgetName, LaneName, SendId};
use crate::keys;
use crate::receipt::{self, Delivery, Standing};
use crate::reply;
use crate::reserve::BoundBy;
use crate::store::{Call, Store, StoreError};
use crate::time::Instant;

/// The state of a send's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendState {
    /// Waits for its slot.
    Booked,
    /// A worker is sending it.
    Claimed,
    /// The provider took it.
    Sent,
    /// Cancelled before it was sent.
    Cancelled,
    /// Ended without being sent, and dead-lettered.
    Failed,
    /// Its deadline passed first.
    Expired,
    /// Nobody knows whether it was sent.
    Unknown,
}

impl SendState {
    /// As people read it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Booked => "booked",
            Self::Claimed => "claimed",
            Self::Sent => "sent",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
        }
    }

    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            1 => Self::Booked,
            2 => Self::Claimed,
            3 => Self::Sent,
            4 => Self::Cancelled,
            5 => Self::Failed,
            6 => Self::Expired,
            7 => Self::Unknown,
            _ => return None,
        })
    }
}

/// How far a send has come, as its sender sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryStatus {
    /// It was accepted while Redis could not be asked: it has no slot yet.
    Accepted,
    /// It has its slot.
    Booked,
    /// Its slot is near or has passed: it is visible on SQS, or at a worker.
    Waiting,
    /// A worker calls the provider.
    Sending,
    /// The provider took it.
    Sent,
    /// The provider says that it reached its recipient.
    Delivered,
    /// The provider says that it did not and will not.
    Undelivered,
    /// It ended without being sent, and is a dead letter.
    Failed,
    /// Its deadline passed first; it is a dead letter.
    Expired,
    /// It was cancelled before it was sent.
    Cancelled,
    /// Nobody knows whether it was sent; it is a dead letter.
    Unknown,
}

impl DeliveryStatus {
    /// All of them, in the order of a send's life.
    pub const ALL: [Self; 11] = [
        Self::Accepted,
        Self::Booked,
        Self::Waiting,
        Self::Sending,
        Self::Sent,
        Self::Delivered,
        Self::Undelivered,
        Self::Failed,
        Self::Expired,
        Self::Cancelled,
        Self::Unknown,
    ];

    /// As people and programs read it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Booked => "booked",
            Self::Waiting => "waiting",
            Self::Sending => "sending",
            Self::Sent => "sent",
            Self::Delivered => "delivered",
            Self::Undelivered => "undelivered",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }
}

/// One event of a send's life, in Redis' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It got its first slot.
    Booked {
        /// When, to a hundredth of a second.
        at: Instant,
        /// Which rule bound the slot.
        bound_by: BoundBy,
    },
    /// It moved to another slot.
    Moved {
        /// When.
        at: Instant,
        /// Why.
        why: MoveReason,
        /// The instant it left; `None` when that booking was void.
        from: Option<Instant>,
        /// The instant it got.
        to: Instant,
        /// Which rule bound the new slot.
        bound_by: BoundBy,
    },
    /// It had to move, and there was no place before its deadline.
    NoPlace {
        /// When.
        at: Instant,
        /// Why it had to move.
        why: MoveReason,
        /// The instant it left; `None` when that booking was void.
        from: Option<Instant>,
    },
    /// A worker holds it.
    Claimed {
        /// Until then.
        lease_ends: Instant,
    },
    /// The provider was called.
    Called {
        /// When the call that settled it began.
        at: Instant,
    },
    /// It ended.
    Settled {
        /// When.
        at: Instant,
        /// As what.
        state: SendState,
    },
    /// The provider said what became of it.
    Receipt {
        /// When that was, by the provider's clock.
        at: Instant,
        /// What it said.
        delivery: Delivery,
    },
}

/// What is known of a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendStatus {
    /// How far it has come, receipts included.
    pub status: DeliveryStatus,
    /// Since when: the booking, the end, what the provider says of its receipt. Since the slot while it is being sent, or `None` when its
    /// booking is void.
    pub since: Option<Instant>,
    /// The state of its record.
    pub state: SendState,
    /// Its booking.
    pub seq: u32,
    /// Provider calls that count.
    pub attempts: u32,
    /// Times the provider refused it for the rate.
    pub throttles: u32,
    /// Trips through SQS made only because a timer is short.
    pub hops: u32,
    /// Units.
    pub cost: u32,
    /// Second and position of its slot.
    pub slot: (u32, u32),
    /// When it leaves, as it stands now; `None` when the booking is void, or the budget is paused without an end.
    pub at: Option<Instant>,
    /// Its slot is at that instant. False: it will move at its claim (the rate was lowered, a cooldown came, another send took its
    /// place), to about there.
    pub stands: bool,
    /// Until the slot; zero when it has passed.
    pub wait: Duration,
    /// How long its call was held up between the instant that was claimed for it and its begin; `None` unless it was sent.
    pub held_up: Option<Duration>,
    /// Its lane; `None` when the policy has it no longer.
    pub lane: Option<LaneName>,
    /// The receipt that stands, if any came.
    pub receipt: Option<Standing>,
    /// What happened to it, oldest first; of its moves the last 32.
    pub history: Vec<Event>,
}

/// What is known of a budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetStatus {
    /// Redis' clock.
    pub now: Instant,
    /// Whether it has a policy.
    pub has_policy: bool,
    /// The end of the cooldown in force.
    pub cooldown_until: Option<Instant>,
    /// The end of the last second with a booking.
    pub booked_until: Option<Instant>,
    /// The end of the pause in force.
    pub paused_until: Option<Instant>,
    /// The units per second that are booked now: what the ramp and the adaptive rate make of the policy's.
    pub rate: Option<f64>,
    /// A message shows up 0 to 1 s more than this before its slot.
    pub lead: Duration,
}

/// Reads both; the send's part is `None` when Redis has no record of it.
///
/// # Errors
/// [`StoreError`].
pub async fn status(
    store: &Store,
    budget: &BudgetName,
    id: &SendId,
) -> Result<(BudgetStatus, Option<SendStatus>), StoreError> {
    let keys = vec![keys::calendar(budget), keys::policy(budget), keys::record(budget, id)];
    parse(store.run(sendslot_lua::STATUS, Call { keys, args: vec![] }).await?)
}

fn parse(value: Value) -> Result<(BudgetStatus, Option<SendStatus>), StoreError> {
    let items = reply::array("status", value)?;
    read(&items).ok_or_else(|| reply::wrong("status", &items))
}

/// Reads many sends of one budget in one round trip, in their order.
///
/// # Errors
/// [`StoreError`].
pub async fn status_all(
    store: &Store,
    budget: &BudgetName,
    ids: &[&SendId],
) -> Result<Vec<Option<SendStatus>>, StoreError> {
    let call = |id: &&SendId| Call {
        keys: vec![keys::calendar(budget), keys::policy(budget), keys::record(budget, id)],
        args: vec![],
    };
    let calls: Vec<Call> = ids.iter().map(call).collect();
    let replies = store.run_all(sendslot_lua::STATUS, &calls).await;
    replies.into_iter().map(|reply| parse(reply?).map(|(_, send)| send)).collect()
}

/// Some sends of a budget that were recorded, in no order: at most `most`, and fewer where only few of many keys are the budget's.
/// Sends whose IDs are no text are left out.
///
/// # Errors
/// [`StoreError`].
pub async fn some(store: &Store, budget: &BudgetName, most: usize) -> Result<Vec<SendStatus>, StoreError> {
    const LOOKS: usize = 20;
    let prefix = keys::record_prefix(budget);
    let found = store.some_keys(&keys::calendar(budget), &format!("{prefix}*"), most, LOOKS).await?;
    let id = |key: Vec<u8>| SendId::new(String::from_utf8(key).ok()?.strip_prefix(&prefix)?).ok();
    let ids: Vec<SendId> = found.into_iter().filter_map(id).collect();
    let known = status_all(store, budget, &ids.iter().collect::<Vec<_>>()).await?;
    Ok(known.into_iter().flatten().collect())
}

/// A budget's status alone.
///
/// # Errors
/// [`StoreError`].
pub async fn budget_status(store: &Store, budget: &BudgetName) -> Result<BudgetStatus, StoreError> {
    let keys = vec![keys::calendar(budget), keys::policy(budget), keys::calendar(budget) + ":"];
    parse(store.run(sendslot_lua::STATUS, Call { keys, args: vec![] }).await?).map(|(budget, _)| budget)
}

fn instant(n: i64) -> Option<Instant> {
    u64::try_from(n).ok().filter(|n| *n > 0).map(Instant::from_micros)
}

fn millis(n: u64) -> Instant {
    Instant::from_micros(n * 1000)
}

fn integers<const N: usize>(items: &[Value]) -> Option<([i64; N], &[Value])> {
    let (head, rest) = items.split_first_chunk::<N>()?;
    let mut numbers = [0; N];
    for (number, item) in numbers.iter_mut().zip(head) {
        *number = reply::integer(item)?;
    }
    Some((numbers, rest))
}

fn read(items: &[Value]) -> Option<(BudgetStatus, Option<SendStatus>)> {
    let ([now, policy, cool, booked, paused, _level, num, den, lead], rest) = integers::<9>(items)?;
    let now = instant(now)?;
    let budget = BudgetStatus {
        now,
        has_policy: policy == 1,
        cooldown_until: instant(cool),
        booked_until: instant(booked).filter(|at| *at > now),
        paused_until: instant(paused),
        rate: (den > 0).then(|| num as f64 / den as f64),
        lead: Duration::from_micros(u64::try_from(lead).ok()?),
    };
    let send = if rest.is_empty() { None } else { Some(send(rest, &budget)?) };
    Some((budget, send))
}

fn send(items: &[Value], budget: &BudgetStatus) -> Option<SendStatus> {
    let ([state, seq, attempts, throttles, hops, cost, second, position, at, stands, time, origin, called, held], rest) =
        integers::<14>(items)?;
    let number = |n: i64| u32::try_from(n).ok();
    let state = SendState::from_code(state)?;
    let (at, second, origin) = (instant(at), number(second)?, number(origin)?);
    let [Value::BulkString(lane), Value::BulkString(receipt), moves @ ..] = rest else { return None };
    let receipt = if receipt.is_empty() { None } else { Some(receipt::unpack(receipt)?) };
    let mut history: Vec<Event> = moves.iter().map(moved).collect::<Option<_>>()?;
    if history.is_empty() && second > 0 {
        history.push(booked(second, origin)?);
    }
    let time = u64::try_from(time).ok()?;
    match state {
        SendState::Booked => {}
        SendState::Claimed => history.push(Event::Claimed { lease_ends: millis(time) }),
        SendState::Sent => {
            history.push(Event::Called { at: millis(time.saturating_sub(u64::try_from(called).ok()?)) });
            history.push(Event::Settled { at: millis(time), state });
        }
        _ => history.push(Event::Settled { at: millis(time), state }),
    }
    let said = receipt.as_ref().map(|standing| &standing.receipt);
    history.extend(said.map(|receipt| Event::Receipt { at: receipt.at, delivery: receipt.delivery }));
    let (status, since) = delivery_status(state, at, &history, budget);
    Some(SendStatus {
        status,
        since,
        state,
        seq: number(seq)?,
        attempts: number(attempts)?,
        throttles: number(throttles)?,
        hops: number(hops)?,
        cost: number(cost)?,
        slot: (second, number(position)?),
        at,
        stands: stands == 1,
        wait: Duration::from_micros(at.map_or(0, |at| at.as_micros().saturating_sub(budget.now.as_micros()))),
        held_up: (state == SendState::Sent).then_some(Duration::from_millis(u64::try_from(held).ok()?)),
        lane: String::from_utf8(lane.clone()).ok().and_then(|name| LaneName::new(name).ok()),
        receipt,
        history,
    })
}

/// A receipt is the last word, unless the send was booked anew.
fn delivery_status(
    state: SendState,
    at: Option<Instant>,
    history: &[Event],
    budget: &BudgetStatus,
) -> (DeliveryStatus, Option<Instant>) {
    if state != SendState::Booked
        && let Some(Event::Receipt { at, delivery }) = history.last()
    {
        let status = match delivery {
            Delivery::Delivered => DeliveryStatus::Delivered,
            Delivery::Undelivered => DeliveryStatus::Undelivered,
        };
        return (status, Some(*at));
    }
    let ended = history.iter().rev().find_map(|event| match event {
        Event::Settled { at, .. } => Some(*at),
        _ => None,
    });
    let booked = history.iter().rev().find_map(|event| match event {
        Event::Booked { at, .. } | Event::Moved { at, .. } => Some(*at),
        _ => None,
    });
    match state {
        SendState::Booked => {
            let early = u64::try_from((budget.lead + Duration::from_secs(1)).as_micros()).unwrap_or(u64::MAX);
            let shows_up = at.map(|at| Instant::from_micros(at.as_micros().saturating_sub(early)));
            match shows_up.filter(|shows_up| *shows_up <= budget.now) {
                Some(shows_up) => (DeliveryStatus::Waiting, Some(shows_up).max(booked)),
                None => (DeliveryStatus::Booked, booked),
            }
        }
        SendState::Claimed => (DeliveryStatus::Sending, at),
        SendState::Sent => (DeliveryStatus::Sent, ended),
        SendState::Cancelled => (DeliveryStatus::Cancelled, ended),
        SendState::Failed => (DeliveryStatus::Failed, ended),
        SendState::Expired => (DeliveryStatus::Expired, ended),
        SendState::Unknown => (DeliveryStatus::Unknown, ended),
    }
}

/// (seconds from the booking to the slot * 128 + hundredths of the booking) * 16 + rule
fn booked(second: u32, origin: u32) -> Option<Event> {
    let hundredths = u64::from(second.saturating_sub(origin / 2048)) * 100 + u64::from(origin / 16 % 128);
    let bound_by = BoundBy::from_code(u8::try_from(origin % 16).ok()?)?;
    Some(Event::Booked { at: Instant::from_micros(hundredths * 10_000), bound_by })
}

/// '<BBI6I6I6' why, rule, when, from, to (ms)
fn moved(item: &Value) -> Option<Event> {
    let Value::BulkString(bytes) = item else { return None };
    let mut fields = reply::Fields(bytes);
    let (why, rule) = (fields.u8()?, fields.u8()?);
    let (at, from, to) = (fields.u48()?, fields.u48()?, fields.u48()?);
    if why == 0 {
        return Some(Event::Booked { at: millis(at), bound_by: BoundBy::from_code(rule)? });
    }
    let (why, from) = (MoveReason::from_code(why.into())?, (from > 0).then_some(millis(from)));
    if to == 0 {
        return Some(Event::NoPlace { at: millis(at), why, from });
    }
    Some(Event::Moved { at: millis(at), why, from, to: millis(to), bound_by: BoundBy::from_code(rule)? })
}
