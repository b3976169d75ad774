//! How concurrency grows, as AWS documents it for SQS in standard mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::core::Core;
use super::lifecycle::Phase;

/// How often the emulator looks whether it may grow.
const TICK: Duration = Duration::from_millis(200);

/// Concurrency at first, and how fast it may grow while messages wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ramp {
    /// Concurrent invocations at first: 5 on AWS.
    pub initial: usize,
    /// Concurrent invocations added in each minute in which the ones before were all in use: 300 on AWS.
    pub per_minute: usize,
}

impl Ramp {
    /// What AWS documents: 5 at first, up to 300 more a minute.
    pub const AWS: Self = Self { initial: 5, per_minute: 300 };
}

/// The ramp as a pure state machine: time is an argument.
#[derive(Debug, Clone)]
pub struct RampState {
    ramp: Ramp,
    max: usize,
    allowed: usize,
    saturated: Duration,
}

impl RampState {
    /// The state at the start, for a mapping that may reach `max`.
    #[must_use]
    pub fn new(ramp: Ramp, max: usize) -> Self {
        Self { ramp, max, allowed: ramp.initial.clamp(1, max.max(1)), saturated: Duration::ZERO }
    }

    /// Concurrent invocations that are allowed now.
    #[must_use]
    pub fn allowed(&self) -> usize {
        self.allowed
    }

    /// Takes note of `passed`, in which at most `in_use` invocations ran at once; returns how many more are allowed.
    ///
    /// Only time in which all were in use counts.
    pub fn advance(&mut self, passed: Duration, in_use: usize) -> usize {
        if in_use < self.allowed {
            return 0;
        }
        self.saturated += passed;
        let grown = self.saturated.as_millis() * self.ramp.per_minute as u128 / 60_000;
        let target = self.ramp.initial.max(1).saturating_add(usize::try_from(grown).unwrap_or(usize::MAX));
        let more = target.min(self.max).saturating_sub(self.allowed);
        self.allowed += more;
        more
    }
}

/// Adds permits as the ramp allows, until the event source stops.
pub(super) fn start(core: &Arc<Core>) {
    let Some(ramp) = core.options.ramp else { return };
    let mut state = RampState::new(ramp, core.options.max_environments);
    let core = Arc::clone(core);
    let lifecycle = Arc::clone(&core.lifecycle);
    let draining = AtomicBool::new(false);
    lifecycle.spawn(async move {
        while state.allowed() < core.options.max_environments && !draining.load(Ordering::Relaxed) {
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = core.lifecycle.reached(Phase::Draining) => draining.store(true, Ordering::Relaxed),
            }
            core.permits.add_permits(state.advance(TICK, core.counters.take_recent_peak()));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(state: &mut RampState, time: Duration) {
        for _ in 0..time.as_millis() / TICK.as_millis() {
            state.advance(TICK, state.allowed());
        }
    }

    #[test]
    fn grows_by_300_a_minute_up_to_the_maximum() {
        let mut state = RampState::new(Ramp::AWS, 1_250);
        assert_eq!(state.allowed(), 5);
        busy(&mut state, Duration::from_secs(1));
        assert_eq!(state.allowed(), 10);
        busy(&mut state, Duration::from_secs(59));
        assert_eq!(state.allowed(), 305);
        busy(&mut state, Duration::from_secs(600));
        assert_eq!(state.allowed(), 1_250);
    }

    #[test]
    fn does_not_grow_while_concurrency_lies_idle() {
        let mut state = RampState::new(Ramp::AWS, 100);
        assert_eq!(state.advance(Duration::from_secs(60), 4), 0);
        assert_eq!(state.allowed(), 5);
    }

    #[test]
    fn never_starts_above_the_maximum_nor_at_nothing() {
        assert_eq!(RampState::new(Ramp::AWS, 2).allowed(), 2);
        assert_eq!(RampState::new(Ramp { initial: 0, per_minute: 1 }, 2).allowed(), 1);
    }
}
