//! status.lua: what Redis knows of a send and of its budget.

use std::time::Duration;

use redis::Value;

use crate::id::{BudgetName, SendId};
use crate::keys;
use crate::reply;
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

    fn from_code(code: i64) -> Option<Self> {
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

/// What is known of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendStatus {
    /// Its state.
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
    /// The slot's instant; `None` when the booking is void.
    pub at: Option<Instant>,
    /// Until the slot; zero when it has passed.
    pub wait: Duration,
}

/// What is known of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetStatus {
    /// Redis' clock.
    pub now: Instant,
    /// Whether it has a policy.
    pub has_policy: bool,
    /// The end of the cooldown in force.
    pub cooldown_until: Option<Instant>,
    /// The end of the last second with a booking.
    pub booked_until: Option<Instant>,
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
    let numbers: Option<Vec<i64>> = items.iter().map(reply::integer).collect();
    numbers.as_deref().and_then(read).ok_or_else(|| reply::wrong("status", &items))
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
    let replies = store.run_all(sendslot_lua::STATUS, &calls).await?;
    replies.into_iter().map(|reply| parse(reply?).map(|(_, send)| send)).collect()
}

/// A budget's status alone.
///
/// # Errors
/// [`StoreError`].
pub async fn budget_status(store: &Store, budget: &BudgetName) -> Result<BudgetStatus, StoreError> {
    let keys = vec![keys::calendar(budget), keys::policy(budget), keys::calendar(budget) + ":"];
    parse(store.run(sendslot_lua::STATUS, Call { keys, args: vec![] }).await?).map(|(budget, _)| budget)
}

fn read(numbers: &[i64]) -> Option<(BudgetStatus, Option<SendStatus>)> {
    let instant = |n: i64| u64::try_from(n).ok().filter(|n| *n > 0).map(Instant::from_micros);
    let (&[now, policy, cool, booked], rest) = numbers.split_first_chunk::<4>()?;
    let now = instant(now)?;
    let budget = BudgetStatus {
        now,
        has_policy: policy == 1,
        cooldown_until: instant(cool),
        booked_until: instant(booked).filter(|at| *at > now),
    };
    if rest.is_empty() {
        return Some((budget, None));
    }
    let &[state, seq, attempts, throttles, hops, cost, second, position, at, _lease] = rest.first_chunk::<10>()?;
    let number = |n: i64| u32::try_from(n).ok();
    let at = instant(at);
    let send = SendStatus {
        state: SendState::from_code(state)?,
        seq: number(seq)?,
        attempts: number(attempts)?,
        throttles: number(throttles)?,
        hops: number(hops)?,
        cost: number(cost)?,
        slot: (number(second)?, number(position)?),
        at,
        wait: Duration::from_micros(at.map_or(0, |at| at.as_micros().saturating_sub(now.as_micros()))),
    };
    Some((budget, Some(send)))
}
