//! What a burst will take, worked out before anything is booked: no Redis, no SQS, only arithmetic.
//!
//! ```
//! use std::time::Duration;
//! use sendslot_scheduler::plan::{Headroom, Plan, PlanInput, Policy};
//!
//! # fn main() -> Result<(), sendslot_scheduler::plan::PlanError> {
//! let policy = Policy { headroom: Headroom::new(0.8)?, ..Policy::per_second(100) };
//! let plan = Plan::new(&PlanInput { latency: Duration::from_millis(250), ..PlanInput::new(policy, 10_000) })?;
//! assert_eq!(plan.drain, Duration::from_secs(125));
//! assert_eq!(plan.hops, 0);
//! # Ok(())
//! # }
//! ```
//!
//! The burst is booked and put on SQS at one moment in an empty calendar, and its first slot stands at the start of a
//! second. A real burst begins in the middle of one, which moves its slots by less than a second. What goes wrong (sends
//! that are re-booked, polls that find fewer messages, or none) comes on top.

mod price;

use std::time::Duration;

pub use price::{Cost, Prices};
use sendslot_shared::envelope::{BodyTooLarge, Envelope, MAX_BODY_BYTES};
use sendslot_shared::message::Message;
use sendslot_shared::policy::Compiled;
pub use sendslot_shared::policy::{Headroom, InvalidPolicy, Policy};
use sendslot_shared::queue::MAX_ENTRIES;
use sendslot_shared::reserve::Refusal;
use sendslot_shared::time::{Instant, Timer};

use crate::{ScheduleError, scheduler};

const SECOND: Duration = Duration::from_secs(1);
/// The furthest horizon that a policy may have.
const FURTHEST: Duration = Duration::from_secs(14 * 86_400);
/// Between the wake-ups of a long wait: the step of [`Timer::SQS`].
const STEP_S: u64 = 890;
/// SQS bills each 64 KB of a call's payload as one request.
const BILLED_BYTES: u64 = 65_536;
/// The payload of a Lambda invocation: 6 MB.
const INVOCATION_BYTES: u64 = 6_000_000;
/// The largest batch of an event-source mapping without a window, and with one.
const BATCH_WITHOUT_WINDOW: u32 = 10;
const BATCH_MAX: u32 = 10_000;
/// MaximumBatchingWindowInSeconds.
const WINDOW_MAX: Duration = Duration::from_secs(300);
/// The send ID that is reckoned with: a UUID.
const ID_BYTES: usize = 36;

/// A burst and what it goes through.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanInput {
    /// The budget's numbers.
    pub policy: Policy,
    /// Sends that are scheduled at one moment.
    pub burst: u64,
    /// Units of each send.
    pub cost: u32,
    /// How long the provider takes to answer.
    pub latency: Duration,
    /// Messages per invocation of the worker: 1 to 10,000, above 10 with a window of at least 1 s (AWS).
    pub batch_size: u32,
    /// How long a batch is gathered: 0 to 300 s (AWS). The policy's lead must be longer, or messages come after their slots.
    pub batch_window: Duration,
    /// Bytes of each send's payload; the envelope around it is added.
    pub payload_bytes: usize,
    /// A worker's memory, MB: 128 to 10,240 (AWS).
    pub memory_mb: u32,
    /// What AWS asks for.
    pub prices: Prices,
}

impl PlanInput {
    /// Sends of one unit and 1,024 bytes, a provider that answers in 50 ms, batches of 10 without a window, workers of 256
    /// MB, and [`Prices::US_EAST_1`].
    #[must_use]
    pub fn new(policy: Policy, burst: u64) -> Self {
        Self {
            policy,
            burst,
            cost: 1,
            latency: Duration::from_millis(50),
            batch_size: 10,
            batch_window: Duration::ZERO,
            payload_bytes: 1024,
            memory_mb: 256,
            prices: Prices::US_EAST_1,
        }
    }

