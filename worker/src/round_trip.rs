use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long Redis usually takes to answer this process: the shortest round trip of late. What one answer took beyond that was
/// spent waiting, perhaps after the verdict.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    /// us; 0: none yet
    usual: AtomicU64,
}

impl RoundTrip {
    /// Notes a round trip. A shorter one counts at once, a longer one by a sixteenth.
    pub(crate) fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let before = self.usual.load(Ordering::Relaxed);
        let next = if before == 0 || took < before { took } else { before + (took - before) / 16 };
        self.usual.store(next, Ordering::Relaxed);
    }

    /// The way back of one that took so long: half of it, or of the usual one if that is shorter.
    pub(crate) fn half(&self, took: Duration) -> Duration {
        (took - self.beyond(took)) / 2
    }

    /// What a round trip took beyond the usual; nothing while none is known.
    pub(crate) fn beyond(&self, took: Duration) -> Duration {
        match self.usual.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            usual => took.saturating_sub(Duration::from_micros(usual)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_beyond_the_usual_round_trip_is_waiting() {
        let ms = Duration::from_millis;
        let trips = RoundTrip::default();
        assert_eq!(trips.beyond(ms(80)), Duration::ZERO, "nothing is known yet");
        trips.note(ms(20));
        assert_eq!(trips.beyond(ms(110)), ms(90));
        assert_eq!(trips.beyond(ms(15)), Duration::ZERO);
        trips.note(ms(36));
        assert_eq!(trips.beyond(ms(36)), ms(15), "one that was slow is hardly usual");
        trips.note(ms(2));
        assert_eq!(trips.beyond(ms(36)), ms(34), "a fast one is possible");
    }
}
