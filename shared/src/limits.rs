//! What a policy may hold besides the rate: lanes, quotas, a ramp, an adaptive rate.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::id::LaneName;
use crate::policy::{InvalidPolicy, LEVELS};
use crate::time::Instant;

const MAX_LANES: usize = 16;
const MAX_QUOTAS: usize = 8;
const MAX_STEPS: usize = 64;
const DAYS_14: Duration = Duration::from_secs(14 * 86_400);
const DAYS_31: Duration = Duration::from_secs(31 * 86_400);

/// A share of the rate: 0 to 1, to four decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Share(u16);

impl Share {
    /// No share.
    pub const NONE: Share = Share(0);

    /// Checks a share.
    ///
    /// # Errors
    /// [`InvalidPolicy::Range`] outside 0 to 1, and for more than four decimals.
    pub fn new(given: f64) -> Result<Self, InvalidPolicy> {
        let scaled = (given * 10_000.0).round();
        if (0.0..=10_000.0).contains(&scaled) && (given * 10_000.0 - scaled).abs() < 1e-6 {
            return Ok(Self(scaled as u16));
        }
        let range = "a fraction from 0 to 1 with up to four decimals, such as 0.2";
        Err(InvalidPolicy::Range { name: "reserved", given: given.to_string(), range })
    }

    /// As a fraction.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }

    /// Whole units of a second with so many.
    #[must_use]
    pub fn of(self, units_per_s: u32) -> u32 {
        (u64::from(units_per_s) * u64::from(self.0) / 10_000) as u32
    }
}

/// A priority class inside a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Its name.
    pub name: LaneName,
    /// The share of each second that other lanes cannot take; whole units, rounded down, at least one.
    pub reserved: Share,
    /// It may take the place of waiting sends of lanes that do not preempt, when it finds no free one soon.
    pub preempts: bool,
    /// A slot further ahead is refused as full; whole seconds, 1 s to 14 days. `None`: the policy's horizon alone.
    pub max_wait: Option<Duration>,
}

impl Lane {
    /// A lane without a reservation.
    #[must_use]
    pub fn new(name: LaneName) -> Self {
        Self { name, reserved: Share::NONE, preempts: false, max_wait: None }
    }

    /// Whether a booking has to look at more than the name.
    pub(crate) fn binds(&self) -> bool {
        self.reserved > Share::NONE || self.preempts || self.max_wait.is_some()
    }

    /// '<BI4I4B' and the name: flags, share, longest wait (s), length of the name.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.preempts)];
        out.extend(u32::from(self.reserved.0).to_le_bytes());
        out.extend(seconds(self.max_wait.unwrap_or_default()).to_le_bytes());
        out.push(self.name.as_str().len() as u8);
        out.extend(self.name.as_str().as_bytes());
        out
    }
}

/// A limit in fixed windows that are aligned to UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Units in each window.
    pub units: u32,
    /// The window; whole seconds, 1 s to 31 days.
    pub window: Duration,
    /// How far local time is ahead of UTC, in seconds: a window of a day begins at local midnight. At most 24 hours.
    pub offset_s: i32,
}

impl Quota {
    /// A quota whose windows begin on UTC.
    #[must_use]
    pub fn new(units: u32, window: Duration) -> Self {
        Self { units, window, offset_s: 0 }
    }

    /// '<I4I4i4' units, window (s), offset (s)
    pub(crate) fn pack(&self) -> Vec<u8> {
        [self.units.to_le_bytes(), seconds(self.window).to_le_bytes(), self.offset_s.to_le_bytes()].concat()
    }
}

/// From when another limit holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RampStep {
    /// The instant; taken as the second it lies in.
    pub from: Instant,
    /// Units in any `per` of the policy from then on.
    pub limit: u32,
}

impl RampStep {
    pub(crate) fn second(&self) -> u32 {
        u32::try_from(self.from.as_micros() / 1_000_000).unwrap_or(u32::MAX)
    }
}

/// A rate that follows what the provider takes. The limit itself stays the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adaptive {
    /// The rate never falls below this; in the limit's units.
    pub floor: u32,
    /// The rate never rises above this; in the limit's units. `None`: the limit.
    pub ceiling: Option<u32>,
}

impl Adaptive {
    pub(crate) fn check(self, limit: u32) -> Result<(), InvalidPolicy> {
        let top = self.ceiling.unwrap_or(limit);
        if self.floor >= 1 && self.floor <= top && top <= limit {
            return Ok(());
        }
        let why = format!("give a floor from 1 to the ceiling, and a ceiling up to the lowest limit, {limit}");
        Err(InvalidPolicy::Limits { what: format!("adaptive rate from {} to {top}", self.floor), why })
    }

