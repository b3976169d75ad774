//! What happened to the sends of one budget, and whether it may happen.
//!
//! (a) no rolling window holds more units of calls than the limit, or one send; (b) every accepted send ends once, as the scripts
//! say and as its provider saw it, and never after it was cancelled; (c) no two calls stood on one position, none above the capacity
//! of its second; (d) quotas and spacing hold at the claims; (e) a lane with a reservation waits about a second at most inside it; (f)
//! equal sends of a lane leave in the order they came; (h) capacity is used while there is a backlog.

use std::collections::{BTreeMap, HashMap, VecDeque};

use sendslot_shared::policy::Policy;
use sendslot_shared::reserve::{Booking, BoundBy};
use sendslot_shared::status::SendState;

use super::record::Held;
use super::tally::Tally;
use crate::SECOND;

/// Violations are printed up to so many.
const SHOWN: usize = 12;

/// One send, as the simulation knows it.
#[derive(Debug, Clone, Default)]
pub(super) struct Send {
    /// Its lane.
    pub(super) lane: String,
    /// Units.
    pub(super) cost: u32,
    /// Whom it goes to.
    pub(super) recipient: Option<[u8; 8]>,
    /// It was booked.
    pub(super) accepted: bool,
    /// How the scripts said that it ended.
    pub(super) ended: Option<SendState>,
    /// Until then a delivery holds it, us; 0: none does.
    pub(super) held_until: u64,
    /// Calls that the provider took.
    pub(super) taken: u32,
    /// Calls of which nobody knows how they ended.
    pub(super) doubtful: u32,
    /// It got another slot, last at this instant (us).
    pub(super) moved: Option<u64>,
}

/// A call of the provider.
#[derive(Debug, Clone)]
struct Call {
    at: u64,
    send: usize,
    /// Nothing was submitted.
    refunded: bool,
}

/// Units at which rate from which second on.
#[derive(Debug, Clone, Copy)]
struct Rate {
    from: u64,
    num: u32,
    den: u32,
}

impl Rate {
    fn before(self, s: u64) -> u64 {
        (s * u64::from(self.num)).div_ceil(u64::from(self.den))
    }

    fn capacity(self, s: u64) -> u64 {
        self.before(s + 1) - self.before(s)
    }
}

/// A block of positions on which a call stood.
#[derive(Debug, Clone, Copy)]
struct Block {
    p: u32,
    n: u32,
    send: usize,
    at: u64,
    under: bool,
}

pub(super) struct Ledger {
    pub(super) sends: Vec<Send>,
    pub(super) tally: Tally,
    pub(super) violations: Vec<String>,
    policy: Policy,
    seen_violations: usize,
    limits: Vec<(u64, u32)>,
    rates: Vec<Rate>,
    window: VecDeque<(u64, u32)>,
    window_units: u32,
    calls: Vec<Call>,
    blocks: HashMap<(u32, u32), Vec<Block>>,
    freed: HashMap<u32, Vec<(u32, u32)>>,
    last: HashMap<(String, u32), (u64, u64)>,
    reserved: HashMap<String, u32>,
    lane_units: HashMap<String, VecDeque<(u64, u32)>>,
    waits: HashMap<String, (u64, u64)>,
    unquiet_until: u64,
    last_move: u64,
    used_at: BTreeMap<u64, u32>,
    backlog: Backlog,
}

/// Seconds in which there was a backlog all the time, and those that do not count.
#[derive(Default)]
struct Backlog {
    marked_to: u64,
    spans: Vec<(u64, u64)>,
    excluded: Vec<(u64, u64)>,
}

