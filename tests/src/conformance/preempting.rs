//! Urgent sends in the place of waiting ones.

use sendslot_shared::cancel::Cancelled;
use sendslot_shared::reserve::BoundBy;

use super::*;
use crate::most_in_window;

/// 80/s, with the lane `now` that preempts.
fn with_urgent() -> Policy {
    with_lanes(eighty(), [urgent()])
}

/// `n` bulk sends from START + 250 ms on, position 20 of the first second.
async fn backlog<E: Engine>(engine: &E, n: usize) -> Vec<Envelope> {
    engine.set_policy(&with_urgent()).await;
    let copies = engine.copies(&drafts("m", n)).await;
    assert_eq!(slot_of(&copies[0]), START + 250_000);
    copies
}

async fn now<E: Engine>(engine: &E, id: &str) -> Booking {
    engine.reserve(&in_lane("now", id)).await.expect("a slot")
}

pub async fn an_urgent_send_takes_the_first_place_and_the_waiting_one_hears_it_at_its_claim<E: Engine>(engine: &E) {
    let copies = backlog(engine, 1000).await;
    let first = now(engine, "u0").await;
    assert_eq!((first.slot, first.bound_by), ((S, 20), Some(BoundBy::TakeOver)));
    assert_eq!(now(engine, "u1").await.slot, (S, 21), "never under an urgent one");
    // they go where they wait about as long again, 2 s at least, and not behind all others
    let verdict = claim_on_time(engine, &copies[0], 1).await;
    assert_eq!(moved(verdict, slot_of(&copies[0])), (slot_of(&copies[160]), MoveReason::Displaced));
    let verdict = claim_on_time(engine, &copies[1], 1).await;
    assert_eq!(moved(verdict, slot_of(&copies[1])).0, slot_of(&copies[161]));
    assert_send(claim_on_time(engine, &copies[2], 1).await);
}

/// Exactly 300 ms is not more than 300 ms.
pub async fn a_free_slot_within_300_ms_is_taken_instead<E: Engine>(engine: &E) {
    backlog(engine, 24).await;
    let free = now(engine, "u0").await;
    assert_eq!((free.slot, free.bound_by), ((S, 44), Some(BoundBy::Rate)));
    let taken = now(engine, "u1").await;
    assert_eq!((taken.slot, taken.bound_by), ((S, 20), Some(BoundBy::TakeOver)));
}

pub async fn cancelling_the_urgent_one_gives_the_place_back_to_whom_it_belongs<E: Engine>(engine: &E) {
    let copies = backlog(engine, 1000).await;
    let draft = in_lane("now", "u");
    assert_eq!(engine.reserve(&draft).await.expect("a slot").slot, (S, 20));
    assert_eq!(engine.cancel(&draft).await, Cancelled::Cancelled);
    let next = engine.reserve(&good(message("next"))).await.expect("a slot");
    assert_eq!(next.at.as_micros(), slot_of(&copies[999]) + 12_500, "the place is not free");
    assert_send(claim_on_time(engine, &copies[0], 1).await);
}

pub async fn cancelling_a_displaced_send_frees_nothing<E: Engine>(engine: &E) {
    let copies = backlog(engine, 1000).await;
    let urgent = engine.copy(&in_lane("now", "u")).await;
    assert_eq!(engine.cancel(&copies[0].draft).await, Cancelled::Cancelled);
    assert_eq!(engine.cancel(&copies[0].draft).await, Cancelled::Cancelled);
    let next = engine.reserve(&good(message("next"))).await.expect("a slot");
    assert_eq!(next.at.as_micros(), slot_of(&copies[999]) + 12_500);
    assert_send(claim_on_time(engine, &urgent, 1).await);
}

/// Both orders: the place is free only when both are gone, and then once.
pub async fn a_place_of_two_is_free_once_when_both_are_cancelled<E: Engine>(engine: &E) {
    let copies = backlog(engine, 1000).await;
    let behind = slot_of(&copies[999]) + 12_500;
    let urgent = in_lane("now", "u");
    assert_eq!(engine.reserve(&urgent).await.expect("a slot").slot, (S, 20));
    assert_eq!(engine.cancel(&urgent).await, Cancelled::Cancelled);
    assert_eq!(engine.cancel(&copies[0].draft).await, Cancelled::Cancelled);
    assert_eq!(engine.reserve(&good(message("a"))).await.expect("a slot").slot, (S, 20));
    assert_eq!(engine.reserve(&good(message("b"))).await.expect("a slot").at.as_micros(), behind);
}

