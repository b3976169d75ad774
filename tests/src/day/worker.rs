//! What workers do: they ask, wait, call, report, put copies back, and die at any point of it.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use sendslot_shared::claim::{Answer, Claim, DeadReason, MoveReason, NextSlot, PutBack, Verdict, claim_all};
use sendslot_shared::envelope::{Envelope, fresh_tag};
use sendslot_shared::policy::PATIENCE;
use sendslot_shared::settle::{Action, Cooldown, Ending, Report, Scope, settle};
use sendslot_shared::status::SendState;

use super::record::Held;
use super::world::{Event, Travelling, World};
use crate::{LEASE, SECOND};

/// A delivery's question.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// The copy.
    pub(super) copy: Travelling,
    /// Drawn once per delivery.
    pub(super) nonce: u32,
    /// It waited for its slot, and asks so late, us.
    late: Option<u64>,
}

impl Question {
    /// Of a delivery that has just begun.
    pub(super) fn first(copy: Travelling) -> Self {
        Self { copy, nonce: fresh_tag(), late: None }
    }
}

/// How a delivery's call ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    /// The copy.
    pub(super) copy: Travelling,
    nonce: u32,
    ending: Ending,
    cooldown: Option<Cooldown>,
    delay: Duration,
    began: u64,
    /// None: it was not made.
    call: Option<usize>,
    /// The lease is over: others may hold the send.
    slow: bool,
}

impl Ended {
    pub(super) fn report(&self, now: u64) -> Report<'_> {
        Report {
            envelope: &self.copy.envelope,
            nonce: self.nonce,
            ending: self.ending,
            delay: self.delay,
            cooldown: self.cooldown,
            elapsed: Duration::from_micros(now - self.began),
            held_up: Duration::ZERO,
        }
    }
}

/// A copy that was not acknowledged shows up again, us.
const VISIBILITY: std::ops::Range<u64> = 30 * SECOND..60 * SECOND;
/// Calls end at whole multiples of this, us, so that many are reported at one instant.
const TICK: u64 = 20_000;

impl World {
    /// Asks for many copies in one pipeline.
    pub(super) async fn ask_all(&mut self, questions: Vec<Question>, held: Vec<Option<Held>>) -> Result<()> {
        if questions.is_empty() {
            return Ok(());
        }
        let claims: Vec<Claim> = questions.iter().map(Question::claim).collect();
        let answers = claim_all(&self.store, &claims).await;
        for ((question, held), answer) in questions.into_iter().zip(held).zip(answers) {
            let answer = answer?;
            if self.chance(0.02) {
                self.same_verdict(&question, &answer).await?;
            }
            self.obey(question, held, &answer);
        }
        Ok(())
    }

    fn obey(&mut self, question: Question, held: Option<Held>, answer: &Answer) {
        let send = question.copy.send;
        self.ledger.tally.one("verdicts", name_of(&answer.verdict));
        self.in_time(&question, &answer.verdict);
        match answer.verdict {
            Verdict::Send { lease, delay, attempt, throttles, .. } => {
                self.call(question, held.as_ref(), lease, delay, attempt + throttles)
            }
            Verdict::Wait { wait, moved } => {
                if let Some(reason) = moved {
                    self.moves(send, held, reason.as_str());
                }
                self.wait(question, wait);
            }
            Verdict::Done => {}
            Verdict::Dead { reason, .. } => self.dead(send, held, reason),
            Verdict::Busy { wait } => {
                let whole = Duration::from_secs(wait.as_millis().div_ceil(1000) as u64);
                self.enqueue(question.copy, whole, Duration::ZERO);
            }
            Verdict::PutBack { slot, why } => {
                if let PutBack::Rebooked(reason) = why {
                    self.moves(send, held, reason.as_str());
                }
                self.put_back(question.copy, slot);
            }
            Verdict::Hold => self.ledger.violation(self.now, &format!("hold: send {send}, the budget has a policy")),
        }
    }

    /// How many of those that are no later than the patience are refused by the guard all the same.
    fn in_time(&mut self, question: &Question, verdict: &Verdict) {
        if question.late.is_none_or(|late| late > PATIENCE.as_micros() as u64) {
            return;
        }
        let name = match verdict {
            Verdict::Send { delay, .. } if delay.is_zero() => "sent",
            Verdict::Send { .. } => "sent after a wait",
            Verdict::Wait { moved: None, .. } => "wait once more",
            Verdict::Wait { moved: Some(MoveReason::Missed), .. }
            | Verdict::PutBack { why: PutBack::Rebooked(MoveReason::Missed), .. } => "refused",
            _ => "moved",
        };
        self.ledger.tally.one("in time", name);
    }

