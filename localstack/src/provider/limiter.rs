//! The limit itself, as a pure structure: time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use super::windows::{Spacing, micros};

/// How a provider counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// At most `limit` units in the `per` up to and including each arrival.
    Rolling,
    /// At most `limit` units between two whole multiples of `per` of the Unix clock.
    Fixed,
    /// At least `per / limit` for each unit of the last accepted send.
    Spacing {
        /// How much too early a send may be and still pass.
        tolerance: Duration,
    },
}

/// The limiter's answer to one arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Within the limit, and charged.
    Accepted,
    /// Above the limit, and not charged.
    Refused {
        /// When the same units would have room, if nothing else comes.
        retry_after: Duration,
    },
}

/// Counts accepted units and refuses what is above the limit.
#[derive(Debug, Clone)]
pub struct Limiter {
    window: Window,
    limit: u32,
    per_us: u64,
    accepted: VecDeque<(u64, u32)>,
    units: u64,
    last: Option<(u64, u32)>,
}

impl Limiter {
    /// A limiter that has accepted nothing yet; a `per` under 1 us counts as 1 us.
    #[must_use]
    pub fn new(window: Window, limit: u32, per: Duration) -> Self {
        Self { window, limit, per_us: micros(per).max(1), accepted: VecDeque::new(), units: 0, last: None }
    }

    /// Decides on `units` arriving at `now_us`, and charges them when they fit.
    ///
    /// Times may not run backwards. For [`Window::Fixed`] they are microseconds since 1970.
    pub fn admit(&mut self, now_us: u64, units: u32) -> Verdict {
        self.forget(now_us);
        let missing_us = match self.window {
            Window::Rolling => self.rolling_wait_us(now_us, units),
            Window::Fixed => self.fixed_wait_us(now_us, units),
            Window::Spacing { tolerance } => self.spacing_wait_us(now_us, tolerance),
        };
        if missing_us > 0 {
            return Verdict::Refused { retry_after: Duration::from_micros(missing_us) };
        }
        self.charge(now_us, units);
        Verdict::Accepted
    }

    /// Charges units whether or not they fit: for answers that a test has scripted.
    pub fn charge(&mut self, now_us: u64, units: u32) {
        self.accepted.push_back((now_us, units));
        self.units += u64::from(units);
        self.last = Some((now_us, units));
    }

    /// Changes the limit; what was accepted before stays counted.
    pub fn set_limit(&mut self, limit: u32, per: Duration) {
        self.limit = limit;
        self.per_us = micros(per).max(1);
    }

    fn forget(&mut self, now_us: u64) {
        while let Some(&(at, units)) = self.accepted.front()
            && self.leaves_at(at) <= now_us
        {
            self.accepted.pop_front();
            self.units -= u64::from(units);
        }
    }

    /// The first instant at which units accepted at `at` no longer count.
    fn leaves_at(&self, at: u64) -> u64 {
        match self.window {
            Window::Fixed => (at / self.per_us + 1) * self.per_us,
            Window::Rolling | Window::Spacing { .. } => at + self.per_us,
        }
    }

    fn rolling_wait_us(&self, now_us: u64, units: u32) -> u64 {
        let mut over = (self.units + u64::from(units)).saturating_sub(u64::from(self.limit));
        if over == 0 {
            return 0;
        }
        for &(at, units) in &self.accepted {
            over = over.saturating_sub(u64::from(units));
            if over == 0 {
                return self.leaves_at(at) - now_us;
            }
        }
        self.per_us
    }

    fn fixed_wait_us(&self, now_us: u64, units: u32) -> u64 {
        let fits = self.units + u64::from(units) <= u64::from(self.limit);
        if fits { 0 } else { self.leaves_at(now_us) - now_us }
    }

    fn spacing_wait_us(&self, now_us: u64, tolerance: Duration) -> u64 {
        let spacing = Spacing { limit: self.limit, per_us: self.per_us, tolerance_us: micros(tolerance) };
        self.last.map_or(0, |last| spacing.missing_us(last, now_us))
    }
}

#[cfg(test)]
mod tests {
    use super::super::windows::{max_units_in_fixed_window, max_units_in_rolling_window, spacing_violations};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn refused(us: u64) -> Verdict {
        Verdict::Refused { retry_after: Duration::from_micros(us) }
    }

    #[test]
    fn rolling_frees_a_unit_exactly_one_period_later() {
        let mut limiter = Limiter::new(Window::Rolling, 2, SECOND);
        assert_eq!(limiter.admit(0, 1), Verdict::Accepted);
        assert_eq!(limiter.admit(400_000, 1), Verdict::Accepted);
        assert_eq!(limiter.admit(999_999, 1), refused(1));
        assert_eq!(limiter.admit(1_000_000, 1), Verdict::Accepted);
        assert_eq!(limiter.admit(1_000_000, 2), refused(1_000_000));
    }

    #[test]
    fn units_above_the_limit_never_fit() {
        let mut limiter = Limiter::new(Window::Rolling, 2, SECOND);
        assert_eq!(limiter.admit(5, 3), refused(1_000_000));
    }

    #[test]
    fn fixed_starts_anew_with_the_calendar_second() {
        let mut limiter = Limiter::new(Window::Fixed, 1, SECOND);
        assert_eq!(limiter.admit(7_900_000, 1), Verdict::Accepted);
        assert_eq!(limiter.admit(7_999_999, 1), refused(1));
        assert_eq!(limiter.admit(8_000_000, 1), Verdict::Accepted);
    }

    #[test]
    fn spacing_is_asked_for_after_each_unit() {
        let mut limiter = Limiter::new(Window::Spacing { tolerance: Duration::from_micros(10) }, 10, SECOND);
        assert_eq!(limiter.admit(0, 2), Verdict::Accepted);
        assert_eq!(limiter.admit(199_980, 1), refused(10));
        assert_eq!(limiter.admit(199_990, 1), Verdict::Accepted);
    }

    #[test]
    fn a_lower_limit_counts_what_was_accepted_before() {
        let mut limiter = Limiter::new(Window::Rolling, 3, SECOND);
        assert_eq!(limiter.admit(0, 2), Verdict::Accepted);
        limiter.set_limit(2, SECOND);
        assert_eq!(limiter.admit(1, 1), refused(999_999));
    }

    #[test]
    fn what_is_admitted_never_exceeds_the_limit_and_a_refusal_says_when() {
        let windows = [Window::Rolling, Window::Fixed, Window::Spacing { tolerance: Duration::ZERO }];
        for (seed, window) in windows.into_iter().enumerate() {
            let mut rng = fastrand::Rng::with_seed(seed as u64);
            let mut limiter = Limiter::new(window, 5, SECOND);
            let (mut now, mut accepted) = (0, Vec::new());
            for _ in 0..3_000 {
                now += rng.u64(0..200_000);
                let units = rng.u32(1..=3);
                if let Verdict::Refused { retry_after } = limiter.clone().admit(now, units) {
                    let wait = u64::try_from(retry_after.as_micros()).unwrap();
                    assert!(matches!(limiter.clone().admit(now + wait - 1, units), Verdict::Refused { .. }));
                    now += wait;
                }
                assert_eq!(limiter.admit(now, units), Verdict::Accepted);
                accepted.push((now, units));
            }
            match window {
                Window::Rolling => assert!(max_units_in_rolling_window(&accepted, SECOND) <= 5),
                Window::Fixed => assert!(max_units_in_fixed_window(&accepted, SECOND) <= 5),
                Window::Spacing { tolerance } => assert_eq!(spacing_violations(&accepted, 5, SECOND, tolerance), 0),
            }
        }
    }
}
