//! Exact checks over a list of accepted units; each list must be in order of time.

use std::time::Duration;

/// The most units in any rolling window of length `per`.
///
/// The window is half-open: arrivals at t and at t + `per` are never in one window.
#[must_use]
pub fn max_units_in_rolling_window(arrivals: &[(u64, u32)], per: Duration) -> u64 {
    let per = micros(per);
    let (mut first, mut sum, mut max) = (0, 0, 0);
    for &(at, units) in arrivals {
        sum += u64::from(units);
        while at - arrivals[first].0 >= per {
            sum -= u64::from(arrivals[first].1);
            first += 1;
        }
        max = max.max(sum);
    }
    max
}

/// The most units in any window `[n * per, (n + 1) * per)` of the clock the times were read from.
#[must_use]
pub fn max_units_in_fixed_window(arrivals: &[(u64, u32)], per: Duration) -> u64 {
    let per = micros(per);
    let (mut window, mut sum, mut max) = (None, 0, 0);
    for &(at, units) in arrivals {
        if window != Some(at / per) {
            (window, sum) = (Some(at / per), 0);
        }
        sum += u64::from(units);
        max = max.max(sum);
    }
    max
}

/// How many arrivals came earlier than `per / limit` for each unit of the one before, less `tolerance`.
#[must_use]
pub fn spacing_violations(arrivals: &[(u64, u32)], limit: u32, per: Duration, tolerance: Duration) -> usize {
    let spacing = Spacing { limit, per_us: micros(per), tolerance_us: micros(tolerance) };
    arrivals.windows(2).filter(|pair| spacing.missing_us(pair[0], pair[1].0) > 0).count()
}

/// The smallest distance a provider asks for between two accepted sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spacing {
    pub(super) limit: u32,
    pub(super) per_us: u64,
    pub(super) tolerance_us: u64,
}

impl Spacing {
    /// Microseconds, rounded up, that `now_us` is too early after `last`; 0 when it is not.
    pub(super) fn missing_us(self, last: (u64, u32), now_us: u64) -> u64 {
        let distance = u128::from(self.per_us) * u128::from(last.1);
        let limit = u128::from(self.limit.max(1));
        let passed = u128::from(now_us - last.0.min(now_us)) + u128::from(self.tolerance_us);
        let missing = distance.saturating_sub(passed * limit).div_ceil(limit);
        u64::try_from(missing).unwrap_or(u64::MAX)
    }
}

/// Whole microseconds, at least 1 for a window's length so that division is safe.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Every window that starts at an arrival, counted the slow way.
    fn brute(arrivals: &[(u64, u32)], per: u64) -> u64 {
        let in_window = |start: u64| arrivals.iter().filter(move |(at, _)| (start..start + per).contains(at));
        arrivals.iter().map(|&(at, _)| in_window(at).map(|a| u64::from(a.1)).sum()).max().unwrap_or(0)
    }

    #[test]
    fn the_rolling_window_is_half_open() {
        assert_eq!(max_units_in_rolling_window(&[(0, 1), (1_000_000, 1)], SECOND), 1);
        assert_eq!(max_units_in_rolling_window(&[(0, 1), (999_999, 1)], SECOND), 2);
        assert_eq!(max_units_in_rolling_window(&[], SECOND), 0);
    }

    #[test]
    fn the_rolling_window_agrees_with_counting_every_window() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let mut arrivals: Vec<_> = (0..rng.usize(0..40)).map(|_| (rng.u64(0..300), rng.u32(1..5))).collect();
            arrivals.sort_unstable();
            let per = rng.u64(1..120);
            assert_eq!(max_units_in_rolling_window(&arrivals, Duration::from_micros(per)), brute(&arrivals, per));
        }
    }

    #[test]
    fn fixed_windows_start_at_whole_multiples() {
        let arrivals = [(999_999, 2), (1_000_000, 3), (1_999_999, 4), (2_000_000, 1)];
        assert_eq!(max_units_in_fixed_window(&arrivals, SECOND), 7);
        assert_eq!(max_units_in_fixed_window(&[], SECOND), 0);
    }

    #[test]
    fn spacing_counts_units_and_tolerates_what_it_is_told() {
        let arrivals = [(0, 2), (200_000, 1), (299_999, 1)];
        assert_eq!(spacing_violations(&arrivals, 10, SECOND, Duration::ZERO), 1);
        assert_eq!(spacing_violations(&arrivals, 10, SECOND, Duration::from_micros(1)), 0);
        assert_eq!(spacing_violations(&[(0, 1), (333_333, 1)], 3, SECOND, Duration::ZERO), 1);
        assert_eq!(spacing_violations(&[(0, 1), (333_334, 1)], 3, SECOND, Duration::ZERO), 0);
    }
}
