//! A budget's policy, and the numbers that are compiled from it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::LaneName;
use crate::limits::{Adaptive, Lane, Quota, RampStep};
use crate::time::Instant;

/// What an outcome that nobody knows leads to: the request was written and no answer came, or a worker died between
/// claim and settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// The send ends as unknown and is dead-lettered: never sent twice, perhaps not at all.
    #[default]
    Park,
    /// It counts as an attempt and is sent again with the same idempotency key.
    Resend,
}

/// A budget's numbers, kept in Redis and changed at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Units that the provider takes in any `per`.
    pub limit: u32,
    /// The window of the limit; whole milliseconds, 1 ms to 30 days. Default 1 s.
    pub per: Duration,
    /// The part of the limit that is scheduled, in ten-thousandths (9700 = 0.97). What is left buys jitter, the speed at which
    /// lateness is made good, and costs that leave at once.
    pub headroom: Headroom,
    /// What may vary between the verdict `send` and the call's arrival at the provider: the worker's CPU, a new connection, the
    /// network. Windows of `per + jitter` hold no more than the limit. Whole milliseconds, at most what the headroom buys;
    /// `None`: see [`Policy::jitter`].
    pub jitter: Option<Duration>,
    /// The earliest slot offered is this far ahead, since SQS and Lambda need that long. Default 250 ms.
    pub transit: Duration,
    /// A message shows up 0 to 1 s more than this before its slot. Default 1.5 s.
    pub lead: Duration,
    /// The furthest slot offered. Default 24 h, at most 14 days.
    pub horizon: Duration,
    /// How long a send's end is remembered past its slot. Default 24 h.
    pub dedup_ttl: Duration,
    /// The largest cost of one send; default the limit. A larger value says that the provider takes such sends.
    pub max_cost: Option<u32>,
    /// How often the provider is called for one send before it is dead-lettered; 1 to 255, default 5.
    pub max_attempts: u8,
    /// What an unknown outcome leads to.
    pub on_unknown: OnUnknown,
    /// Priority classes. The lane `default` is always there; it is listed only when it has settings of its own.
    pub lanes: Vec<Lane>,
    /// Further limits in fixed windows; a send leaves at the earliest instant that all of them allow.
    pub quotas: Vec<Quota>,
    /// The least time between two sends to one recipient; each send must name its recipient then.
    pub spacing: Option<Duration>,
    /// How the limit changes at instants that are known ahead, ascending; `limit` holds before the first.
    pub ramp: Vec<RampStep>,
    /// The rate follows what the provider takes: down on each throttle, up again while it takes all.
    pub adaptive: Option<Adaptive>,
}

/// The part of a limit that is scheduled: above 0, at most 1, to four decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Headroom(u16);

impl Headroom {
    /// The default, chosen by measurement (README): 0.97.
    pub const DEFAULT: Headroom = Headroom(9700);

    /// Checks a headroom.
    ///
    /// # Errors
    /// [`InvalidPolicy::Headroom`] outside (0, 1], and for more than four decimals.
    pub fn new(given: f64) -> Result<Self, InvalidPolicy> {
        let scaled = (given * 10_000.0).round();
        if scaled >= 1.0 && given <= 1.0 && (given * 10_000.0 - scaled).abs() < 1e-6 {
            return Ok(Self(scaled as u16));
        }
        Err(InvalidPolicy::Headroom { given })
    }

