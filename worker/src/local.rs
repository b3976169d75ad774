//! The process's own low limits, for lanes whose sends go on while Redis cannot be asked.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use sendslot_shared::redis_policy::UnitsPerSecond;

/// One policy's limit: units leave one after the other, evenly spaced; a send of several waits for all of them.
#[derive(Debug)]
pub(crate) struct LocalLimit {
    limiter: DefaultDirectRateLimiter,
    unit: Duration,
    /// First come, first served: else a large send would never get its units.
    turn: tokio::sync::Mutex<()>,
    rests_until: Mutex<Option<Instant>>,
}

impl LocalLimit {
    pub(crate) fn new(rate: UnitsPerSecond) -> Option<Self> {
        let unit = Duration::from_secs_f64(1.0 / rate.get());
        let limiter = RateLimiter::direct(Quota::with_period(unit)?);
        Some(Self { limiter, unit, turn: tokio::sync::Mutex::new(()), rests_until: Mutex::default() })
    }

    /// Waits until a send of so many units may leave; `false` when that would take longer.
    pub(crate) async fn take(&self, units: u32, longest: Duration) -> bool {
        let last = Instant::now() + longest;
        if self.unit.saturating_mul(units - 1) > longest || self.rests_until().is_some_and(|until| until > last) {
            return false;
        }
        let all = async {
            let _turn = self.turn.lock().await;
            if let Some(until) = self.rests_until() {
                tokio::time::sleep_until(until.into()).await;
            }
            for _ in 0..units {
                while let Err(not_yet) = self.limiter.check() {
                    tokio::time::sleep(not_yet.wait_time_from(DefaultClock::default().now())).await;
                }
            }
        };
        tokio::time::timeout_at(last.into(), all).await.is_ok()
    }

    /// The provider refused a send for the rate.
    pub(crate) fn rest(&self, time: Duration) {
        *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + time);
    }

    fn rests_until(&self) -> Option<Instant> {
        *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(units_per_s: f64) -> LocalLimit {
        LocalLimit::new(UnitsPerSecond::new(units_per_s).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn units_leave_evenly_and_costs_count() {
        let limit = limit(20.0);
        let began = Instant::now();
        for units in [1, 3, 1] {
            assert!(limit.take(units, Duration::from_secs(30)).await);
        }
        // the first unit leaves at once, the other four are 50 ms apart
        assert!(began.elapsed() >= Duration::from_millis(199), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn what_would_take_too_long_is_said_at_once() {
        let limit = limit(0.5);
        let began = Instant::now();
        assert!(!limit.take(20, Duration::from_secs(30)).await, "20 units take 38 s");
        assert!(limit.take(1, Duration::from_secs(30)).await, "and they took nothing");
        limit.rest(Duration::from_secs(60));
        assert!(!limit.take(1, Duration::from_secs(30)).await);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
