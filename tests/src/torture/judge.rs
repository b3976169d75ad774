//! Whether what happened may happen.
//!
//! (a) no rolling window holds more units of claims than the limit, or one send (and what may leave in the time that a clock left out); (b) every accepted send ends once; (c) the
//! provider takes each send once; (d) cancelled means never sent; (e) a lane with a reservation waits a second or two; (f) no call
//! is made without a claim. What data that Redis lost, or the policy for unknown outcomes, explains is counted apart.

use std::collections::BTreeMap;

use sendslot_localstack::provider::max_units_in_rolling_window;
use sendslot_scheduler::SendState;

use super::evidence::{Evidence, SLACK_US, View};
use super::faults::Kind;
use super::load::{Budget, RESERVED};

/// Something that may not happen.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    pub(super) what: String,
    /// The send, if it is one's.
    pub(super) id: Option<String>,
    pub(super) at_us: u64,
    pub(super) class: Class,
}

impl Violation {
    /// Its words up to a colon, without figures.
    pub(super) fn kind(&self) -> String {
        let words = self.what.split(':').next().unwrap_or_default();
        words.chars().filter(|c| !c.is_ascii_digit()).collect()
    }
}

/// Its column in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Lost,
    Twice,
    OverLimit,
    Other,
}

/// The most units in any rolling window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) limit: u64,
    /// Of claims that said `send`, at the instants they are for, by the clock of Redis' machine; windows in which Redis' clock
    /// was set forward are left out.
    pub(super) claimed: u64,
    /// Of calls as they arrived at the provider, whatever it answered.
    pub(super) arrived: u64,
}

/// The judgement.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    pub(super) violations: Vec<Violation>,
    /// How accepted sends ended.
    pub(super) ends: BTreeMap<&'static str, u64>,
    /// Ends that Redis has forgotten, of those.
    pub(super) forgotten: u64,
    /// Sends that the provider took more than once, by what explains it.
    pub(super) by_loss: BTreeMap<Kind, u64>,
    pub(super) by_policy: u64,
    /// Cancelled sends that were sent, since Redis had forgotten the one or the other.
    pub(super) cancelled_by_loss: u64,
    pub(super) most: BTreeMap<&'static str, Most>,
    /// From the instant that a claim is for to the arrival at the provider, ms, sorted.
    pub(super) delays_ms: Vec<f64>,
    /// From when to when sends of the reserved lane were under way.
    reserved_queue: Vec<(u64, u64)>,
    /// From the answer to the slot, of sends in the reserved lane while nothing went wrong, ms, sorted.
    pub(super) reserved_ms: Vec<u64>,
}

/// A claim's instant is seen when its write is told, a little after the script has read its clock.
const TOLD_US: u64 = 1000;
/// Behind a fault, a backlog is still being worked off.
const QUIET_US: u64 = 8_000_000;
/// A lane's own backlog: sends in it that have not ended. Its reservation is 9 units a second.
const RESERVED_QUEUE: usize = 12;
/// Transit, and a second or two for its turn.
const RESERVED_WAIT_MS: u64 = 3_500;

impl Judgement {
    pub(super) fn of(evidence: &Evidence, budgets: &[Budget]) -> Self {
        let mut judgement = Self::default();
        for (id, what) in &evidence.ledger.wrong {
            judgement.wrong(Class::Other, Some(id), 0, what.clone());
        }
        let views = evidence.views();
        let reserved = views.iter().filter(|view| view.send.offer.lane == RESERVED);
        judgement.reserved_queue = reserved.filter_map(View::under_way).collect();
        for view in &views {
            judgement.one(evidence, view);
        }
        judgement.strangers(evidence);
        for budget in budgets {
            judgement.windows(evidence, budget);
        }
        judgement.delays_ms.sort_by(f64::total_cmp);
        judgement.reserved_ms.sort_unstable();
        judgement
    }

    pub(super) fn wrong(&mut self, class: Class, id: Option<&str>, at_us: u64, what: String) {
        self.violations.push(Violation { what, id: id.map(str::to_owned), at_us, class });
    }