    /// As a fraction.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

/// Why a policy was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidPolicy {
    /// The limit is 0.
    #[error("limit 0 sends nothing: give a limit of at least 1 unit (a rate below 1/s is a longer `per`)")]
    Limit,
    /// The window is not 1 ms to 30 days in whole milliseconds.
    #[error("per {given:?} is out of range: give whole milliseconds, 1 ms to 30 days")]
    Per {
        /// What was given.
        given: Duration,
    },
    /// The headroom is not above 0 and at most 1.
    #[error(
        "headroom {given} is out of range: give a fraction above 0 and at most 1 with up to four decimals, such as 0.95"
    )]
    Headroom {
        /// What was given.
        given: f64,
    },
    /// The jitter is more than the headroom buys.
    #[error(
        "jitter {given:?} is more than headroom {headroom} buys, {most:?}: give less, or a headroom of {fits} at most"
    )]
    Jitter {
        /// What was given.
        given: Duration,
        /// The headroom.
        headroom: f64,
        /// The most jitter that this headroom buys.
        most: Duration,
        /// The largest headroom that buys what was given.
        fits: f64,
    },
    /// The rate has too many digits to be kept exactly, or is above 16,777,215 units a second.
    #[error(
        "the rate {limit} x {headroom} per {per:?} is too high, or too fine to be kept exactly: use a lower limit or fewer digits"
    )]
    Rate {
        /// The limit.
        limit: u32,
        /// The headroom.
        headroom: f64,
        /// The window.
        per: Duration,
    },
    /// A lane, a quota, a step of the ramp or the adaptive rate contradicts itself or the limit.
    #[error("{what}: {why}")]
    Limits {
        /// Which.
        what: String,
        /// What is wrong and what would work.
        why: String,
    },
    /// Another number is out of its range.
    #[error("{name} {given} is out of range: {range}")]
    Range {
        /// The setting.
        name: &'static str,
        /// What was given.
        given: String,
        /// What is taken.
        range: &'static str,
    },
}

/// What scripts work with, computed once when a policy is set.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    /// The scheduled rate is `num / den` units per second, in lowest terms.
    pub num: u32,
    /// See `num`.
    pub den: u32,
    /// What may vary between verdict and call: see [`Policy::jitter`].
    pub jitter: Duration,
    /// The largest cost that fits beside a full grid; a larger one books positions in front of its own, `cost - u0` at most: see
    /// [`Compiled::front`].
    pub u0: u32,
    /// The largest cost taken.
    pub max_cost: u32,
    guard: Guard,
    limit: u32,
    /// `per + jitter`.
    window: Duration,
    steps: Vec<Step>,
}

impl Compiled {
    /// The positions in front of a cost when equal sends follow each other: as many of them as the limit takes in one window share
    /// its positions, and a hundredth more, where that is little, makes good what a late one takes from the next. `least_front` of
    /// heavy.lua.
    #[must_use]
    pub fn front(&self, cost: u32) -> u32 {
        let most = cost.saturating_sub(self.u0);
        if self.steps.len() > 1 || self.jitter.as_micros() >= u32::MAX.into() {
            return most;
        }
        let (rate, together) = (f64::from(self.num) / f64::from(self.den), (self.limit / cost.max(1)).max(1));
        let apart = rate * self.window.as_micros() as f64 / 1e6 / f64::from(together);
        let spare = if apart >= 20.0 { 1.01 } else { 1.0 };
        most.min(((apart * spare - 1e-9).ceil() as u32).saturating_sub(cost))
    }
}

/// A limit that holds from a second on, as scripts take it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Step {
    from_s: u32,
    rate: (u32, u32),
    guard: Guard,
    levels: (u8, u8),
}

/// The guard's numbers, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Guard {
    gap: f64,
    slack: f64,
    burst: f64,
}

impl Guard {
    /// R window + b < limit + 1, for windows of `per + jitter`. What the limit leaves beside the scheduled rate is divided: one
    /// half raises R, so that lateness is made good, the other is b, so that sends may leave close together.
    fn new(limit: u32, headroom: f64, per_us: f64, jitter_us: f64, max_cost: u32) -> Self {
        let limit = f64::from(limit);
        let window = (per_us + jitter_us) / per_us;
        let spare = (limit - headroom * limit * window).max(0.0);
        let gap = per_us / (headroom * limit + spare / 2.0 / window);
        let slack = spare / 2.0 + 1.0 - 1e-6;
        let burst = slack.max(f64::from(max_cost)) * gap + PATIENCE.as_micros() as f64;
        Self { gap, slack: slack * gap, burst }
    }

