//! One message: a loop around the question of `claim`.

use std::time::{Duration, Instant, SystemTime};

use sendslot_shared::claim::{self, Answer, Claim, DeadReason, NextSlot, PutBack, Verdict};
use sendslot_shared::envelope::{Envelope, PendingReport, fresh_tag};
use sendslot_shared::metrics::{self, Place};
use sendslot_shared::queue::{Entry, QueueError};
use sendslot_shared::receipt;
use sendslot_shared::redis_policy::RedisPolicy;
use sendslot_shared::settle::{self, Action, Ending, Report};
use sendslot_shared::store::StoreError;
use sendslot_shared::time::DelaySeconds;

use crate::batch::Worker;
use crate::config::WorkerConfig;
use crate::decide::{Decision, decide};
use crate::measure;
use crate::provider::{Outcome, Outgoing, Provider};

/// What becomes of the SQS message.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// Deleted: its send is done, or travels on in another message.
    Acknowledge,
    /// Left: SQS delivers it again after the visibility timeout.
    Return,
}

/// Settling takes a round trip; two seconds cover a failover's pause.
pub(crate) const SETTLE_MARGIN: Duration = Duration::from_secs(2);
/// How long after its claim a call may still start.
const START_WINDOW: Duration = Duration::from_secs(3);
const SETTLE_TRIES: u32 = 3;
/// What putting a copy back takes at the end of an invocation.
const PUT_BACK_MARGIN: Duration = Duration::from_secs(1);

/// A worker that was held up for less after its verdict calls all the same, however little jitter the headroom buys.
const STALL: Duration = Duration::from_millis(5);

/// A question with its answer.
pub(crate) struct Asked {
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
    pub(crate) verdict: Result<Answer, StoreError>,
}

/// One delivery of one copy.
pub(crate) struct Delivery<'a, P> {
    pub(crate) worker: &'a Worker<P>,
    pub(crate) envelope: Envelope,
    /// Identity of this delivery for Redis.
    pub(crate) nonce: u32,
    /// When the invocation ends, by this process's own clock.
    pub(crate) invocation_end: Option<Instant>,
}

/// Known by it are a question and those that repeat it.
pub(crate) fn fresh_nonce() -> u32 {
    fastrand::u32(1..)
}

/// How long a claim holds the record: the start window, the call and the settle.
pub(crate) fn lease(call_timeout: Duration) -> Duration {
    START_WINDOW + call_timeout + SETTLE_MARGIN
}

