//! quote.lua: when sends would leave if they were offered now.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;

use crate::id::{BudgetName, LaneName};
use crate::keys;
use crate::reply;
use crate::reserve::{BoundBy, micros};
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

/// One part of a quote: '{code, now, began, placed, first, last, from, rule, quotas, used 1, …, hour 1, placed 1, …}'.
struct Part {
    code: i64,
    numbers: [u64; 6],
    bound_by: BoundBy,
    used: Vec<u32>,
    hours: Vec<(u64, u32)>,
}

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
    let mut reached = Reached::default();
    let mut quote: Option<Quote> = None;
    loop {
        let left = question.sends - quote.as_ref().map_or(0, |q| q.placed);
        let part = ask(store, budget, question, left, &reached).await?;
        let [now, began, placed, first, last, from] = part.numbers;
        let placed = u32::try_from(placed).unwrap_or(u32::MAX);
        match part.code {
            4 => return Err(QuoteError::CostTooLarge { max_cost: placed }),
            5 => return Err(QuoteError::UnknownLane),
            6 => return Err(QuoteError::UnknownBudget),
            _ => {}
        }
        reached = Reached { from, began, used: part.used };
        for (hour, n) in part.hours {
            *hours.entry(hour).or_insert(0) += n;
        }
        let instant = |us: u64| (us > 0).then_some(Instant::from_micros(us));
        let known = quote.get_or_insert(Quote {
            now: Instant::from_micros(now),
            placed: 0,
            first: instant(first),
            last: None,
            bound_by: part.bound_by,
            hours: vec![],
            stopped: None,
        });
        known.placed += placed;
        if placed > 0 {
            (known.last, known.bound_by) = (instant(last), part.bound_by);
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
    }
    quote.ok_or(QuoteError::Nothing)
}

/// What a part has to know of those before it.
#[derive(Default)]
struct Reached {
    /// Where the last one stopped, us since 1970.
    from: u64,
    /// Where the first one began, us since 1970.
    began: u64,
    /// Units of the quote in each quota's window at `from`.
    used: Vec<u32>,
}

async fn ask(
    store: &Store,
    budget: &BudgetName,
    question: &QuoteRequest,
    sends: u32,
    reached: &Reached,
) -> Result<Part, QuoteError> {
    let mut arg = [sends.to_le_bytes(), question.cost.to_le_bytes()].concat();
    arg.extend(micros(question.not_before));
    arg.extend((reached.from as f64).to_le_bytes());
    arg.extend((reached.began as f64).to_le_bytes());
    arg.extend(reached.used.iter().flat_map(|used| used.to_le_bytes()));
    let call = Call {
        keys: vec![keys::calendar(budget), keys::policy(budget)],
        args: vec![arg, question.lane.as_str().as_bytes().to_vec()],
    };
    let items = reply::array("quote", store.run(sendslot_lua::QUOTE, call).await?)?;
    Ok(part(&items).ok_or_else(|| reply::wrong("quote", &items))?)
}

fn part(items: &[Value]) -> Option<Part> {
    let numbers: Vec<i64> = items.iter().map(reply::integer).collect::<Option<_>>()?;
    let (&[code, a, b, c, d, e, f, rule, quotas], rest) = numbers.split_first_chunk::<9>()?;
    let number = |n: i64| u64::try_from(n).ok();
    let (used, rest) = rest.split_at_checked(usize::try_from(quotas).ok()?)?;
    let hours = rest.chunks(2).map(|pair| match pair {
        [hour, n] => Some((number(*hour)?, u32::try_from(*n).ok()?)),
        _ => None,
    });
    Some(Part {
        code,
        numbers: [number(a)?, number(b)?, number(c)?, number(d)?, number(e)?, number(f)?],
        bound_by: BoundBy::from_code(u8::try_from(rule).ok()?)?,
        used: used.iter().map(|n| u32::try_from(*n).ok()).collect::<Option<_>>()?,
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