    /// The largest cost that it lets pass beside a full grid.
    fn u0(self) -> u32 {
        (self.slack / self.gap).floor().max(1.0) as u32
    }
}

/// Number of the header's layout, `LAYOUT` of head.lua.
const LAYOUT: u8 = 1;
const DAY: Duration = Duration::from_secs(86_400);
/// Steps of an adaptive rate: it is a whole number of twentieths of the limit.
pub(crate) const LEVELS: u8 = 20;
/// How late a send may be and still go at its turn: up to here lateness is no offence. `PATIENCE` of head.lua.
pub const PATIENCE: Duration = Duration::from_millis(250);
/// The part of what the headroom buys that is jitter, unless the policy says.
const JITTER_SHARE: f64 = 0.6;
/// More is not needed: a worker that was held up for longer asks again.
const JITTER_MOST: Duration = Duration::from_millis(50);

impl Policy {
    /// A policy for `limit` units in any rolling second, with the defaults for the rest.
    #[must_use]
    pub fn per_second(limit: u32) -> Self {
        Self {
            limit,
            per: Duration::from_secs(1),
            headroom: Headroom::DEFAULT,
            jitter: None,
            transit: Duration::from_millis(250),
            lead: Duration::from_millis(1500),
            horizon: DAY,
            dedup_ttl: DAY,
            max_cost: None,
            max_attempts: 5,
            on_unknown: OnUnknown::Park,
            lanes: vec![],
            quotas: vec![],
            spacing: None,
            ramp: vec![],
            adaptive: None,
        }
    }

    /// Floor and ceiling of the adaptive level under a limit.
    fn levels(&self, limit: u32) -> (u8, u8) {
        self.adaptive.map_or((LEVELS, LEVELS), |adaptive| adaptive.levels(limit))
    }

