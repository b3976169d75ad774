//! The positions and windows that broke the first version of the design: B1 to B9 of its model's report, played to the end by
//! workers. B6, the guard, is held by `properties`; more of B5 by `preempting`, of B7 and B8 by `quotas` and `spacing`.

use sendslot_shared::cancel::Cancelled;
use sendslot_shared::claim::DeadReason;
use sendslot_shared::limits::{Adaptive, Quota};
use sendslot_shared::reserve::Refusal;
use sendslot_shared::status::SendState;

use super::*;
use crate::most_in_window;

const HOUR: u64 = 3600 * SECOND;

/// Instants and costs of what left from `from` on.
fn left<E>(crew: &Crew<'_, E>, from: u64) -> Vec<(u64, u32)> {
    crew.sent.iter().filter(|(at, ..)| *at >= from).map(|(at, _, cost, _)| (*at, *cost)).collect()
}

/// Works to the end; each of `n` was sent, once and alone in its position.
async fn all_sent<E: Engine>(crew: &mut Crew<'_, E>, n: usize) {
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), n, "{:?}", crew.dead);
}

/// Another hour, so that nothing of the one before counts.
async fn anew<E: Engine>(engine: &E, n: usize, policy: Policy) -> u64 {
    let from = START + (n as u64 + 1) * HOUR;
    engine.set_clock(from - 60 * SECOND).await;
    engine.set_policy(&policy).await;
    engine.set_clock(from).await;
    from
}

/// B1: 41 of h = 0.8 put 120 of 100 into a second, 20 and 90 of h = 0.95 put 114 and 184.
pub async fn a_heavy_send_amid_a_full_calendar_leaves_within_the_limit<E: Engine>(engine: &E) {
    for (n, (headroom, cost)) in [(0.8, 41), (0.95, 20), (0.95, 90)].into_iter().enumerate() {
        let from = anew(engine, n, per_second(100, headroom)).await;
        let mut all = drafts(&format!("before{n}-"), 150);
        all.push(good(message(format!("heavy{n}")).cost(cost)));
        all.extend(drafts(&format!("behind{n}-"), 150));
        let mut crew = Crew::new(engine, from);
        crew.take(engine.copies(&all).await);
        all_sent(&mut crew, 301).await;
        assert!(crew.moves.is_empty(), "on time, nothing is refused: {:?}", crew.moves);
        let most = most_in_window(left(&crew, 0), SECOND);
        assert!(most <= 100, "{most} with a cost of {cost} and h = {headroom}");
    }
    let above = engine.reserve(&good(message("above").cost(101))).await;
    assert_eq!(above, Err(Refusal::CostTooLarge { max_cost: 100 }), "no second could hold it");
}

/// B2: with no time to be late every verdict was `missed`, and the send was booked again for ever.
pub async fn a_send_a_little_late_leaves_at_any_rate_and_headroom<E: Engine>(engine: &E) {
    let cases = [(1, 1, 0.8), (1, 6, 0.8), (2, 1, 0.8), (20, 3600, 0.8), (100, 1, 0.97), (100, 1, 0.99), (100, 1, 1.0)];
    for (n, (limit, per_s, headroom)) in cases.into_iter().enumerate() {
        let per = Duration::from_secs(per_s);
        let from = anew(engine, 3 * n, Policy { per, ..per_second(limit, headroom) }).await;
        let mut crew = Crew::new(engine, from);
        crew.late = 240_000;
        crew.take(engine.copies(&drafts(&format!("m{n}-"), 5)).await);
        all_sent(&mut crew, 5).await;
        assert!(crew.moves.is_empty(), "{limit} per {per_s} s: {:?}", crew.moves);
    }
}

/// B3: old bookings on the old grid and new ones on the new grid put 123 of 100 into a second.
pub async fn a_change_of_the_rate_puts_no_more_than_the_limit_into_a_second<E: Engine>(engine: &E) {
    for (n, (old, new)) in [(50, 100), (80, 100), (100, 50)].into_iter().enumerate() {
        let from = anew(engine, n, per_second(old, 0.95)).await;
        let mut crew = Crew::new(engine, from);
        crew.take(engine.copies(&drafts(&format!("old{n}-"), 300)).await);
        let change = from + 2 * SECOND;
        crew.work(change).await;
        engine.set_policy(&per_second(new, 0.95)).await;
        crew.take(engine.copies(&drafts(&format!("new{n}-"), 300)).await);
        all_sent(&mut crew, 600).await;
        let (ever, behind) = (most_in_window(left(&crew, 0), SECOND), most_in_window(left(&crew, change), SECOND));
        assert!(ever <= old.max(new) && behind <= new, "{old} to {new}: {ever}, {behind} behind the change");
    }
}

