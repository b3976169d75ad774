//! SQS, the event-source mapping and Lambda as far as their documentation tells, on the clock that the scripts read.
//!
//! - All sends are booked at one moment, and put on SQS 20,000 a second, ten a call; a timer ends up to `timer` late.
//! - At most five batches are gathered at once; a message goes to one after the other of them. Without a window a batch is what is
//!   there when its poll answers, up to ten.
//! - Each batch takes one of the concurrent invocations, of which there are five at first, and 300 more for each minute in which
//!   messages waited for one ([`RampState`]); provisioned mode has all of them at once.
//! - A new environment takes `cold_start`, a warm one 5 ms. All messages of its batch ask at once, and again at their slots, up to
//!   2 ms late. The invocation ends with its last call.
//!
//! What happens within one millisecond happens at its end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anyhow::{Result, bail};
use futures_util::future::join_all;
use sendslot_localstack::event_source::{Ramp, RampState};
use sendslot_shared::budget;
use sendslot_shared::claim::Verdict;
use sendslot_shared::envelope::{Envelope, fresh_tag};
use sendslot_shared::id::BudgetName;
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::Policy;
use sendslot_shared::reserve::{self, MAX_BATCH};
use sendslot_shared::time::Timer;
use sendslot_tests::{Bench, SECOND, START, most_in_window};

const MS: u64 = 1_000;
const ENQUEUED_PER_S: u64 = 20_000;
const GATHERING: usize = 5;
const WARM_START: u64 = 5 * MS;
const LONGEST: u64 = 3_600 * SECOND;
const GROWTH: u64 = 200 * MS;
/// Questions that are on their way to Redis at once.
const IN_FLIGHT: usize = 256;

/// What concurrency there is at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Ramp,
    Provisioned,
}

/// A campaign, and what it runs on.
pub(crate) struct Model {
    pub(crate) budgets: usize,
    pub(crate) policy: Policy,
    /// Of each budget.
    pub(crate) sends: usize,
    pub(crate) batch_size: usize,
    pub(crate) window: Duration,
    pub(crate) start: Start,
    /// The most invocations at once.
    pub(crate) concurrency: usize,
    pub(crate) timer: Duration,
    pub(crate) cold_start: Duration,
    pub(crate) latency: Duration,
    pub(crate) seed: u64,
}

/// What became of it.
pub(crate) struct Figures {
    pub(crate) sends: usize,
    pub(crate) environments: usize,
    pub(crate) messages_a_batch: f64,
    /// New slots at claims.
    pub(crate) rebooked: usize,
    /// From the first slot to the last of them.
    pub(crate) rebooked_until: Duration,
    /// From the last slot that was booked at first to the last call.
    pub(crate) late: Duration,
    /// The most units of one budget in any rolling second.
    pub(crate) most: u32,
    /// Redis' CPU time, by send: bookings and claims, without reports; a clock is set for each millisecond too.
    pub(crate) redis_us: f64,
}

struct Copy {
    envelope: Envelope,
    budget: usize,
    slot: u64,
    sent: Option<u64>,
}

enum Event {
    /// A timer ends.
    Visible(usize),
    /// A batch's window ends.
    Close(usize),
    /// An invocation begins.
    Begin(Vec<usize>),
    /// A send of an invocation asks.
    Ask(usize, usize),
    /// A send of an invocation is over.
    Over(usize),
    /// Lambda looks whether it shall grow.
    Grow,
}

struct Run {
    model: Model,
    bench: Bench,
    random: fastrand::Rng,
    clock: u64,
    events: BTreeMap<(u64, u64), Event>,
    order: u64,
    copies: Vec<Copy>,
    left: usize,
    visible: VecDeque<usize>,
    /// By number.
    gathering: BTreeMap<usize, Vec<usize>>,
    batches: usize,
    batched: usize,
    next: usize,
    /// How many sends of each invocation are not over.
    invocations: Vec<usize>,
    running: usize,
    ramp: RampState,
    idle: usize,
    environments: usize,
    rebooked: usize,
    rebooked_last: u64,
}