impl<P: Provider> Delivery<'_, P> {
    /// Goes on from the answer to the first question. A copy that brings a report has not asked: the report comes first.
    pub(crate) async fn process(mut self, first: Option<Asked>) -> Disposition {
        if let Some(pending) = self.envelope.report {
            if let Some(disposition) = self.report_earlier(pending).await {
                return disposition;
            }
            if !pending.unclaimed {
                self.envelope.report = None;
            }
        }
        let mut answer = match first {
            Some(answer) => answer,
            None => self.ask().await,
        };
        self.log_arrival(&answer.verdict);
        let mut seeded = false;
        let mut due = self.envelope.at;
        let mut longest_held_up = Duration::ZERO;
        loop {
            let Asked { asked, answered, verdict } = answer;
            let told = match verdict {
                Ok(answer) => answer,
                Err(error) => return self.without_redis(&error).await,
            };
            if self.called().is_none() {
                measure::claimed(self.place(), due, &told);
            }
            let Answer { verdict, now } = told;
            let trip = answered - asked;
            // the verdict was given half a round trip ago
            let given = answered - self.worker.round_trip.half(trip);
            if matches!(verdict, Verdict::Send { .. } | Verdict::Wait { .. } | Verdict::PutBack { .. }) {
                self.worker.without_redis.outages.has_policy(&self.envelope.draft.budget);
            }
            match verdict {
                Verdict::Wait { wait, moved } => {
                    due = Some(now.plus(wait));
                    if let Some(reason) = moved {
                        self.place().add(&metrics::REBOOKED, reason.as_str(), 1);
                        tracing::info!(id = %self.id(), reason = reason.as_str(), wait_ms = ms(wait), "rebooked");
                    }
                    if !self.has_time_for(wait) {
                        return self.put_back_unchanged(wait.saturating_sub(Duration::from_secs(1))).await;
                    }
                    tokio::time::sleep_until((given + wait).into()).await;
                    answer = self.ask().await;
                }
                Verdict::Send { lease, delay, late, jitter, attempt, throttles } => {
                    if let (Some(ending), Some(report)) = (self.called(), self.envelope.report) {
                        // the claim that the call was made without: it is not made again
                        self.envelope.report = None;
                        let made = Decision::plain(ending, "the call was made while Redis could not be asked");
                        return self.settle(made, report.elapsed(), Duration::ZERO).await;
                    }
                    let planned = answered.max(given + delay);
                    tokio::time::sleep_until(planned.into()).await;
                    let held_up = late.max(self.worker.round_trip.beyond(trip)) + planned.elapsed();
                    longest_held_up = longest_held_up.max(held_up);
                    if held_up > jitter.max(STALL) || self.is_too_late(asked, lease) {
                        match self.give_back(held_up).await {
                            Some(disposition) => return disposition,
                            None => {
                                // what was asked before may still arrive
                                self.nonce = fresh_nonce();
                                answer = self.ask().await;
                            }
                        }
                        continue;
                    }
                    measure::called(&self.envelope, now.plus(delay), held_up);
                    let (decision, took) = self.call(attempt, attempt.saturating_add(throttles)).await;
                    return self.settle(decision, took, longest_held_up).await;
                }
                Verdict::Done => return Disposition::Acknowledge,
                Verdict::Dead { reason, attempts } => return self.dead_letter(reason, attempts, "").await,
                Verdict::Busy { wait } => return self.put_back_unchanged(wait).await,
                Verdict::PutBack { slot, why } => {
                    match why {
                        PutBack::Hop => {
                            self.place().add(&metrics::HOPS, "timer", 1);
                            tracing::debug!(id = %self.id(), wait_ms = ms(slot.wait), "hop");
                        }
                        PutBack::Paused => {
                            self.place().add(&metrics::HOPS, "paused", 1);
                            tracing::debug!(id = %self.id(), wait_ms = ms(slot.wait), "paused");
                        }
                        PutBack::Reissue => tracing::debug!(id = %self.id(), seq = slot.seq, "reissue"),
                        PutBack::Rebooked(reason) => {
                            self.place().add(&metrics::REBOOKED, reason.as_str(), 1);
                            tracing::info!(id = %self.id(), reason = reason.as_str(), wait_ms = ms(slot.wait), "rebooked");
                        }
                    }
                    return self.put_back(slot).await;
                }
                Verdict::Hold => {
                    if !seeded && self.seed().await {
                        seeded = true;
                        answer = self.ask().await;
                        continue;
                    }
                    return self.without_policy().await;
                }
            }
        }
    }

    /// How punctual timers are: `lead` can be tuned by it.
    fn log_arrival(&self, answer: &Result<Answer, StoreError>) {
        if let (Ok(answer), Some(at)) = (answer, self.envelope.at) {
            let early_ms = (at.as_micros() as f64 - answer.now.as_micros() as f64) / 1000.0;
            tracing::debug!(id = %self.id(), seq = self.envelope.seq, early_ms, "arrived");
        }
    }

    /// Redis lost the budget's policy: whether it has one from the process's file now.
    async fn seed(&self) -> bool {
        let WorkerConfig { store, policy_file, .. } = &self.worker.config;
        policy_file.seed(store, &self.envelope.draft.budget).await.is_ok_and(|seeded| seeded)
    }

    async fn ask(&self) -> Asked {
        let lease = lease(self.worker.provider.call_timeout());
        let question = Claim { envelope: &self.envelope, nonce: self.nonce, lease };
        let asked = Instant::now();
        let verdict = claim::claim(&self.worker.config.store, question).await;
        let answered = Instant::now();
        self.worker.round_trip.note(answered - asked);
        self.worker.without_redis.outages.asked(&self.envelope.draft.budget, &verdict);
        Asked { asked, answered, verdict }
    }

    fn id(&self) -> &sendslot_shared::id::SendId {
        &self.envelope.draft.id
    }

    /// Whether the invocation lasts for a wait and a whole call after it.
    pub(crate) fn has_time_for(&self, wait: Duration) -> bool {
        let needed = wait + self.worker.provider.call_timeout() + SETTLE_MARGIN;
        self.invocation_end.is_none_or(|end| Instant::now() + needed <= end)
    }

    /// The fence: whether a call may outlast the lease or the invocation.
    fn is_too_late(&self, asked: Instant, lease: Duration) -> bool {
        let call_timeout = self.worker.provider.call_timeout();
        asked.elapsed() + call_timeout + SETTLE_MARGIN > lease || !self.has_time_for(Duration::ZERO)
    }

    /// Gives the claim back, whose call should have been made `held_up` ago. `None`: the copy asks again.
    async fn give_back(&self, held_up: Duration) -> Option<Disposition> {
        tracing::info!(id = %self.id(), held_up_ms = ms(held_up), "too late to call: the claim is given back");
        measure::given_back(self.place(), held_up);
        let held = Decision::plain(Ending::NotStarted, "the worker was held up between its claim and the call");
        match self.tell_end(&held, held_up, held_up).await {
            Ok(Action::Again) if self.has_time_for(Duration::ZERO) => None,
            Ok(action) => Some(self.act(action, held.ending, &held.error).await),
            Err(disposition) => Some(disposition),
        }
    }

    /// One call of the provider: what is reported of it, and how long it took.
    pub(crate) async fn call(&self, attempt: u32, failures: u32) -> (Decision, Duration) {
        let call_timeout = self.worker.provider.call_timeout();
        let outgoing = self.outgoing(attempt);
        let began = Instant::now();
        let call = tokio::time::timeout(call_timeout, self.worker.provider.send(&outgoing));
        let outcome = call.await.unwrap_or_else(|_| Outcome::Unknown {
            error: format!("no answer within {} ms", call_timeout.as_millis()),
        });
        let decision = decide(&outcome, failures, self.worker.config.backoff, fastrand::f64());
        measure::ended(self.place(), decision.ending);
        tracing::debug!(id = %self.id(), attempt, ending = ?decision.ending, provider_id = decision.provider_id, error = decision.error, call_ms = ms(began.elapsed()), "send");
        (decision, began.elapsed())
    }

    fn outgoing(&self, attempt: u32) -> Outgoing {
        let draft = &self.envelope.draft;
        Outgoing {
            id: draft.id.as_str().to_owned(),
            budget: draft.budget.as_str().to_owned(),
            lane: draft.lane.as_str().to_owned(),
            payload: draft.payload.clone(),
            cost: draft.cost,
            attempt,
            deadline: draft.deadline.map(|at| at.to_system_time()),
        }
    }

    async fn settle(&self, decision: Decision, elapsed: Duration, held_up: Duration) -> Disposition {
        match self.tell_end(&decision, elapsed, held_up).await {
            Ok(action) => self.act(action, decision.ending, &decision.error).await,
            Err(disposition) => disposition,
        }
    }

    /// Tells Redis how the call ended: what to do now, or, when Redis could not be told, what became of the copy that carries the
    /// outcome on. `held_up`: the longest that this delivery's claims were, so that those that were given back are known by their send.
    async fn tell_end(&self, decision: &Decision, elapsed: Duration, held_up: Duration) -> Result<Action, Disposition> {
        let called_at =
            (decision.ending != Ending::NotStarted).then(|| SystemTime::now().checked_sub(elapsed)).flatten();
        let report = Report {
            envelope: &self.envelope,
            nonce: self.nonce,
            ending: decision.ending,
            delay: decision.delay,
            cooldown: decision.cooldown,
            elapsed,
            held_up,
        };
        let (told, ()) =
            tokio::join!(self.report(report, SETTLE_TRIES), self.remember(decision.provider_id.as_deref()));
        match told {
            Ok(action) => Ok(action),
            Err(error) => {
                tracing::error!(id = %self.id(), ending = ?decision.ending, "Redis could not be told: the outcome travels on");
                let draft = &self.envelope.draft;
                if let Some(error) = error {
                    Place::budget(draft.budget.as_str()).add(&metrics::REDIS_UNAVAILABLE, None, 1);
                    let outages = &self.worker.without_redis.outages;
                    outages.concerns(&draft.budget, &draft.lane, RedisPolicy::Hold, &error);
                }
                let report = PendingReport {
                    nonce: self.nonce,
                    ending: decision.ending,
                    unclaimed: false,
                    called_at_us: called_at.map(Into::into),
                };
                Err(self.put_back_reporting(report, self.hold_delay()).await)
            }
        }
    }

    /// So that receipts that name only the provider's ID find the send. One that cannot be remembered delays nothing.
    async fn remember(&self, provider_id: Option<&str>) {
        let WorkerConfig { store, receipts, .. } = &self.worker.config;
        let Some(provider_id) = provider_id.filter(|_| *receipts) else { return };
        let remembered = receipt::remember(store, &self.envelope.draft.budget, provider_id, self.id());
        let told = tokio::time::timeout(SETTLE_MARGIN, remembered).await;
        if let Ok(Err(error)) = &told {
            tracing::warn!(id = %self.id(), %error, "receipts by the provider's ID will not find this send");
        } else if told.is_err() {
            tracing::warn!(id = %self.id(), "receipts by the provider's ID will not find this send: no answer in time");
        }
    }

    async fn act(&self, action: Action, ending: Ending, error: &str) -> Disposition {
        match action {
            Action::Acknowledge => Disposition::Acknowledge,
            Action::PutBack(slot) => {
                self.place().add(&metrics::REBOOKED, ending.as_str(), 1);
                tracing::info!(id = %self.id(), reason = ?ending, error, wait_ms = ms(slot.wait), "rebooked");
                self.put_back(slot).await
            }
            Action::Again => self.put_back_unchanged(Duration::ZERO).await,
            Action::Dead { reason, attempts } => self.dead_letter(reason, attempts, error).await,
        }
    }

    /// Tells Redis, more than once if need be, as long as the invocation leaves time to put the copy back instead (`None`: it did
    /// not).
    async fn report(&self, report: Report<'_>, tries: u32) -> Result<Action, Option<StoreError>> {
        let told = self.tell(report, tries);
        match self.invocation_end.and_then(|end| end.checked_sub(PUT_BACK_MARGIN)) {
            Some(end) => tokio::time::timeout_at(end.into(), told).await.map_err(|_| None)?.map_err(Some),
            None => told.await.map_err(Some),
        }
    }

    async fn tell(&self, report: Report<'_>, tries: u32) -> Result<Action, StoreError> {
        let began = Instant::now();
        let mut attempt = 1;
        loop {
            let report = Report { elapsed: report.elapsed + began.elapsed(), ..report };
            let told = settle::settle(&self.worker.config.store, report).await;
            self.worker.without_redis.outages.asked(&self.envelope.draft.budget, &told);
            match told {
                Err(error) if attempt < tries => {
                    tracing::warn!(id = %self.id(), %error, attempt, "settle failed");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    attempt += 1;
                }
                told => return told,
            }
        }
    }

    /// What Redis was not told of an earlier delivery. `None`: it is told now, and the claim decides.
    async fn report_earlier(&mut self, pending: PendingReport) -> Option<Disposition> {
        let report = Report {
            envelope: &self.envelope,
            nonce: pending.nonce,
            ending: pending.ending,
            delay: Duration::ZERO,
            cooldown: None,
            elapsed: pending.elapsed(),
            held_up: Duration::ZERO,
        };
        match self.report(report, 1).await {
            Ok(Action::Again) => None,
            Ok(action) => {
                self.envelope.report = None;
                Some(self.act(action, pending.ending, "").await)
            }
            Err(Some(error)) => Some(self.without_redis(&error).await),
            Err(None) => Some(self.put_back_unchanged(self.hold_delay()).await),
        }
    }

    pub(crate) fn hold_delay(&self) -> Duration {
        self.worker.config.hold.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// The next copy of the send, with the record's seq and a tag of its own.
    async fn put_back(&self, slot: NextSlot) -> Disposition {
        let next = Envelope { seq: slot.seq, tag: fresh_tag(), at: Some(slot.at), ..self.envelope.clone() };
        let delay = self.worker.config.timer.delay(slot.wait, slot.lead);
        self.enqueue(&next, delay).await
    }

    /// The same copy, later.
    pub(crate) async fn put_back_unchanged(&self, wait: Duration) -> Disposition {
        self.put(self.envelope.clone(), wait).await
    }

    /// Waits round up: a copy that comes early only asks once more, one that comes before the lease ends has to wait again.
    pub(crate) async fn put(&self, envelope: Envelope, wait: Duration) -> Disposition {
        let wait = Duration::from_secs(wait.as_millis().div_ceil(1000) as u64);
        self.enqueue(&envelope, self.worker.config.timer.delay(wait, Duration::ZERO)).await
    }

    async fn enqueue(&self, envelope: &Envelope, delay: DelaySeconds) -> Disposition {
        let body = match envelope.to_body() {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(id = %self.id(), %error, "copy too large to be put back");
                return Disposition::Return;
            }
        };
        let Worker { config, put_backs, .. } = self.worker;
        disposition(put_backs.put(&config.queue, Entry { body, delay }).await)
    }

    async fn dead_letter(&self, reason: DeadReason, attempts: u32, error: &str) -> Disposition {
        tracing::warn!(id = %self.id(), reason = reason.as_str(), attempts, error, "dead-lettered");
        match self.envelope.to_body() {
            Ok(body) => self.worker.dead_letter(body, reason.as_str(), attempts, error, Some(&self.envelope)).await,
            Err(_) => Disposition::Return,
        }
    }
}

/// A message that was put on a queue can be deleted; one that was not comes back.
pub(crate) fn disposition(result: Result<(), QueueError>) -> Disposition {
    match result {
        Ok(()) => Disposition::Acknowledge,
        Err(error) => {
            tracing::error!(%error, "message could not be put on the queue, leaving it for redelivery");
            Disposition::Return
        }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