impl Ledger {
    pub(super) fn new(policy: &Policy) -> Self {
        let mut ledger = Self {
            sends: vec![],
            tally: Tally::default(),
            violations: vec![],
            policy: policy.clone(),
            seen_violations: 0,
            limits: vec![],
            rates: vec![],
            window: VecDeque::new(),
            window_units: 0,
            calls: vec![],
            blocks: HashMap::new(),
            freed: HashMap::new(),
            last: HashMap::new(),
            reserved: HashMap::new(),
            lane_units: HashMap::new(),
            waits: HashMap::new(),
            unquiet_until: 0,
            last_move: 0,
            used_at: BTreeMap::new(),
            backlog: Backlog::default(),
        };
        ledger.changed(policy, 0);
        ledger
    }

    /// Something may not be and is.
    pub(super) fn violation(&mut self, at: u64, what: &str) {
        self.seen_violations += 1;
        self.tally.one("violations", what.split(':').next().unwrap_or_default());
        if self.violations.len() < SHOWN {
            self.violations.push(format!("at {:.6} s: {what}", at.saturating_sub(crate::START) as f64 / 1e6));
        }
    }

    fn check(&mut self, name: &'static str, holds: bool, at: u64, what: impl FnOnce() -> String) {
        self.tally.one("checked", name);
        if !holds {
            self.violation(at, &format!("{name}: {}", what()));
        }
    }

    /// The policy that holds from now on.
    pub(super) fn changed(&mut self, policy: &Policy, now: u64) {
        let Ok(compiled) = policy.compile() else { return };
        let now_s = now / SECOND;
        let old = self.rate_at(now_s);
        self.rates.retain(|rate| rate.from <= now_s);
        let mut rate = Rate { from: now_s, num: compiled.num, den: compiled.den };
        if old.is_some_and(|old| u64::from(rate.num) * u64::from(old.den) > u64::from(old.num) * u64::from(rate.den)) {
            rate.from = now_s + (policy.lead.as_micros() as u64 + SECOND).div_ceil(SECOND) + 1;
        }
        self.rates.push(rate);
        self.limits.push((now, policy.limit));
        let whole = compiled.num / compiled.den;
        for lane in &policy.lanes {
            self.reserved.insert(lane.name.to_string(), (lane.reserved.get() * f64::from(whole) + 1e-9) as u32);
        }
        self.policy = policy.clone();
        // what was booked at another rate does not fill this one
        self.unquiet(now, (now + 60 * SECOND).max(self.backlog.marked_to * SECOND));
        self.last.clear();
    }

    /// What waits is moved about until then.
    pub(super) fn unquiet(&mut self, now: u64, until: u64) {
        self.unquiet_until = self.unquiet_until.max(until);
        self.backlog.excluded.push((now / SECOND, until / SECOND));
    }

    fn rate_at(&self, s: u64) -> Option<Rate> {
        self.rates.iter().rev().find(|rate| rate.from <= s).copied()
    }

    /// A send was booked at `now` for the first time. later: not before an instant of its own.
    pub(super) fn booked(&mut self, send: usize, booking: &Booking, later: bool, now: u64) {
        // only the rate can bind it
        let simple = !later && self.sends[send].recipient.is_none() && self.policy.quotas.is_empty();
        let Send { lane, cost, .. } = self.sends[send].clone();
        let at = booking.at.as_micros();
        self.tally.one("bookings", format!("{:?}", booking.bound_by).replace("Some(", "").replace(')', ""));
        let (waits, n) = self.waits.entry(lane.clone()).or_default();
        (*waits, *n) = (*waits + at.saturating_sub(now), *n + 1);
        self.tally.one("booked", lane.clone());
        if simple {
            self.lane_waits_little(send, &lane, cost, at, now);
            self.in_order(send, (lane.clone(), cost), booking, now);
        }
        if booking.bound_by == Some(BoundBy::Rate) && !later {
            self.backlog.mark(now / SECOND + 2, at / SECOND);
        }
        self.lane_units.entry(lane).or_default().push_back((now, cost));
    }

