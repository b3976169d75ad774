//! Instants of the one clock, and SQS timers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// An instant of Redis' clock, in whole microseconds since 1970.
///
/// Instants come from Redis and go back to it. A process never compares them with its own clock; it takes the waits that
/// replies carry and subtracts its own elapsed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The latest instant that a script can hold exactly: 2^53 microseconds, in the year 2255.
    pub const MAX: Instant = Instant(1 << 53);

    /// From microseconds since 1970.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This much later; [`Instant::MAX`] at the latest.
    #[must_use]
    pub fn plus(self, wait: Duration) -> Self {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros)).min(Self::MAX)
    }

    /// For people, and for what callers give as absolute times.
    #[must_use]
    pub fn to_system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.0)
    }
}

impl From<SystemTime> for Instant {
    /// Times before 1970 become 1970, times after 2255 become 2255.
    fn from(time: SystemTime) -> Self {
        Self(0).plus(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// A wait in whole microseconds, rounded up, as scripts take it.
pub(crate) fn micros_up(wait: Duration) -> f64 {
    (wait.as_nanos().div_ceil(1000)) as f64
}

/// A DelaySeconds value: 0 to 900 s, the limit of an SQS message timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelaySeconds(u16);

impl DelaySeconds {
    /// Visible at once. Always sent, since an absent value means the queue's default delay.
    pub const ZERO: DelaySeconds = DelaySeconds(0);

    /// As SQS takes it.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0 as i32
    }
}

/// How long waits are cut into SQS timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    limit_s: u16,
    step_s: u16,
}

impl Timer {
    /// SQS: a timer holds 900 s; later wake-ups lie 890 s apart, so that 10 s of lateness cost no extra hop.
    pub const SQS: Timer = Timer { limit_s: 900, step_s: 890 };

    /// A shorter timer, for tests that cannot wait 15 minutes. `step_s` must be at least 1 and at most `limit_s`, which
    /// is at most 900; anything else gives [`Timer::SQS`].
    #[must_use]
    pub const fn shortened(limit_s: u16, step_s: u16) -> Timer {
        if limit_s <= 900 && step_s >= 1 && step_s <= limit_s { Timer { limit_s, step_s } } else { Timer::SQS }
    }

    /// The delay for a copy whose slot is `wait` ahead and that shall show up `lead` before it, to the second below.
    ///
    /// A wait above the limit is cut so that the remainder comes first: wake-ups lie at slot - lead - k x 890 s. The
    /// wake-ups of a backlog are then spread at the send rate instead of all falling on one second.
    #[must_use]
    pub fn delay(self, wait: Duration, lead: Duration) -> DelaySeconds {
        let wait = wait.saturating_sub(lead);
        let limit = Duration::from_secs(self.limit_s.into());
        if wait < limit + Duration::from_secs(1) {
            return DelaySeconds(u16::try_from(wait.as_secs()).unwrap_or(0).min(self.limit_s));
        }
        let over = wait - limit;
        let step = Duration::from_secs(self.step_s.into());
        let hops = over.as_nanos().div_ceil(step.as_nanos());
        let rest = wait.as_nanos() - hops * step.as_nanos();
        DelaySeconds(u16::try_from(rest / 1_000_000_000).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn delay_ms(wait_ms: u64) -> i32 {
        Timer::SQS.delay(Duration::from_millis(wait_ms), Duration::ZERO).get()
    }

    #[test]
    fn waits_around_the_limit_of_a_timer() {
        // Q1, aws-sdk-ruby#265
        assert_eq!(delay_ms(899_200), 899);
        assert_eq!(delay_ms(900_000), 900);
        assert_eq!(delay_ms(900_400), 900);
        assert_eq!(delay_ms(901_000), 11);
        assert_eq!(delay_ms(1_801_000), 21);
        assert_eq!(delay_ms(0), 0);
        assert_eq!(delay_ms(999), 0);
    }

    #[test]
    fn a_send_2000_s_ahead_surfaces_at_the_remainder_first() {
        let lead = Duration::from_millis(1500);
        let mut wait = Duration::from_secs(2000);
        let mut wakeups = vec![];
        while wait > lead + Duration::from_secs(1) {
            let delay = Timer::SQS.delay(wait, lead);
            wakeups.push(delay.get());
            wait -= Duration::from_secs(delay.get() as u64);
        }
        assert_eq!(wakeups, [218, 890, 890]);
        assert!(wait >= lead);
    }

    #[test]
    fn instants_survive_any_system_time() {
        // T3: no unwrap on a clock difference
        assert_eq!(Instant::from(UNIX_EPOCH - Duration::from_secs(1)).as_micros(), 0);
        let far = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(Instant::from(far), Instant::MAX);
    }

    proptest! {
        #[test]
        fn every_wait_ends_after_few_timers_between_lead_and_lead_plus_one_second(wait_ms in 0_u64..1_209_600_000) {
            let lead = Duration::from_millis(1500);
            let total = Duration::from_millis(wait_ms);
            let mut wait = total;
            let mut hops = 0;
            loop {
                let delay = Timer::SQS.delay(wait, lead);
                prop_assert!((0..=900).contains(&delay.get()));
                wait -= Duration::from_secs(delay.get() as u64).min(wait);
                if wait <= lead + Duration::from_secs(1) { break; }
                hops += 1;
                // 10 s late at each wake-up costs no extra hop
                wait -= Duration::from_secs(10).min(wait);
            }
            prop_assert!(hops <= total.as_secs() / 890 + 1);
            prop_assert!(total < lead + Duration::from_secs(900) || hops > 0 || total.as_secs() < 903);
            if total <= lead + Duration::from_secs(900) { prop_assert_eq!(hops, 0); }
        }
    }
}
