//! view.lua: a budget's calendar around now, for people who look at it.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;

use crate::audit;
use crate::id::{BudgetName, LaneName};
use crate::keys;
use crate::reply;
use crate::store::{Call, Store, StoreError};
use crate::time::Instant;

/// Seconds before now that are told.
pub const PAST: usize = 60;
/// Seconds from now on that are told, the running one included.
pub const AHEAD: usize = 120;
/// Twentieths in a full adaptive rate.
const LEVELS: f64 = 20.0;

/// A budget's calendar from a minute before now to two minutes ahead, second by second, and what else tells how it does.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Redis' clock.
    pub now: Instant,
    /// The first second of all lists below, in seconds since 1970: [`PAST`] before the running one.
    pub from_s: u64,
    /// Units that the provider takes in any `per` now: the policy's limit, or the ramp's.
    pub limit: f64,
    /// The window of the limit.
    pub per: Duration,
    /// Units per second that are booked now: headroom, ramp and adaptive rate counted.
    pub scheduled_per_s: f64,
    /// What the adaptive rate leaves of that at present, 0 to 1; `None` without one.
    pub adaptive_level: Option<f64>,
    /// The end of the pause in force.
    pub paused_until: Option<Instant>,
    /// The end of the cooldown in force.
    pub cooldown_until: Option<Instant>,
    /// The end of the last booked second.
    pub booked_until: Option<Instant>,
    /// Units booked from the running second on; `None` when they reach further than 15 minutes ahead.
    pub waiting_units: Option<u64>,
    /// The beginning of the oldest second of the last hour (of the last minute, when a call was begun in this minute or the one
    /// before) that has bookings and after which no call was begun, as far as settled calls tell: workers that are away, a pause,
    /// or sends that ended without a call. The running second does not count.
    pub overdue_since: Option<Instant>,
    /// Units that the rate in force gives each second, for [`PAST`] + [`AHEAD`] seconds.
    pub capacity: Vec<u32>,
    /// Units taken of each second: booked, or passed over since they lay behind when the second's first booking was made. More
    /// than the capacity where the rate was lowered.
    pub booked: Vec<u32>,
    /// `booked` by who holds it, in the order in which it is stacked.
    pub bands: Vec<Band>,
    /// Units of the calls begun in each second of the past, and (last) in the running one.
    pub called: Vec<u32>,
    /// How many calls of this minute and the last one ended otherwise than as sent, by their outcome.
    pub endings: BTreeMap<String, u64>,
    /// The 429s of this minute and of the last one.
    pub throttled: [u64; 2],
}

/// A part of what is booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Band {
    /// Whose.
    pub of: BandOf,
    /// Units of each second.
    pub units: Vec<u32>,
}

/// Who holds a part of what is booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BandOf {
    /// A lane with a reservation: what it booked since it has one.
    Lane(LaneName),
    /// The lanes without a reservation that preempt; together, since their units are not told apart.
    Urgent,
    /// All other lanes, together.
    Others,
}

impl Band {
    /// The lane's name, `urgent` or `others`.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.of {
            BandOf::Lane(name) => name.as_str(),
            BandOf::Urgent => "urgent",
            BandOf::Others => "others",
        }
    }
}

impl View {
    /// The limit as units per second.
    #[must_use]
    pub fn limit_per_s(&self) -> f64 {
        self.limit / self.per.as_secs_f64()
    }

    /// How far the backlog reaches.
    #[must_use]
    pub fn backlog(&self) -> Duration {
        self.booked_until.map_or(Duration::ZERO, |until| self.from_now(until))
    }

    /// The age of [`View::overdue_since`].
    #[must_use]
    pub fn overdue(&self) -> Option<Duration> {
        self.overdue_since.map(|since| Duration::from_micros(self.now.as_micros().saturating_sub(since.as_micros())))
    }

    /// From now to an instant; zero when it has passed.
    #[must_use]
    pub fn from_now(&self, at: Instant) -> Duration {
        Duration::from_micros(at.as_micros().saturating_sub(self.now.as_micros()))
    }
}

