//! The event loop of one budget: time goes from event to event, and all events of one instant ask Redis together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use redis::aio::MultiplexedConnection;
use sendslot_localstack::RedisServer;
use sendslot_shared::budget;
use sendslot_shared::cancel::{Cancelled, cancel};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::{BudgetName, SendId};
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::Policy;
use sendslot_shared::reserve::{self, Booking, Refusal};
use sendslot_shared::status::{SendState, status_all};
use sendslot_shared::store::Store;
use sendslot_shared::time::Timer;

use super::Day;
use super::ledger::{Ledger, Send};
use super::profile::{Profile, Weighted};
use super::record::Held;
use super::tally::Report;
use super::worker::{Ended, Question};
use crate::{SECOND, START};

/// A copy of a send on the queue.
#[derive(Debug, Clone)]
pub(super) struct Travelling {
    /// Which send.
    pub(super) send: usize,
    /// The copy.
    pub(super) envelope: Envelope,
}

/// What happens at an instant.
#[derive(Debug)]
pub(super) enum Event {
    /// So many sends are offered in one batch; of a campaign: all of its lane.
    Offer(usize, bool),
    /// A caller whose booking was not enqueued asks again.
    Again(usize, Box<Draft>),
    /// Somebody cancels a send.
    Cancel(usize),
    /// The limit changes to this part of what it was first.
    Limit(f64),
    /// The budget rests.
    Pause(Duration),
    /// A copy shows up, or a delivery asks again.
    Ask(Box<Question>),
    /// A delivery reports how its call ended.
    Settle(Box<Ended>),
}

pub(super) struct World {
    pub(super) profile: Profile,
    pub(super) policy: Policy,
    pub(super) budget: BudgetName,
    pub(super) store: Store,
    pub(super) redis: MultiplexedConnection,
    pub(super) ledger: Ledger,
    pub(super) rng: fastrand::Rng,
    /// us since 1970
    pub(super) now: u64,
    seed: u64,
    server: RedisServer,
    queue: BTreeMap<(u64, u64), Event>,
    serial: u64,
    began: Instant,
}

const DAY_S: u64 = 86_400;
/// A day of so many sends lasts 24 hours; one of fewer is shorter, as busy as the whole.
const WHOLE: usize = 1_000_000;
const SHORTEST_S: u64 = 600;
/// Nothing happens later than this after the last offer.
const END_S: u64 = 14 * DAY_S;
const MOST_AT_ONCE: usize = 200;
/// A part of less capacity than this says nothing.
const ENOUGH_UNITS: u64 = 20_000;

impl World {
    pub(super) async fn start(profile: Profile, day: &Day, seed: u64) -> Result<Self> {
        let server = RedisServer::start().await?;
        let store = Store::with_virtual_clock(&server.url())?;
        // a machine that is busy with something else is slow, not broken
        let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(server.url())?;
        let redis = client.get_multiplexed_async_connection_with_config(&patient).await?;
        let policy = profile.policy.clone();
        let mut world = Self {
            budget: BudgetName::new(profile.name)?,
            ledger: Ledger::new(&policy),
            rng: fastrand::Rng::with_seed(seed),
            policy,
            profile,
            store,
            redis,
            now: START,
            seed: day.seed,
            server,
            queue: BTreeMap::new(),
            serial: 0,
            began: Instant::now(),
        };
        world.set_clock().await?;
        budget::set(&world.store, &world.budget, &world.policy).await?;
        world.plan(day);
        Ok(world)
    }

    /// All offers and changes of the day.
    fn plan(&mut self, day: &Day) {
        let rate = self.policy.scheduled_rate();
        let length_s = (DAY_S * day.sends as u64 / WHOLE as u64).max(SHORTEST_S).max((300.0 / rate) as u64).min(DAY_S);
        let sends = ((day.sends as f64 * self.profile.part) as usize).max(30);
        let sends = sends.min((0.8 * rate * length_s as f64) as usize);
        let steady = sends * 35 / 100;
        let mut left = steady;
        while left > 0 {
            let n = self.rng.usize(1..=8).min(left);
            left -= n;
            let at = START + self.rng.u64(0..length_s * SECOND);
            self.put(at, Event::Offer(n, false));
        }
        let mut left = sends - steady;
        while left > 0 {
            let size = ((rate * (15.0 + self.rng.f64() * 150.0)) as usize).clamp(1, left);
            left -= size;
            let at = START + self.rng.u64(0..length_s * SECOND);
            self.campaign(at, size);
        }
        self.plan_changes(length_s);
    }

    fn campaign(&mut self, mut at: u64, mut left: usize) {
        let batch = self.rng.usize(1..=100);
        while left > 0 {
            let n = batch.min(left);
            left -= n;
            self.put(at, Event::Offer(n, true));
            at += self.rng.u64(1000..200_000);
        }
    }

