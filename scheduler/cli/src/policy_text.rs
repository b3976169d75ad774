//! A policy as options of `sendslot budget set`: what people type, and what `budget get` prints to be pasted.
//!
//! Everything printed here is read back as the same setting, and no word of it needs quotes in a shell.

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};
use sendslot_shared::id::{BudgetName, LaneName};
use sendslot_shared::limits::{Adaptive, Lane, Quota, RampStep, Share};
use sendslot_shared::policy::{OnUnknown, Policy};

use crate::instant;

/// The value of an option that may clear its setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Given<T> {
    /// `none`: the setting is cleared.
    Nothing,
    /// A value.
    This(T),
}

impl<T> Given<T> {
    /// `none`, or what `parse` makes of the text.
    ///
    /// # Errors
    /// Those of `parse`.
    pub(crate) fn read(text: &str, parse: fn(&str) -> Result<T, String>) -> Result<Self, String> {
        if text == "none" { Ok(Self::Nothing) } else { parse(text).map(Self::This) }
    }

    pub(crate) fn into_option(self) -> Option<T> {
        match self {
            Self::Nothing => None,
            Self::This(value) => Some(value),
        }
    }
}

/// `250ms`, `1s`, `24h`, `1h 30m`, `1.5s`, `14d`: a day has 24 hours.
fn signed(text: &str) -> Result<SignedDuration, String> {
    let span: Span = text.parse().map_err(|e: jiff::Error| e.to_string())?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|e| e.to_string())
}

/// A duration as people write it.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    signed(text).and_then(|d| Duration::try_from(d).map_err(|_| "a duration is not negative".to_owned()))
}

/// A duration that is kept in whole milliseconds.
///
/// # Errors
/// As [`duration`], and for a finer one.
pub(crate) fn whole_ms(text: &str) -> Result<Duration, String> {
    let given = duration(text)?;
    if given.subsec_nanos().is_multiple_of(1_000_000) { Ok(given) } else { Err("give whole milliseconds".to_owned()) }
}

/// A duration that is kept in whole seconds.
///
/// # Errors
/// As [`duration`], and for a finer one.
pub(crate) fn whole_s(text: &str) -> Result<Duration, String> {
    let given = duration(text)?;
    if given.subsec_nanos() == 0 { Ok(given) } else { Err("give whole seconds".to_owned()) }
}

/// Units, as a whole number.
///
/// # Errors
/// What would be one.
pub(crate) fn units(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is no number of units: give a whole number, such as 200"))
}

/// `otp:reserved=20%,max-wait=30s,preempts`, or the name alone.
///
/// # Errors
/// What is wrong with the text, and what would work.
pub(crate) fn lane(text: &str) -> Result<Lane, String> {
    let (name, options) = text.split_once(':').map_or((text, None), |(name, options)| (name, Some(options)));
    let mut lane = Lane::new(LaneName::new(name).map_err(|e| e.to_string())?);
    let mut seen = vec![];
    for option in options.map(|options| options.split(',')).into_iter().flatten() {
        let (key, value) = option.split_once('=').map_or((option, None), |(key, value)| (key, Some(value)));
        if seen.contains(&key) {
            return Err(format!("{key} is given twice"));
        }
        seen.push(key);
        match (key, value) {
            ("reserved", Some(value)) => lane.reserved = share(value)?,
            ("max-wait", Some(value)) => lane.max_wait = Some(whole_s(value).map_err(|e| format!("max-wait: {e}"))?),
            ("preempts", None) => lane.preempts = true,
            _ => return Err(format!("{option:?} is no option of a lane: {LANE_OPTIONS}")),
        }
    }
    Ok(lane)
}

const LANE_OPTIONS: &str = "give reserved=20%, max-wait=30s, preempts, with commas between them";

/// `20%` or `0.2`.
fn share(text: &str) -> Result<Share, String> {
    let wrong = || format!("reserved={text} is out of range: give 0% to 100% with up to two decimals, such as 20%");
    let fraction = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    Share::new(fraction.map_err(|_| wrong())?).map_err(|_| wrong())
}

/// `50000/24h`, and how far local time is ahead of UTC when the windows follow that: `50000/24h@+1h`, `50000/24h@-5h30m`.
///
/// # Errors
/// What is wrong with the text, and what would work.
pub(crate) fn quota(text: &str) -> Result<Quota, String> {
    let (quota, offset) = text.split_once('@').map_or((text, None), |(quota, offset)| (quota, Some(offset)));
    let (count, window) = quota.split_once('/').ok_or("give units and a window, such as 50000/24h")?;
    let quota = Quota::new(units(count)?, whole_s(window).map_err(|e| format!("the window: {e}"))?);
    Ok(Quota { offset_s: offset.map_or(Ok(0), offset_s)?, ..quota })
}