    /// Floor and ceiling in twentieths of the limit: the floor up, the ceiling down.
    pub(crate) fn levels(self, limit: u32) -> (u8, u8) {
        let part = |units: u32| u64::from(units) * u64::from(LEVELS);
        let limit = u64::from(limit.max(1));
        let ceiling = (part(self.ceiling.unwrap_or(limit as u32)) / limit).clamp(1, u64::from(LEVELS));
        let floor = part(self.floor).div_ceil(limit).clamp(1, ceiling);
        (floor as u8, ceiling as u8)
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

fn wrong(what: impl fmt::Display, why: &str) -> InvalidPolicy {
    InvalidPolicy::Limits { what: what.to_string(), why: why.to_owned() }
}

fn whole_seconds(given: Duration, most: Duration) -> bool {
    given.subsec_nanos() == 0 && given >= Duration::from_secs(1) && given <= most
}

/// `units_per_s`: whole units in a second, at each rate that may hold.
pub(crate) fn check_lanes(lanes: &[Lane], units_per_s: &[u32]) -> Result<(), InvalidPolicy> {
    let highest = units_per_s.iter().copied().max().unwrap_or(0);
    if lanes.len() > MAX_LANES {
        return Err(wrong(format!("{} lanes", lanes.len()), "a budget has 16 at most"));
    }
    for (i, lane) in lanes.iter().enumerate() {
        let what = format!("lane {}", lane.name);
        if lanes[..i].iter().any(|other| other.name == lane.name) {
            return Err(wrong(what, "it is given twice"));
        }
        if lane.reserved > Share::NONE && lane.reserved.of(highest) == 0 {
            return Err(wrong(
                what,
                "its reservation is less than one unit of a second: use `preempts`, or a larger share",
            ));
        }
        if lane.max_wait.is_some_and(|wait| !whole_seconds(wait, DAYS_14)) {
            return Err(wrong(what, "its longest wait is out of range: give whole seconds, 1 s to 14 days"));
        }
    }
    let share: u32 = lanes.iter().map(|lane| u32::from(lane.reserved.0)).sum();
    if share > 10_000 {
        let what = format!("reservations of {}%", f64::from(share) / 100.0);
        return Err(wrong(what, "they are more than there is: 100% is the most for all lanes together"));
    }
    let default_holds = lanes.iter().any(|l| l.name.as_str() == LaneName::DEFAULT && l.reserved > Share::NONE);
    let all_hold = default_holds && lanes.iter().all(|lane| lane.reserved > Share::NONE);
    let held = |units: u32| lanes.iter().map(|lane| lane.reserved.of(units)).sum::<u32>();
    match units_per_s.iter().find(|units| held(**units) > 0 && held(**units) >= **units && !all_hold) {
        Some(units) => Err(wrong(
            format!("reservations of all {units} units of a second"),
            "a lane without one (`default` is always there) would never send then: leave it at least one unit, at every rate \
             that a ramp or an adaptive rate may come to",
        )),
        None => Ok(()),
    }
}

pub(crate) fn check_quotas(quotas: &[Quota], max_cost: u32) -> Result<(), InvalidPolicy> {
    if quotas.len() > MAX_QUOTAS {
        return Err(wrong(format!("{} quotas", quotas.len()), "a budget has 8 at most"));
    }
    for (i, quota) in quotas.iter().enumerate() {
        let what = format!("quota {} per {:?}", quota.units, quota.window);
        if quota.units == 0 {
            return Err(wrong(what, "it sends nothing: give at least 1 unit"));
        }
        if !whole_seconds(quota.window, DAYS_31) || quota.offset_s.unsigned_abs() > 86_400 {
            return Err(wrong(
                what,
                "give a window of whole seconds, 1 s to 31 days, and an offset to UTC of at most 24 hours",
            ));
        }
        if max_cost > quota.units {
            return Err(wrong(
                what,
                &format!("a send of cost {max_cost} could never fit: lower max_cost, or raise the quota"),
            ));
        }
        let same = |q: &Quota| q.window == quota.window && q.offset_s == quota.offset_s;
        if quotas[..i].iter().any(same) {
            return Err(wrong(what, "there is another one with this window"));
        }
    }
    Ok(())
}

pub(crate) fn check_ramp(ramp: &[RampStep]) -> Result<(), InvalidPolicy> {
    if ramp.len() > MAX_STEPS {
        return Err(wrong(format!("a ramp of {} steps", ramp.len()), "64 is the most"));
    }
    if ramp.iter().any(|step| step.limit == 0) {
        return Err(wrong("a ramp step with limit 0", "it sends nothing: pause the budget instead"));
    }
    if ramp.windows(2).any(|w| w[0].second() >= w[1].second()) || ramp.iter().any(|step| step.second() == 0) {
        return Err(wrong("the ramp", "give its steps in order, each at a later second"));
    }
    Ok(())
}

/// Items one after another, for a setting in Redis.
pub(crate) fn write_list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(";")
}

/// A text that is not the setting it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a setting of this kind")]
pub struct Unreadable;

/// `name reserved=2000 preempts max_wait_s=30`
impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} reserved={}", self.name, self.reserved.0)?;
        if self.preempts {
            write!(f, " preempts")?;
        }
        self.max_wait.map_or(Ok(()), |wait| write!(f, " max_wait_s={}", wait.as_secs()))
    }
}