    fn moves(&mut self, send: usize, held: Option<Held>, reason: &str) {
        self.ledger.moved(send, reason, self.now);
        if let Some(held) = held {
            self.ledger.left(&held, reason, self.now);
        }
    }

    fn wait(&mut self, question: Question, wait: Duration) {
        if self.chance(0.002) {
            // its worker dies
            self.comes_back(question.copy);
            return;
        }
        let late = self.lateness();
        let at = self.now + wait.as_micros() as u64 + late;
        self.put(at, Event::Ask(Box::new(Question { late: Some(late), ..question })));
    }

    /// A copy that nobody acknowledged.
    fn comes_back(&mut self, copy: Travelling) {
        let at = self.now + self.rng.u64(VISIBILITY);
        self.put(at, Event::Ask(Box::new(Question::first(copy))));
    }

    /// How late a worker asks at a slot, us.
    fn lateness(&mut self) -> u64 {
        let patience = PATIENCE.as_micros() as u64;
        match self.rng.u32(0..100) {
            0..50 => 0,
            50..60 => 16_000,
            60..94 => self.rng.u64(0..60_000),
            94..96 => self.rng.u64(0..=patience),
            96..98 => patience + self.rng.u64(0..2),
            _ => self.rng.u64(0..5 * SECOND),
        }
    }

    fn put_back(&mut self, copy: Travelling, slot: NextSlot) {
        if self.chance(0.003) {
            // its worker dies before it could
            self.comes_back(copy);
            return;
        }
        if self.chance(0.003) {
            // … or before it could acknowledge
            self.comes_back(copy.clone());
        }
        let envelope = Envelope { seq: slot.seq, tag: fresh_tag(), at: Some(slot.at), ..copy.envelope };
        self.enqueue(Travelling { envelope, ..copy }, slot.wait, slot.lead);
    }

    fn dead(&mut self, send: usize, held: Option<Held>, reason: DeadReason) {
        self.ledger.tally.one("dead letters", reason.as_str());
        let state = match reason {
            DeadReason::Expired => SendState::Expired,
            DeadReason::UnknownOutcome => SendState::Unknown,
            DeadReason::Conflict | DeadReason::UnknownHistory => {
                self.ledger.violation(self.now, &format!("dead: send {send} for {}", reason.as_str()));
                return;
            }
            _ => SendState::Failed,
        };
        // told twice: it may have been sent in the meantime by a worker that was slow
        if self.ledger.sends[send].ended != Some(SendState::Sent) {
            self.ledger.ended(send, state, self.now);
        }
        if let Some(held) = held {
            self.ledger.left(&held, reason.as_str(), self.now);
        }
    }

    fn call(&mut self, question: Question, held: Option<&Held>, lease: Duration, delay: Duration, failures: u32) {
        let Question { copy, nonce, .. } = question;
        let began = self.now + delay.as_micros() as u64;
        let ending = self.ending();
        if ending == Ending::NotStarted {
            let held_up = began + self.rng.u64(5_000..400_000);
            let ended =
                Ended { copy, nonce, ending, cooldown: None, delay: Duration::ZERO, began, call: None, slow: false };
            return self.put(held_up.div_ceil(TICK) * TICK, Event::Settle(Box::new(ended)));
        }
        let call = self.ledger.called(copy.send, held, began, lease.saturating_sub(delay).as_micros() as u64);
        if self.chance(0.003) {
            // its worker dies, before or after the provider took it
            let taken = self.rng.bool();
            self.in_doubt(copy.send, taken);
            let at = self.now + self.rng.u64(SECOND..60 * SECOND);
            self.put(at, Event::Ask(Box::new(Question::first(copy))));
            return;
        }
        let slow = self.chance(0.001);
        let took = if slow { 15_500_000 + self.rng.u64(0..20 * SECOND) } else { self.rng.u64(5_000..400_000) };
        if slow {
            self.in_doubt(copy.send, false);
            self.put(began + 15_100_000, Event::Ask(Box::new(Question::first(copy.clone()))));
        }
        match ending {
            Ending::Sent => self.ledger.sends[copy.send].taken += 1,
            Ending::Unknown => {
                let taken = self.rng.bool();
                self.in_doubt(copy.send, taken);
            }
            _ => {}
        }
        let (cooldown, delay) = self.rest_of(ending, failures);
        let ended = Ended { copy, nonce, ending, cooldown, delay, began, call: Some(call), slow };
        self.put((began + took).div_ceil(TICK) * TICK, Event::Settle(Box::new(ended)));
    }