    /// The limits that hold at some time: the limit and the ramp's.
    fn limits(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.limit).chain(self.ramp.iter().map(|step| step.limit))
    }

    /// The largest cost taken: what is set, or what every limit and quota can hold.
    #[must_use]
    pub fn largest_cost(&self) -> u32 {
        let all = self.limits().chain(self.quotas.iter().map(|quota| quota.units)).min();
        self.max_cost.unwrap_or_else(|| all.unwrap_or(self.limit))
    }

    /// Checks the policy and computes what scripts work with.
    ///
    /// # Errors
    /// [`InvalidPolicy`]: what is wrong and what would work.
    pub fn compile(&self) -> Result<Compiled, InvalidPolicy> {
        self.check_ranges()?;
        let (num, den) = self.rate(self.limit)?;
        let per_us = self.per.as_micros() as f64;
        let headroom = self.headroom.get();
        let jitter = self.jitter();
        let (most, given) = (self.most_jitter(), jitter.as_micros() as f64);
        if jitter > most {
            let fits = self.headroom_for(jitter);
            return Err(InvalidPolicy::Jitter { given: jitter, headroom, most, fits });
        }
        let max_cost = self.largest_cost();
        self.check_limits(max_cost)?;
        let guard = |limit| Guard::new(limit, headroom, per_us, given, max_cost);
        let mut steps = vec![];
        for (from_s, limit) in std::iter::once((0, self.limit)).chain(self.ramp.iter().map(|s| (s.second(), s.limit))) {
            steps.push(Step { from_s, rate: self.rate(limit)?, guard: guard(limit), levels: self.levels(limit) });
        }
        Ok(Compiled {
            num,
            den,
            jitter,
            u0: self.limits().map(|limit| guard(limit).u0()).min().unwrap_or(1),
            max_cost,
            guard: guard(self.limit),
            limit: self.limit,
            window: self.per + jitter,
            steps,
        })
    }

    /// All the jitter that the headroom buys: (1 - headroom) / headroom x per.
    #[must_use]
    pub fn most_jitter(&self) -> Duration {
        let headroom = self.headroom.get();
        Duration::from_micros((self.per.as_micros() as f64 * (1.0 - headroom) / headroom) as u64)
    }

    /// The largest headroom that buys so much jitter; 0 when none does.
    #[must_use]
    pub fn headroom_for(&self, jitter: Duration) -> f64 {
        let (per_us, jitter_us) = (self.per.as_micros() as f64, jitter.as_micros() as f64);
        (per_us / (per_us + jitter_us) * 10_000.0).floor() / 10_000.0
    }

    /// What may vary between verdict and call: as it is set, else 0.6 of what the headroom buys, 50 ms at most.
    #[must_use]
    pub fn jitter(&self) -> Duration {
        let share = || Duration::from_micros((self.most_jitter().as_micros() as f64 * JITTER_SHARE) as u64);
        self.jitter.unwrap_or_else(|| share().min(JITTER_MOST))
    }

    /// The scheduled rate in units per second.
    #[must_use]
    pub fn scheduled_rate(&self) -> f64 {
        self.headroom.get() * f64::from(self.limit) / self.per.as_secs_f64()
    }

    /// The scheduled rate at an instant, as far as the ramp changes it.
    #[must_use]
    pub fn scheduled_rate_at(&self, at: Instant) -> f64 {
        let limit = self.ramp.iter().rfind(|step| step.from <= at).map_or(self.limit, |step| step.limit);
        self.headroom.get() * f64::from(limit) / self.per.as_secs_f64()
    }

    fn check_ranges(&self) -> Result<(), InvalidPolicy> {
        if self.limit == 0 {
            return Err(InvalidPolicy::Limit);
        }
        let whole_ms = self.per.subsec_nanos().is_multiple_of(1_000_000);
        if !whole_ms || self.per < Duration::from_millis(1) || self.per > 30 * DAY {
            return Err(InvalidPolicy::Per { given: self.per });
        }
        let range = |ok: bool, name, given: String, range| {
            if ok { Ok(()) } else { Err(InvalidPolicy::Range { name, given, range }) }
        };
        let within =
            |value: Duration, low_ms: u64, high: Duration| value >= Duration::from_millis(low_ms) && value <= high;
        range(self.limit < 1 << 24, "limit", self.limit.to_string(), "at most 16,777,215 units")?;
        let whole = |value: Duration, unit: u32| value.subsec_nanos().is_multiple_of(unit);
        for (name, value) in [
            ("transit", Some(self.transit)),
            ("lead", Some(self.lead)),
            ("spacing", self.spacing),
            ("jitter", self.jitter),
        ] {
            range(
                value.is_none_or(|v| whole(v, 1_000_000)),
                name,
                value.map(show).unwrap_or_default(),
                "whole milliseconds",
            )?;
        }
        for (name, value) in [("horizon", self.horizon), ("dedup_ttl", self.dedup_ttl)] {
            range(whole(value, 1_000_000_000), name, show(value), "whole seconds")?;
        }
        range(within(self.transit, 0, Duration::from_secs(60)), "transit", show(self.transit), "0 to 60 s")?;
        range(within(self.lead, 100, Duration::from_secs(60)), "lead", show(self.lead), "100 ms to 60 s")?;
        range(within(self.horizon, 1000, 14 * DAY), "horizon", show(self.horizon), "1 s to 14 days")?;
        range(within(self.dedup_ttl, 3_600_000, 30 * DAY), "dedup_ttl", show(self.dedup_ttl), "1 hour to 30 days")?;
        let max_cost = self.max_cost.unwrap_or(1);
        range((1..1 << 24).contains(&max_cost), "max_cost", max_cost.to_string(), "1 to 16,777,215 units")?;
        range(self.max_attempts >= 1, "max_attempts", self.max_attempts.to_string(), "1 to 255")
    }

    /// h·L/per as a fraction in lowest terms.
    fn rate(&self, limit: u32) -> Result<(u32, u32), InvalidPolicy> {
        let num = u128::from(self.headroom.0) * u128::from(limit);
        let den = 10 * self.per.as_millis();
        let divisor = gcd(num, den);
        let (num, den) = (num / divisor, den / divisor);
        let fine = InvalidPolicy::Rate { limit, headroom: self.headroom.get(), per: self.per };
        // an adaptive rate is a twentieth of it, and its multiples
        let steps = if self.adaptive.is_some() { u128::from(LEVELS) } else { 1 };
        // products of both, and of each with a million microseconds, must be exact in a double, with a bit to spare
        if num * den * steps * steps >= 1 << 52 || num / den >= 1 << 24 {
            return Err(fine);
        }
        match (u32::try_from(num * steps), u32::try_from(den * steps)) {
            (Ok(_), Ok(_)) => Ok((num as u32, den as u32)),
            _ => Err(fine),
        }
    }

    /// Whole units of a second at every rate that may hold: of the ramp, and of the adaptive levels.
    fn whole_units(&self) -> Result<Vec<u32>, InvalidPolicy> {
        let mut units = vec![];
        for limit in self.limits() {
            let (num, den) = self.rate(limit)?;
            let (floor, ceiling) = self.levels(limit);
            for level in floor..=ceiling {
                units.push((u64::from(num) * u64::from(level) / (u64::from(den) * u64::from(LEVELS))) as u32);
            }
        }
        Ok(units)
    }

    fn check_limits(&self, max_cost: u32) -> Result<(), InvalidPolicy> {
        crate::limits::check_lanes(&self.lanes, &self.whole_units()?)?;
        crate::limits::check_quotas(&self.quotas, max_cost)?;
        crate::limits::check_ramp(&self.ramp)?;
        if let Some(adaptive) = self.adaptive {
            adaptive.check(self.limits().min().unwrap_or(self.limit))?;
        }
        match self.spacing {
            Some(given) if given < Duration::from_millis(1) || given > DAY => {
                Err(InvalidPolicy::Range { name: "spacing", given: show(given), range: "1 ms to 24 hours" })
            }
            _ => Ok(()),
        }
    }

    /// The settings by name, as Redis keeps them and people read them. [`Policy::from_settings`] takes them back.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("limit", self.limit.to_string()),
            ("per_ms", self.per.as_millis().to_string()),
            ("headroom", self.headroom.get().to_string()),
            ("jitter_ms", self.jitter.map_or_else(String::new, |j| j.as_millis().to_string())),
            ("transit_ms", self.transit.as_millis().to_string()),
            ("lead_ms", self.lead.as_millis().to_string()),
            ("horizon_s", self.horizon.as_secs().to_string()),
            ("dedup_ttl_s", self.dedup_ttl.as_secs().to_string()),
            ("max_attempts", self.max_attempts.to_string()),
            ("on_unknown", if self.on_unknown == OnUnknown::Park { "park" } else { "resend" }.to_owned()),
        ];
        settings.push(("max_cost", self.max_cost.map_or_else(String::new, |cost| cost.to_string())));
        settings.push(("lanes", crate::limits::write_list(&self.lanes)));
        settings.push(("quotas", crate::limits::write_list(&self.quotas)));
        settings.push(("spacing_ms", self.spacing.map_or_else(String::new, |s| s.as_millis().to_string())));
        settings.push(("ramp", crate::limits::write_list(&self.ramp)));
        settings.push(("adaptive", self.adaptive.map_or_else(String::new, |a| a.to_string())));
        settings
    }

    /// A policy from its settings; names that are not a setting are passed over.
    ///
    /// # Errors
    /// The name of a setting that is missing or cannot be read.
    pub fn from_settings<'a>(settings: impl Fn(&str) -> Option<&'a str>) -> Result<Self, UnreadableSetting> {
        fn read<T: std::str::FromStr>(name: &'static str, text: Option<&str>) -> Result<T, UnreadableSetting> {
            text.and_then(|t| t.parse().ok()).ok_or_else(|| UnreadableSetting { name, text: text.map(str::to_owned) })
        }
        let ms = |name| Ok(Duration::from_millis(read(name, settings(name))?));
        let s = |name| Ok(Duration::from_secs(read(name, settings(name))?));
        let headroom: f64 = read("headroom", settings("headroom"))?;
        // empty, or written by a version that did not know them: none
        fn list<T: std::str::FromStr>(name: &'static str, text: Option<&str>) -> Result<Vec<T>, UnreadableSetting> {
            text.unwrap_or_default().split_terminator(';').map(|item| read(name, Some(item))).collect()
        }
        let given = |name| settings(name).filter(|text| !text.is_empty());
        Ok(Self {
            limit: read("limit", settings("limit"))?,
            per: ms("per_ms")?,
            headroom: Headroom::new(headroom)
                .map_err(|_| UnreadableSetting { name: "headroom", text: Some(headroom.to_string()) })?,
            jitter: given("jitter_ms").map(|t| read("jitter_ms", Some(t)).map(Duration::from_millis)).transpose()?,
            transit: ms("transit_ms")?,
            lead: ms("lead_ms")?,
            horizon: s("horizon_s")?,
            dedup_ttl: s("dedup_ttl_s")?,
            max_cost: settings("max_cost").and_then(|text| text.parse().ok()),
            max_attempts: read("max_attempts", settings("max_attempts"))?,
            on_unknown: if settings("on_unknown") == Some("resend") { OnUnknown::Resend } else { OnUnknown::Park },
            lanes: list("lanes", settings("lanes"))?,
            quotas: list("quotas", settings("quotas"))?,
            spacing: given("spacing_ms").map(|t| read("spacing_ms", Some(t)).map(Duration::from_millis)).transpose()?,
            ramp: list("ramp", settings("ramp"))?,
            adaptive: given("adaptive").map(|t| read("adaptive", Some(t))).transpose()?,
        })
    }

    /// What policy.lua takes: the header of a new calendar, lanes, quotas, the ramp's segments.
    pub(crate) fn tables(&self, compiled: &Compiled) -> [Vec<u8>; 4] {
        let lanes = self.lanes.iter().flat_map(Lane::pack).collect();
        let quotas = self.quotas.iter().flat_map(Quota::pack).collect();
        let mut segments = vec![];
        for step in compiled.steps.iter().filter(|_| !self.ramp.is_empty()) {
            u32s(&mut segments, &[step.from_s, step.rate.0, step.rate.1]);
            f64s(&mut segments, &[step.guard.gap, step.guard.slack, step.guard.burst]);
            segments.extend([step.levels.0, step.levels.1]);
        }
        [self.header(compiled), lanes, quotas, segments]
    }

    /// The layout `HEADER` of header.lua, 232 bytes.
    fn header(&self, compiled: &Compiled) -> Vec<u8> {
        let us = |value: Duration| u32::try_from(value.as_micros()).unwrap_or(u32::MAX);
        let s = |value: Duration| u32::try_from(value.as_secs()).unwrap_or(u32::MAX);
        let Compiled { num, den, guard, .. } = *compiled;
        let mut out = Vec::with_capacity(232);
        u32s(&mut out, &[0, 0, num, den, 0, us(compiled.jitter)]);
        f64s(&mut out, &[0.0, 0.0, guard.gap, guard.slack]);
        u32s(&mut out, &[us(self.lead)]);
        out.extend([u8::from(self.on_unknown == OnUnknown::Resend), self.max_attempts, LAYOUT, 0]);
        u32s(&mut out, &[us(self.transit), compiled.u0, compiled.max_cost, s(self.horizon), s(self.dedup_ttl), 0]);
        u32s(&mut out, &[num, den]);
        f64s(&mut out, &[0.0, guard.burst]);
        let per_ms = u32::try_from(self.per.as_millis()).unwrap_or(u32::MAX);
        u32s(&mut out, &[per_ms, 0, 0, 0]);
        u32s(&mut out, &[self.features(), 0, 0]);
        let (floor, ceiling) = self.levels(self.limit);
        out.extend([ceiling, floor, ceiling, 0]);
        let spacing_us = self.spacing.map_or(0, |s| s.as_micros()) as f64;
        f64s(&mut out, &[0.0, 0.0, 0.0, 0.0, spacing_us]);
        u32s(&mut out, &[0, num, den]);
        f64s(&mut out, &[0.0, 0.0, 0.0]);
        u32s(&mut out, &[0]);
        f64s(&mut out, &[0.0]);
        out
    }

    /// What bookings and claims have to look at besides the rate.
    fn features(&self) -> u32 {
        let default = |lane: &Lane| lane.name.as_str() == LaneName::DEFAULT;
        let flags = [
            (1, self.lanes.iter().any(Lane::binds)),
            (2, !self.quotas.is_empty()),
            (8, !self.ramp.is_empty()),
            (16, self.adaptive.is_some()),
            (32, self.lanes.iter().any(|lane| !default(lane))),
        ];
        flags.iter().filter(|(_, on)| *on).map(|(bit, _)| bit).sum()
    }
}

