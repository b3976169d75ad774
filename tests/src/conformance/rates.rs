//! Rates that change: by a new policy, by a ramp, by what the provider takes.

use sendslot_shared::limits::{Adaptive, RampStep};
use sendslot_shared::settle::Report;
use sendslot_shared::time::Instant;

use super::*;
use crate::most_in_window;

fn sends(crew: &Crew<'_, impl Engine>, from: u64, to: u64) -> Vec<(u64, u32)> {
    crew.sent.iter().filter(|(at, ..)| (from..to).contains(at)).map(|(at, _, cost, _)| (*at, *cost)).collect()
}

/// B8: with lanes, urgent sends and holes about: nobody later than before, nothing lost.
pub async fn raising_the_rate_makes_nobody_wait_longer<E: Engine>(engine: &E) {
    let policy = |limit| with_lanes(per_second(limit, 0.8), [reserved("otp", 0.2), urgent()]);
    engine.set_policy(&policy(50)).await;
    let copies = engine.copies(&drafts("m", 400)).await;
    let before: Vec<u64> = copies.iter().map(slot_of).collect();
    engine.set_policy(&policy(100)).await;
    let mut crew = Crew::new(engine, START);
    crew.take(copies);
    crew.finish().await;
    crew.assert_sound();
    for (i, before) in before.into_iter().enumerate() {
        let left = crew.left(&format!("m{i}"));
        assert!(left <= before, "m{i} {} us later", left - before);
    }
    assert!(crew.moves.is_empty(), "{:?}", crew.moves);
}

/// B8: 100/s to 10/s with 1,000 booked ahead is obeyed at once.
pub async fn lowering_the_rate_is_obeyed_at_once<E: Engine>(engine: &E) {
    let policy = |limit| with_lanes(per_second(limit, 0.8), [reserved("otp", 0.2), urgent()]);
    engine.set_policy(&policy(100)).await;
    let copies = engine.copies(&drafts("m", 300)).await;
    let mut crew = Crew::new(engine, START);
    crew.take(copies);
    crew.work(START + SECOND).await;
    engine.set_policy(&policy(10)).await;
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 300);
    assert!(most_in_window(sends(&crew, START + SECOND, u64::MAX), SECOND) <= 10);
    let last = crew.sent.iter().map(|(at, ..)| *at).max().expect("a send");
    assert!(last < START + 40 * SECOND, "240 at 8/s: {} s", (last - START) / SECOND);
}

/// Bookings ahead stand on the rate of their second, and the guard changes with it.
pub async fn a_ramp_is_honoured_by_bookings_ahead_and_by_the_guard<E: Engine>(engine: &E) {
    let step = |s: u64, limit| RampStep { from: Instant::from_micros(START + s * SECOND), limit };
    let ramp = vec![step(5, 200), step(10, 50)];
    engine.set_policy(&Policy { ramp, max_cost: Some(10), ..eighty() }).await;
    engine.set_clock(START - 250_000).await;
    let all = drafts("m", 5 * 80 + 5 * 160 + 5 * 40);
    let bookings = engine.book(&all).await;
    let rate = |s: u32| {
        if s < 5 {
            80
        } else if s < 10 {
            160
        } else {
            40
        }
    };
    assert_eq!(per_slot_second(&bookings), (0..15).map(|s| (S + s, rate(s))).collect());
    let mut crew = Crew::new(engine, START - 250_000);
    crew.take(all.iter().zip(bookings).map(|(d, b)| Envelope::first(d.clone(), b.seq, b.at)));
    crew.finish().await;
    crew.assert_sound();
    assert!(crew.moves.is_empty(), "{:?}", crew.moves);
    assert_eq!(crew.sent.len(), all.len());
    // the guard lets no second have more than the limit in force
    engine.set_clock(START + 20 * SECOND).await;
    let late = engine.copies(&drafts("late", 120)).await;
    let end = slot_of(&late[119]);
    let mut crew = Crew::new(engine, end);
    for copy in late {
        crew.put(end, copy, fresh_tag());
    }
    crew.finish().await;
    assert!(most_in_window(sends(&crew, 0, u64::MAX), SECOND) <= 50);
    assert_eq!(crew.sent.len(), 120);
}

fn adaptive(floor: u32, ceiling: Option<u32>) -> Policy {
    Policy { adaptive: Some(Adaptive { floor, ceiling }), max_attempts: 255, ..eighty() }
}

async fn rate<E: Engine>(engine: &E) -> f64 {
    engine.state().await.rate.expect("a rate")
}

/// Claims a new send and reports a 429 for a call that began `ago` before.
async fn throttle<E: Engine>(engine: &E, id: &str, now: u64, ago: Duration) {
    engine.set_clock(now - 500_000).await;
    let copy = engine.copy(&in_lane("now", id)).await;
    let at = slot_of(&copy).max(now - 250_000);
    engine.set_clock(at).await;
    assert_send(engine.verdict(&copy, 1).await);
    engine.set_clock(now).await;
    let (delay, ending) = (Duration::from_secs(3000), Ending::Throttled);
    let report =
        Report { envelope: &copy, nonce: 1, ending, delay, cooldown: None, elapsed: ago, held_up: Duration::ZERO };
    assert!(matches!(engine.report(report).await, Action::PutBack(_)));
}