    fn one(&mut self, evidence: &Evidence, view: &View<'_>) {
        let taken = view.taken();
        self.calls_are_claimed(view);
        if view.send.accepted_us.is_none() {
            // an offer whose answer was lost may have been accepted before
            if view.send.offers == 1 && !view.calls.is_empty() {
                let what = format!("refused as {:?}, and sent", view.send.refused);
                self.wrong(Class::Other, Some(view.id), view.calls[0].at_us, what);
            }
            if view.send.refused.is_none() {
                self.wrong(Class::Lost, Some(view.id), view.send.offered_us, "was never answered".to_owned());
            }
            return;
        }
        let at_us = taken.last().map_or(view.send.offered_us, |call| call.at_us);
        if let Err((class, what)) = self.ended(evidence, view) {
            self.wrong(class, Some(view.id), at_us, what);
        }
        self.taken_once(evidence, view);
        self.never_after_a_cancel(evidence, view);
        self.reservation(evidence, view);
    }

    /// (f)
    fn calls_are_claimed(&mut self, view: &View<'_>) {
        for call in &view.calls {
            if !call.claimed {
                let what = "the provider was called without a claim".to_owned();
                self.wrong(Class::Twice, Some(view.id), call.at_us, what);
            }
            let meant_us = call.meant_us.unwrap_or(call.claimed_us);
            self.delays_ms.push((call.at_us as f64 - meant_us as f64) / 1000.0);
        }
    }

    /// (b)
    fn ended(&mut self, evidence: &Evidence, view: &View<'_>) -> Result<(), (Class, String)> {
        let taken = view.taken();
        let lettered = !view.letters.is_empty();
        let seen = format!("taken {} times, dead letters {:?}", taken.len(), view.letters);
        let (end, right) = match view.state {
            Some(state @ SendState::Sent) => (state.as_str(), !taken.is_empty()),
            Some(state @ (SendState::Failed | SendState::Expired)) => {
                (state.as_str(), lettered && (taken.is_empty() || self.made_good(evidence, view)))
            }
            Some(state @ SendState::Unknown) => (state.as_str(), lettered),
            Some(state @ SendState::Cancelled) => (state.as_str(), view.send.cancel_asked_us.is_some()),
            open @ (None | Some(SendState::Booked | SendState::Claimed)) => {
                let Some(end) = evidence.forgotten_end(view) else {
                    let open = open.map_or("no record", SendState::as_str);
                    return Err((Class::Lost, format!("has no end: Redis has {open}, {seen}")));
                };
                self.forgotten += 1;
                (end, true)
            }
        };
        *self.ends.entry(end).or_default() += 1;
        if !right {
            return Err((Class::Lost, format!("ended as {end}, but: {seen}")));
        }
        let unsent = view.letters.iter().find(|reason| **reason != "unknown_outcome");
        if let Some(reason) = unsent.filter(|_| !taken.is_empty() && !self.made_good(evidence, view)) {
            return Err((Class::Twice, format!("dead-lettered as {reason}, and sent: {seen}")));
        }
        Ok(())
    }

    /// A send that was taken may end as unsent all the same: Redis forgot, or nobody heard of the call.
    fn made_good(&self, evidence: &Evidence, view: &View<'_>) -> bool {
        view.taken().iter().all(|call| {
            evidence.forgotten(call.claimed_us, u64::MAX / 2).is_some() || evidence.sent_again_unknown(view, *call)
        })
    }

    /// (c)
    fn taken_once(&mut self, evidence: &Evidence, view: &View<'_>) {
        for pair in view.taken().windows(2) {
            let [first, second] = [pair[0], pair[1]];
            if let Some(fault) = evidence.forgotten(first.claimed_us, second.claimed_us) {
                *self.by_loss.entry(fault.kind).or_default() += 1;
            } else if evidence.sent_again_unknown(view, first) {
                self.by_policy += 1;
            } else {
                self.wrong(Class::Twice, Some(view.id), second.at_us, "was taken by the provider twice".to_owned());
            }
        }
    }

    /// (d)
    fn never_after_a_cancel(&mut self, evidence: &Evidence, view: &View<'_>) {
        let Some((answered, asked)) = view.send.cancelled_us.zip(view.send.cancel_asked_us) else { return };
        for call in view.taken() {
            let told = asked.min(call.claimed_us);
            if evidence.forgotten(told, answered.max(call.claimed_us)).is_some() {
                self.cancelled_by_loss += 1;
            } else if !evidence.sent_again_unknown(view, call) {
                let what = "was sent, and a cancel was answered with yes".to_owned();
                self.wrong(Class::Other, Some(view.id), call.at_us, what);
            }
        }
    }