fn show(value: Duration) -> String {
    format!("{value:?}")
}

fn u32s(out: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|v| out.extend(v.to_le_bytes()));
}

fn f64s(out: &mut Vec<u8>, values: &[f64]) {
    values.iter().for_each(|v| out.extend(v.to_le_bytes()));
}

/// A setting in Redis that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the setting {name} of this budget cannot be read ({text:?}): set the policy again with `sendslot budget set`")]
pub struct UnreadableSetting {
    /// Its name.
    pub name: &'static str,
    /// What stands there.
    pub text: Option<String>,
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Share;
    use crate::time::Instant;

    fn policy(limit: u32, headroom: f64) -> Policy {
        Policy { headroom: Headroom::new(headroom).unwrap(), ..Policy::per_second(limit) }
    }

    #[test]
    fn jitter_and_u0_follow_from_the_headroom() {
        for (headroom, jitter_us, u0) in
            [(0.8, 50_000, 8), (0.95, 31_578, 2), (0.97, 18_556, 1), (0.99, 6_060, 1), (1.0, 0, 1)]
        {
            let compiled = policy(100, headroom).compile().unwrap();
            assert_eq!((compiled.jitter.as_micros(), compiled.u0), (jitter_us, u0), "{headroom}");
        }
        assert_eq!(policy(1000, 0.97).compile().unwrap().u0, 7);
    }

