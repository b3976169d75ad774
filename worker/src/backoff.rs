use std::time::Duration;

/// Exponential backoff with full jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The bound of the first delay.
    pub base: Duration,
    /// The bound of every delay.
    pub cap: Duration,
}

impl Default for Backoff {
    /// 1 s, doubled up to 5 minutes.
    fn default() -> Self {
        Self { base: Duration::from_secs(1), cap: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// The bound of the delay after this many failures (0 counts as 1).
    #[must_use]
    pub fn bound(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }

    /// The delay: anything from 0 to the bound, by `jitter` in 0..1.
    #[must_use]
    pub fn delay(&self, failures: u32, jitter: f64) -> Duration {
        self.bound(failures).mul_f64(jitter.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_failures_overflows_or_wraps() {
        // R2, mulligan#31, tryhard#24
        let backoff = Backoff::default();
        let bounds = [0, 1, 2, 3, 31, 32, 63, 64, u32::MAX].map(|n| backoff.bound(n).as_secs());
        assert_eq!(bounds, [1, 1, 2, 4, 300, 300, 300, 300, 300]);
        let huge = Backoff { base: Duration::MAX, cap: Duration::MAX };
        assert_eq!(huge.bound(u32::MAX), Duration::MAX);
    }

    #[test]
    fn delays_spread_over_the_whole_bound() {
        let backoff = Backoff::default();
        let delays = [0.0, 0.5, 1.0].map(|j| backoff.delay(3, j).as_millis());
        assert_eq!(delays, [0, 2000, 4000]);
    }
}
