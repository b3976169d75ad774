//! What the judge lets pass, and what it does not.

use std::sync::Arc;
use std::time::Duration;

use sendslot_localstack::provider::{Arrival, Body};

use super::super::asks::{Offer, Said};
use super::super::inject::{Injected, Loss};
use super::super::load::{AGAIN, LANES, budgets};
use super::super::monitor::Claim;
use super::*;

const S: u64 = 1_000_000;
const START: u64 = 1000 * S;

/// One accepted send of a budget, claimed and called at these seconds; the provider takes each call.
fn evidence(budget: &str, calls: &[u64], state: Option<SendState>) -> Evidence {
    let id = format!("{budget}-000001");
    let offer = Offer {
        budget: budget.to_owned(),
        id: id.clone(),
        lane: "default".to_owned(),
        cost: 1,
        not_before_us: None,
        deadline_us: None,
        together: false,
    };
    let mut evidence = Evidence::default();
    evidence.ledger.offered(&offer, None, START);
    let _ = evidence.ledger.heard(&id, &Said::Booked { wait_ms: 1000, again: false }, START + 1000);
    for (nonce, at_s) in (1..).zip(calls) {
        let at_us = START + at_s * S;
        evidence.claims.push(Claim { at_us, call_us: at_us, id: id.clone(), units: 1, nonce });
        evidence.sent.push((id.clone(), at_us + 10_000));
        evidence.arrivals.push(Arrival {
            at_us: at_s * S,
            unix_us: at_us + 5000,
            send_id: Arc::from(id.as_str()),
            units: 1,
            status: Some(200),
            accepted: true,
            body: Body::Missing,
        });
    }
    evidence.states.insert(id, state);
    evidence
}

fn fault(kind: Kind, at_s: u64, loss: Option<Loss>) -> Injected {
    Injected { kind, began_us: START + at_s * S, ended_us: START + (at_s + 2) * S, loss, forward: Duration::ZERO }
}

/// All that was told from one second on is forgotten at another.
fn loss(from_s: u64, at_s: u64) -> Option<Loss> {
    Some(Loss { from_us: START + from_s * S, at_us: START + at_s * S })
}

fn violations(evidence: &Evidence) -> Vec<String> {
    let judgement = Judgement::of(evidence, &budgets());
    judgement.violations.into_iter().map(|violation| violation.what).collect()
}

fn assert_wrong(evidence: &Evidence, words: &str) {
    let found = violations(evidence);
    assert!(found.iter().any(|what| what.contains(words)), "{words}: {found:?}");
}

#[test]
fn a_send_that_is_taken_once_and_known_as_sent_is_right() {
    let evidence = evidence(LANES, &[3], Some(SendState::Sent));
    assert_eq!(violations(&evidence), [""; 0]);
    assert_eq!(Judgement::of(&evidence, &budgets()).ends, BTreeMap::from([("sent", 1)]));
}

#[test]
fn a_second_call_is_explained_by_the_loss_of_the_first_alone() {
    let mut twice = evidence(LANES, &[3, 9], Some(SendState::Sent));
    assert_wrong(&twice, "taken by the provider twice");
    for (from_s, at_s, explained) in [(0, 5, true), (2, 4, true), (4, 5, false), (0, 2, false), (0, 12, false)] {
        twice.faults = vec![fault(Kind::RedisRewind, at_s, loss(from_s, at_s))];
        assert_eq!(violations(&twice).is_empty(), explained, "lost from {from_s} to {at_s}");
    }
}

#[test]
fn only_the_budget_that_says_so_sends_again_what_is_unknown() {
    for (budget, explained) in [(LANES, false), (AGAIN, true)] {
        let mut twice = evidence(budget, &[3, 12], Some(SendState::Sent));
        assert_wrong(&twice, "taken by the provider twice");
        // Redis was never told of the first
        twice.sent.remove(0);
        assert_eq!(violations(&twice).is_empty(), explained, "{budget}");
    }
}

#[test]
fn a_send_without_an_end_is_lost_unless_redis_forgot_its_end() {
    for state in [None, Some(SendState::Booked), Some(SendState::Claimed)] {
        assert_wrong(&evidence(LANES, &[], state), "has no end");
        let mut sent = evidence(LANES, &[3], state);
        assert_wrong(&sent, "has no end");
        sent.faults = vec![fault(Kind::RedisFlush, 6, loss(0, 6))];
        assert_eq!(violations(&sent), [""; 0]);
    }
    assert_wrong(&evidence(LANES, &[], Some(SendState::Sent)), "ended as sent, but");
    assert_wrong(&evidence(LANES, &[], Some(SendState::Unknown)), "ended as unknown, but");
    let mut expired = evidence(LANES, &[3], Some(SendState::Expired));
    expired.letters = vec![("tt-a-000001".to_owned(), "expired".to_owned())];
    assert_wrong(&expired, "ended as expired, but");
}

#[test]
fn a_cancel_that_was_answered_with_yes_is_never_followed_by_a_call() {
    let mut cancelled = evidence(LANES, &[8], Some(SendState::Sent));
    cancelled.ledger.asked_to_cancel("tt-a-000001", START + 2 * S);
    let _ = cancelled.ledger.heard("tt-a-000001", &Said::Cancelled, START + 2 * S + 1000);
    assert_wrong(&cancelled, "a cancel was answered with yes");
    cancelled.faults = vec![fault(Kind::RedisEmpty, 5, loss(0, 5))];
    assert_eq!(violations(&cancelled), [""; 0]);
}

#[test]
fn calls_without_claims_and_seconds_above_the_limit_are_seen() {
    let mut unclaimed = evidence(LANES, &[3], Some(SendState::Sent));
    unclaimed.claims.clear();
    assert_wrong(&unclaimed, "without a claim");
    unclaimed.faults = vec![fault(Kind::RedisRestart, 2, None)];
    assert_eq!(violations(&unclaimed), [""; 0], "MONITOR ends with the server");
    let mut again = evidence(LANES, &[3, 4], Some(SendState::Sent));
    again.claims.pop();
    assert_wrong(&again, "without a claim");
    let mut crowded = evidence(LANES, &[3], Some(SendState::Sent));
    let more =
        |at_us, delay_us| Claim { at_us, call_us: at_us + delay_us, id: "tt-a-000002".to_owned(), units: 1, nonce: 1 };
    crowded.claims.extend((0..60).map(|i| more(START + 3 * S + i, 0)));
    assert_wrong(&crowded, "61 units of 60 claimed within a second");
    for (at_s, explained) in [(2, true), (10, false)] {
        let forward = Duration::from_millis(20);
        crowded.faults = vec![Injected { forward, ..fault(Kind::ClockForward, at_s, None) }];
        assert_eq!(violations(&crowded).is_empty(), explained, "set forward at {at_s} s");
    }
    crowded.faults.clear();
    crowded.claims.pop();
    assert_eq!(violations(&crowded), [""; 0]);
    // counted when its call is made, not when it was claimed; the calls before it may come late by the jitter
    for (delay_ms, words) in [(900, "claimed within a second"), (1040, "claimed within a second and the jitter")] {
        crowded.claims.push(more(START + 3 * S, delay_ms * 1000));
        assert_wrong(&crowded, words);
        crowded.claims.pop();
    }
    crowded.claims.push(more(START + 3 * S, 1_060_000));
    assert_eq!(violations(&crowded), [""; 0]);
}