    /// 84 positions of 80/s pass in a window with its jitter: two of 41 have 42 each, and one more.
    #[test]
    fn equal_heavy_sends_share_the_positions_of_a_window() {
        for (limit, headroom, cost, front) in [
            (100, 0.8, 8, 0),
            (100, 0.8, 39, 4),
            (100, 0.8, 41, 2),
            (100, 0.8, 51, 34),
            (100, 0.8, 100, 0),
            (100, 0.97, 2, 0),
            (100, 0.97, 3, 0),
            (100, 1.0, 2, 0),
            (3, 0.8, 2, 1),
        ] {
            let compiled = policy(limit, headroom).compile().unwrap();
            assert_eq!(compiled.front(cost), front, "{limit} x {headroom}, cost {cost}");
        }
        let step = RampStep { from: Instant::from_micros(1_796_083_200_000_000), limit: 120 };
        let ramp = Policy { ramp: vec![step], ..policy(100, 0.8) }.compile().unwrap();
        assert_eq!(ramp.front(41), 41 - ramp.u0, "what a ramp will bring is not looked at");
    }

    #[test]
    fn a_window_with_its_jitter_never_holds_more_than_the_limit() {
        for limit in [1, 2, 7, 100, 1000, 80_000] {
            for headroom in [0.001, 0.5, 0.8, 0.97, 0.99, 1.0] {
                for per_ms in [10, 1000, 60_000] {
                    let p = Policy { per: Duration::from_millis(per_ms), ..policy(limit, headroom) };
                    let Ok(Compiled { guard, jitter, .. }) = p.compile() else { continue };
                    let window = p.per.as_micros() as f64 + jitter.as_micros() as f64;
                    let most = (window + guard.slack) / guard.gap;
                    assert!(most < f64::from(limit) + 1.0, "{limit} {headroom} {per_ms}: {most}");
                    let scheduled = p.per.as_micros() as f64 / (headroom * f64::from(limit));
                    assert!(guard.gap <= scheduled * (1.0 + 1e-12), "the guard is no slower than the schedule");
                }
            }
        }
    }