/// Seconds ahead of UTC.
fn offset_s(text: &str) -> Result<i32, String> {
    let wrong = || format!("{text:?} is no offset to UTC: give +1h or -5h30m, at most 24h");
    if !text.starts_with(['+', '-']) {
        return Err(wrong());
    }
    let given = signed(text).map_err(|_| wrong())?;
    if given.subsec_nanos() != 0 || given.as_secs().unsigned_abs() > 86_400 {
        return Err(wrong());
    }
    i32::try_from(given.as_secs()).map_err(|_| wrong())
}

/// `2026-12-01T00:00:00Z=200`: an instant, and the limit from then on.
///
/// # Errors
/// What is wrong with the text, and what would work.
pub(crate) fn ramp_step(text: &str) -> Result<RampStep, String> {
    let (from, limit) =
        text.rsplit_once('=').ok_or("give an instant and the limit from then on: 2026-12-01T00:00:00Z=200")?;
    Ok(RampStep { from: instant::redis_time(from)?, limit: units(limit)? })
}

/// `20` or `20..80`: the floor, and the ceiling, in the limit's units.
///
/// # Errors
/// What would be one.
pub(crate) fn adaptive(text: &str) -> Result<Adaptive, String> {
    text.parse().map_err(|_| format!("{text:?} is no adaptive rate: give its floor, or floor..ceiling, such as 20..80"))
}

/// The command that sets this policy, whatever the budget had before.
pub(crate) fn command(name: &BudgetName, policy: &Policy) -> String {
    // a value that starts as an option does is tied to its own
    let word = |(option, value): (&str, String)| {
        let tie = if value.starts_with('-') { '=' } else { ' ' };
        format!(" --{option}{tie}{value}")
    };
    let options: String = options(policy).into_iter().map(word).collect();
    if name.as_str().starts_with('-') {
        return format!("sendslot budget set --replace{options} -- {name}");
    }
    format!("sendslot budget set {name} --replace{options}")
}

/// Option and value of everything that is set.
fn options(policy: &Policy) -> Vec<(&'static str, String)> {
    let mut options = vec![
        ("limit", policy.limit.to_string()),
        ("per", write_duration(policy.per)),
        ("headroom", policy.headroom.get().to_string()),
        ("transit", write_duration(policy.transit)),
        ("lead", write_duration(policy.lead)),
        ("horizon", write_duration(policy.horizon)),
        ("dedup-ttl", write_duration(policy.dedup_ttl)),
        ("max-attempts", policy.max_attempts.to_string()),
        ("on-unknown", if policy.on_unknown == OnUnknown::Park { "park" } else { "resend" }.to_owned()),
    ];
    options.extend(policy.jitter.map(|jitter| ("jitter", write_duration(jitter))));
    options.extend(policy.max_cost.map(|cost| ("max-cost", cost.to_string())));
    options.extend(policy.lanes.iter().map(|lane| ("lane", write_lane(lane))));
    options.extend(policy.quotas.iter().map(|quota| ("quota", write_quota(quota))));
    options.extend(policy.spacing.map(|spacing| ("spacing", write_duration(spacing))));
    options.extend(policy.ramp.iter().map(|step| ("ramp", format!("{}={}", instant::show(step.from), step.limit))));
    options.extend(policy.adaptive.map(|adaptive| ("adaptive", adaptive.to_string())));
    options
}

fn write_lane(lane: &Lane) -> String {
    let mut options = vec![];
    // `none` alone would clear the list
    if lane.reserved > Share::NONE || lane.name.as_str() == "none" {
        options.push(format!("reserved={}%", (lane.reserved.get() * 10_000.0).round() / 100.0));
    }
    options.extend(lane.max_wait.map(|wait| format!("max-wait={}", write_duration(wait))));
    options.extend(lane.preempts.then(|| "preempts".to_owned()));
    if options.is_empty() { lane.name.to_string() } else { format!("{}:{}", lane.name, options.join(",")) }
}

fn write_quota(quota: &Quota) -> String {
    let text = format!("{}/{}", quota.units, write_duration(quota.window));
    let offset = write_duration(Duration::from_secs(quota.offset_s.unsigned_abs().into()));
    match quota.offset_s {
        0 => text,
        1.. => format!("{text}@+{offset}"),
        _ => format!("{text}@-{offset}"),
    }
}

