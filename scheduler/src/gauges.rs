//! What is asked of Redis when somebody looks: how far each lane is booked, what is overdue, what passed unused.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use sendslot_shared::budget::{self, BudgetError};
use sendslot_shared::id::{BudgetName, LaneName};
use sendslot_shared::metrics::{self, Place};
use sendslot_shared::policy::Policy;
use sendslot_shared::quote::{self, Quote, QuoteError, QuoteRequest, Stopped};
use sendslot_shared::recent::{self, PAST, Recent};
use sendslot_shared::store::{Store, StoreError};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Redis is asked at most this often, however many look.
const AGE: Duration = Duration::from_secs(5);
/// The longest that a refresh takes.
const LONGEST: Duration = Duration::from_secs(5);
/// So many budgets are asked for at most, the first by name.
const MOST_BUDGETS: usize = 200;
/// Budgets that are asked for side by side.
const AT_ONCE: usize = 8;
/// Calls that began less than this ago may not be settled yet.
const SETTLED: usize = 15;

/// The gauges of the metrics table that come from Redis, for all budgets. A process that renders metrics refreshes them first.
#[derive(Debug)]
pub struct Gauges {
    store: Store,
    refreshed: Mutex<Option<Instant>>,
}

impl Gauges {
    /// For the budgets of this Redis.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, refreshed: Mutex::default() }
    }

    /// Brings the gauges up to date, unless that was done within the last 5 s. When Redis does not answer, `sendslot_redis_up` says so and
    /// the others stay as they are.
    pub async fn refresh(&self) {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_some_and(|at| at.elapsed() < AGE) {
            return;
        }
        let answered = tokio::time::timeout(LONGEST, refresh(&self.store)).await;
        metrics::set(&metrics::REDIS_UP, if matches!(answered, Ok(Ok(()))) { 1.0 } else { 0.0 });
        *refreshed = Some(Instant::now());
    }
}

async fn refresh(store: &Store) -> Result<(), StoreError> {
    let budgets = budget::list(store).await?;
    if budgets.len() > MOST_BUDGETS {
        tracing::warn!(budgets = budgets.len(), told = MOST_BUDGETS, "more budgets than metrics tell of");
    }
    let asked = budgets.into_iter().take(MOST_BUDGETS).map(|budget| async move { one(store, &budget).await });
    let mut answers = stream::iter(asked).buffer_unordered(AT_ONCE);
    let mut result = Ok(());
    while let Some(answer) = answers.next().await {
        // a node of a cluster that is away takes only its own budgets with it
        result = result.and(answer);
    }
    result
}

async fn one(store: &Store, budget: &BudgetName) -> Result<(), StoreError> {
    let policy = match budget::get(store, budget).await {
        Ok(Some((_, policy))) => policy,
        // a hash that is no policy is found by `sendslot doctor`
        Ok(None) | Err(BudgetError::Unreadable(_) | BudgetError::Invalid(_)) => return Ok(()),
        Err(BudgetError::Store(error)) => return Err(error),
    };
    show(Place::budget(budget.as_str()), &recent::recent(store, budget).await?, &policy);
    let lanes = policy.lanes.iter().map(|lane| lane.name.clone());
    let mut lanes: Vec<LaneName> = lanes.chain([LaneName::default()]).collect();
    lanes.sort();
    lanes.dedup();
    for lane in lanes {
        let request = QuoteRequest { lane: lane.clone(), ..QuoteRequest::default() };
        match quote::quote(store, budget, &request).await {
            Ok(quote) => {
                let wait = horizon(&quote, &policy, &lane).as_secs_f64();
                Place::lane(budget.as_str(), lane.as_str()).set(&metrics::HORIZON, wait);
            }
            Err(QuoteError::Store(error)) => return Err(error),
            // changed at this moment
            Err(_) => {}
        }
    }
    Ok(())
}

/// The wait of one send; of one that gets no slot, the wait that was too long.
fn horizon(quote: &Quote, policy: &Policy, lane: &LaneName) -> Duration {
    let max_wait = policy.lanes.iter().find(|of| of.name == *lane).and_then(|of| of.max_wait);
    match quote.stopped {
        None => quote.lasts(),
        Some(Stopped::Full) => max_wait.unwrap_or(policy.horizon),
        Some(Stopped::TooFar) => policy.horizon,
    }
}

