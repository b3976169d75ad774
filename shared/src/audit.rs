//! The calls that were made, as settle.lua notes them: kept for a day, or for as long as 16,777,216 units take at the
//! budget's rate if that is shorter (then two minutes at least).
//!
//! A call is noted when its end is reported, at the millisecond in which it began by Redis' clock: now less the time that the
//! worker says has passed since. Two kinds of calls are not in it: those of workers that died before they reported (the guard at
//! the claim bounds those as well), and failed ones whose report came after their lease had ended. A Redis that stalls hears
//! reports late, and notes their calls late by as much.

use std::collections::BTreeMap;

use redis::Value;

use crate::id::BudgetName;
use crate::keys;
use crate::reply;
use crate::store::{Store, StoreError};
use crate::time::Instant;

const MINUTE_US: u64 = 60_000_000;
/// Stands for a call of another cost than 1: milliseconds and cost follow.
const COSTING: u16 = u16::MAX;

/// One call of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// When it began, to the millisecond below.
    pub at: Instant,
    /// Units.
    pub cost: u32,
}

/// The calls of one minute (whole minutes since 1970), in the order of their ends. What is cut off at the end is passed over.
#[must_use]
pub fn decode(minute: u64, bytes: &[u8]) -> Vec<Call> {
    let mut fields = reply::Fields(bytes);
    let mut calls = Vec::with_capacity(bytes.len() / 2);
    let at = |ms: u16| Instant::from_micros(minute.saturating_mul(MINUTE_US).saturating_add(u64::from(ms) * 1000));
    while let Some(ms) = fields.u16() {
        if ms != COSTING {
            calls.push(Call { at: at(ms), cost: 1 });
        } else if let (Some(ms), Some(cost)) = (fields.u16(), fields.u32()) {
            calls.push(Call { at: at(ms), cost });
        } else {
            break;
        }
    }
    calls
}

/// The calls of a budget minute by minute, so that a day of them needs no memory.
#[derive(Debug)]
pub struct Calls<'a> {
    store: &'a Store,
    budget: &'a BudgetName,
    from: Instant,
    to: Instant,
    /// The minute that is read next.
    minute: u64,
}

/// The calls that began from `from` to before `to`.
#[must_use]
pub fn calls<'a>(store: &'a Store, budget: &'a BudgetName, from: Instant, to: Instant) -> Calls<'a> {
    Calls { store, budget, from, to, minute: minute_of(from) }
}

impl Calls<'_> {
    /// The calls of the next minute in the order of their beginnings, perhaps none; `None` after the last minute.
    ///
    /// # Errors
    /// [`StoreError`]; asking again asks for the same minute.
    pub async fn next(&mut self) -> Result<Option<Vec<Call>>, StoreError> {
        if self.minute * MINUTE_US >= self.to.as_micros() {
            return Ok(None);
        }
        let key = keys::audit(self.budget, self.minute);
        let bytes = match self.store.command("GET", Some(&key), redis::cmd("GET").arg(&key)).await? {
            Value::BulkString(bytes) => bytes,
            Value::Nil => vec![],
            other => return Err(reply::wrong("GET", &other)),
        };
        let mut calls = decode(self.minute, &bytes);
        calls.retain(|call| self.from <= call.at && call.at < self.to);
        calls.sort_unstable();
        self.minute += 1;
        Ok(Some(calls))
    }
}

/// How many calls ended otherwise than as sent, by outcome (`throttled`, `unavailable`, `unknown`, `rejected`), in the whole
/// minutes that `from` to `to` touches.
///
/// # Errors
/// [`StoreError`].
pub async fn endings(
    store: &Store,
    budget: &BudgetName,
    from: Instant,
    to: Instant,
) -> Result<BTreeMap<String, u64>, StoreError> {
    let mut all = BTreeMap::new();
    let mut minute = minute_of(from);
    while minute * MINUTE_US < to.as_micros() {
        let key = keys::endings(budget, minute);
        let value = store.command("HGETALL", Some(&key), redis::cmd("HGETALL").arg(&key)).await?;
        let counts: BTreeMap<String, u64> =
            redis::from_redis_value(value).map_err(|e| StoreError::Refused { script: "HGETALL", source: e.into() })?;
        for (outcome, count) in counts {
            *all.entry(outcome).or_insert(0) += count;
        }
        minute += 1;
    }
    Ok(all)
}

fn minute_of(at: Instant) -> u64 {
    at.as_micros() / MINUTE_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_any_cost_are_read_and_a_torn_end_is_passed_over() {
        let mut bytes = vec![];
        bytes.extend(0_u16.to_le_bytes());
        for (ms, cost) in [(59_999_u16, 7_u32), (3, 65_536)] {
            bytes.extend(COSTING.to_le_bytes());
            bytes.extend(ms.to_le_bytes());
            bytes.extend(cost.to_le_bytes());
        }
        bytes.extend(1234_u16.to_le_bytes());
        let at = |ms: u64| Instant::from_micros(2 * MINUTE_US + ms * 1000);
        let all = [(0, 1), (59_999, 7), (3, 65_536), (1234, 1)].map(|(ms, cost)| Call { at: at(ms), cost });
        assert_eq!(decode(2, &bytes), all);
        for (cut, left) in [(1, 3), (2, 3), (3, 2), (9, 2), (10, 2), (11, 1), (18, 1), (19, 0)] {
            let kept = &bytes[..bytes.len() - cut];
            assert_eq!(decode(2, kept), all[..left], "{cut} bytes cut");
        }
    }
}