    fn plan_changes(&mut self, length_s: u64) {
        let every = self.profile.change_every_s;
        let changes = length_s.checked_div(every).map_or(0, |n| n.max(1));
        for i in 0..changes {
            let at = START + self.rng.u64(0..length_s * SECOND);
            if i % 3 == 2 {
                let rest = Duration::from_millis(self.rng.u64(1..40_000));
                self.put(at, Event::Pause(rest));
                continue;
            }
            let part = [0.5, 0.7, 0.9, 1.2, 1.5][self.rng.usize(0..5)];
            self.put(at, Event::Limit(part));
            let back = at + self.rng.u64(SECOND..600 * SECOND);
            self.put(back, Event::Limit(1.0));
        }
    }

    pub(super) fn put(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.queue.insert((at.max(self.now), self.serial), event);
    }

    pub(super) fn chance(&mut self, part: f64) -> bool {
        self.rng.f64() < part
    }

    fn pick<T: Copy>(&mut self, from: Weighted<T>) -> T {
        let mut n = self.rng.u32(0..from.iter().map(|(_, weight)| weight).sum());
        let fallback = from[0].0;
        from.iter().find(|(_, weight)| n.checked_sub(*weight).map(|left| n = left).is_none()).map_or(fallback, |f| f.0)
    }

    pub(super) async fn run(&mut self) -> Result<()> {
        while let Some(((at, serial), event)) = self.queue.pop_first() {
            anyhow::ensure!(
                at < START + (DAY_S + END_S) * SECOND,
                "{} events are left after 14 days",
                self.queue.len()
            );
            self.now = at;
            if matches!(event, Event::Ask(_) | Event::Settle(_)) {
                self.queue.insert((at, serial), event);
                self.deliveries().await?;
                continue;
            }
            self.set_clock().await?;
            match event {
                Event::Offer(n, campaign) => self.offer(n, campaign).await?,
                Event::Again(send, draft) => self.offer_again(send, *draft).await?,
                Event::Cancel(send) => self.cancel(send).await?,
                Event::Limit(part) => self.change_limit(part).await?,
                Event::Pause(rest) => self.pause(rest).await?,
                Event::Ask(_) | Event::Settle(_) => {}
            }
        }
        Ok(())
    }

    /// Everything that deliveries ask and report at this instant, in three pipelines.
    async fn deliveries(&mut self) -> Result<()> {
        let (mut questions, mut ends, mut sends) = (vec![], vec![], vec![]);
        while let Some(entry) = self.queue.first_entry() {
            let send = match entry.get() {
                Event::Ask(question) => question.copy.send,
                Event::Settle(ended) => ended.copy.send,
                _ => break,
            };
            // one send, one call in a pipeline: what the first one answers is known before the next one
            if entry.key().0 > self.now || sends.len() == MOST_AT_ONCE || sends.contains(&send) {
                break;
            }
            sends.push(send);
            match entry.remove() {
                Event::Ask(question) => questions.push(*question),
                Event::Settle(ended) => ends.push(*ended),
                _ => {}
            }
        }
        let asking: Vec<usize> = questions.iter().map(|question| question.copy.send).collect();
        let held = self.held_now(&asking).await?;
        self.settle_all(ends).await?;
        self.ask_all(questions, held).await
    }

    async fn set_clock(&mut self) -> Result<()> {
        redis::cmd("SET").arg(sendslot_lua::VIRTUAL_CLOCK_KEY).arg(self.now).exec_async(&mut self.redis).await?;
        Ok(())
    }

    pub(super) fn id(&self, send: usize) -> String {
        format!("{}-{send}", self.profile.name)
    }

    pub(super) fn record_key(&self, send: usize) -> String {
        format!("s{{{}}}r:{}", self.budget, self.id(send))
    }

    /// Sets the clock, and reads what these sends hold in the calendar.
    async fn held_now(&mut self, sends: &[usize]) -> Result<Vec<Option<Held>>> {
        let mut pipe = redis::pipe();
        pipe.set(sendslot_lua::VIRTUAL_CLOCK_KEY, self.now).ignore();
        for send in sends {
            pipe.get(self.record_key(*send));
        }
        let records: Vec<Option<Vec<u8>>> = pipe.query_async(&mut self.redis).await?;
        Ok(records.into_iter().map(|record| Held::read(&record?)).collect())
    }