    /// (e) Units of the lane in the last two seconds are inside its reservation: the slot is a second ahead at most.
    fn lane_waits_little(&mut self, send: usize, lane: &str, cost: u32, at: u64, now: u64) {
        let Some(reserved) = self.reserved.get(lane).copied().filter(|units| *units > 0) else { return };
        let recent = self.lane_units.entry(lane.to_owned()).or_default();
        while recent.front().is_some_and(|(then, _)| then + 3 * SECOND < now) {
            recent.pop_front();
        }
        let units: u32 = recent.iter().map(|(_, units)| units).sum();
        if units + cost > reserved || now < self.unquiet_until {
            return;
        }
        // its part of a second lies at the end, and of one that has begun some of it has gone
        let most = SECOND * 3 / 2 + self.policy.transit.as_micros() as u64;
        self.tally.most("longest ms", lane, (at - now) / 1000);
        self.check("(e) lane inside its share waits about 1 s", at - now <= most, now, || {
            format!("send {send} of lane {lane} waits {} us, {units} units before it of {reserved}", at - now)
        });
    }

    /// (f) Not earlier than an equal send before it, but where places came back or it took another one's.
    fn in_order(&mut self, send: usize, kind: (String, u32), booking: &Booking, now: u64) {
        if self.policy.adaptive.is_some() || booking.bound_by == Some(BoundBy::TakeOver) {
            return;
        }
        let at = booking.at.as_micros();
        let (last, at_that_time) = self.last.get(&kind).copied().unwrap_or_default();
        let (s, p) = booking.slot;
        // what a heavy one needs in front of it depends on what stands there
        let heavy = kind.1 > self.policy.compile().map_or(0, |c| c.u0);
        let came_back = |holes: &Vec<(u32, u32)>| holes.iter().any(|(from, n)| (*from..from + n).contains(&p));
        let exempt = at <= last && (heavy || self.freed.get(&s).is_some_and(came_back));
        // of a second that has begun other lanes keep only their share of what is left
        let begun = u64::from(s) * SECOND <= now + self.policy.transit.as_micros() as u64 && !self.reserved.is_empty();
        // a lane that took another one's place needs less of its reservation
        let moved = !self.reserved.is_empty() && self.last_move >= at_that_time;
        if exempt || (begun || moved) && at <= last {
            self.tally.one("order", "took a place that came back");
            return;
        }
        self.check("(f) equal sends keep their order", at > last, now, || {
            format!(
                "send {send} {kind:?} at {at}, slot {:?}, one before it, booked at {at_that_time}, at {last}",
                booking.slot
            )
        });
        self.last.insert(kind, (at, now));
    }

    /// A send left its places: others may take them.
    pub(super) fn left(&mut self, held: &Held, why: &str, now: u64) {
        self.last_move = now;
        let units = held.places.iter().map(|(_, _, n)| u64::from(*n)).sum();
        self.tally.add("positions left", why, units);
        for (s, p, n) in &held.places {
            self.freed.entry(*s).or_default().push((*p, *n));
        }
    }

    /// A send got another slot.
    pub(super) fn moved(&mut self, send: usize, reason: &str, now: u64) {
        self.tally.one("moves", reason);
        let Send { lane, cost, .. } = self.sends[send].clone();
        self.sends[send].moved = Some(now);
        self.last_move = now;
        self.lane_units.entry(lane).or_default().push_back((now, cost));
    }

    /// The scripts said that a send has ended.
    pub(super) fn ended(&mut self, send: usize, state: SendState, now: u64) {
        let before = self.sends[send].ended.replace(state);
        // a worker that outlived its lease tells the truth last
        let late = state == SendState::Sent && self.sends[send].doubtful > 0;
        let once = before.is_none() || before == Some(state) || late;
        self.check("(b) ends once", once, now, || format!("send {send} ended as {before:?}, then as {state:?}"));
    }