impl Model {
    /// Until all has been sent.
    pub(crate) async fn run(self) -> Result<Figures> {
        let bench = Bench::start().await;
        let ramp = match self.start {
            Start::Ramp => Ramp::AWS,
            Start::Provisioned => Ramp { initial: self.concurrency, per_minute: 0 },
        };
        let mut run = Run {
            random: fastrand::Rng::with_seed(self.seed),
            ramp: RampState::new(ramp, self.concurrency),
            bench,
            clock: START,
            events: BTreeMap::new(),
            order: 0,
            copies: vec![],
            left: self.budgets * self.sends,
            visible: VecDeque::new(),
            gathering: BTreeMap::new(),
            batches: 0,
            batched: 0,
            next: 0,
            invocations: vec![],
            running: 0,
            idle: 0,
            environments: 0,
            rebooked: 0,
            rebooked_last: START,
            model: self,
        };
        let cpu = run.cpu().await;
        run.book().await?;
        let first = run.copies.iter().map(|copy| copy.slot).min().unwrap_or(START);
        let last = run.copies.iter().map(|copy| copy.slot).max().unwrap_or(START);
        run.at(START + GROWTH, Event::Grow);
        while run.left > 0 {
            run.step().await?;
        }
        let cpu = run.cpu().await - cpu;
        Ok(run.figures(first, last, cpu))
    }
}

