//! What was seen of each send, and what explains it.

use std::collections::{BTreeMap, HashMap};

use sendslot_localstack::provider::Arrival;
use sendslot_scheduler::SendState;

use super::inject::Injected;
use super::ledger::{Ledger, Send};
use super::load::{AGAIN, Budget};
use super::monitor::Claim;
use super::rig::LEASE;

/// Clocks are read some microseconds apart, lines are written a little later.
pub(super) const SLACK_US: u64 = 20_000;
pub(super) const LEASE_US: u64 = LEASE.as_micros() as u64;

/// All that a run leaves behind.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    pub(super) ledger: Ledger,
    pub(super) faults: Vec<Injected>,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) claims: Vec<Claim>,
    /// Claims beside them that no call was made for: given back, or decided anew.
    pub(super) given_back: u64,
    /// Send ID and instant of each record of a send as sent.
    pub(super) sent: Vec<(String, u64)>,
    /// What Redis says of each send that was offered.
    pub(super) states: BTreeMap<String, Option<SendState>>,
    /// Send ID and reason.
    pub(super) letters: Vec<(String, String)>,
}

/// A call of the provider.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) at_us: u64,
    /// When the claim was written that it was made by; the call's own instant when there was none.
    pub(super) claimed_us: u64,
    /// The instant that the claim is for, if it was seen.
    pub(super) meant_us: Option<u64>,
    pub(super) claimed: bool,
    /// The provider took the send.
    pub(super) taken: bool,
    /// Redis was told that it was taken, before the send was claimed again.
    pub(super) known: bool,
}

/// One send from all sides.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) id: &'a str,
    pub(super) send: &'a Send,
    pub(super) calls: Vec<Call>,
    pub(super) state: Option<SendState>,
    pub(super) letters: Vec<&'a str>,
}

impl View<'_> {
    pub(super) fn taken(&self) -> Vec<Call> {
        self.calls.iter().copied().filter(|call| call.taken).collect()
    }

    /// From its acceptance until the provider took it last, or it was cancelled.
    pub(super) fn under_way(&self) -> Option<(u64, u64)> {
        let ended = self.taken().last().map(|call| call.at_us).or(self.send.cancelled_us);
        Some((self.send.accepted_us?, ended.unwrap_or(u64::MAX)))
    }
}