    fn check_worker(&self) -> Result<(), PlanError> {
        if !(1..=BATCH_MAX).contains(&self.batch_size) {
            return Err(PlanError::BatchSize { given: self.batch_size });
        }
        if self.batch_window > WINDOW_MAX {
            return Err(PlanError::BatchWindow { given: self.batch_window });
        }
        if self.batch_size > BATCH_WITHOUT_WINDOW && self.batch_window < SECOND {
            return Err(PlanError::NoWindow { batch_size: self.batch_size });
        }
        if !(128..=10_240).contains(&self.memory_mb) {
            return Err(PlanError::Memory { given: self.memory_mb });
        }
        self.prices.check()
    }

    /// A copy's size on the queue, as the scheduler would put it there. It refuses what the scheduler would refuse.
    fn body_bytes(&self) -> Result<u64, ScheduleError> {
        if self.payload_bytes > MAX_BODY_BYTES {
            return Err(BodyTooLarge { bytes: self.payload_bytes }.into());
        }
        let message = Message::new("budget", "x".repeat(ID_BYTES), vec![b'x'; self.payload_bytes]).cost(self.cost);
        let body = Envelope::first(scheduler::prepare(message)?, 1, Instant::MAX).to_body()?;
        Ok(body.len() as u64)
    }
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The policy is not one.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
    /// Each send would be refused.
    #[error(transparent)]
    Send(#[from] ScheduleError),
    /// A burst of 0.
    #[error("a burst of 0 sends needs no plan: give at least 1")]
    EmptyBurst,
    /// Its last slot lies further ahead than any slot may.
    #[error(
        "{burst} sends take longer than 14 days, the furthest that a slot may be ahead: {fits} fit, offer the rest later"
    )]
    TooLong {
        /// What was given.
        burst: u64,
        /// How many have their slots within 14 days.
        fits: u64,
    },
    /// The batch size is none that AWS takes.
    #[error("batch size {given} is out of range: 1 to 10,000")]
    BatchSize {
        /// What was given.
        given: u32,
    },
    /// The batching window is none that AWS takes.
    #[error("batch window {given:?} is out of range: 0 to 300 s")]
    BatchWindow {
        /// What was given.
        given: Duration,
    },
    /// AWS gathers more than ten messages only within a window.
    #[error("a batch size of {batch_size} needs a batch window of at least 1 s (AWS); without one, 10 is the most")]
    NoWindow {
        /// What was given.
        batch_size: u32,
    },
    /// The memory is none that AWS gives.
    #[error("{given} MB of memory are out of range: 128 to 10,240")]
    Memory {
        /// What was given.
        given: u32,
    },
    /// A price is not one.
    #[error("the price {given} is out of range: give dollars, 0 or more")]
    Price {
        /// What was given.
        given: f64,
    },
}

/// What a burst will take.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The scheduled rate: headroom x limit / per.
    pub units_per_s: f64,
    /// Sends a second; less than units a second / cost where costs leave units of a second over, or places in front of them.
    pub sends_per_s: f64,
    /// From the first slot until the last send's place in the calendar is over.
    pub drain: Duration,
    /// From the booking to the last send's slot.
    pub last_wait: Duration,
    /// Sends whose slots lie behind the policy's horizon: they are refused for now. They count in everything else.
    pub past_horizon: u64,
    /// The largest burst of such sends in which no wait is longer than a timer.
    pub largest_without_hop: u64,
    /// Trips through SQS only because a timer ends, of all sends together.
    pub hops: u64,
    /// Those of the last send, which has most.
    pub hops_of_last: u64,
    /// Provider calls that run at one moment: rate x latency (Little's law).
    pub calls_in_flight: f64,
    /// Messages received and not yet sent: rate x (mean hold + latency). A message shows up between lead and lead + 1 s
    /// before its slot, since timers are whole seconds: the mean hold is lead + 0.5 s.
    pub messages_held: f64,
    /// Messages in a batch: the batch size, or what shows up within the window (within a second, without one: a timer's
    /// resolution), and at most 6 MB.
    pub messages_per_batch: u64,
    /// Concurrent invocations with such batches, at least. One that has a send in it is busy until its last call has ended,
    /// lead + 1 s + latency; copies that hop come in between, most of them at the start, and make that more invocations.
    pub environments: u64,
    /// Calls of SQS.
    pub requests: Requests,
    /// What may vary between the verdict and the call's arrival at the provider without the limit being exceeded there.
    pub jitter: Duration,
    /// u0: the largest cost that fits beside a full grid. A larger one books places in front of its own, as many more as it is above
    /// at most; sends that are all as large need few.
    pub largest_cost_beside_others: u32,
    /// The largest cost taken at all.
    pub max_cost: u32,
}