impl Run {
    /// Seconds of Redis' CPU so far.
    async fn cpu(&self) -> f64 {
        let info: String = self.bench.command(redis::cmd("INFO").arg("cpu")).await;
        let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.parse::<f64>().ok());
        of("used_cpu_user:").unwrap_or(0.0) + of("used_cpu_sys:").unwrap_or(0.0)
    }

    async fn book(&mut self) -> Result<()> {
        for budget in 0..self.model.budgets {
            let name = BudgetName::new(format!("b{budget}"))?;
            budget::set(&self.bench.store, &name, &self.model.policy).await?;
        }
        // budgets take turns, as several campaigns at once have it
        for from in (0..self.model.sends).step_by(MAX_BATCH) {
            for budget in 0..self.model.budgets {
                let ids = from..self.model.sends.min(from + MAX_BATCH);
                let drafts: Vec<Draft> = ids
                    .map(|i| Message::new(format!("b{budget}"), format!("{i}"), "payload").check())
                    .collect::<Result<_, _>>()?;
                let refs: Vec<&Draft> = drafts.iter().collect();
                let name = &drafts[0].budget;
                let bookings = reserve::reserve(&self.bench.store, name, &refs).await?;
                for (draft, booking) in drafts.into_iter().zip(bookings) {
                    let booking = booking?;
                    let envelope = Envelope::first(draft, booking.seq, booking.at);
                    self.copies.push(Copy { envelope, budget, slot: booking.at.as_micros(), sent: None });
                }
            }
        }
        // in the order of their slots, whatever budget they are of
        let mut order: Vec<usize> = (0..self.copies.len()).collect();
        order.sort_by_key(|copy| self.copies[*copy].slot);
        for (i, copy) in order.into_iter().enumerate() {
            self.travel(copy, START + i as u64 / 10 * 10 * SECOND / ENQUEUED_PER_S);
        }
        Ok(())
    }

    fn at(&mut self, instant: u64, event: Event) {
        self.order += 1;
        self.events.insert((instant.next_multiple_of(MS), self.order), event);
    }

    /// Is put on SQS at this instant.
    fn travel(&mut self, copy: usize, from: u64) {
        let wait = self.copies[copy].slot.saturating_sub(from);
        let delay = Timer::SQS.delay(Duration::from_micros(wait), self.model.policy.lead).get() as u64;
        let late = self.random.u64(0..=self.model.timer.as_micros() as u64);
        self.at(from + delay * SECOND + late, Event::Visible(copy));
    }

    /// All that happens within the next millisecond in which something does.
    async fn step(&mut self) -> Result<()> {
        let Some((&(clock, _), _)) = self.events.first_key_value() else { bail!("{} sends are lost", self.left) };
        // Lambda looks for ever
        if clock > START + LONGEST {
            bail!("{} sends are lost, or wait for longer than an hour", self.left);
        }
        self.clock = clock;
        let mut asks = vec![];
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 == clock
        {
            match entry.remove() {
                Event::Visible(copy) => self.visible.push_back(copy),
                Event::Close(batch) => self.close(batch),
                Event::Begin(batch) => {
                    self.invocations.push(batch.len());
                    asks.extend(batch.into_iter().map(|copy| (copy, self.invocations.len() - 1)));
                }
                Event::Ask(copy, invocation) => asks.push((copy, invocation)),
                Event::Over(invocation) => {
                    self.invocations[invocation] -= 1;
                    if self.invocations[invocation] == 0 {
                        self.running -= 1;
                        self.idle += 1;
                    }
                }
                Event::Grow => self.grow(),
            }
        }
        self.gather();
        if !asks.is_empty() {
            self.bench.set_clock(clock).await;
        }
        for asks in asks.chunks(IN_FLIGHT) {
            let verdicts = asks.iter().map(|(copy, _)| self.bench.verdict(&self.copies[*copy].envelope, 1));
            let verdicts = join_all(verdicts).await;
            for ((copy, invocation), verdict) in asks.iter().zip(verdicts) {
                self.told(*copy, *invocation, verdict)?;
            }
        }
        Ok(())
    }

    fn in_use(&self) -> usize {
        self.running + self.gathering.len()
    }

    fn grow(&mut self) {
        let wanted = if self.visible.is_empty() { 0 } else { self.in_use() };
        self.ramp.advance(Duration::from_micros(GROWTH), wanted);
        self.at(self.clock + GROWTH, Event::Grow);
    }

    /// Messages go to batches as long as there are any.
    fn gather(&mut self) {
        while !self.visible.is_empty() {
            if self.gathering.len() < GATHERING && self.in_use() < self.ramp.allowed() {
                self.batches += 1;
                self.gathering.insert(self.batches, vec![]);
                let window = self.model.window.as_micros() as u64;
                if window > 0 {
                    self.at(self.clock + window, Event::Close(self.batches));
                }
            }
            let behind = self.gathering.range(self.next..).next().or_else(|| self.gathering.first_key_value());
            let Some((&batch, _)) = behind else { return };
            self.next = batch + 1;
            let size = self.model.batch_size;
            let takes = if self.model.window.is_zero() { size } else { 1 };
            let Some(copies) = self.gathering.get_mut(&batch) else { return };
            copies.extend(self.visible.drain(..takes.min(self.visible.len())));
            if copies.len() >= size || self.model.window.is_zero() {
                self.close(batch);
            }
        }
    }

    /// A batch begins, if it has not begun before.
    fn close(&mut self, batch: usize) {
        let Some(copies) = self.gathering.remove(&batch) else { return };
        let start = if self.idle > 0 {
            self.idle -= 1;
            WARM_START
        } else {
            self.environments += 1;
            self.model.cold_start.as_micros() as u64
        };
        self.running += 1;
        self.batched += copies.len();
        self.at(self.clock + start, Event::Begin(copies));
    }

    fn told(&mut self, copy: usize, invocation: usize, verdict: Verdict) -> Result<()> {
        let clock = self.clock;
        match verdict {
            Verdict::Send { .. } => {
                self.copies[copy].sent = Some(clock);
                self.left -= 1;
                self.at(clock + self.model.latency.as_micros() as u64, Event::Over(invocation));
            }
            Verdict::Wait { wait, moved } => {
                if moved.is_some() {
                    self.rebooked(copy, clock + wait.as_micros() as u64);
                }
                let late = self.random.u64(0..2 * MS);
                self.at(clock + wait.as_micros() as u64 + late, Event::Ask(copy, invocation));
            }
            Verdict::PutBack { slot, .. } => {
                if slot.at.as_micros() != self.copies[copy].slot {
                    self.rebooked(copy, slot.at.as_micros());
                }
                let envelope = &mut self.copies[copy].envelope;
                (envelope.seq, envelope.tag, envelope.at) = (slot.seq, fresh_tag(), Some(slot.at));
                self.travel(copy, clock);
                self.at(clock + 10 * MS, Event::Over(invocation));
            }
            other => bail!("{other:?} at {clock}"),
        }
        Ok(())
    }

    fn rebooked(&mut self, copy: usize, slot: u64) {
        self.copies[copy].slot = slot;
        self.rebooked += 1;
        self.rebooked_last = self.clock;
    }

    fn figures(&self, first: u64, last: u64, cpu: f64) -> Figures {
        let ended = self.copies.iter().filter_map(|copy| copy.sent).max().unwrap_or(last);
        let most = (0..self.model.budgets).map(|budget| {
            let sent = self.copies.iter().filter(|copy| copy.budget == budget).filter_map(|copy| Some((copy.sent?, 1)));
            most_in_window(sent.collect(), SECOND)
        });
        Figures {
            sends: self.copies.len(),
            environments: self.environments,
            messages_a_batch: self.batched as f64 / self.batches.max(1) as f64,
            rebooked: self.rebooked,
            rebooked_until: Duration::from_micros(self.rebooked_last.saturating_sub(first)),
            late: Duration::from_micros(ended.saturating_sub(last)),
            most: most.max().unwrap_or(0),
            redis_us: cpu * 1e6 / self.copies.len() as f64,
        }
    }
}
