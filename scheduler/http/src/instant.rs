//! Instants as people write and read them.

use std::time::SystemTime;

use jiff::{Timestamp, ZonedDateTime};
use sendslot_shared::time::Instant;

/// An instant with an offset (`2026-12-01T09:00:00+01:00`, `…Z`), or local time with a zone in brackets
/// (`2026-12-01T09:00:00[Europe/Amsterdam]`): in a gap the next valid instant, in a fold the first.
///
/// # Errors
/// What is wrong with the text, and what would work.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    let zoned = text.parse::<ZonedDateTime>().map(|zoned| zoned.timestamp());
    zoned.or_else(|_| text.parse::<Timestamp>()).map_err(|e| {
        format!("{text:?} is no instant: {e}. Give 2026-12-01T09:00:00Z, or an offset, or a zone in brackets")
    })
}

/// The same as a system time.
///
/// # Errors
/// As [`parse`].
pub fn system_time(text: &str) -> Result<SystemTime, String> {
    SystemTime::try_from(parse(text)?).map_err(|e| format!("{text:?} is out of range: {e}"))
}

/// The same as an instant of Redis' clock: 1970 to 2255, whole microseconds.
///
/// # Errors
/// As [`parse`], and for instants that scripts cannot hold.
pub fn redis_time(text: &str) -> Result<Instant, String> {
    let micros = u64::try_from(parse(text)?.as_microsecond()).ok();
    let at = micros.map(Instant::from_micros).filter(|at| *at <= Instant::MAX);
    at.ok_or_else(|| format!("{text:?} is out of range: give an instant from 1970 to 2255"))
}

/// RFC 3339 in UTC, to the microsecond.
#[must_use]
pub fn show(at: Instant) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(micros).map_or_else(|_| micros.to_string(), |t| t.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_times_are_resolved_at_the_edge() {
        // T5, rundeck#6879: gap: the next valid instant; fold: the first
        let at = |text: &str| show(redis_time(text).unwrap());
        assert_eq!(at("2026-03-29T02:30:00[Europe/Amsterdam]"), "2026-03-29T01:30:00Z");
        assert_eq!(at("2026-10-25T02:30:00[Europe/Amsterdam]"), "2026-10-25T00:30:00Z");
        assert_eq!(at("2026-12-01T09:00:00+01:00"), "2026-12-01T08:00:00Z");
        assert_eq!(at("2026-12-01T09:00:00.25Z"), "2026-12-01T09:00:00.25Z");
    }

    #[test]
    fn instants_that_scripts_cannot_hold_are_refused() {
        for text in ["1969-12-31T23:59:59Z", "2300-01-01T00:00:00Z"] {
            assert!(redis_time(text).unwrap_err().contains("1970 to 2255"), "{text}");
        }
        assert!(redis_time("2026-12-01").unwrap_err().contains("2026-12-01T09:00:00Z"));
    }
}