/// B3: steps of an adaptive rate from 50 to 95 put 144 of 100 into a second.
pub async fn an_adaptive_rate_on_its_way_up_puts_no_more_than_the_limit_into_a_second<E: Engine>(engine: &E) {
    let adaptive = Some(Adaptive { floor: 10, ceiling: None });
    let from = anew(engine, 0, Policy { adaptive, ..per_second(100, 0.95) }).await;
    let mut copies = vec![];
    for i in 0..3 {
        let copy = engine.copy(&good(message(format!("throttled{i}")))).await;
        engine.set_clock(slot_of(&copy).max(from + 2 * i * SECOND)).await;
        assert_send(engine.verdict(&copy, 1).await);
        let Action::PutBack(slot) = engine.settle(&copy, 1, Ending::Throttled).await else {
            panic!("it is booked again")
        };
        copies.push(next(&copy, slot));
    }
    let cut = engine.state().await.rate.expect("a rate");
    assert!(cut < 50.0, "{cut}/s");
    let mut crew = Crew::new(engine, from + 6 * SECOND);
    crew.take(copies);
    for round in 0..8 {
        crew.work(from + (6 + 5 * round) * SECOND).await;
        crew.take(engine.copies(&drafts(&format!("m{round}-"), 300)).await);
    }
    let risen = engine.state().await.rate.expect("a rate");
    assert!(risen > cut + 20.0, "from {cut}/s to {risen}/s");
    all_sent(&mut crew, 2403).await;
    assert!(most_in_window(left(&crew, 0), SECOND) <= 100);
}

/// B4: a count per second gave the second send's position to the third, and 139 of 100 to a second.
pub async fn a_cancelled_place_is_given_to_one_other<E: Engine>(engine: &E) {
    let from = anew(engine, 0, eighty()).await;
    let copies = engine.copies(&drafts("m", 160)).await;
    assert_eq!(engine.cancel(&copies[0].draft).await, Cancelled::Cancelled);
    let third = engine.copy(&good(message("third"))).await;
    assert_eq!(third.at, copies[0].at, "the place that came back, not its neighbour's");
    for copy in &copies[1..40] {
        assert_eq!(engine.cancel(&copy.draft).await, Cancelled::Cancelled);
    }
    let mut crew = Crew::new(engine, from);
    crew.take(engine.copies(&drafts("n", 39)).await);
    crew.take(copies[40..].iter().cloned().chain([third]));
    all_sent(&mut crew, 160).await;
    assert!(crew.moves.is_empty(), "{:?}", crew.moves);
    assert!(most_in_window(left(&crew, 0), SECOND) <= 100);
}

/// B5: a raise moved the border of what was taken over, and a cancelled urgent send that was not the first gave a place back
/// that was not free.
pub async fn no_position_is_used_twice_around_urgent_sends<E: Engine>(engine: &E) {
    for (n, raise) in [true, false].into_iter().enumerate() {
        let from = anew(engine, n, with_lanes(eighty(), [urgent()])).await;
        let mut all = engine.copies(&drafts(&format!("bulk{n}-"), 100)).await;
        let urgents: Vec<Draft> = (0..3).map(|i| in_lane("now", format!("urgent{n}-{i}"))).collect();
        let urgents = engine.copies(&urgents).await;
        assert_eq!(urgents[1].at, all[1].at, "in the place of a waiting one");
        if raise {
            engine.set_policy(&with_lanes(per_second(200, 0.8), [urgent()])).await;
            all.extend(urgents);
        } else {
            assert_eq!(engine.cancel(&urgents[1].draft).await, Cancelled::Cancelled);
            all.extend([urgents[0].clone(), urgents[2].clone()]);
        }
        all.extend(engine.copies(&drafts(&format!("more{n}-"), 300)).await);
        all.push(engine.copy(&in_lane("now", format!("last{n}"))).await);
        let mut crew = Crew::new(engine, from);
        let copies = all.len();
        crew.take(all);
        all_sent(&mut crew, copies).await;
        assert!(most_in_window(left(&crew, 0), SECOND) <= if raise { 200 } else { 100 });
    }
}