    /// A delivery was told to send at `now`. Answers the number of the call.
    pub(super) fn called(&mut self, send: usize, held: Option<&Held>, now: u64, lease_us: u64) -> usize {
        let Send { ended, held_until, cost, accepted, .. } = self.sends[send].clone();
        self.check("(b) nothing is sent after its end", ended.is_none(), now, || {
            format!("send {send} had ended: {ended:?}")
        });
        self.check("(b) one delivery at a time", held_until <= now, now, || {
            format!("send {send} is held until {held_until}, and claimed at {now}")
        });
        self.check("(b) only accepted sends are sent", accepted, now, || format!("send {send}"));
        self.sends[send].held_until = now + lease_us;
        self.window_holds(send, cost, now);
        match held {
            Some(held) => {
                for (s, _, n) in &held.places {
                    *self.used_at.entry(u64::from(*s)).or_default() += n;
                }
                self.stands_alone(send, held, now);
            }
            None => self.violation(now, &format!("(b) record: send {send} is sent without one")),
        }
        self.calls.push(Call { at: now, send, refunded: false });
        self.calls.len() - 1
    }

    /// (a)
    fn window_holds(&mut self, send: usize, cost: u32, now: u64) {
        let per = self.policy.per.as_micros() as u64;
        self.window.push_back((now, cost));
        self.window_units += cost;
        while self.window.front().is_some_and(|(then, _)| then + per <= now) {
            self.window_units -= self.window.pop_front().map_or(0, |(_, cost)| cost);
        }
        let since = now.saturating_sub(per);
        let before = self.limits.iter().rposition(|(from, _)| *from <= since).unwrap_or(0);
        let limit = self.limits[before..].iter().map(|(_, limit)| *limit).max().unwrap_or(0);
        let allowed = self.window.iter().map(|(_, cost)| *cost).max().unwrap_or(0).max(limit);
        let units = self.window_units;
        self.tally.most("most in window", format!("of limit {limit}"), units.into());
        self.check("(a) rolling window", units <= allowed, now, || {
            format!("{units} units of {allowed} with send {send}")
        });
    }

    /// (c)
    fn stands_alone(&mut self, send: usize, held: &Held, now: u64) {
        for (s, p, n) in held.places.iter().copied() {
            let block = Block { p, n, send, at: now, under: held.under };
            let others = self.blocks.entry((held.epoch, s)).or_default();
            let other = others.iter().find(|b| b.p < p + n && p < b.p + b.n && b.send != send).copied();
            others.push(block);
            let explained = other.is_some_and(|other| self.took_over(block, other) || self.took_over(other, block));
            if explained {
                self.tally.one("positions", "of the rest of a large send that had left");
            }
            self.check("(c) positions are held once", other.is_none() || explained, now, || {
                format!("send {send} held {block:?} in second {s} ({held:?}), and so did {other:?}")
            });
            self.inside_capacity(send, held, (s, p, n), now);
        }
    }

    /// One that was booked again took a place on which units of a large send stand that had left by then.
    fn took_over(&self, taker: Block, large: Block) -> bool {
        taker.under && self.sends[large.send].cost > 1 && self.sends[taker.send].moved.is_some_and(|at| at >= large.at)
    }

    fn inside_capacity(&mut self, send: usize, held: &Held, (s, p, n): (u32, u32, u32), now: u64) {
        let changing = self.rates.iter().any(|rate| rate.from == u64::from(s));
        let Some(rate) = self.rate_at(s.into()).filter(|_| !changing && self.policy.adaptive.is_none()) else { return };
        if held.run && self.rates.len() > 1 {
            return;
        }
        let room = rate.capacity(s.into());
        // guard positions in front may lie above a lowered capacity
        self.check(
            "(c) inside the capacity",
            u64::from(p + n) <= room || self.rates.len() > 1 && held.slot.0 != s,
            now,
            || format!("send {send} holds {p} + {n} of second {s}, which has {room}: {held:?}"),
        );
    }

    /// What a call's end tells: `refunded`, nothing was submitted; `taken`, the provider took it.
    pub(super) fn call_ended(&mut self, call: usize, refunded: bool) {
        self.calls[call].refunded = refunded;
        self.sends[self.calls[call].send].held_until = 0;
    }