pub async fn the_last_unit_is_free_again_when_the_displaced_one_went_first<E: Engine>(engine: &E) {
    let copies = backlog(engine, 1000).await;
    let urgent = in_lane("now", "u");
    assert_eq!(engine.reserve(&urgent).await.expect("a slot").slot, (S, 20));
    assert_eq!(engine.cancel(&copies[0].draft).await, Cancelled::Cancelled);
    assert_eq!(engine.cancel(&urgent).await, Cancelled::Cancelled);
    // at most one send may stand at position 20 from now on
    let next = engine.copies(&drafts("n", 3)).await;
    let mut crew = Crew::new(engine, START);
    crew.take(copies.into_iter().skip(1));
    crew.take(next);
    crew.finish().await;
    crew.assert_sound();
}

pub async fn urgent_sends_stand_under_no_hole<E: Engine>(engine: &E) {
    let copies = backlog(engine, 1000).await;
    assert_eq!(engine.cancel(&copies[1].draft).await, Cancelled::Cancelled);
    let heavy = engine.reserve(&good(message("u").lane("now").cost(3))).await.expect("a slot");
    assert_eq!(heavy.slot, (S, 22), "20 to 22 has the hole at 21");
    assert_eq!(engine.reserve(&good(message("n"))).await.expect("a slot").slot, (S, 21), "the hole is still there");
}

/// A claimed send stands: also after the clock was set back below its slot.
pub async fn urgent_sends_stand_under_no_claimed_one_even_after_the_clock_was_set_back<E: Engine>(engine: &E) {
    let copies = backlog(engine, 1000).await;
    for copy in &copies[..30] {
        assert_send(claim_on_time(engine, copy, 1).await);
    }
    engine.set_clock(START + 100_000).await;
    let booking = now(engine, "u").await;
    let claimed = copies[..30].iter().any(|copy| slot_of(copy) == booking.at.as_micros());
    assert!(!claimed, "{:?}", booking.slot);
}

/// After lowering the rate what was sent lies in the future of the new grid.
pub async fn urgent_sends_stand_under_no_claimed_one_after_a_lowered_rate<E: Engine>(engine: &E) {
    let copies = backlog(engine, 1000).await;
    let mut crew = Crew::new(engine, START);
    crew.take(copies);
    crew.work(START + 600_000).await;
    engine.set_policy(&with_lanes(per_second(50, 0.8), [urgent()])).await;
    let urgent: Vec<Draft> = (0..30).map(|i| in_lane("now", format!("u{i}"))).collect();
    let copies = engine.copies(&urgent).await;
    crew.take(copies);
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 1030);
}

/// The units that other lanes hold are not for urgent sends either.
pub async fn urgent_sends_leave_the_guaranteed_share_of_other_lanes<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(eighty(), [urgent(), reserved("otp", 0.2)])).await;
    engine.set_clock(START - 250_000).await;
    engine.book(&drafts("m", 640)).await;
    let otp = engine.copies(&many("otp", 64, |m| m.lane("otp"))).await;
    let flood = engine.copies(&many("u", 256, |m| m.lane("now"))).await;
    let mut crew = Crew::new(engine, START);
    crew.take(otp);
    crew.take(flood);
    crew.finish().await;
    crew.assert_sound();
    for i in 0..64 {
        let left = crew.left(&format!("otp{i}"));
        let second = START + (i / 16) * SECOND;
        assert!((second..second + SECOND).contains(&left), "otp{i} left {} us late", left as i64 - second as i64);
    }
}

/// The same when the urgent ones come in the middle of the second, where the share is booked.
pub async fn urgent_sends_in_the_middle_of_a_second_displace_no_guaranteed_send<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(eighty(), [urgent(), reserved("otp", 0.2)])).await;
    engine.set_clock(START - 250_000).await;
    let bulk = engine.copies(&drafts("m", 640)).await;
    let otp = engine.copies(&many("otp", 16, |m| m.lane("otp"))).await;
    let mut crew = Crew::new(engine, START - 250_000);
    crew.take(bulk);
    crew.take(otp);
    crew.work(START + 300_000).await;
    let flood = engine.copies(&many("u", 60, |m| m.lane("now"))).await;
    crew.take(flood);
    crew.finish().await;
    crew.assert_sound();
    let displaced: Vec<_> = crew.moves.iter().filter(|(id, _)| id.starts_with("otp")).collect();
    assert!(displaced.is_empty(), "{displaced:?}");
}

