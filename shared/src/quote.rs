//! quote.lua: when sends would leave if they were offered now.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;

use crate::id::{BudgetName, LaneName};
use crate::keys;
use crate::reply;
use crate::reserve::{BoundBy, Paused, micros};
use crate::store::{Call, Store, StoreError};
use crate::time::Instant;

/// What is asked.
#[derive(Debug, Clone)]
pub struct QuoteRequest {
    /// How many sends.
    pub sends: u32,
    /// In which lane.
    pub lane: LaneName,
    /// What each costs.
    pub cost: u32,
    /// The earliest instant.
    pub not_before: Option<Instant>,
}

/// When they would leave. Nothing is booked: what others book in the meantime comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    /// Redis' clock at the question.
    pub now: Instant,
    /// How many get a slot.
    pub placed: u32,
    /// The slot of the first.
    pub first: Option<Instant>,
    /// The slot of the last.
    pub last: Option<Instant>,
    /// What bounds the last.
    pub bound_by: BoundBy,
    /// The budget is paused. Without an end all instants are as if it went on now.
    pub paused: Option<Paused>,
    /// How many leave in each hour of UTC, by its start; hours without any are left out.
    pub hours: Vec<(Instant, u32)>,
    /// Why not all get one.
    pub stopped: Option<Stopped>,
}

/// Why a quote ends before the last send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The others lie behind the policy's horizon.
    TooFar,
    /// The others would wait longer than the lane allows.
    Full,
}

/// Why there is no quote.
#[derive(Debug, thiserror::Error)]
pub enum QuoteError {
    /// Redis.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The budget has no policy.
    #[error("this budget has no policy: set one with `sendslot budget set NAME --limit UNITS`")]
    UnknownBudget,
    /// The policy has no such lane.
    #[error("this budget has no such lane: `sendslot budget get NAME` lists them")]
    UnknownLane,
    /// The cost is above what the policy takes.
    #[error("the cost is above {max_cost} units, the most that this budget takes for one send")]
    CostTooLarge {
        /// The largest cost allowed.
        max_cost: u32,
    },
    /// No sends, or cost 0.
    #[error("a quote needs at least 1 send and a cost of 1 to 16,777,215 units")]
    Nothing,
}

/// One part of a quote: '{code, now, placed, first, last, rule, rest, hour 1, placed 1, …}'.
struct Part {
    code: i64,
    now: u64,
    placed: u32,
    first: u64,
    last: u64,
    bound_by: BoundBy,
    paused: Option<Paused>,
    rest: Vec<u8>,
    hours: Vec<(u64, u32)>,
}

/// Between two parts, so that others get in: each part keeps Redis for some ms.
const PAUSE: Duration = Duration::from_millis(1);

/// Quotes without booking: first, last, and how many leave by the hour. Long quotes ask Redis in parts, so that no other
/// caller waits.
///
/// # Errors
/// [`QuoteError`].
pub async fn quote(store: &Store, budget: &BudgetName, question: &QuoteRequest) -> Result<Quote, QuoteError> {
    if question.sends == 0 || question.cost == 0 || question.cost >= 1 << 24 {
        return Err(QuoteError::Nothing);
    }
    let mut hours = BTreeMap::new();
    let mut rest = vec![];
    let mut quote: Option<Quote> = None;
    loop {
        let left = question.sends - quote.as_ref().map_or(0, |q| q.placed);
        let part = ask(store, budget, question, left, &rest).await?;
        match part.code {
            4 => return Err(QuoteError::CostTooLarge { max_cost: part.placed }),
            5 => return Err(QuoteError::UnknownLane),
            6 => return Err(QuoteError::UnknownBudget),
            _ => {}
        }
        for (hour, n) in part.hours {
            *hours.entry(hour).or_insert(0) += n;
        }
        let instant = |us: u64| (us > 0).then_some(Instant::from_micros(us));
        let known = quote.get_or_insert(Quote {
            now: Instant::from_micros(part.now),
            placed: 0,
            first: None,
            last: None,
            bound_by: part.bound_by,
            paused: part.paused,
            hours: vec![],
            stopped: None,
        });
        known.placed += part.placed;
        if part.placed > 0 {
            known.first = [known.first, instant(part.first)].into_iter().flatten().min();
            (known.last, known.bound_by) = (instant(part.last), part.bound_by);
        }
        known.stopped = match part.code {
            2 => Some(Stopped::TooFar),
            3 => Some(Stopped::Full),
            _ => None,
        };
        if part.code != 1 {
            known.hours = hours.into_iter().map(|(s, n)| (Instant::from_micros(s * 1_000_000), n)).collect();
            break;
        }
        rest = part.rest;
        tokio::time::sleep(PAUSE).await;
    }
    quote.ok_or(QuoteError::Nothing)
}

/// `rest`: what the part before this one answered.
async fn ask(
    store: &Store,
    budget: &BudgetName,
    question: &QuoteRequest,
    sends: u32,
    rest: &[u8],
) -> Result<Part, QuoteError> {
    let mut arg = [sends.to_le_bytes(), question.cost.to_le_bytes()].concat();
    arg.extend(micros(question.not_before));
    let call = Call {
        keys: vec![keys::calendar(budget), keys::policy(budget)],
        args: vec![arg, question.lane.as_str().as_bytes().to_vec(), rest.to_vec()],
    };
    let items = reply::array("quote", store.run(sendslot_lua::QUOTE, call).await?)?;
    Ok(part(&items).ok_or_else(|| reply::wrong("quote", &items))?)
}

fn part(items: &[Value]) -> Option<Part> {
    let ([code, now, placed, first, last, rule, rest], hours) = items.split_first_chunk::<7>()?;
    let number = |item: &Value| u64::try_from(reply::integer(item)?).ok();
    let count = |item: &Value| u32::try_from(reply::integer(item)?).ok();
    let Value::BulkString(rest) = rest else { return None };
    let rule = reply::integer(rule)?;
    let paused = match rule {
        8 => Some(Paused::Until),
        9 => Some(Paused::Open),
        _ => None,
    };
    let hours = hours.chunks(2).map(|pair| match pair {
        [hour, n] => Some((number(hour)?, count(n)?)),
        _ => None,
    });
    Some(Part {
        code: reply::integer(code)?,
        now: number(now)?,
        placed: count(placed)?,
        first: number(first)?,
        last: number(last)?,
        bound_by: if paused.is_some() { BoundBy::Pause } else { BoundBy::from_code(u8::try_from(rule).ok()?)? },
        paused,
        rest: rest.clone(),
        hours: hours.collect::<Option<_>>()?,
    })
}

impl Default for QuoteRequest {
    /// One send of cost 1 in the default lane.
    fn default() -> Self {
        Self { sends: 1, lane: LaneName::default(), cost: 1, not_before: None }
    }
}

impl Quote {
    /// How far the last slot is ahead of the question.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        let last = self.last.unwrap_or(self.now).as_micros();
        Duration::from_micros(last.saturating_sub(self.now.as_micros()))
    }
}