impl FromStr for Lane {
    type Err = Unreadable;
    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let mut words = text.split(' ');
        let mut lane = Lane::new(LaneName::new(words.next().unwrap_or_default()).map_err(|_| Unreadable)?);
        for word in words {
            match word.split_once('=') {
                None if word == "preempts" => lane.preempts = true,
                Some(("reserved", n)) => lane.reserved = Share(n.parse().map_err(|_| Unreadable)?),
                Some(("max_wait_s", n)) => {
                    lane.max_wait = Some(Duration::from_secs(n.parse().map_err(|_| Unreadable)?));
                }
                _ => return Err(Unreadable),
            }
        }
        Ok(lane)
    }
}

/// `units/window_s/offset_s`
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.units, self.window.as_secs(), self.offset_s)
    }
}

impl FromStr for Quota {
    type Err = Unreadable;
    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let mut parts = text.split('/');
        let mut next = || parts.next().ok_or(Unreadable);
        let units = next()?.parse().map_err(|_| Unreadable)?;
        let window = Duration::from_secs(next()?.parse().map_err(|_| Unreadable)?);
        Ok(Self { units, window, offset_s: next()?.parse().map_err(|_| Unreadable)? })
    }
}

/// `from_us=limit`
impl fmt::Display for RampStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.from.as_micros(), self.limit)
    }
}

impl FromStr for RampStep {
    type Err = Unreadable;
    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let (from, limit) = text.split_once('=').ok_or(Unreadable)?;
        let from = Instant::from_micros(from.parse().map_err(|_| Unreadable)?);
        Ok(Self { from, limit: limit.parse().map_err(|_| Unreadable)? })
    }
}

/// `floor` or `floor..ceiling`
impl fmt::Display for Adaptive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.floor)?;
        self.ceiling.map_or(Ok(()), |ceiling| write!(f, "..{ceiling}"))
    }
}

impl FromStr for Adaptive {
    type Err = Unreadable;
    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let number = |text: &str| text.parse().map_err(|_| Unreadable);
        match text.split_once("..") {
            Some((floor, ceiling)) => Ok(Self { floor: number(floor)?, ceiling: Some(number(ceiling)?) }),
            None => Ok(Self { floor: number(text)?, ceiling: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(name: &str, reserved: f64) -> Lane {
        Lane { reserved: Share::new(reserved).unwrap(), ..Lane::new(LaneName::new(name).unwrap()) }
    }

    fn why(result: Result<(), InvalidPolicy>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn reservations_are_whole_units_and_leave_something() {
        assert!(check_lanes(&[lane("otp", 0.2)], &[95]).is_ok());
        assert!(why(check_lanes(&[lane("otp", 0.2)], &[3])).contains("preempts"));
        assert!(why(check_lanes(&[lane("a", 0.6), lane("b", 0.5)], &[95])).contains("110%"));
        assert!(check_lanes(&[lane("a", 0.5), lane("b", 0.5)], &[95]).is_ok(), "47 + 47 leave one");
        assert!(why(check_lanes(&[lane("a", 0.5), lane("b", 0.5)], &[80])).contains("never send"));
        assert!(why(check_lanes(&[lane("a", 0.5), lane("b", 0.5)], &[95, 76])).contains("all 76 units"));
        assert!(check_lanes(&[lane("a", 0.5), lane("default", 0.5)], &[80]).is_ok());
        assert!(why(check_lanes(&[lane("a", 0.1), lane("a", 0.1)], &[95])).contains("twice"));
        for bad in [-0.1, 1.01, 0.123_456, f64::NAN] {
            assert!(Share::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quotas_that_can_never_fit_a_cost_are_refused() {
        let day = Duration::from_secs(86_400);
        assert!(check_quotas(&[Quota::new(50_000, day)], 100).is_ok());
        assert!(why(check_quotas(&[Quota::new(20, Duration::from_secs(3600))], 21)).contains("never fit"));
        assert!(why(check_quotas(&[Quota::new(0, day)], 1)).contains("at least 1"));
        assert!(why(check_quotas(&[Quota::new(9, day), Quota::new(8, day)], 1)).contains("another"));
        assert!(check_quotas(&[Quota::new(9, Duration::from_millis(500))], 1).is_err());
    }

    #[test]
    fn ramps_are_in_order() {
        let step = |s: u64, limit| RampStep { from: Instant::from_micros(s * 1_000_000), limit };
        assert!(check_ramp(&[step(10, 5), step(20, 10)]).is_ok());
        assert!(why(check_ramp(&[step(20, 5), step(20, 10)])).contains("in order"));
        assert!(why(check_ramp(&[step(20, 0)])).contains("pause"));
    }

    #[test]
    fn adaptive_levels_keep_between_floor_and_ceiling() {
        let levels = |floor, ceiling| Adaptive { floor, ceiling }.levels(100);
        assert_eq!(levels(10, None), (2, 20));
        assert_eq!(levels(1, Some(50)), (1, 10));
        assert_eq!(levels(11, Some(99)), (3, 19));
        assert!(Adaptive { floor: 0, ceiling: None }.check(100).is_err());
        assert!(Adaptive { floor: 50, ceiling: Some(40) }.check(100).is_err());
        assert!(Adaptive { floor: 50, ceiling: Some(101) }.check(100).is_err());
    }
}
