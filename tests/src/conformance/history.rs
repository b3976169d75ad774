//! What is told of a send's life.

use sendslot_shared::reserve::BoundBy;
use sendslot_shared::settle::Report;
use sendslot_shared::status::{Event, SendState};
use sendslot_shared::time::Instant;

use super::*;

fn at(us: u64) -> Instant {
    Instant::from_micros(us)
}

async fn history<E: Engine>(engine: &E, draft: &Draft) -> Vec<Event> {
    engine.send(draft).await.expect("a record").history
}

/// Booked, claimed, called, settled; with their instants and the rule.
pub async fn a_sends_life_is_told_in_order<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    engine.set_clock(START + 120_000).await;
    let copies = engine.copies(&drafts("m", 2)).await;
    let booked = Event::Booked { at: at(START + 120_000), bound_by: BoundBy::Transit };
    assert_eq!(history(engine, &copies[0].draft).await, [booked]);
    let second = Event::Booked { at: at(START + 120_000), bound_by: BoundBy::Rate };
    assert_eq!(history(engine, &copies[1].draft).await, [second]);
    let slot = slot_of(&copies[0]);
    assert_send(claim_on_time(engine, &copies[0], 1).await);
    let lease_ends = at(slot.div_ceil(1000) * 1000 + us(crate::LEASE));
    assert_eq!(history(engine, &copies[0].draft).await, [booked, Event::Claimed { lease_ends }]);
    let end = START + 700_000;
    engine.set_clock(end).await;
    let (delay, cooldown, elapsed) = (Duration::ZERO, None, Duration::from_millis(150));
    let report = Report {
        envelope: &copies[0],
        nonce: 1,
        ending: Ending::Sent,
        delay,
        cooldown,
        elapsed,
        held_up: Duration::ZERO,
    };
    assert_eq!(engine.report(report).await, Action::Acknowledge);
    let called = Event::Called { at: at(end - 150_000) };
    let settled = Event::Settled { at: at(end), state: SendState::Sent };
    assert_eq!(history(engine, &copies[0].draft).await, [booked, called, settled]);
}

/// Each rule by its name.
pub async fn a_booking_names_the_rule_that_bound_it<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(eighty(), [reserved("otp", 0.2), urgent()])).await;
    engine.book(&drafts("m", 47)).await;
    let bound = async |draft: &Draft| {
        let booking = engine.reserve(draft).await.expect("a slot");
        let told = match engine.send(draft).await.expect("a record").history[..] {
            [Event::Booked { bound_by, .. }] => bound_by,
            ref other => panic!("{other:?}"),
        };
        assert_eq!(booking.bound_by, Some(told));
        told
    };
    assert_eq!(bound(&good(message("rate"))).await, BoundBy::Rate);
    assert_eq!(bound(&good(message("lanes"))).await, BoundBy::Lanes);
    assert_eq!(bound(&good(message("later").not_before(time(START + 60 * SECOND)))).await, BoundBy::NotBefore);
    assert_eq!(bound(&in_lane("now", "urgent")).await, BoundBy::TakeOver);
}

/// Why it moved, from where to where, and what it was bound by then.
pub async fn moves_are_told_with_their_reasons<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(eighty(), [urgent()])).await;
    let copies = engine.copies(&drafts("m", 100)).await;
    engine.reserve(&in_lane("now", "u")).await.expect("a slot");
    let copy = &copies[0];
    let now = slot_of(copy);
    let (to, _) = moved(claim_on_time(engine, copy, 1).await, now);
    let booked = Event::Booked { at: at(START), bound_by: BoundBy::Transit };
    let ms = |us: u64| at(us / 1000 * 1000);
    let displaced = Event::Moved {
        at: ms(now),
        why: MoveReason::Displaced,
        from: Some(ms(now)),
        to: ms(to),
        bound_by: BoundBy::Rate,
    };
    assert_eq!(history(engine, &copy.draft).await, [booked, displaced]);
    let seq = engine.send(&copy.draft).await.expect("a record").seq;
    let copy = Envelope { seq, at: Some(at(to)), ..copy.clone() };
    assert_send(claim_on_time(engine, &copy, 2).await);
    assert!(matches!(engine.settle(&copy, 2, Ending::Unavailable).await, Action::PutBack(_)));
    let told = history(engine, &copy.draft).await;
    assert_eq!(told[..2], [booked, displaced]);
    let again = engine.send(&copy.draft).await.expect("a record").at.expect("a slot").as_micros();
    let expected = |why, bound_by| Event::Moved { at: ms(to), why, from: Some(ms(to)), to: ms(again), bound_by };
    assert_eq!(told[2..], [expected(MoveReason::Unavailable, BoundBy::Transit)]);
    let _ = engine.cancel(&copy.draft).await;
    let told = history(engine, &copy.draft).await;
    assert_eq!(told.len(), 4);
    assert_eq!(told[3], Event::Settled { at: ms(to), state: SendState::Cancelled });
}