/// Reads a budget's view; `None` when it has no policy. What Redis reads for it is bounded, however long the backlog is.
///
/// # Errors
/// [`StoreError`].
pub async fn view(store: &Store, budget: &BudgetName) -> Result<Option<View>, StoreError> {
    let call = Call { keys: vec![keys::calendar(budget), keys::policy(budget)], args: vec![] };
    let items = reply::array("view", store.run(sendslot_lua::VIEW, call).await?)?;
    if let [Value::Int(0), _] = items[..] {
        return Ok(None);
    }
    // the reply holds names of lanes and times: nothing secret
    read(&items).map(Some).ok_or_else(|| reply::wrong("view", &items))
}

fn instant(us: u64) -> Option<Instant> {
    (us > 0).then_some(Instant::from_micros(us))
}

fn read(items: &[Value]) -> Option<View> {
    let number = |i: usize| items.get(i).and_then(reply::integer);
    let count = |i: usize| number(i).and_then(|n| u64::try_from(n).ok());
    let text = |i: usize| items.get(i).and_then(bytes);
    let list = |i: usize| match items.get(i)? {
        Value::Array(items) => Some(items.as_slice()),
        _ => None,
    };
    let (now, from_s) = (instant(count(1)?)?, count(2)?);
    let rate = |i: usize| Some(count(i)? as f64 / count(i + 1)? as f64);
    let headroom: f64 = std::str::from_utf8(text(7)?).ok()?.parse().ok()?;
    let per = Duration::from_millis(count(8)?);
    let (capacity, booked, urgent) = (units(text(16)?)?, units(text(17)?)?, units(text(18)?)?);
    let minute = from_s / 60 + 1;
    let mut called = vec![0_u32; PAST + 1];
    let mut last_call = None;
    for (minute, packed) in [(minute - 1, text(19)?), (minute, text(20)?)] {
        for audit::Call { at, cost } in audit::decode(minute, packed) {
            let at_s = at.as_micros() / 1_000_000;
            last_call = last_call.max(Some(at_s));
            if let Some(second) = at_s.checked_sub(from_s).and_then(|i| called.get_mut(usize::try_from(i).ok()?)) {
                *second = second.saturating_add(cost);
            }
        }
    }
    let (before, this) = (endings(list(21)?)?, endings(list(22)?)?);
    let throttled = [&before, &this].map(|of| of.get("throttled").copied().unwrap_or(0));
    let mut all = before;
    this.into_iter().for_each(|(name, n)| *all.entry(name).or_default() += n);
    let overdue = match last_call {
        None => count(15)?,
        Some(last) => overdue(from_s, &booked[..PAST], last),
    };
    Some(View {
        now,
        from_s,
        limit: rate(5)? * per.as_secs_f64() / headroom,
        per,
        scheduled_per_s: rate(3)?,
        adaptive_level: if number(10)? == 1 { Some(count(9)? as f64 / LEVELS) } else { None },
        paused_until: instant(count(12)?),
        cooldown_until: instant(count(11)?),
        booked_until: instant(count(13)?),
        waiting_units: count(14),
        overdue_since: instant(overdue * 1_000_000),
        bands: bands(&booked, &urgent, list(23)?)?,
        capacity,
        booked,
        called,
        endings: all,
        throttled,
    })
}

fn bytes(value: &Value) -> Option<&[u8]> {
    if let Value::BulkString(bytes) = value { Some(bytes) } else { None }
}

/// u32 a second.
fn units(packed: &[u8]) -> Option<Vec<u32>> {
    let (units, []) = packed.as_chunks::<4>() else { return None };
    (units.len() == PAST + AHEAD).then(|| units.iter().map(|unit| u32::from_le_bytes(*unit)).collect())
}

/// The first of these seconds with bookings behind the last call, in seconds since 1970; 0 when there is none.
fn overdue(from_s: u64, booked: &[u32], last_call_s: u64) -> u64 {
    let behind = |(s, units): &(u64, &u32)| *s > last_call_s && **units > 0;
    (from_s..).zip(booked).find(behind).map_or(0, |(s, _)| s)
}