/// B7: the one late by the jitter and the one behind it on time are the spacing apart, and neither has to move.
pub async fn spacing_holds_between_a_late_send_and_one_on_time<E: Engine>(engine: &E) {
    let spacing = Duration::from_secs(6);
    let from = anew(engine, 0, Policy { spacing: Some(spacing), ..eighty() }).await;
    let copies = engine.copies(&many("m", 2, |m| m.recipient("r"))).await;
    let mut crew = Crew::new(engine, from);
    crew.put(slot_of(&copies[0]) + 120_000, copies[0].clone(), 1);
    crew.put(slot_of(&copies[1]), copies[1].clone(), 2);
    all_sent(&mut crew, 2).await;
    assert!(crew.moves.is_empty(), "{:?}", crew.moves);
    assert!(crew.left("m1") - crew.left("m0") >= us(spacing));
}

/// B8: booked again, a send is charged once: to the quota, and to its recipient.
pub async fn a_send_that_is_booked_again_is_charged_once<E: Engine>(engine: &E) {
    let quotas = vec![Quota::new(3, Duration::from_secs(3600))];
    let policy = Policy { spacing: Some(Duration::from_secs(6)), quotas, max_cost: Some(1), ..eighty() };
    let from = anew(engine, 0, policy).await;
    let to_r = many("m", 4, |m| m.recipient("r"));
    let mut copy = engine.copy(&to_r[0]).await;
    for nonce in 1..=3 {
        assert_send(claim_on_time(engine, &copy, 10 * nonce).await);
        assert_eq!(
            engine.settle(&copy, 10 * nonce, Ending::NotStarted).await,
            Action::Again,
            "it stands where it stood"
        );
        assert_send(engine.verdict(&copy, nonce).await);
        let Action::PutBack(slot) = engine.settle(&copy, nonce, Ending::Throttled).await else { panic!("again") };
        copy = next(&copy, slot);
    }
    let at = slot_of(&copy);
    let others = engine.copies(&to_r[1..]).await;
    let after = |copy: &Envelope| slot_of(copy) - at;
    assert!(after(&others[0]) <= 8 * SECOND && after(&others[1]) <= 16 * SECOND, "{} us", after(&others[1]));
    assert!(slot_of(&others[1]) < from + HOUR && slot_of(&others[2]) >= from + HOUR, "three an hour");
}

/// B9, a stated exception: a clock that jumps forward by d lets limit + r d through in real time.
pub async fn a_jump_of_the_clock_lets_through_what_is_stated_and_no_more<E: Engine>(engine: &E) {
    let from = anew(engine, 0, eighty()).await;
    let mut crew = Crew::new(engine, from);
    crew.take(engine.copies(&drafts("m", 400)).await);
    let (seen, jump) = (from + 2 * SECOND, SECOND);
    crew.work(seen).await;
    crew.now += jump;
    all_sent(&mut crew, 400).await;
    assert!(most_in_window(left(&crew, 0), SECOND) <= 100, "by Redis' clock the limit holds");
    let real = left(&crew, 0).into_iter().map(|(at, cost)| (if at > seen { at - jump } else { at }, cost)).collect();
    let most = most_in_window(real, SECOND);
    assert!(most <= 100 + 80, "{most}");
}

/// B9: such a jump ends leases, so a call under way is parked; how it ended is recorded all the same.
pub async fn a_jump_of_the_clock_parks_what_is_under_way_and_its_end_still_counts<E: Engine>(engine: &E) {
    anew(engine, 0, eighty()).await;
    let copy = engine.copy(&good(message("m"))).await;
    assert_send(claim_on_time(engine, &copy, 1).await);
    engine.set_clock(slot_of(&copy) + 20 * SECOND).await;
    let parked = engine.verdict(&copy, 2).await;
    assert_eq!(parked, Verdict::Dead { reason: DeadReason::UnknownOutcome, attempts: 1 });
    assert_eq!(engine.settle(&copy, 1, Ending::Sent).await, Action::Acknowledge);
    assert_eq!(engine.send(&copy.draft).await.expect("a record").state, SendState::Sent);
}
