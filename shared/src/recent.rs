//! What was booked and what was called in the last minute of a budget, second by second, for metrics. It reads the calendar's string as the
//! scripts keep it (`HEADER` in header.lua).

use std::time::Duration;

use redis::Value;

use crate::audit;
use crate::id::BudgetName;
use crate::keys;
use crate::reply;
use crate::status;
use crate::store::{Store, StoreError};
use crate::time::Instant;

/// Seconds before the running one that are told.
pub const PAST: usize = 60;
/// How far back overdue seconds are looked for: as far as the calendar keeps what has passed.
const HOUR: u64 = 3600;
const SECOND_US: u64 = 1_000_000;
const HEADER_BYTES: u64 = 232;
/// A second's units, without the bit that says it has holes.
const UNITS: u32 = (1 << 31) - 1;

/// The last minute of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent {
    /// Redis' clock.
    pub now: Instant,
    /// Whether it is paused.
    pub paused: bool,
    /// Units that the rate gave each second, the oldest first.
    pub capacity: Vec<u32>,
    /// Units of each second that were booked, or passed over since they lay behind when its first booking was made.
    pub booked: Vec<u32>,
    /// Units of the settled calls that began in each second.
    pub called: Vec<u32>,
    /// The age of the oldest second of the last hour with bookings behind the last settled call.
    pub overdue: Option<Duration>,
}

/// The numbers of the header that are needed.
struct Header {
    base: u64,
    rate: (u64, u64),
    /// From this second on `rate` is in force, before it the other one.
    switch: u64,
    rate_before: (u64, u64),
    /// How far the calendar lags behind the clock, until when that is counted, and up to when in a pause without end (0: none); us.
    lag: u64,
    rest: u64,
    frozen: u64,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)));
        let rate = |at: usize| Some((number(at)?, number(at + 4)?)).filter(|(_, den)| *den > 0);
        let time = |at: usize| Some(f64::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as u64);
        let (lag, rest, frozen) = (time(196)?, time(204)?, time(212)?);
        Some(Self { base: number(0)?, rate: rate(8)?, switch: number(16)?, rate_before: rate(88)?, lag, rest, frozen })
    }

    /// The second at which the calendar stands.
    fn stands_at(&self, now: u64) -> u64 {
        let clock = if self.frozen > 0 { self.frozen } else { now.max(self.rest) };
        clock.saturating_sub(self.lag) / SECOND_US
    }

    fn capacity(&self, s: u64) -> u32 {
        let (num, den) = if s >= self.switch { self.rate } else { self.rate_before };
        let before = |s: u64| (u128::from(s) * u128::from(num)).div_ceil(u128::from(den));
        u32::try_from(before(s + 1) - before(s)).unwrap_or(u32::MAX)
    }
}

/// Reads it.
///
/// # Errors
/// [`StoreError`].
pub async fn recent(store: &Store, budget: &BudgetName) -> Result<Recent, StoreError> {
    let known = status::budget_status(store, budget).await?;
    let now_s = known.now.as_micros() / SECOND_US;
    let from = now_s.saturating_sub(PAST as u64);
    let hour_ago = now_s.saturating_sub(HOUR);
    let mut recent = Recent {
        now: known.now,
        paused: known.paused_until.is_some(),
        capacity: vec![0; PAST],
        booked: vec![0; PAST],
        called: vec![0; PAST],
        overdue: None,
    };
    let Some(header) = Header::read(&range(store, budget, 0, HEADER_BYTES - 1).await?) else { return Ok(recent) };
    // seconds of the calendar are told by the clock
    let lag = now_s.saturating_sub(header.stands_at(known.now.as_micros()));
    let first = hour_ago.max(header.base + lag);
    let at = |s: u64| HEADER_BYTES + 4 * (s - lag - header.base);
    let bytes = if now_s > first { range(store, budget, at(first), at(now_s) - 1).await? } else { vec![] };
    let units = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes) & UNITS;
    let seconds: Vec<(u64, u32)> = (first..).zip(bytes.as_chunks::<4>().0.iter().map(units)).collect();
    for (s, units) in seconds.iter().filter(|(s, _)| *s >= from) {
        recent.booked[(s - from) as usize] = *units;
    }
    for (s, capacity) in (from..).zip(&mut recent.capacity) {
        *capacity = header.capacity(s.saturating_sub(lag));
    }
    let mut last_call = None;
    for call in calls(store, budget, from, now_s + 1).await? {
        let s = call.at.as_micros() / SECOND_US;
        last_call = last_call.max(Some(s));
        if let Some(units) = s.checked_sub(from).and_then(|i| recent.called.get_mut(i as usize)) {
            *units = units.saturating_add(call.cost);
        }
    }
    if seconds.iter().any(|(s, units)| *units > 0 && last_call.is_none_or(|last| *s > last)) {
        // only when nothing was called of late: further back, minute by minute
        let mut minute = from / 60 * 60;
        while last_call.is_none() && minute + 60 > hour_ago {
            let before = calls(store, budget, minute, minute + 60).await?;
            last_call = before.iter().map(|call| call.at.as_micros() / SECOND_US).max();
            minute = minute.saturating_sub(60);
        }
        let due = seconds.iter().find(|(s, units)| *units > 0 && last_call.is_none_or(|last| *s > last));
        recent.overdue = due.map(|(s, _)| Duration::from_micros(known.now.as_micros() - s * SECOND_US));
    }
    Ok(recent)
}

async fn calls(store: &Store, budget: &BudgetName, from_s: u64, to_s: u64) -> Result<Vec<audit::Call>, StoreError> {
    let at = |s: u64| Instant::from_micros(s * SECOND_US);
    let mut minutes = audit::calls(store, budget, at(from_s), at(to_s));
    let mut all = vec![];
    while let Some(mut some) = minutes.next().await? {
        all.append(&mut some);
    }
    Ok(all)
}

async fn range(store: &Store, budget: &BudgetName, from: u64, to: u64) -> Result<Vec<u8>, StoreError> {
    let key = keys::calendar(budget);
    let command = redis::cmd("GETRANGE").arg(&key).arg(from).arg(to).clone();
    match store.command("GETRANGE", Some(&key), &command).await? {
        Value::BulkString(bytes) => Ok(bytes),
        Value::Nil => Ok(vec![]),
        other => Err(reply::wrong("GETRANGE", &other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_the_points_of_the_grid_that_lie_in_it() {
        let header = Header { base: 0, rate: (3, 2), switch: 100, rate_before: (97, 1), lag: 0, rest: 0, frozen: 0 };
        assert_eq!([99, 100, 101, 102].map(|s| header.capacity(s)), [97, 2, 1, 2]);
        assert!(Header::read(&[0; 232]).is_none(), "no rate");
        assert!(Header::read(&[1; 95]).is_none());
    }
}