    pub(super) fn system_time(&self, ahead_us: u64) -> std::time::SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.now + ahead_us)
    }

    /// A new send; `change` makes it special.
    pub(super) fn draft(&mut self, campaign: bool, change: impl FnOnce(Message) -> Message) -> Result<(usize, Draft)> {
        let send = self.ledger.sends.len();
        let lane = if campaign { self.profile.bulk } else { self.pick(self.profile.lanes) };
        let cost = self.pick(self.profile.costs).min(self.policy.largest_cost());
        let mut message = Message::new(self.profile.name, self.id(send), "text").lane(lane).cost(cost);
        if self.profile.recipients > 0 {
            let most = if self.chance(0.05) { 20 } else { self.profile.recipients };
            message = message.recipient(self.rng.usize(0..most).to_string());
        }
        let not_before =
            if self.chance(if campaign { 0.005 } else { 0.08 }) { self.rng.u64(0..10_800 * SECOND) } else { 0 };
        if not_before > 0 {
            message = message.not_before(self.system_time(not_before));
        }
        if self.chance(0.05) {
            let most = if self.chance(0.5) { 20 } else { 3600 };
            let ahead = not_before + self.rng.u64(SECOND / 2..most * SECOND);
            message = message.deadline(self.system_time(ahead));
        }
        let draft = change(message).check().context("a good message")?;
        let recipient = draft.recipient.map(|recipient| recipient.0);
        let known = Send { lane: draft.lane.to_string(), cost: draft.cost, recipient, ..Send::default() };
        self.ledger.sends.push(known);
        Ok((send, draft))
    }

    pub(super) async fn reserve(&self, drafts: &[(usize, Draft)]) -> Result<Vec<Result<Booking, Refusal>>> {
        let drafts: Vec<&Draft> = drafts.iter().map(|(_, draft)| draft).collect();
        Ok(reserve::reserve(&self.store, &self.budget, &drafts).await?)
    }

    async fn offer(&mut self, n: usize, campaign: bool) -> Result<()> {
        let drafts = (0..n).map(|_| self.draft(campaign, |message| message)).collect::<Result<Vec<_>>>()?;
        let answers = self.reserve(&drafts).await?;
        if self.chance(0.05) {
            self.same_bookings(&drafts, &answers).await?;
        }
        self.take(drafts, answers);
        if self.chance(0.02) {
            self.refusal_without_a_trace().await?;
        }
        Ok(())
    }

    /// The caller puts on the queue what was booked.
    pub(super) fn take(&mut self, drafts: Vec<(usize, Draft)>, answers: Vec<Result<Booking, Refusal>>) {
        for ((send, draft), answer) in drafts.into_iter().zip(answers) {
            match answer {
                Ok(booking) => self.accept(send, draft, &booking),
                Err(refusal) => self.refused(&refusal),
            }
        }
    }

    pub(super) fn refused(&mut self, refusal: &Refusal) {
        let name = format!("{refusal:?}");
        self.ledger.tally.one("refusals", name.split([' ', '{']).next().unwrap_or_default());
    }

    fn accept(&mut self, send: usize, draft: Draft, booking: &Booking) {
        self.ledger.sends[send].accepted = true;
        self.ledger.booked(send, booking, draft.not_before.is_some(), self.now);
        if self.chance(0.03) {
            let wait = booking.at.as_micros().saturating_sub(self.now);
            let ahead = (self.rng.f64() * 1.1 * wait as f64) as u64;
            self.put(self.now + ahead, Event::Cancel(send));
        }
        if self.chance(0.005) {
            // SendMessage failed
            let later = self.now + self.rng.u64(SECOND / 10..5 * SECOND);
            self.put(later, Event::Again(send, Box::new(draft)));
            return;
        }
        self.enqueue_first(send, draft, booking);
    }

    fn enqueue_first(&mut self, send: usize, draft: Draft, booking: &Booking) {
        let envelope = Envelope::first(draft, booking.seq, booking.at);
        let wait = Duration::from_micros(booking.at.as_micros().saturating_sub(self.now));
        self.enqueue(Travelling { send, envelope }, wait, self.policy.lead);
    }

    async fn offer_again(&mut self, send: usize, draft: Draft) -> Result<()> {
        if self.ledger.sends[send].ended.is_some() {
            return Ok(());
        }
        let offered = [(send, draft)];
        let answer = self.reserve(&offered).await?.pop().context("an answer")?;
        let [(_, draft)] = offered;
        match answer {
            Ok(booking) => {
                if !booking.existing {
                    self.ledger.moved(send, "scheduled_again", self.now);
                }
                self.enqueue_first(send, draft, &booking);
            }
            Err(refusal) => {
                self.refused(&refusal);
                // its caller gives up
                self.cancel(send).await?;
            }
        }
        Ok(())
    }

    /// A copy shows up when its timer is over, a little late.
    pub(super) fn enqueue(&mut self, copy: Travelling, wait: Duration, lead: Duration) {
        let delay = u64::try_from(Timer::SQS.delay(wait, lead).get()).unwrap_or(0) * SECOND;
        let late = match self.rng.u32(0..100) {
            0 => self.rng.u64(0..5 * SECOND),
            // what has no timer takes less than `transit`
            _ if delay == 0 => self.rng.u64(10_000..180_000),
            _ => self.rng.u64(0..600_000),
        };
        // many come at one instant, as a batch of SQS does
        let tick = if delay == 0 { 20_000 } else { 100_000 };
        let at = (self.now + delay + late).div_ceil(tick) * tick;
        if self.chance(0.01) {
            let second = at + self.rng.u64(0..30) * tick;
            self.put(second, Event::Ask(Box::new(Question::first(copy.clone()))));
        }
        self.put(at, Event::Ask(Box::new(Question::first(copy))));
    }

    async fn cancel(&mut self, send: usize) -> Result<()> {
        let held = self.held_now(&[send]).await?.pop().flatten();
        let id = SendId::new(self.id(send))?;
        let answer = cancel(&self.store, &self.budget, &id).await?;
        self.ledger.tally.one("cancels", format!("{answer:?}").replace(['(', ')'], " "));
        let before = self.ledger.sends[send].ended;
        if answer == Cancelled::Cancelled && before.is_none() {
            self.ledger.ended(send, SendState::Cancelled, self.now);
            if let Some(held) = held {
                self.ledger.left(&held, "cancelled", self.now);
            }
        }
        Ok(())
    }

    async fn change_limit(&mut self, part: f64) -> Result<()> {
        let limit = (f64::from(self.profile.policy.limit) * part).round().max(1.0) as u32;
        if limit == self.policy.limit {
            return Ok(());
        }
        self.ledger.tally.one("changes", if limit > self.policy.limit { "limit raised" } else { "limit lowered" });
        self.policy.limit = limit;
        budget::set(&self.store, &self.budget, &self.policy).await?;
        self.ledger.changed(&self.policy, self.now);
        Ok(())
    }

    async fn pause(&mut self, rest: Duration) -> Result<()> {
        self.ledger.tally.one("changes", "paused");
        budget::pause(&self.store, &self.budget, Some(rest)).await?;
        self.ledger.unquiet(self.now, self.now + rest.as_micros() as u64 + 90 * SECOND);
        Ok(())
    }

    /// Reads what became of all sends, and reports.
    pub(super) async fn finish(mut self) -> Result<Report> {
        let mut states = vec![];
        let ids: Vec<SendId> =
            (0..self.ledger.sends.len()).map(|s| SendId::new(self.id(s))).collect::<Result<_, _>>()?;
        for chunk in ids.chunks(100) {
            let chunk: Vec<&SendId> = chunk.iter().collect();
            let answers = status_all(&self.store, &self.budget, &chunk).await?;
            states.extend(answers.into_iter().map(|status| status.map(|s| s.state)));
        }
        for (send, state) in states.iter().enumerate() {
            if !self.ledger.sends[send].accepted && state.is_some() {
                self.ledger.violation(self.now, &format!("(g) refusals leave no record: send {send} is {state:?}"));
            }
        }
        let figures = self.figures().await?;
        self.ledger.close(&states, self.now);
        let Self { ledger, profile, server, seed, .. } = self;
        server.stop().await;
        Ok(Report { budget: profile.name, seed, tally: ledger.tally, figures, violations: ledger.violations })
    }

    async fn figures(&mut self) -> Result<Vec<(&'static str, String)>> {
        let info: String = redis::cmd("INFO").arg("everything").query_async(&mut self.redis).await?;
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse::<f64>().ok()).unwrap_or(0.0)
        };
        let calls = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap_or_default();
        let mut calls = calls.split([',', '=']).map(|n| n.parse::<f64>().unwrap_or(0.0));
        let (calls, script_us) = (calls.next().unwrap_or(0.0), calls.nth(1).unwrap_or(0.0));
        let sends = self.ledger.sends.len() as f64;
        let cpu = field("used_cpu_user") + field("used_cpu_sys");
        let (used, room, seconds) = self.ledger.used();
        let part = used as f64 / room.max(1) as f64;
        if room >= ENOUGH_UNITS && part < self.profile.least_use {
            self.ledger.violation(self.now, &format!("(h) use of a backlog: {part:.3} of {}", self.profile.least_use));
        }
        Ok(vec![
            ("sends offered", format!("{sends}")),
            ("script calls per send", format!("{:.2}", calls / sends)),
            ("time in scripts per send, us", format!("{:.1}", script_us / sends)),
            ("Redis commands per send, scripts' own too", format!("{:.1}", field("total_commands_processed") / sends)),
            ("Redis CPU per send, us", format!("{:.1}", cpu / sends * 1e6)),
            ("Redis memory, MB", format!("{:.0}", field("used_memory") / 1e6)),
            ("(h) used of the capacity with a backlog", format!("{part:.3} of {seconds} s")),
            ("virtual time, s", format!("{}", (self.now - START) / SECOND)),
            ("wall time, s", format!("{:.1}", self.began.elapsed().as_secs_f64())),
        ])
    }
}