/// Billed requests of SQS: one for each call, and one for each further 64 KB of its payload. Polls that find nothing are
/// not in it: they are there without a burst too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// SendMessageBatch, ten messages each or 1 MiB.
    pub send: u64,
    /// SendMessage, one for each hop.
    pub hop: u64,
    /// ReceiveMessage, up to ten messages each.
    pub receive: u64,
    /// DeleteMessageBatch, likewise.
    pub delete: u64,
}

impl Requests {
    /// All of them.
    #[must_use]
    pub fn total(self) -> u64 {
        self.send + self.hop + self.receive + self.delete
    }
}

impl Plan {
    /// Works it out.
    ///
    /// # Errors
    /// [`PlanError`]: what is wrong and what would work.
    pub fn new(input: &PlanInput) -> Result<Self, PlanError> {
        input.check_worker()?;
        let compiled = input.policy.compile()?;
        if input.cost > compiled.max_cost {
            return Err(ScheduleError::from(Refusal::CostTooLarge { max_cost: compiled.max_cost }).into());
        }
        let body_bytes = input.body_bytes()?;
        let burst = Burst { row: Row::new(&compiled, input.cost), policy: &input.policy, sends: input.burst };
        let last = burst.last()?;
        let last_wait = burst.wait(last);
        let hops = burst.hops(last);
        let hops_of_last = hops_of(last_wait, input.policy.lead);
        let sends_per_s = burst.row.sends_per_s();
        let load = Load::new(input, sends_per_s, hops_of_last, body_bytes);
        let requests = Requests::new(input.burst, hops, body_bytes, load.messages_per_batch);
        Ok(Self {
            units_per_s: input.policy.scheduled_rate(),
            sends_per_s,
            drain: burst.row.time_of(burst.row.first_place(last) + burst.row.units),
            last_wait,
            past_horizon: input.burst - first_not(input.burst, |i| burst.wait(i) <= input.policy.horizon),
            largest_without_hop: burst.largest_without_hop(),
            hops,
            hops_of_last,
            calls_in_flight: load.calls_in_flight,
            messages_held: load.messages_held,
            messages_per_batch: load.messages_per_batch,
            environments: load.environments,
            requests,
            jitter: compiled.jitter,
            largest_cost_beside_others: compiled.u0,
            max_cost: compiled.max_cost,
        })
    }
}

/// What the workers have to do at one moment, by Little's law; see the fields of [`Plan`].
struct Load {
    calls_in_flight: f64,
    messages_held: f64,
    messages_per_batch: u64,
    environments: u64,
}

impl Load {
    fn new(input: &PlanInput, sends_per_s: f64, hops_of_last: u64, body_bytes: u64) -> Self {
        let (lead, latency) = (input.policy.lead.as_secs_f64(), input.latency.as_secs_f64());
        let all = input.burst as f64;
        let arriving = (sends_per_s * input.batch_window.max(SECOND).as_secs_f64()) as u64;
        let most = u64::from(input.batch_size).min(INVOCATION_BYTES / body_bytes);
        let messages_per_batch = arriving.min(most).max(1);
        let copies_per_s = sends_per_s * (1 + hops_of_last) as f64;
        let busy_batches_per_s = sends_per_s.min(copies_per_s / messages_per_batch as f64);
        let environments = (busy_batches_per_s * (lead + 1.0 + latency)).min(all / messages_per_batch as f64);
        Self {
            calls_in_flight: (sends_per_s * latency).min(all),
            messages_held: (sends_per_s * (lead + 0.5 + latency)).min(all),
            messages_per_batch,
            environments: up(environments),
        }
    }
}