    #[test]
    fn more_jitter_than_the_headroom_buys_is_refused_with_what_would_work() {
        let with = |ms| Policy { jitter: Some(Duration::from_millis(ms)), ..policy(100, 0.97) };
        assert_eq!(with(30).compile().unwrap().jitter, Duration::from_millis(30));
        let Err(InvalidPolicy::Jitter { most, fits, .. }) = with(31).compile() else { panic!("31 ms") };
        assert_eq!((most.as_micros(), fits), (30_927, 0.9699));
        let fitting = Policy { headroom: Headroom::new(fits).unwrap(), ..with(31) };
        assert!(fitting.compile().is_ok());
    }

    #[test]
    fn limits_and_headrooms_out_of_range_are_refused() {
        assert_eq!(policy(0, 0.9).compile(), Err(InvalidPolicy::Limit));
        for bad in [0.0, -0.5, 1.01, f64::NAN, 0.000_01, 0.123_456] {
            assert!(matches!(Headroom::new(bad), Err(InvalidPolicy::Headroom { .. })), "{bad}");
        }
    }

    #[test]
    fn a_quota_or_a_step_of_nothing_is_named_and_not_the_cost_that_follows_from_it() {
        let why = |p: Policy| p.compile().unwrap_err().to_string();
        assert!(why(Policy { quotas: vec![Quota::new(0, DAY)], ..policy(100, 0.9) }).starts_with("quota 0"));
        let step = RampStep { from: Instant::from_micros(1_796_083_200_000_000), limit: 0 };
        assert!(why(Policy { ramp: vec![step], ..policy(100, 0.9) }).starts_with("a ramp step with limit 0"));
    }