/// A send that loses one of its units books all of them anew, and its other units are lost with it.
pub async fn heavy_sends_and_runs_that_lose_a_position_book_again_as_a_whole<E: Engine>(engine: &E) {
    engine.set_policy(&with_urgent()).await;
    // 20 units: 9 in front; and a run of 100 units over two seconds
    let heavy = engine.copy(&good(message("heavy").cost(20))).await;
    let run = engine.copy(&good(message("run").cost(90))).await;
    let rest = engine.copies(&drafts("m", 400)).await;
    let urgent = engine.copies(&many("u", 3, |m| m.lane("now"))).await;
    assert_eq!(slot_of(&urgent[0]), START + 250_000);
    let mut crew = Crew::new(engine, START);
    crew.take([heavy, run]);
    crew.take(rest);
    crew.take(urgent);
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 405);
    assert_eq!(crew.moves.iter().filter(|(id, why)| id == "heavy" && *why == MoveReason::Displaced).count(), 1);
    assert_eq!(crew.moves.iter().filter(|(id, _)| id == "run").count(), 0, "{:?}", crew.moves);
}

/// Urgent sends under the second half of a run: it moves as a whole, though its first unit is untouched.
pub async fn a_run_that_loses_its_tail_moves<E: Engine>(engine: &E) {
    engine.set_policy(&with_urgent()).await;
    let run = engine.copy(&good(message("run").cost(90).not_before(time(START + SECOND)))).await;
    let rest = engine.copies(&drafts("m", 400)).await;
    let mut crew = Crew::new(engine, START);
    crew.take([run]);
    crew.take(rest);
    crew.work(START + 900_000).await;
    let urgent = engine.copies(&many("u", 3, |m| m.lane("now"))).await;
    crew.take(urgent);
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.moves.iter().filter(|(id, why)| id == "run" && *why == MoveReason::Displaced).count(), 1);
}

/// Urgent traffic at half the rate for a minute: each within 310 ms of the transit, nothing lost, no position twice.
pub async fn urgent_traffic_leaves_soon_and_nothing_is_lost<E: Engine>(engine: &E) {
    let copies = backlog(engine, 800).await;
    let mut crew = Crew::new(engine, START);
    crew.take(copies);
    for i in 0..400_u64 {
        let at = START + i * 25_000;
        crew.work(at).await;
        let copy = engine.copy(&in_lane("now", format!("u{i}"))).await;
        assert!(slot_of(&copy) <= at + 250_000 + 312_500, "u{i} in {} us", slot_of(&copy) - at);
        crew.take([copy]);
    }
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 1200);
    assert!(crew.moves.iter().all(|(id, why)| id.starts_with('m') && *why == MoveReason::Displaced));
}

/// L4, notification-api#1308: the limit holds whatever lane or path a send takes.
pub async fn no_window_holds_more_than_the_limit_whatever_lane_or_path<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(eighty(), [reserved("otp", 0.2), urgent()])).await;
    let mut crew = Crew::new(engine, START);
    crew.take(engine.copies(&many("m", 300, |m| m)).await);
    crew.take(engine.copies(&many("h", 20, |m| m.cost(15))).await);
    for i in 0..100_u64 {
        // every third claim is late by up to the patience, which the guard allows, or more, which may move the send
        crew.late = [0, 123_000, 400_000][i as usize % 3];
        crew.work(START + i * 60_000).await;
        let lane = ["now", "otp", "default"][i as usize % 3];
        crew.take([engine.copy(&in_lane(lane, format!("u{i}"))).await]);
        let _ = engine.cancel(&good(message(format!("m{}", 299 - i)))).await;
    }
    crew.finish().await;
    crew.assert_sound();
    let sends = crew.sent.iter().map(|(at, _, cost, _)| (*at, *cost)).collect();
    assert!(most_in_window(sends, SECOND) <= 100);
}