/// Hops of a send whose slot is `wait` ahead when it is put on SQS and that shall show up `lead` before it.
///
/// The first timer takes the remainder; whole steps are left behind it, and less than a second. A copy that shows up more
/// than lead + 1 s before its slot hops (claim.lua).
#[must_use]
pub fn hops_of(wait: Duration, lead: Duration) -> u64 {
    let first = Timer::SQS.delay(wait, lead).get();
    let left = wait.saturating_sub(lead).saturating_sub(Duration::from_secs(first.unsigned_abs().into()));
    left.as_secs() / STEP_S
}

impl Requests {
    fn new(sends: u64, hops: u64, body_bytes: u64, messages_per_batch: u64) -> Self {
        let per_send = (MAX_BODY_BYTES as u64 / body_bytes).clamp(1, MAX_ENTRIES as u64);
        let per_receive = messages_per_batch.min(MAX_ENTRIES as u64);
        let copies = sends + hops;
        Self {
            send: billed(sends, per_send, body_bytes),
            hop: billed(hops, 1, body_bytes),
            receive: billed(copies, per_receive, body_bytes),
            delete: copies.div_ceil(per_receive),
        }
    }
}

/// What SQS bills for these messages in calls of `per_call`.
fn billed(messages: u64, per_call: u64, body_bytes: u64) -> u64 {
    let one = |count: u64| (count * body_bytes).div_ceil(BILLED_BYTES);
    messages / per_call * one(per_call) + one(messages % per_call)
}

/// Sends of a burst by their number, from 0.
struct Burst<'a> {
    row: Row,
    policy: &'a Policy,
    sends: u64,
}

impl Burst<'_> {
    /// The last send, if its slot may be booked at all.
    fn last(&self) -> Result<u64, PlanError> {
        let last = self.sends.checked_sub(1).ok_or(PlanError::EmptyBurst)?;
        if self.wait(last) <= FURTHEST {
            return Ok(last);
        }
        let fits = first_not(self.sends, |i| self.wait(i) <= FURTHEST);
        Err(PlanError::TooLong { burst: self.sends, fits })
    }

    /// From the booking to the slot of send `i`.
    fn wait(&self, i: u64) -> Duration {
        self.policy.transit.saturating_add(self.row.time_of(self.row.first_place(i) + self.row.front))
    }

    /// Of all sends up to this one: later sends have as many or more, so those with more than k are counted for each k.
    fn hops(&self, last: u64) -> u64 {
        let lead = self.policy.lead;
        let more_than = |k| self.sends - first_not(self.sends, |i| hops_of(self.wait(i), lead) <= k);
        (0..hops_of(self.wait(last), lead)).map(more_than).sum()
    }

    fn largest_without_hop(&self) -> u64 {
        // above the highest rate (2^24 a second) x the longest timer, lead and a second
        const ENOUGH: u64 = 1 << 36;
        first_not(ENOUGH, |i| hops_of(self.wait(i), self.policy.lead) == 0)
    }
}

/// The places of equal sends on the grid, whose units stand at k x den / num seconds; ARCHITECTURE.md, "The calendar".
struct Row {
    num: u128,
    den: u128,
    /// Places that a send takes, those in front of it included.
    units: u128,
    /// Places in front of it.
    front: u128,
    /// Above u0: it goes on into the next second.
    heavy: bool,
}

impl Row {
    fn new(compiled: &Compiled, cost: u32) -> Self {
        let front = compiled.front(cost);
        Self {
            num: compiled.num.into(),
            den: compiled.den.into(),
            units: u128::from(cost) + u128::from(front),
            front: front.into(),
            heavy: cost > compiled.u0,
        }
    }