    /// (e)
    fn reservation(&mut self, evidence: &Evidence, view: &View<'_>) {
        let send = view.send;
        let (Some(wait_ms), Some(accepted_us)) = (send.wait_ms, send.accepted_us) else { return };
        let quiet = evidence.quiet(send.offered_us.saturating_sub(QUIET_US), accepted_us)
            && self.reserved_queue.iter().filter(|(from, to)| (*from..*to).contains(&send.offered_us)).count()
                <= RESERVED_QUEUE;
        if send.offer.lane != RESERVED || send.offer.not_before_us.is_some() || !quiet {
            return;
        }
        self.reserved_ms.push(wait_ms);
        if wait_ms > RESERVED_WAIT_MS {
            let what = format!("waits {wait_ms} ms in a lane with a reservation");
            self.wrong(Class::Other, Some(view.id), accepted_us, what);
        }
    }

    /// Calls and dead letters of sends that nobody offered.
    fn strangers(&mut self, evidence: &Evidence) {
        let known = |id: &str| evidence.ledger.sends.contains_key(id);
        for arrival in evidence.arrivals.iter().filter(|arrival| !known(&arrival.send_id)) {
            let what = format!("the provider got {:?}, which nobody offered", arrival.send_id);
            self.wrong(Class::Other, None, arrival.unix_us, what);
        }
        for (id, reason) in &evidence.letters {
            if !known(id) || reason.is_empty() {
                self.wrong(Class::Other, known(id).then_some(id), 0, format!("a dead letter with reason {reason:?}"));
            }
        }
    }

    /// The most units of claims in any window of this length that the clock was not set forward in; what is above the limit is wrong.
    fn crowd(
        &mut self,
        evidence: &Evidence,
        budget: &Budget,
        claims: &[(u64, u32)],
        window_us: u64,
        words: &str,
    ) -> u64 {
        let window_us = window_us - TOLD_US;
        let (mut first, mut units, mut most, mut last_wrong) = (0, 0u64, 0, None);
        for &(at, cost) in claims {
            units += u64::from(cost);
            while claims[first].0 + window_us <= at {
                units -= u64::from(claims[first].1);
                first += 1;
            }
            let forward = evidence.forward_units(at.saturating_sub(window_us), at, budget);
            if forward == 0 {
                most = most.max(units);
            }
            let limit = u64::from(budget.policy.limit) + forward;
            // one violation for each stretch above the limit
            if units > limit && last_wrong.is_none_or(|then| then + window_us < at) {
                let what = format!("{}: {units} units of {limit} claimed within {words}", budget.name);
                self.wrong(Class::OverLimit, None, at, what);
                last_wrong = Some(at);
            }
        }
        most
    }

    /// (a)
    fn windows(&mut self, evidence: &Evidence, budget: &Budget) {
        let limit = u64::from(budget.policy.limit);
        let per = budget.policy.per;
        let of_budget = |id: &str| id.starts_with(budget.name);
        let claims = evidence.claims.iter().filter(|claim| of_budget(&claim.id));
        let mut claims: Vec<(u64, u32)> = claims.map(|claim| (claim.call_us, claim.units)).collect();
        claims.sort_unstable();
        let arrivals = evidence.arrivals.iter().filter(|arrival| of_budget(&arrival.send_id));
        let mut arrivals: Vec<_> = arrivals.map(|arrival| (arrival.unix_us, arrival.units)).collect();
        arrivals.sort_unstable();
        let per_us = per.as_micros() as u64;
        let most = self.crowd(evidence, budget, &claims, per_us, "a second");
        // a call comes so much later than it is meant to, and still no second at the provider holds more
        let jitter_us = budget.policy.jitter().as_micros() as u64;
        self.crowd(evidence, budget, &claims, per_us + jitter_us, "a second and the jitter");
        // windows in which the clock was set forward are left out
        let steps = evidence.faults.iter().filter(|fault| !fault.forward.is_zero()).map(|fault| fault.ended_us);
        let mut rest = arrivals.as_slice();
        let mut arrived = 0;
        for step_us in steps.chain([u64::MAX]) {
            let (before, after) = rest.split_at(rest.partition_point(|(at_us, _)| *at_us < step_us));
            arrived = arrived.max(max_units_in_rolling_window(before, per));
            rest = after;
        }
        self.most.insert(budget.name, Most { limit, claimed: most, arrived });
    }
}

/// The fault that a violation is put down to in the table, by its instant.
pub(super) fn blamed(evidence: &Evidence, violation: &Violation) -> Option<Kind> {
    evidence.fault_before(violation.at_us + SLACK_US).map(|fault| fault.kind)
}

#[cfg(test)]
mod tests;