    fn in_doubt(&mut self, send: usize, taken: bool) {
        let known = &mut self.ledger.sends[send];
        known.doubtful += 1;
        known.taken += u32::from(taken);
    }

    fn ending(&mut self) -> Ending {
        if self.chance(self.profile.throttled) {
            return Ending::Throttled;
        }
        match self.rng.u32(0..1000) {
            0..8 => Ending::Unavailable,
            8..11 => Ending::Unknown,
            11..14 => Ending::Rejected,
            14..18 => Ending::NotStarted,
            _ => Ending::Sent,
        }
    }

    /// Cooldown and backoff.
    fn rest_of(&mut self, ending: Ending, failures: u32) -> (Option<Cooldown>, Duration) {
        let backoff = Duration::from_millis(self.rng.u64(0..500 << failures.min(6)));
        if ending != Ending::Throttled {
            return (None, backoff);
        }
        let rest = Duration::from_millis(self.rng.u64(100..4000));
        let scope = if self.rng.bool() { Scope::Account } else { Scope::Recipient };
        let cooldown = (!self.chance(0.2)).then_some(Cooldown { rest, scope });
        (cooldown, backoff.max(rest))
    }

    /// Reports many ends in one pipeline.
    pub(super) async fn settle_all(&mut self, ends: Vec<Ended>) -> Result<()> {
        let (store, now) = (&self.store, self.now);
        let actions = try_join_all(ends.iter().map(|ended| settle(store, ended.report(now)))).await?;
        for (ended, action) in ends.into_iter().zip(actions) {
            if self.chance(0.02) {
                self.same_action(&ended, action).await?;
            }
            self.act(ended, action);
        }
        Ok(())
    }

    fn act(&mut self, ended: Ended, action: Action) {
        let Ended { copy, ending, call, slow, cooldown, .. } = ended;
        let (send, now) = (copy.send, self.now);
        self.ledger.tally.one("settles", format!("{ending:?}{}", if slow { " after the lease" } else { "" }));
        let put_back = matches!(action, Action::PutBack(_));
        if let Some(call) = call {
            self.ledger.call_ended(call, !slow && ending == Ending::Throttled);
        }
        if let Some(rest) = cooldown {
            self.ledger.unquiet(now, now + rest.rest.as_micros() as u64 + 30 * SECOND);
        }
        if put_back {
            self.ledger.moved(send, &format!("after {ending:?}"), now);
        }
        match action {
            Action::Acknowledge if ending == Ending::Sent => self.ledger.ended(send, SendState::Sent, now),
            Action::Acknowledge => {
                let known = self.ledger.sends[send].ended.is_some();
                if !slow || !known {
                    self.ledger.violation(now, &format!("settle: {ending:?} of send {send} is acknowledged"));
                }
            }
            Action::PutBack(slot) => self.put_back(copy, slot),
            Action::Again => {
                self.ledger.tally.one("settles", "the claim decides");
                self.put(now, Event::Ask(Box::new(Question::first(copy))));
            }
            Action::Dead { reason, .. } => self.dead(send, None, reason),
        }
    }
}

impl Question {
    pub(super) fn claim(&self) -> Claim<'_> {
        Claim { envelope: &self.copy.envelope, nonce: self.nonce, lease: LEASE }
    }
}

fn name_of(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Send { .. } => "send".to_owned(),
        Verdict::Wait { moved: None, .. } => "wait".to_owned(),
        Verdict::Wait { moved: Some(_), .. } => "wait at a new slot".to_owned(),
        Verdict::Done => "done".to_owned(),
        Verdict::Dead { .. } => "dead".to_owned(),
        Verdict::Busy { .. } => "busy".to_owned(),
        Verdict::PutBack { why: PutBack::Rebooked(_), .. } => "rebooked".to_owned(),
        Verdict::PutBack { why, .. } => format!("{why:?}").to_lowercase(),
        Verdict::Hold => "hold".to_owned(),
    }
}