    /// Units that every second has; some have one more.
    fn whole(&self) -> u128 {
        self.num / self.den
    }

    /// A send that fits into any second stands in one (`fit` of search.lua), and what it leaves over stays empty. A larger or a
    /// heavy one runs on from where the one before it ended.
    fn leaves_gaps(&self) -> bool {
        self.units > 1 && self.units <= self.whole() && !self.heavy
    }

    /// A second with one unit more holds one send more.
    fn unit_more_is_send_more(&self) -> bool {
        (self.whole() + 1).is_multiple_of(self.units)
    }

    /// The number of the first unit that send `i` takes.
    fn first_place(&self, i: u64) -> u128 {
        let i = u128::from(i);
        if !self.leaves_gaps() {
            return i * self.units;
        }
        let mut s = i / (self.whole() / self.units + 1);
        let mut after = i / (self.whole() / self.units) + 1;
        while after - s > 1 {
            let middle = s + (after - s) / 2;
            if self.sends_before(middle) <= i { s = middle } else { after = middle }
        }
        self.units_before(s) + (i - self.sends_before(s)) * self.units
    }

    fn units_before(&self, s: u128) -> u128 {
        (s * self.num).div_ceil(self.den)
    }

    /// Sends in the seconds before `s`, where sends leave gaps.
    fn sends_before(&self, s: u128) -> u128 {
        let more = if self.unit_more_is_send_more() { self.units_before(s) - s * self.whole() } else { 0 };
        s * (self.whole() / self.units) + more
    }

    fn sends_per_s(&self) -> f64 {
        let rate = self.num as f64 / self.den as f64;
        if !self.leaves_gaps() {
            return rate / self.units as f64;
        }
        let more = if self.unit_more_is_send_more() { rate - self.whole() as f64 } else { 0.0 };
        (self.whole() / self.units) as f64 + more
    }

    /// When unit `k` stands, rounded up to microseconds as in calendar.lua.
    fn time_of(&self, k: u128) -> Duration {
        let us = (k * self.den * 1_000_000).div_ceil(self.num);
        let s = u64::try_from(us / 1_000_000).unwrap_or(u64::MAX);
        Duration::new(s, (us % 1_000_000) as u32 * 1000)
    }
}