    #[test]
    fn rates_are_kept_in_lowest_terms() {
        let rate = |limit, per_s, headroom| {
            let p = Policy { per: Duration::from_secs(per_s), ..policy(limit, headroom) };
            p.compile().map(|c| (c.num, c.den)).unwrap()
        };
        assert_eq!(rate(100, 1, 0.95), (95, 1));
        assert_eq!(rate(100, 1, 0.975), (195, 2));
        assert_eq!(rate(1000, 300, 0.9), (3, 1));
        assert_eq!(rate(20, 3600, 0.97), (97, 18_000));
        assert_eq!(rate(1, 2, 0.8), (2, 5));
    }

    #[test]
    fn settings_round_trip() {
        let lane = |name: &str| LaneName::new(name).unwrap();
        let given = Policy {
            max_cost: Some(250),
            on_unknown: OnUnknown::Resend,
            lanes: vec![
                Lane { reserved: Share::new(0.2).unwrap(), max_wait: Some(DAY), ..Lane::new(lane("otp")) },
                Lane { preempts: true, ..Lane::new(lane("now")) },
            ],
            quotas: vec![Quota { units: 50_000, window: DAY, offset_s: -3600 }, Quota::new(250, 60 * DAY / 1440)],
            spacing: Some(Duration::from_secs(6)),
            jitter: Some(Duration::from_millis(40)),
            ramp: vec![RampStep { from: Instant::from_micros(1_796_083_200_000_000), limit: 200 }],
            adaptive: Some(Adaptive { floor: 10, ceiling: Some(60) }),
            ..policy(80, 0.9123)
        };
        let settings = given.settings();
        let find = |name: &str| settings.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str());
        assert_eq!(Policy::from_settings(find).unwrap(), given);
    }

    #[test]
    fn the_header_has_the_layout_of_the_scripts() {
        let p = policy(100, 0.95);
        assert_eq!(p.header(&p.compile().unwrap()).len(), 232);
    }
}
