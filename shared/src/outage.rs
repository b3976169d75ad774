//! Outages of Redis as one process sees them: who asks next, and the alarm.
//!
//! The alarm is one event, `redis_unavailable` (level ERROR, target `sendslot::redis`), at most once per [`REMINDER`] for
//! each budget and lane of a process, with the fields `budget`, `lane`, `policy` (`hold`, `local:5`; what becomes of the
//! lane's sends), `sends` (of that budget, concerned since the outage began) and `error`. When Redis answers for that budget
//! again, `redis_available` (level WARN, same target) says so with `budget`, `outage_ms` and `sends`. A budget without a policy is
//! held and raises the same alarm, with an `error` that says so, though Redis answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::id::{BudgetName, LaneName};
use crate::metrics::{self, Place};
use crate::redis_policy::RedisPolicy;
use crate::reserve::Refusal;
use crate::store::StoreError;

/// The alarm repeats itself this often.
pub const REMINDER: Duration = Duration::from_secs(5);
/// After a failure nobody asks for this long.
const REST: Duration = Duration::from_millis(500);
/// The longest that one question takes: two connections and two answers that do not come.
const PROBE: Duration = Duration::from_secs(5);
/// An error that is older by this is not passed on.
const STALE: Duration = Duration::from_secs(2);
/// Budgets that are remembered; above that, alarms begin anew.
const MOST: usize = 1000;

/// Whether a caller asks Redis.
#[must_use]
#[derive(Debug)]
pub enum Ask {
    /// It does.
    Yes,
    /// It has this error, and has somebody see whether Redis is back.
    Probe(StoreError),
    /// It has this error.
    No(StoreError),
}

/// The outages that a process knows of, by budget: a cluster may be down in part.
#[derive(Debug, Default)]
pub struct Outages {
    open: Mutex<HashMap<BudgetName, Outage>>,
    /// Nearly always false, so that an answer costs no lock.
    any: AtomicBool,
    /// Budgets without a policy.
    unset: Mutex<HashMap<BudgetName, Alarm>>,
    any_unset: AtomicBool,
}

#[derive(Debug)]
struct Outage {
    error: StoreError,
    /// Nobody asks before; `None`: everybody does, since the error is their own.
    rests_until: Option<Instant>,
    alarm: Alarm,
}

/// What is told of one budget.
#[derive(Debug)]
struct Alarm {
    since: Instant,
    sends: u64,
    told: HashMap<LaneName, Instant>,
}

impl Alarm {
    fn new(since: Instant) -> Self {
        Self { since, sends: 0, told: HashMap::new() }
    }

    /// Counts a send; so many to tell of, if it is time to.
    fn concerns(&mut self, lane: &LaneName, now: Instant) -> Option<u64> {
        self.sends += 1;
        if self.told.get(lane).is_some_and(|told| now < *told + REMINDER) {
            return None;
        }
        if self.told.len() >= MOST {
            self.told.clear();
        }
        self.told.insert(lane.clone(), now);
        Some(self.sends)
    }

    fn over(self, budget: &BudgetName) {
        for lane in self.told.keys() {
            Place::lane(budget.as_str(), lane.as_str()).set(&metrics::POLICY_STATE, 0.0);
        }
        if !self.told.is_empty() {
            let outage_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(target: "sendslot::redis", %budget, outage_ms, sends = self.sends, "redis_available");
        }
    }
}

fn raise(budget: &BudgetName, lane: &LaneName, policy: RedisPolicy, sends: u64, error: &dyn std::fmt::Display) {
    let state = if policy == RedisPolicy::Hold { 1.0 } else { 2.0 };
    Place::lane(budget.as_str(), lane.as_str()).set(&metrics::POLICY_STATE, state);
    tracing::error!(target: "sendslot::redis", %budget, %lane, %policy, sends, %error, "redis_unavailable");
}

impl Outages {
    fn lock(&self) -> MutexGuard<'_, HashMap<BudgetName, Outage>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to ask Redis at all. During an outage nobody does: each half second one caller is told to have a probe made, and
    /// all have the last error at once instead of waiting for one of their own.
    pub fn may_ask(&self, budget: &BudgetName) -> Ask {
        if self.any.load(Relaxed) { self.may_ask_at(budget, Instant::now()) } else { Ask::Yes }
    }

    fn may_ask_at(&self, budget: &BudgetName, now: Instant) -> Ask {
        let mut open = self.lock();
        let Some(outage) = open.get_mut(budget) else { return Ask::Yes };
        let Some(until) = outage.rests_until else { return Ask::Yes };
        if now < until {
            return Ask::No(outage.error.clone());
        }
        outage.rests_until = Some(now + PROBE);
        // nobody has asked for a while: the outage may be long over
        if now < until + STALE { Ask::Probe(outage.error.clone()) } else { Ask::Yes }
    }