impl Evidence {
    /// Every send that was offered.
    pub(super) fn views(&self) -> Vec<View<'_>> {
        let mut claims: HashMap<&str, Vec<&Claim>> = HashMap::new();
        for claim in &self.claims {
            claims.entry(&claim.id).or_default().push(claim);
        }
        let mut sent: HashMap<&str, Vec<u64>> = HashMap::new();
        for (id, at_us) in &self.sent {
            sent.entry(id).or_default().push(*at_us);
        }
        let mut arrivals: HashMap<&str, Vec<&Arrival>> = HashMap::new();
        for arrival in &self.arrivals {
            arrivals.entry(&*arrival.send_id).or_default().push(arrival);
        }
        let mut calls: HashMap<&str, Vec<Call>> = HashMap::new();
        for (id, arrivals) in arrivals {
            let of_send = (claims.remove(id).unwrap_or_default(), sent.remove(id).unwrap_or_default());
            calls.insert(id, self.calls(&arrivals, &of_send.0, &of_send.1));
        }
        let mut letters: HashMap<&str, Vec<&str>> = HashMap::new();
        for (id, reason) in &self.letters {
            letters.entry(id).or_default().push(reason);
        }
        let view = |(id, send)| {
            let id: &String = id;
            View {
                id,
                send,
                calls: calls.remove(id.as_str()).unwrap_or_default(),
                state: self.states.get(id).copied().flatten(),
                letters: letters.remove(id.as_str()).unwrap_or_default(),
            }
        };
        self.ledger.sends.iter().map(view).collect()
    }

    /// Calls of one send, each with a claim of its own.
    fn calls(&self, arrivals: &[&Arrival], claims: &[&Claim], sent: &[u64]) -> Vec<Call> {
        let mut calls: Vec<Call> = vec![];
        for arrival in arrivals {
            let at_us = arrival.unix_us;
            let unused = |claim: &&&Claim| calls.iter().all(|call| call.claimed_us != claim.at_us);
            let claim = claims.iter().rev().find(|claim| claim.at_us <= at_us + SLACK_US).filter(unused);
            let claimed = claim.map(|claim| claim.at_us).or_else(|| self.killed_before(at_us));
            let claimed_us = claimed.unwrap_or(at_us);
            let meant_us = claim.map(|claim| claim.call_us);
            let next = claims.iter().find(|claim| claim.at_us > claimed_us);
            let next_us = next.map_or(u64::MAX, |claim| claim.at_us);
            let known = sent.iter().any(|sent| (claimed_us..next_us).contains(sent));
            calls.push(Call {
                at_us,
                claimed_us,
                meant_us,
                claimed: claimed.is_some(),
                taken: arrival.accepted,
                known,
            });
        }
        calls
    }

    /// When Redis was killed shortly before a call: its claim may not have been seen.
    fn killed_before(&self, at_us: u64) -> Option<u64> {
        let killed = |fault: &Injected| fault.loss.map_or(fault.began_us, |loss| loss.at_us);
        let mut kills = self.faults.iter().filter(|fault| fault.kind.kills_redis()).map(killed);
        kills.rfind(|killed| (*killed..*killed + LEASE_US).contains(&(at_us + SLACK_US)))
    }

    /// A loss of what Redis was told at `told_us`, not later than `until_us`.
    pub(super) fn forgotten(&self, told_us: u64, until_us: u64) -> Option<&Injected> {
        self.faults.iter().find(|fault| {
            fault.loss.is_some_and(|loss| {
                loss.from_us <= told_us + SLACK_US
                    && (told_us..=until_us + 2 * SLACK_US).contains(&(loss.at_us + SLACK_US))
            })
        })
    }

    /// Nobody could tell Redis how a call ended, and the policy says that the send is made again.
    pub(super) fn sent_again_unknown(&self, view: &View<'_>, call: Call) -> bool {
        view.send.offer.budget == AGAIN && !call.known
    }

    /// The end that Redis has forgotten, if there was one that it can have forgotten.
    pub(super) fn forgotten_end(&self, view: &View<'_>) -> Option<&'static str> {
        let accepted_us = view.send.accepted_us.unwrap_or(view.send.offered_us);
        let lost = |from_us: u64, to_us: u64| {
            self.faults
                .iter()
                .filter_map(|fault| fault.loss)
                .any(|loss| loss.at_us + SLACK_US >= from_us && loss.from_us <= to_us + SLACK_US)
        };
        if view.taken().last().is_some_and(|call| lost(call.claimed_us, call.at_us + LEASE_US)) {
            return Some("sent");
        }
        if !view.letters.is_empty() && lost(accepted_us, u64::MAX / 2) {
            return Some("dead-lettered");
        }
        let cancelled = view.send.cancelled_us.zip(view.send.cancel_asked_us);
        cancelled.is_some_and(|(answered, asked)| lost(asked, answered)).then_some("cancelled")
    }

    /// What a clock that was set forward in this time lets through above the limit: what may leave in the time that it left out.
    pub(super) fn forward_units(&self, from_us: u64, to_us: u64, budget: &Budget) -> u64 {
        let within = |fault: &&Injected| fault.began_us <= to_us + SLACK_US && fault.ended_us + SLACK_US >= from_us;
        let forward = self.faults.iter().filter(within).map(|fault| fault.forward.as_secs_f64()).sum::<f64>();
        (forward * budget.policy.scheduled_rate()).ceil() as u64
    }

    /// The last fault that had begun by then.
    pub(super) fn fault_before(&self, at_us: u64) -> Option<&Injected> {
        self.faults.iter().rev().find(|fault| fault.began_us <= at_us + SLACK_US)
    }

    /// No fault in this time.
    pub(super) fn quiet(&self, from_us: u64, to_us: u64) -> bool {
        !self.faults.iter().any(|fault| fault.began_us <= to_us && fault.ended_us >= from_us)
    }
}
