//! Sends that are booked, asked for and sent under a virtual clock, on a real Redis.
//!
//! A copy shows up 0 to 1 s more than `lead` before its slot and asks, as SQS and the worker have it; then it asks again at
//! its slot, punctual or 16 ms late. A send is over when it may be sent.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use anyhow::{Result, bail};
use sendslot_localstack::RedisServer;
use sendslot_shared::cancel::{Cancelled, cancel};
use sendslot_shared::claim::{PutBack, Verdict};
use sendslot_shared::envelope::{Envelope, fresh_tag};
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::Policy;
use sendslot_shared::reserve::Booking;
use sendslot_shared::time::Timer;
use sendslot_tests::{Bench, SECOND, START, most_in_window};

/// How late the late ones are, us.
const LATE: u64 = 16_000;

/// One send.
pub(crate) struct Sent {
    envelope: Envelope,
    pub(crate) lane: &'static str,
    /// When it was offered, us since 1970, as all instants here.
    pub(crate) offered: u64,
    /// The slot it was given first.
    pub(crate) first_slot: u64,
    /// The slot it has now.
    slot: u64,
    pub(crate) sent: Option<u64>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Offer(&'static str, u32),
    Ask(usize),
}

/// The budget, its sends, and what is going to happen.
pub(crate) struct Simulation {
    pub(crate) bench: Bench,
    lead: Duration,
    random: fastrand::Rng,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    clock: u64,
    /// Drafts made, for their IDs.
    drafted: usize,
    pub(crate) sends: Vec<Sent>,
    /// New slots at a claim: without a trip through SQS, and with one.
    pub(crate) moved: u64,
    pub(crate) put_back: u64,
    /// Copies that a timer could not hold.
    pub(crate) hops: u64,
    /// Copies that show up behind this are left alone.
    pub(crate) until: u64,
}

impl Simulation {
    /// An empty budget with this policy. The same seed gives the same run.
    pub(crate) async fn new(server: RedisServer, policy: &Policy) -> Result<Self> {
        let bench = Bench::on(server).await;
        let mut simulation = Self {
            bench,
            lead: Duration::ZERO,
            random: fastrand::Rng::new(),
            events: BinaryHeap::new(),
            order: 0,
            clock: START,
            drafted: 0,
            sends: vec![],
            moved: 0,
            put_back: 0,
            hops: 0,
            until: u64::MAX,
        };
        simulation.reset(policy, 1).await?;
        Ok(simulation)
    }

    /// Forgets everything.
    pub(crate) async fn reset(&mut self, policy: &Policy, seed: u64) -> Result<()> {
        let () = self.bench.command(redis::cmd("FLUSHALL").arg("SYNC")).await;
        self.clock = START;
        self.bench.set_clock(START).await;
        self.bench.policy(policy).await;
        self.lead = policy.lead;
        self.random = fastrand::Rng::with_seed(seed);
        (self.events, self.sends, self.until) = (BinaryHeap::new(), vec![], u64::MAX);
        (self.order, self.moved, self.put_back, self.hops) = (0, 0, 0, 0);
        Ok(())
    }

    fn at(&mut self, instant: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((instant, self.order, event)));
    }

    /// Offers one send at this instant.
    pub(crate) fn offer(&mut self, instant: u64, lane: &'static str, cost: u32) {
        self.at(instant, Event::Offer(lane, cost));
    }

    /// Offers sends at `per_s` from `from` for `seconds`: evenly, or as a Poisson process.
    pub(crate) fn offer_at_rate(&mut self, lane: &'static str, per_s: f64, poisson: bool, from: u64, seconds: u64) {
        let (step, mut at) = (SECOND as f64 / per_s, from as f64);
        while at < (from + seconds * SECOND) as f64 {
            self.offer(at as u64, lane, 1);
            at += if poisson { -step * (1.0 - self.random.f64()).ln() } else { step };
        }
    }

    /// Books `count` sends now, by 500.
    pub(crate) async fn book(&mut self, lane: &'static str, count: usize, cost: impl Fn(usize) -> u32) -> Result<()> {
        let drafts: Vec<Draft> = (0..count).map(|i| draft(self.drafted + i, lane, cost(i))).collect::<Result<_>>()?;
        self.drafted += count;
        for chunk in drafts.chunks(500) {
            let bookings = self.bench.reserve_all(chunk).await;
            for (draft, booking) in chunk.iter().zip(bookings) {
                self.booked(draft.clone(), lane, booking?);
            }
        }
        Ok(())
    }