/// How many of `0..end` come before the first for which `holds` is false; it stays false from there on.
fn first_not(end: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Rounded up, but not for what doubles cannot tell from a whole number.
fn up(x: f64) -> u64 {
    (x - 1e-9).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(limit: u32, headroom: f64) -> Policy {
        Policy { headroom: Headroom::new(headroom).unwrap(), ..Policy::per_second(limit) }
    }

    fn input(limit: u32, headroom: f64, burst: u64) -> PlanInput {
        PlanInput::new(policy(limit, headroom), burst)
    }

    fn plan(input: &PlanInput) -> Plan {
        Plan::new(input).unwrap()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn a_burst_drains_at_the_scheduled_rate() {
        // limit, headroom, cost, burst; units/s, sends/s, drain in s
        for (limit, headroom, cost, burst, units_per_s, sends_per_s, drain_s) in [
            // 10,000 / 80
            (100, 0.8, 1, 10_000, 80.0, 80.0, 125.0),
            // 10,000 / 97.5, to the microsecond above
            (100, 0.975, 1, 10_000, 97.5, 97.5, 102.564_103),
            // 26 x 3 of 80 units a second; 384 x 26 = 9,984, the 16 left end at 48/80 of second 384
            (100, 0.8, 3, 10_000, 80.0, 26.0, 384.6),
            // u0 = 2; seconds of 194 and 193 units hold 97 and 96 sends of 2; the 193rd ends with unit 194 + 192 of 193.5/s
            (200, 0.9675, 2, 193, 193.5, 96.5, 1.994_833),
            // u0 = 1: 2 is heavy, needs nothing in front and runs on; 97 x 2 of 97.5/s
            (100, 0.975, 2, 97, 97.5, 48.75, 1.989_744),
            // u0 = 8: two of 41 share the 84 units of a window, and one more each: 43 from one to the next; 10 x 43 / 80
            (100, 0.8, 41, 10, 80.0, 80.0 / 43.0, 5.375),
            // a window takes one of 100, which covers it; 10 x 100 / 80
            (100, 0.8, 100, 10, 80.0, 0.8, 12.5),
        ] {
            let plan = plan(&PlanInput { cost, ..input(limit, headroom, burst) });
            assert!(near(plan.units_per_s, units_per_s) && near(plan.sends_per_s, sends_per_s), "{cost} {plan:?}");
            assert!(near(plan.drain.as_secs_f64(), drain_s), "{cost} {:?}", plan.drain);
        }
        // 20 an hour x 0.97 = 97 in 18,000 s
        let hourly = Policy { per: Duration::from_secs(3600), ..policy(20, 0.97) };
        assert_eq!(plan(&PlanInput::new(hourly, 97)).drain, Duration::from_secs(18_000));
    }

    #[test]
    fn the_last_wait_is_transit_and_the_slots_before() {
        // 0.25 + 9,999 / 80
        assert_eq!(plan(&input(100, 0.8, 10_000)).last_wait, Duration::from_micros(125_237_500));
        // 0.25, and a send of 41 leaves behind two places in front of its own: 2 / 80
        let costly = PlanInput { cost: 41, ..input(100, 0.8, 1) };
        assert_eq!(plan(&costly).last_wait, Duration::from_millis(275));
    }

    /// Sends one by one into seconds, as calendar.lua does.
    #[test]
    fn places_are_those_that_second_by_second_booking_gives() {
        for (limit, headroom) in [(100, 0.8), (100, 0.975), (10, 0.75), (7, 0.5), (3, 0.33), (1, 0.8)] {
            let compiled = policy(limit, headroom).compile().unwrap();
            for cost in 1..=limit {
                let row = Row::new(&compiled, cost);
                let (mut s, mut p) = (0, 0);
                for i in 0..500 {
                    if row.leaves_gaps() {
                        let capacity = |s| row.units_before(s + 1) - row.units_before(s);
                        while p + row.units > capacity(s) {
                            (s, p) = (s + 1, 0);
                        }
                    }
                    assert_eq!(
                        row.first_place(i),
                        row.units_before(s) + p,
                        "{limit} x {headroom}, cost {cost}: send {i}"
                    );
                    p += row.units;
                }
            }
        }
    }

    /// What the worker and claim.lua do with a wait: sleep on a timer, hop while the slot is more than lead + 1 s ahead.
    fn walked(mut wait: Duration, lead: Duration) -> u64 {
        let mut hops = 0;
        loop {
            wait -= Duration::from_secs(Timer::SQS.delay(wait, lead).get() as u64);
            if wait <= lead + SECOND {
                return hops;
            }
            hops += 1;
        }
    }

    #[test]
    fn hops_are_those_of_the_timer() {
        let near_the_first = (0..400_000).map(|n| n * 10);
        let up_to_14_days = (0..1_200).map(|n| n * 1_008_001);
        // 901 s and 900 + 890 k s behind lead are where hops begin: a millisecond around each
        let edges = (0..40).flat_map(|k| [900_000 + 890_000 * k, 901_000 + 890_000 * k]).flat_map(|ms| ms - 1..=ms + 1);
        for wait_ms in near_the_first.chain(up_to_14_days).chain(edges) {
            for lead_ms in [0, 1500, 2500] {
                let (wait, lead) = (Duration::from_millis(wait_ms), Duration::from_millis(lead_ms));
                assert_eq!(hops_of(wait, lead), walked(wait, lead), "{wait:?} {lead:?}");
            }
        }
    }

    #[test]
    fn hops_begin_where_the_timer_ends() {
        // no hop below 901 s + lead: (901 + 1.5 - 0.25) s x 80/s = 72,180 sends; the next would wait 902.5 s
        let plan_of = |burst| plan(&input(100, 0.8, burst));
        assert_eq!(plan_of(1).largest_without_hop, 72_180);
        assert_eq!((plan_of(72_180).hops, plan_of(72_180).hops_of_last), (0, 0));
        assert_eq!((plan_of(72_181).hops, plan_of(72_181).hops_of_last), (1, 1));
        // at most one up to 1,790 s + lead, inclusive: 1,791.25 x 80 + 1 = 143,301 sends.
        // Of 200,000: 127,820 have one and 56,699 of those a second; the last waits 2,500.2375 s
        let plan = plan_of(200_000);
        assert_eq!((plan.hops, plan.hops_of_last), (127_820 + 56_699, 2));
    }

    #[test]
    fn all_hops_are_the_sum_of_each_sends() {
        for (limit, headroom, cost, burst) in [(10, 0.8, 1, 20_000), (10, 0.75, 3, 4_000), (100, 0.8, 100, 2_000)] {
            let input = PlanInput { cost, ..input(limit, headroom, burst) };
            let row = Row::new(&input.policy.compile().unwrap(), cost);
            let one = Burst { row, policy: &input.policy, sends: burst };
            let each: Vec<u64> = (0..burst).map(|i| hops_of(one.wait(i), input.policy.lead)).collect();
            let plan = plan(&input);
            assert_eq!((plan.hops, Some(&plan.hops_of_last)), (each.iter().sum(), each.last()));
            assert_eq!(plan.largest_without_hop, each.iter().filter(|hops| **hops == 0).count() as u64);
        }
    }

    #[test]
    fn workers_follow_littles_law() {
        // 80/s x 0.25 s; x (1.5 + 0.5 + 0.25) s; x (1.5 + 1 + 0.25) s / 10
        let slow = PlanInput { latency: Duration::from_millis(250), ..input(100, 0.8, 10_000) };
        let of = |plan: &Plan| (plan.calls_in_flight, plan.messages_held, plan.environments);
        assert_eq!(of(&plan(&slow)), (20.0, 180.0, 22));
        // a small burst is all there is
        assert_eq!(of(&plan(&PlanInput { burst: 5, ..slow.clone() })), (5.0, 5.0, 1));
        // 95/s: 95 come in a window of 1 s; 95 x (2.5 + 1 + 0.05) / 95 = 3.55
        let lead = Duration::from_millis(2500);
        let large = PlanInput { batch_size: 100, batch_window: SECOND, ..input(100, 0.95, 10_000) };
        let large = plan(&PlanInput { policy: Policy { lead, ..large.policy.clone() }, ..large });
        assert_eq!((large.messages_per_batch, large.environments), (95, 4));
        // two hops each: 240 copies/s in 24 batches/s, each with a send in it: 24 x 2.75
        assert_eq!(plan(&PlanInput { burst: 200_000, ..slow.clone() }).environments, 66);
        // 14 hops: 1,200 copies/s in 120 batches/s, 80 of them with a send: 80 x 2.75
        assert_eq!(plan(&PlanInput { burst: 1_000_000, ..slow }).environments, 220);
        // one every two seconds: each alone in its batch
        let rare = plan(&PlanInput::new(Policy { per: SECOND * 2, ..policy(2, 0.5) }, 100));
        assert_eq!((rare.messages_per_batch, rare.environments), (1, 2));
    }

    #[test]
    fn requests_are_counted_as_sqs_bills_them() {
        let requests = |input: PlanInput| {
            let plan = plan(&input);
            let r = plan.requests;
            ([r.send, r.hop, r.receive, r.delete], plan.cost(&input).per_million(input.burst).sqs)
        };
        // 0.3 a send: $0.12 per million at $0.40
        let (ten, dollars) = requests(input(100, 0.8, 10_000));
        assert_eq!(ten, [1000, 0, 1000, 1000]);
        assert!(near(dollars, 0.12));
        // the last call holds five
        assert_eq!(requests(input(100, 0.8, 10_005)).0, [1001, 0, 1001, 1001]);
        // batches of one: 0.1 + 1 + 1
        let (one, dollars) = requests(PlanInput { batch_size: 1, ..input(100, 0.8, 10_000) });
        assert_eq!(one, [1000, 0, 10_000, 10_000]);
        assert!(near(dollars, 0.84));
        // each of 184,519 hops is sent alone, received and deleted: (200,000 + 184,519) / 10, rounded up
        assert_eq!(requests(input(100, 0.8, 200_000)).0, [20_000, 184_519, 38_452, 38_452]);
        // 20,000 bytes and an envelope: ten are above 196,608 and below 262,144 bytes, so 4 x 64 KB
        let large = PlanInput { payload_bytes: 20_000, ..input(100, 0.8, 100) };
        assert_eq!(requests(large).0, [40, 0, 40, 10]);
        // 600,000 bytes: one a SendMessageBatch (1 MiB), 10 x 64 KB; nine in 6 MB, so 11 calls of 83 and one of 10
        let huge = PlanInput { payload_bytes: 600_000, ..input(100, 0.8, 100) };
        assert_eq!(requests(huge).0, [1000, 0, 11 * 83 + 10, 12]);
    }

    #[test]
    fn the_policy_says_how_late_and_how_large_a_send_may_be() {
        // 50 ms at most; (100 - 80 x 1.05) / 2 + 1 = 9, and a little less
        let plan = plan(&input(100, 0.8, 1));
        assert_eq!(
            (plan.jitter.as_micros().div_ceil(1000), plan.largest_cost_beside_others, plan.max_cost),
            (50, 8, 100)
        );
    }

    #[test]
    fn sends_behind_the_horizon_are_counted() {
        // 24 h x 80/s, less the transit's 20 and with the one at its end: 6,911,981 fit
        assert_eq!(plan(&input(100, 0.8, 7_000_000)).past_horizon, 7_000_000 - 6_911_981);
        assert_eq!(plan(&input(100, 0.8, 6_911_981)).past_horizon, 0);
    }

    #[test]
    fn what_cannot_work_is_refused_with_what_would() {
        let says = |input: PlanInput| Plan::new(&input).unwrap_err().to_string();
        let good = || input(100, 0.8, 100);
        for (bad, words) in [
            (input(0, 0.8, 1), "at least 1 unit"),
            (
                PlanInput {
                    policy: Policy { jitter: Some(Duration::from_millis(11)), ..policy(100, 0.99) },
                    ..input(100, 0.99, 1)
                },
                "a headroom of 0.9891 at most",
            ),
            (PlanInput { burst: 0, ..good() }, "burst of 0"),
            (PlanInput { cost: 0, ..good() }, "cost 0"),
            (PlanInput { cost: 101, ..good() }, "above 100 units"),
            // 14 days x 80/s, less the transit's 20 and with the one at the end
            (PlanInput { burst: 1 << 60, ..good() }, "96767981 fit"),
            (PlanInput { burst: u64::MAX, cost: 100, ..good() }, "14 days"),
            (PlanInput { batch_size: 0, ..good() }, "1 to 10,000"),
            (PlanInput { batch_size: 11, ..good() }, "at least 1 s"),
            (PlanInput { batch_window: SECOND * 301, ..good() }, "0 to 300 s"),
            (PlanInput { payload_bytes: 1 << 20, ..good() }, "1048576 is the most"),
            (PlanInput { payload_bytes: usize::MAX, ..good() }, "1048576 is the most"),
            (PlanInput { prices: Prices { redis_hour: -0.1, ..Prices::US_EAST_1 }, ..good() }, "0 or more"),
            (PlanInput { memory_mb: 127, ..good() }, "128 to 10,240"),
        ] {
            let said = says(bad);
            assert!(said.contains(words), "{words:?} in {said:?}");
        }
    }
}