fn show(place: Place<'_>, recent: &Recent, policy: &Policy) {
    let limit = policy.ramp.iter().rfind(|step| step.from <= recent.now).map_or(policy.limit, |step| step.limit);
    let seconds = PAST - SETTLED;
    let called: u64 = recent.called[..seconds].iter().map(|units| u64::from(*units)).sum();
    let whole = f64::from(limit) / policy.per.as_secs_f64() * seconds as f64;
    // what lanes hold for themselves, at the slowest
    let slowest = recent.capacity.iter().min().copied().unwrap_or(0);
    let reserved = policy.lanes.iter().map(|lane| lane.reserved.of(slowest)).sum();
    let (asked, unused) = unused(&recent.capacity, &recent.booked, &recent.called, reserved);
    place.set(&metrics::OVERDUE, recent.overdue.unwrap_or_default().as_secs_f64());
    place.set(&metrics::UTILISATION, called as f64 / whole);
    place.set(&metrics::UNUSED, if asked == 0 { 0.0 } else { unused as f64 / asked as f64 });
    place.set(&metrics::JITTER, policy.jitter().as_secs_f64());
    place.set(&metrics::PAUSED, if recent.paused { 1.0 } else { 0.0 });
}

/// Units that a call should have used, and those that none did.
///
/// In a second that is full, behind one that is full as well, all units are booked, and somebody waited for the rate. A unit is
/// used when a call began in its second or in the next one. What other lanes hold for themselves may stay free.
fn unused(capacity: &[u32], booked: &[u32], called: &[u32], reserved: u32) -> (u64, u64) {
    let full = |i: usize| capacity[i] > 0 && booked[i] > 0 && booked[i].saturating_add(reserved) >= capacity[i];
    let (mut asked, mut unused, mut left) = (0, 0, 0);
    for i in 1..=PAST - SETTLED {
        let mut calls = called[i];
        let late = left.min(calls);
        calls -= late;
        unused += u64::from(left - late);
        if i == PAST - SETTLED {
            break;
        }
        left = 0;
        if full(i) && full(i - 1) {
            let units = booked[i].min(capacity[i]);
            asked += u64::from(units);
            left = units.saturating_sub(calls);
        }
    }
    (asked, unused)
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = PAST;

    fn seconds(from: usize, to: usize, units: u32) -> Vec<u32> {
        (0..N).map(|i| if (from..to).contains(&i) { units } else { 0 }).collect()
    }

    #[test]
    fn a_unit_is_unused_when_no_call_began_in_its_second_or_the_next() {
        let (capacity, booked) = (seconds(0, N, 10), seconds(10, 20, 10));
        let of = |called: &[u32]| unused(&capacity, &booked, called, 0);
        // the first second of a backlog had begun when it was booked
        assert_eq!(of(&booked), (90, 0));
        assert_eq!(of(&seconds(11, 21, 10)), (90, 0), "each a second late");
        assert_eq!(of(&seconds(0, N, 0)), (90, 90), "nobody sends");
        let mut called = booked.clone();
        called[15] = 7;
        assert_eq!(of(&called), (90, 3), "three missed their slots and book again behind");
        called[16] = 13;
        assert_eq!(of(&called), (90, 0));
    }

    #[test]
    fn seconds_that_are_not_full_or_not_settled_do_not_count() {
        let capacity = seconds(0, N, 10);
        let none = seconds(0, N, 0);
        assert_eq!(unused(&capacity, &seconds(0, N, 9), &none, 0), (0, 0), "nobody waited for the rate");
        assert_eq!(
            unused(&capacity, &seconds(0, N, 8), &none, 2).0,
            8 * (PAST - SETTLED - 1) as u64,
            "2 are held back"
        );
        assert_eq!(unused(&capacity, &seconds(PAST - SETTLED, N, 10), &none, 0), (0, 0), "calls may be under way");
    }
}