    fn booked(&mut self, draft: Draft, lane: &'static str, booking: Booking) {
        let slot = booking.at.as_micros();
        let envelope = Envelope::first(draft, booking.seq, booking.at);
        self.sends.push(Sent { envelope, lane, offered: self.clock, first_slot: slot, slot, sent: None });
        self.travel(self.sends.len() - 1, slot - self.clock);
    }

    /// On SQS until shortly before the slot.
    fn travel(&mut self, send: usize, wait: u64) {
        let delay = Timer::SQS.delay(Duration::from_micros(wait), self.lead).get() as u64;
        if self.clock + delay * SECOND < self.until {
            self.at(self.clock + delay * SECOND, Event::Ask(send));
        }
    }

    /// Everything that happens up to `until`.
    pub(crate) async fn run(&mut self) -> Result<()> {
        while let Some(Reverse((instant, _, event))) = self.events.pop() {
            if instant >= self.until {
                break;
            }
            if instant > self.clock {
                self.clock = instant;
                self.bench.set_clock(instant).await;
            }
            match event {
                Event::Offer(lane, cost) => self.book(lane, 1, |_| cost).await?,
                Event::Ask(send) => self.ask(send).await?,
            }
        }
        Ok(())
    }

    /// Forgets what was going to happen: the copies of all sends show up anew.
    pub(crate) fn restart(&mut self) {
        self.events.clear();
        for send in 0..self.sends.len() {
            self.travel(send, self.sends[send].slot - self.clock);
        }
    }

    async fn ask(&mut self, send: usize) -> Result<()> {
        match self.bench.verdict(&self.sends[send].envelope, 1).await {
            Verdict::Send { .. } => self.sends[send].sent = Some(self.clock),
            Verdict::Wait { wait, moved } => {
                let slot = self.clock + wait.as_micros() as u64;
                if moved.is_some() {
                    self.moved += 1;
                    self.sends[send].slot = slot;
                }
                let late = if self.random.bool() { LATE } else { 0 };
                self.at(slot.max(self.sends[send].slot + late), Event::Ask(send));
            }
            Verdict::PutBack { slot, why } => {
                if why == PutBack::Hop {
                    self.hops += 1
                } else {
                    self.put_back += 1
                }
                let copy = &mut self.sends[send];
                copy.slot = slot.at.as_micros();
                (copy.envelope.seq, copy.envelope.tag, copy.envelope.at) = (slot.seq, fresh_tag(), Some(slot.at));
                self.travel(send, slot.wait.as_micros() as u64);
            }
            other => bail!("{other:?} at {}", self.clock),
        }
        Ok(())
    }

    /// Cancels a send; its slot must be ahead.
    pub(crate) async fn cancel(&self, send: &Sent) -> Result<()> {
        match cancel(&self.bench.store, &self.bench.budget, &send.envelope.draft.id).await? {
            Cancelled::Cancelled => Ok(()),
            other => bail!("{other:?}"),
        }
    }

    pub(crate) fn of_lane(&self, lane: &'static str) -> impl Iterator<Item = &Sent> {
        self.sends.iter().filter(move |send| send.lane == lane)
    }

    /// Sent in slots of [from, to), per second, of a lane; both are whole seconds.
    pub(crate) fn rate_of(&self, lane: &'static str, from: u64, to: u64) -> f64 {
        let sent = self.of_lane(lane).filter(|send| send.sent.is_some() && (from..to).contains(&send.slot));
        sent.count() as f64 / ((to - from) as f64 / SECOND as f64)
    }

    /// The most units in any rolling second.
    pub(crate) fn most_in_a_second(&self) -> u32 {
        let sent = self.sends.iter().filter_map(|send| Some((send.sent?, send.envelope.draft.cost)));
        let sent: Vec<_> = sent.collect();
        if sent.is_empty() { 0 } else { most_in_window(sent, SECOND) }
    }

    /// Sends that left in a slot that another one left in.
    pub(crate) fn doubled(&self) -> usize {
        let mut slots = HashMap::new();
        for send in self.sends.iter().filter(|send| send.sent.is_some()) {
            *slots.entry(send.slot).or_insert(0_usize) += 1;
        }
        slots.values().map(|n| n - 1).sum()
    }
}

fn draft(number: usize, lane: &'static str, cost: u32) -> Result<Draft> {
    Ok(Message::new("b", format!("{lane}-{number}"), "payload").lane(lane).cost(cost).check()?)
}