    /// What came of a question.
    pub fn asked<T>(&self, budget: &BudgetName, answer: &Result<T, StoreError>) {
        match answer {
            Ok(_) => self.answered(budget),
            Err(error) => self.failed(budget, error, Instant::now()),
        }
    }

    fn failed(&self, budget: &BudgetName, error: &StoreError, now: Instant) {
        let mut open = self.lock();
        if open.len() >= MOST && !open.contains_key(budget) {
            open.clear();
        }
        let outage = open.entry(budget.clone()).or_insert_with(|| Outage {
            error: error.clone(),
            rests_until: None,
            alarm: Alarm::new(now),
        });
        outage.error = error.clone();
        outage.rests_until = error.is_temporary().then(|| now + REST);
        self.any.store(true, Relaxed);
    }

    fn answered(&self, budget: &BudgetName) {
        if !self.any.load(Relaxed) {
            return;
        }
        let mut open = self.lock();
        let ended = open.remove(budget);
        self.any.store(!open.is_empty(), Relaxed);
        drop(open);
        if let Some(outage) = ended {
            outage.alarm.over(budget);
        }
    }

    /// Counts a send that Redis could not be asked for, and raises the alarm.
    pub fn concerns(&self, budget: &BudgetName, lane: &LaneName, policy: RedisPolicy, error: &StoreError) {
        let now = Instant::now();
        let mut open = self.lock();
        // answered meanwhile, on behalf of another send
        let Some(outage) = open.get_mut(budget) else { return };
        let told = outage.alarm.concerns(lane, now);
        drop(open);
        if let Some(sends) = told {
            raise(budget, lane, policy, sends, error);
        }
    }

    /// Counts a send of a budget that has no policy, and raises the alarm: it is held.
    pub fn no_policy(&self, budget: &BudgetName, lane: &LaneName) {
        let now = Instant::now();
        let mut unset = self.unset.lock().unwrap_or_else(PoisonError::into_inner);
        if unset.len() >= MOST && !unset.contains_key(budget) {
            unset.clear();
        }
        let told = unset.entry(budget.clone()).or_insert_with(|| Alarm::new(now)).concerns(lane, now);
        self.any_unset.store(true, Relaxed);
        drop(unset);
        if let Some(sends) = told {
            raise(budget, lane, RedisPolicy::Hold, sends, &Refusal::UnknownBudget);
        }
    }

    /// A budget has a policy.
    pub fn has_policy(&self, budget: &BudgetName) {
        if !self.any_unset.load(Relaxed) {
            return;
        }
        let mut unset = self.unset.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = unset.remove(budget);
        self.any_unset.store(!unset.is_empty(), Relaxed);
        drop(unset);
        if let Some(alarm) = ended {
            alarm.over(budget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> StoreError {
        let source = redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        StoreError::Unreachable { address: "127.0.0.1:1".to_owned(), source }
    }

    fn refused(line: &str) -> StoreError {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        let redis::Value::ServerError(error) = reply else { panic!("{reply:?}") };
        StoreError::Refused { script: "claim", source: error.into() }
    }

    #[test]
    fn during_an_outage_nobody_waits_and_one_probe_is_made_each_half_second() {
        let outages = Outages::default();
        let [a, b] = ["a", "b"].map(|name| BudgetName::new(name).unwrap());
        let now = Instant::now();
        let ask = |budget, at| outages.may_ask_at(budget, at);
        let ms = Duration::from_millis;
        assert!(matches!(ask(&a, now), Ask::Yes));
        outages.failed(&a, &unreachable(), now);
        assert!(matches!(ask(&a, now + REST - ms(1)), Ask::No(_)));
        assert!(matches!(ask(&b, now), Ask::Yes), "another budget may live on another server");
        assert!(matches!(ask(&a, now + REST), Ask::Probe(_)));
        assert!(matches!(ask(&a, now + REST + ms(1)), Ask::No(_)), "one probe at a time");
        assert!(matches!(ask(&a, now + REST + PROBE), Ask::Probe(_)), "it was never heard of again");
        let later = now + REST + 2 * PROBE + STALE;
        assert!(matches!(ask(&a, later), Ask::Yes), "an old error is nobody's");
        assert!(matches!(ask(&a, later + ms(1)), Ask::No(_)), "and one caller finds out");
        outages.answered(&a);
        assert!(matches!(ask(&a, now), Ask::Yes));
        // an error that needs people is everybody's own
        outages.failed(&a, &refused("OOM a"), now);
        assert!(matches!((ask(&a, now), ask(&a, now)), (Ask::Yes, Ask::Yes)));
    }
}