/// `24h`, `1h30m`, `1m30s`, `1500ms`; to the millisecond.
pub(crate) fn write_duration(duration: Duration) -> String {
    if duration.subsec_millis() > 0 {
        return format!("{}ms", duration.as_millis());
    }
    let s = duration.as_secs();
    let parts = [(s / 3600, "h"), (s / 60 % 60, "m"), (s % 60, "s")];
    let text: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Lane {
        Lane::new(LaneName::new(name).unwrap())
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, ms) in
            [("250ms", 250), ("24h", 86_400_000), ("1h 30m", 5_400_000), ("1.5s", 1500), ("14d", 1_209_600_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["-1s", "fast", "", "1month", "10"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(whole_ms("100us").unwrap_err().contains("whole milliseconds"));
        assert!(whole_s("1500ms").unwrap_err().contains("whole seconds"));
    }

    #[test]
    fn durations_are_written_short() {
        for (ms, text) in [(0, "0s"), (86_400_000, "24h"), (5_400_000, "1h30m"), (90_000, "1m30s"), (61_500, "61500ms")]
        {
            assert_eq!(write_duration(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn lanes_are_read_and_written() {
        let full = Lane {
            reserved: Share::new(0.2).unwrap(),
            max_wait: Some(Duration::from_secs(30)),
            preempts: true,
            ..named("otp")
        };
        assert_eq!(lane("otp:reserved=20%,max-wait=30s,preempts"), Ok(full.clone()));
        assert_eq!(lane("otp:preempts,max-wait=0.5m,reserved=0.2"), Ok(full.clone()));
        assert_eq!(write_lane(&full), "otp:reserved=20%,max-wait=30s,preempts");
        assert_eq!(lane("news"), Ok(named("news")));
        assert_eq!(write_lane(&named("news")), "news");
        assert_eq!(lane("a:reserved=33.33%").unwrap().reserved, Share::new(0.3333).unwrap());
        // the lane `none` is written so that it does not clear the list
        assert_eq!(Given::read(&write_lane(&named("none")), lane), Ok(Given::This(named("none"))));
        assert_eq!(Given::read("none", lane), Ok(Given::Nothing));
    }

    #[test]
    fn lanes_that_are_none_say_what_would_be_one() {
        for (text, word) in [
            ("", "1 to 64 characters"),
            ("OTP", "a-z"),
            ("otp:", "reserved=20%"),
            ("otp:reservd=20%", "\"reservd=20%\" is no option"),
            ("otp:preempts=yes", "is no option"),
            ("otp:reserved", "is no option"),
            ("otp:reserved=120%", "0% to 100%"),
            ("otp:reserved=20", "such as 20%"),
            ("otp:reserved=much", "such as 20%"),
            ("otp:reserved=12.345%", "two decimals"),
            ("otp:max-wait=soon", "max-wait"),
            ("otp:max-wait=1500ms", "whole seconds"),
            ("otp:preempts,preempts", "twice"),
        ] {
            let error = lane(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn quotas_are_read_and_written() {
        let day = Quota::new(50_000, Duration::from_secs(86_400));
        for (text, offset_s) in [("50000/24h", 0), ("50000/24h@+1h", 3600), ("50000/24h@-5h30m", -19_800)] {
            let given = Quota { offset_s, ..day };
            assert_eq!(quota(text), Ok(given));
            assert_eq!(write_quota(&given), text);
        }
        assert_eq!(quota("50000/1d"), Ok(day));
        for (text, word) in [
            ("50000", "50000/24h"),
            ("many/24h", "whole number"),
            ("-1/24h", "whole number"),
            ("9/day", "window"),
            ("9/500ms", "whole seconds"),
            ("9/24h@1h", "+1h"),
            ("9/24h@+25h", "at most 24h"),
            ("9/24h@", "+1h"),
        ] {
            let error = quota(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn ramps_and_adaptive_rates_are_read() {
        let step = |text: &str| ramp_step(text).map(|step| (instant::show(step.from), step.limit));
        let midnight = Ok(("2026-12-01T00:00:00Z".to_owned(), 200));
        assert_eq!(step("2026-12-01T00:00:00Z=200"), midnight);
        assert_eq!(step("2026-12-01T01:00:00+01:00=200"), midnight);
        assert_eq!(step("2026-12-01T01:00:00[Europe/Amsterdam]=200"), midnight);
        for (text, word) in [
            ("2026-12-01T00:00:00Z", "limit from then on"),
            ("tomorrow=5", "no instant"),
            ("2026-12-01T00:00:00Z=", "units"),
        ] {
            assert!(ramp_step(text).unwrap_err().contains(word), "{text}");
        }
        assert_eq!(adaptive("20"), Ok(Adaptive { floor: 20, ceiling: None }));
        assert_eq!(adaptive("20..80"), Ok(Adaptive { floor: 20, ceiling: Some(80) }));
        assert!(adaptive("20-80").unwrap_err().contains("20..80"));
    }
}