    /// Checks what only the whole day shows, beside what Redis says of each accepted send.
    pub(super) fn close(&mut self, states: &[Option<SendState>], now: u64) {
        for (send, state) in states.iter().enumerate() {
            self.one_end(send, *state, now);
        }
        for (lane, (us, n)) in &self.waits {
            self.tally.add("mean wait ms", lane.clone(), us / n / 1000);
        }
        self.quotas_hold(now);
        self.spacing_holds();
        self.tally.add("violations", "in all", self.seen_violations as u64);
    }

    /// (b)
    fn one_end(&mut self, send: usize, state: Option<SendState>, now: u64) {
        let Send { accepted, ended, taken, doubtful, .. } = self.sends[send].clone();
        if !accepted {
            self.check("(b) refused sends are not sent", taken == 0, now, || format!("send {send}"));
            return;
        }
        self.tally.one("ends", state.map_or("none", SendState::as_str));
        self.check("(b) ends as it was told", state == ended && ended.is_some(), now, || {
            format!("send {send} is {state:?}, told: {ended:?}")
        });
        let most = 1 + doubtful;
        self.check("(b) sent once", taken <= most, now, || format!("send {send}: {taken} times, {doubtful} in doubt"));
        let fits = match state {
            Some(SendState::Sent) => taken > 0,
            Some(SendState::Unknown) => doubtful > 0,
            _ => taken <= doubtful,
        };
        self.check("(b) ends as the provider saw it", fits, now, || {
            format!("send {send} is {state:?}, taken {taken} times, {doubtful} in doubt")
        });
    }

    /// (d)
    fn quotas_hold(&mut self, now: u64) {
        for quota in self.policy.quotas.clone() {
            let window = quota.window.as_secs();
            let mut used: BTreeMap<u64, u32> = BTreeMap::new();
            for call in self.calls.iter().filter(|call| !call.refunded) {
                let local = (call.at / SECOND).saturating_add_signed(quota.offset_s.into());
                *used.entry(local / window).or_default() += self.sends[call.send].cost;
            }
            for (start, units) in used {
                let name = format!("{} per {window} s", quota.units);
                self.tally.most("most of quota", name.clone(), units.into());
                self.check("(d) quota", units <= quota.units, now, || format!("{units} of {name}, window {start}"));
            }
        }
    }

    /// (d)
    fn spacing_holds(&mut self) {
        let Some(spacing) = self.policy.spacing.map(|s| s.as_micros() as u64) else { return };
        let mut last: HashMap<[u8; 8], (u64, usize)> = HashMap::new();
        for call in self.calls.clone().into_iter().filter(|call| !call.refunded) {
            let Some(recipient) = self.sends[call.send].recipient else { continue };
            let Some((at, before)) = last.insert(recipient, (call.at, call.send)) else { continue };
            self.check("(d) spacing", call.at - at >= spacing, call.at, || {
                format!("send {} left {} us after send {before} to the same recipient", call.send, call.at - at)
            });
        }
    }

    /// (h) Positions of calls, those in front of large ones included, units of capacity, and seconds: of those with a backlog.
    pub(super) fn used(&mut self) -> (u64, u64, u64) {
        let (mut used, mut room, mut seconds) = (0, 0, 0);
        let excluded = std::mem::take(&mut self.backlog.excluded);
        for s in self.backlog.spans.iter().flat_map(|(from, to)| *from..*to) {
            if excluded.iter().any(|(from, to)| (*from..=*to).contains(&s)) {
                continue;
            }
            used += u64::from(self.used_at.get(&s).copied().unwrap_or(0));
            room += self.rate_at(s).map_or(0, |rate| rate.capacity(s));
            seconds += 1;
        }
        (used, room, seconds)
    }
}

impl Backlog {
    /// There was a backlog in these seconds, `to` not included.
    fn mark(&mut self, from: u64, to: u64) {
        let from = from.max(self.marked_to);
        if from < to {
            self.spans.push((from, to));
            self.marked_to = to;
        }
    }
}