fn endings(items: &[Value]) -> Option<BTreeMap<String, u64>> {
    let pair = |pair: &[Value]| {
        let [name, n] =
            [bytes(pair.first()?)?, bytes(pair.get(1)?)?].map(|text| String::from_utf8_lossy(text).into_owned());
        Some((name, n.parse().ok()?))
    };
    items.chunks(2).map(pair).collect()
}

/// Lanes with a reservation by name, what others have that preempts, and the rest.
fn bands(booked: &[u32], urgent: &[u32], lanes: &[Value]) -> Option<Vec<Band>> {
    let (mut bands, mut preempting) = (vec![], vec![0_u32; booked.len()]);
    let (mut rest, mut others_preempt) = (booked.to_vec(), false);
    let mut named = vec![];
    for lane in lanes.chunks(3) {
        let [name, flags, packed] = lane else { return None };
        let preempts = reply::integer(flags)? % 2 == 1;
        let packed = bytes(packed)?;
        if packed.is_empty() {
            others_preempt |= preempts;
            continue;
        }
        let name = LaneName::new(std::str::from_utf8(bytes(name)?).ok()?).ok()?;
        named.push((name, preempts, units(packed)?));
    }
    named.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
    // a send in the place of another one counts beside it: the displaced one is not taken out before its claim
    for (name, preempts, of_lane) in named {
        let mut units = of_lane;
        for ((units, rest), urgent) in units.iter_mut().zip(&mut rest).zip(&mut preempting) {
            *units = (*units).min(*rest);
            *rest -= *units;
            *urgent += if preempts { *units } else { 0 };
        }
        bands.push(Band { of: BandOf::Lane(name), units });
    }
    if others_preempt {
        let mut units = vec![0; booked.len()];
        for (i, units) in units.iter_mut().enumerate() {
            *units = urgent[i].saturating_sub(preempting[i]).min(rest[i]);
            rest[i] -= *units;
        }
        bands.push(Band { of: BandOf::Urgent, units });
    }
    bands.push(Band { of: BandOf::Others, units: rest });
    Some(bands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(units: &[(usize, u32)]) -> Value {
        let mut all = vec![0_u32; PAST + AHEAD];
        units.iter().for_each(|(i, n)| all[*i] = *n);
        Value::BulkString(all.iter().flat_map(|n| n.to_le_bytes()).collect())
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn at(units: &[(usize, u32)], i: usize) -> u32 {
        units.iter().find(|(at, _)| *at == i).map_or(0, |(_, n)| *n)
    }

    #[test]
    fn bands_are_what_is_booked_and_never_more() {
        let mut booked = vec![0; PAST + AHEAD];
        (booked[60], booked[61], booked[62]) = (90, 90, 5);
        let mut urgent = vec![0; PAST + AHEAD];
        (urgent[60], urgent[61], urgent[62]) = (30, 30, 9);
        let (otp, bulk) = ([(60, 20), (61, 20), (62, 9)], [(60, 40), (61, 80)]);
        let lanes = [
            [text("otp"), Value::Int(1), packed(&otp)],
            [text("bulk"), Value::Int(0), packed(&bulk)],
            [text("now"), Value::Int(1), text("")],
            [text("default"), Value::Int(0), text("")],
        ]
        .concat();
        let bands = bands(&booked, &urgent, &lanes).unwrap();
        let names: Vec<&str> = bands.iter().map(Band::name).collect();
        assert_eq!(names, ["bulk", "otp", "urgent", "others"]);
        let column = |i: usize| bands.iter().map(|band| band.units[i]).collect::<Vec<_>>();
        assert_eq!(column(60), [at(&bulk, 60), 20, 10, 20]);
        assert_eq!(column(61), [80, 10, 0, 0], "the lanes' own counts hold a displaced send as well");
        assert_eq!(column(62), [0, 5, 0, 0]);
        for (i, units) in booked.iter().enumerate() {
            assert_eq!(column(i).iter().sum::<u32>(), *units, "{i}");
        }
    }

    #[test]
    fn the_oldest_booked_second_behind_the_last_call_is_overdue() {
        let booked = [5, 0, 5, 0];
        assert_eq!([99, 100, 101, 102].map(|last| overdue(100, &booked, last)), [100, 102, 102, 0]);
    }
}