/// x 0.75, at most once a second, only by calls begun after the last cut, never under the floor.
pub async fn a_throttle_cuts_the_rate_once<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(adaptive(20, None), [lane("now")])).await;
    assert_eq!(rate(engine).await, 80.0);
    let ms = Duration::from_millis;
    throttle(engine, "a", START + SECOND, ms(10)).await;
    assert_eq!(rate(engine).await, 60.0);
    throttle(engine, "b", START + 1_900_000, ms(10)).await;
    assert_eq!(rate(engine).await, 60.0, "once a second");
    throttle(engine, "c", START + 3 * SECOND, ms(2001)).await;
    assert_eq!(rate(engine).await, 60.0, "begun before the cut");
    throttle(engine, "d", START + 3_500_000, ms(2499)).await;
    assert_eq!(rate(engine).await, 44.0, "11 twentieths");
    throttle(engine, "e", START + 5 * SECOND, ms(10)).await;
    assert_eq!(rate(engine).await, 32.0);
    for (i, expected) in [24.0, 16.0, 16.0, 16.0].into_iter().enumerate() {
        throttle(engine, &format!("f{i}"), START + (7 + 2 * i as u64) * SECOND, ms(10)).await;
        assert_eq!(rate(engine).await, expected);
    }
}

/// + 5% of the limit after 5 clean seconds in which it was the bottleneck, up to the ceiling.
pub async fn a_busy_clean_rate_rises_to_its_ceiling<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(adaptive(10, Some(80)), [lane("now")])).await;
    assert_eq!(rate(engine).await, 64.0, "the ceiling is 16 twentieths");
    throttle(engine, "a", START + SECOND, Duration::from_millis(10)).await;
    assert_eq!(rate(engine).await, 48.0);
    engine.book(&drafts("m", 500)).await;
    let mut seen = vec![];
    for s in 1..30 {
        engine.set_clock(START + s * SECOND + 500_000).await;
        engine.book(&drafts(&format!("x{s}-"), 100)).await;
        // a raise holds from now + lead + 2 s on
        engine.set_clock(START + s * SECOND + 4_600_000).await;
        seen.push(rate(engine).await);
    }
    seen.dedup();
    assert_eq!(seen, [48.0, 52.0, 56.0, 60.0, 64.0]);
}

pub async fn an_idle_rate_does_not_rise<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(adaptive(10, None), [lane("now")])).await;
    throttle(engine, "a", START + SECOND, Duration::from_millis(10)).await;
    for s in 2..40 {
        engine.set_clock(START + s * SECOND).await;
        engine.book(&drafts(&format!("x{s}-"), 10)).await;
    }
    assert_eq!(rate(engine).await, 60.0);
}

/// What waits does not stay where it was booked: a copy that wakes up in its lead or at a hop takes an earlier place.
pub async fn a_raised_rate_lets_what_wakes_up_leave_earlier<E: Engine>(engine: &E) {
    engine.set_policy(&per_second(10, 0.8)).await;
    let copies = engine.copies(&drafts("m", 480)).await;
    engine.set_clock(START + 2 * SECOND).await;
    engine.set_policy(&per_second(100, 0.8)).await;
    // 40 s ahead, and it wakes up 2.5 s before its slot; the higher rate holds by now
    let copy = &copies[320];
    let wakes = slot_of(copy) - 2_500_000;
    engine.set_clock(wakes).await;
    let (slot, why) = moved(engine.verdict(copy, 1).await, wakes);
    assert_eq!(why, MoveReason::Raised);
    assert!(slot < wakes + 300_000, "it leaves at once: {} us later", slot - wakes);
    let copy = Envelope { at: Some(Instant::from_micros(slot)), ..copy.clone() };
    assert_send(claim_on_time(engine, &copy, 1).await);
    // all of them, each woken 2.5 s before its slot
    let mut crew = Crew::new(engine, wakes);
    for copy in copies.iter().skip(321) {
        crew.put(slot_of(copy) - 2_500_000, copy.clone(), fresh_tag());
    }
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 159);
    let last = crew.sent.iter().map(|(at, ..)| *at).max().expect("a send");
    assert!(last < slot_of(&copies[479]) - 2 * SECOND, "{} us before its slot", slot_of(&copies[479]).saturating_sub(last));
    assert!(most_in_window(left(&crew), SECOND) <= 100);
}

/// P2: without waiting for the sends' own claims.
pub async fn the_told_instants_follow_a_lowered_rate<E: Engine>(engine: &E) {
    engine.set_policy(&per_second(100, 0.9)).await;
    let copies = engine.copies(&drafts("m", 900)).await;
    let now = START + SECOND / 4;
    engine.set_clock(now).await;
    engine.set_policy(&per_second(45, 0.9)).await;
    let mut told = BTreeMap::new();
    for copy in &copies {
        let send = engine.send(&copy.draft).await.expect("a record");
        told.insert(copy.draft.id.to_string(), (send.at.expect("an instant").as_micros(), send.stands));
    }
    let mut crew = Crew::new(engine, now);
    crew.take(copies);
    crew.finish().await;
    let (mut stood, mut worst) = (0, 0);
    for (at, _, _, id) in &crew.sent {
        let (told, stands) = told[id];
        stood += usize::from(stands);
        worst = worst.max(at.abs_diff(told) / if stands { 1 } else { 10 });
    }
    assert_eq!(crew.sent.len(), 900);
    assert!(stood > 300, "those below the new capacity stand: {stood}");
    let last = crew.sent.iter().map(|(at, ..)| *at).max().expect("a send");
    let told_last = told.values().map(|(at, _)| *at).max().expect("an instant");
    assert!(last.abs_diff(told_last) < SECOND, "the last one leaves at +{} us, told +{}", last - now, told_last - now);
    assert!(worst < 250_000, "{worst}");
}

fn left<E>(crew: &Crew<'_, E>) -> Vec<(u64, u32)> {
    crew.sent.iter().map(|(at, _, cost, _)| (*at, *cost)).collect()
}
