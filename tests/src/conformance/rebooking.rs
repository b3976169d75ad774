//! Sends that are booked again: a tenth of each second is theirs.

use sendslot_shared::settle::{Cooldown, Report, Scope};

use super::*;
use crate::most_in_window;

async fn throttle<E: Engine>(engine: &E, copy: &Envelope, nonce: u32, rest_s: u64) -> (u32, u32) {
    let rest = Duration::from_secs(rest_s);
    let cooldown = (rest_s > 0).then_some(Cooldown { rest, scope: Scope::Account });
    let (delay, elapsed, ending) = (Duration::ZERO, Duration::ZERO, Ending::Throttled);
    let action = engine
        .report(Report { envelope: copy, nonce, ending, delay, cooldown, elapsed, held_up: Duration::ZERO })
        .await;
    assert!(matches!(action, Action::PutBack(_)), "{action:?}");
    engine.send(&copy.draft).await.expect("a record").slot
}

/// Each from its own now + transit on: eight in a second of eighty, the others in the next one, none in another one's place.
pub async fn a_tenth_of_each_second_is_for_sends_that_are_booked_again<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let copies = engine.copies(&drafts("m", 800)).await;
    let mut slots = vec![];
    for (nonce, copy) in (1..).zip(&copies[..18]) {
        assert_send(claim_on_time(engine, copy, nonce).await);
        slots.push(throttle(engine, copy, nonce, 0).await);
    }
    let expected: Vec<_> =
        (40..48).map(|p| (S, p)).chain((0..8).map(|p| (S + 1, p))).chain([(S + 2, 0), (S + 2, 1)]).collect();
    assert_eq!(slots, expected);
    // whoever stood there hears it, and waits 2 s more: there is a tenth for such sends as well
    assert_eq!(
        moved(claim_on_time(engine, &copies[20], 99).await, slot_of(&copies[20])),
        (slot_of(&copies[20]) + 2 * SECOND, MoveReason::Displaced)
    );
}

/// R3: 500 429s at once, in the middle of a backlog: no two retries share a place, and the limit holds.
pub async fn five_hundred_simultaneous_throttles_share_no_slot<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let copies = engine.copies(&drafts("m", 1_000)).await;
    for (nonce, copy) in (1..).zip(&copies[..500]) {
        assert_send(claim_on_time(engine, copy, nonce).await);
    }
    let now = slot_of(&copies[499]) + 1;
    engine.set_clock(now).await;
    let mut slots = BTreeSet::new();
    let mut crew = Crew::new(engine, now);
    for (nonce, copy) in (1..).zip(&copies[..500]) {
        let slot = throttle(engine, copy, nonce, 3).await;
        assert!(slots.insert(slot), "{slot:?} twice");
        let status = engine.send(&copy.draft).await.expect("a record");
        assert_eq!((status.attempts, status.throttles, status.seq), (0, 1, 2));
        let at = status.at.expect("a slot");
        assert!(at.as_micros() >= now + 3 * SECOND, "not inside the cooldown");
        // their old copies come back: each is the issuer of its booking
        crew.put(at.as_micros(), copy.clone(), fresh_tag());
    }
    crew.take(copies[500..].iter().cloned());
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 1_000);
    let sends = crew.sent.iter().map(|(at, _, cost, _)| (*at, *cost)).collect();
    assert!(most_in_window(sends, SECOND) <= 100);
    // the cooldown of 3 s and 1,000 units at 80/s: nothing is wasted
    let last = crew.sent.iter().map(|(at, ..)| *at).max().expect("a send");
    assert!(last < now + 3 * SECOND + 1_000 * 12_500 + SECOND, "{} us", last - now);
}

/// B10, on the general path.
pub async fn order_inside_a_lane_is_arrival_order<E: Engine>(engine: &E) {
    let quotas = vec![sendslot_shared::limits::Quota::new(100, Duration::from_secs(3600))];
    let policy = with_lanes(Policy { transit: Duration::ZERO, ..per_second(4, 0.5) }, [reserved("a", 0.5)]);
    engine.set_policy(&Policy { quotas, max_cost: Some(1), ..policy }).await;
    // one of two units is a's, the other is for the rest
    let mut order = vec![];
    for i in 0..100 {
        let draft = if i % 2 == 0 { in_lane("a", format!("m{i}")) } else { good(message(format!("m{i}"))) };
        order.push(engine.reserve(&draft).await.expect("a slot").at.as_micros());
    }
    assert!(order.windows(2).all(|w| w[0] < w[1]), "{order:?}");
    assert_eq!(order[99], START + 49_500_000);
    // the hour's quota is used up: in batches as well
    let next = engine.copies(&drafts("n", 60)).await;
    assert_eq!(slot_of(&next[0]), START + 3600 * SECOND);
    assert!(next.windows(2).all(|w| slot_of(&w[0]) + SECOND == slot_of(&w[1])));
}

/// Late ones find room soon, though the backlog is long; those that had to move for them are sent as well.
pub async fn missed_sends_do_not_wait_for_the_whole_backlog<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let copies = engine.copies(&drafts("m", 2_000)).await;
    let mut crew = Crew::new(engine, START);
    let late: Vec<usize> = (0..2_000).filter(|i| i % 20 == 7 && *i < 400).collect();
    for (i, copy) in copies.into_iter().enumerate() {
        let by = if late.contains(&i) { 150_000 } else { 0 };
        crew.put(slot_of(&copy) + by, copy, fresh_tag());
    }
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 2_000);
    for i in late {
        let delay = crew.left(&format!("m{i}")) - (START + 250_000 + i as u64 * 12_500);
        assert!(delay < 2 * SECOND, "m{i} left {delay} us behind its slot");
    }
}

/// No worker for a minute: the calendar stands still meanwhile, and all leave in their order, none moved.
pub async fn an_outage_of_all_workers_keeps_the_order<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let copies = engine.copies(&drafts("m", 8_000)).await;
    let mut crew = Crew::new(engine, START);
    crew.take(copies[..80].iter().cloned());
    crew.work(START + SECOND + 249_000).await;
    // the first to ask is one in the middle
    let back = START + 61 * SECOND;
    crew.put(back, copies[3_000].clone(), 1);
    crew.now = back;
    for copy in copies[80..3_000].iter().chain(&copies[3_001..]) {
        crew.put(slot_of(copy).max(back + 1), copy.clone(), fresh_tag());
    }
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 8_000);
    assert!(crew.moves.len() < 80, "{} moves", crew.moves.len());
    let order: Vec<u64> = copies.iter().map(|c| crew.left(c.draft.id.as_str())).collect();
    let late = order.iter().zip(&copies).map(|(at, c)| at - slot_of(c));
    assert!(late.skip(80).all(|us| us < 61 * SECOND), "nobody waits longer than the outage");
}
