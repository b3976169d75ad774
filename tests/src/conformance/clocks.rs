//! Clocks that step, data that is lost, and days of use; with everything that a policy can have.

use sendslot_shared::cancel::Cancelled;
use sendslot_shared::limits::{Adaptive, Quota, RampStep};
use sendslot_shared::time::Instant;

use super::*;
use crate::most_in_window;

/// Lanes, urgent sends, quotas, spacing, a ramp that changes nothing, an adaptive rate.
fn everything() -> Policy {
    let ramp = vec![RampStep { from: Instant::from_micros(START + 86_400 * SECOND * 20), limit: 100 }];
    Policy {
        horizon: Duration::from_secs(14 * 86_400),
        quotas: vec![Quota::new(4_000, Duration::from_secs(60)), Quota::new(1_000_000, Duration::from_secs(86_400))],
        spacing: Some(Duration::from_secs(1)),
        adaptive: Some(Adaptive { floor: 10, ceiling: None }),
        ramp,
        max_attempts: 255,
        ..with_lanes(eighty(), [reserved("otp", 0.2), urgent()])
    }
}

/// A mix of lanes and costs, each to another recipient.
fn mixed(prefix: &str, n: usize) -> Vec<Draft> {
    let one = |i: usize| {
        let lane = ["default", "otp", "default", "now", "default"][i % 5];
        let cost = if i.is_multiple_of(11) { 4 } else { 1 };
        good(message(format!("{prefix}{i}")).lane(lane).cost(cost).recipient(format!("{prefix}{i}")))
    };
    (0..n).map(one).collect()
}

fn sends<E>(crew: &Crew<'_, E>) -> Vec<(u64, u32)> {
    crew.sent.iter().map(|(at, _, cost, _)| (*at, *cost)).collect()
}

/// T2: back 120 s, forward an hour and home again: no frozen hour, no double rate, nothing lost.
pub async fn a_clock_that_steps_freezes_nothing_and_doubles_nothing<E: Engine>(engine: &E) {
    engine.set_policy(&everything()).await;
    let mut crew = Crew::new(engine, START);
    let copies = engine.copies(&mixed("a", 150)).await;
    crew.take(copies);
    crew.work(START + SECOND).await;
    // back: what is booked stands, what comes finds room soon
    let back = START - 119 * SECOND;
    engine.set_clock(back).await;
    let soon = engine.copies(&mixed("b", 50)).await;
    assert!(soon.iter().all(|copy| slot_of(copy) < back + 4 * SECOND));
    let mut behind = Crew::new(engine, back);
    behind.take(soon);
    behind.finish().await;
    behind.assert_sound();
    assert_eq!(behind.sent.len(), 50);
    assert!(most_in_window(sends(&behind), SECOND) <= 100);
    let last = behind.sent.iter().map(|(at, ..)| *at).max().expect("a send");
    assert!(last < back + 10 * SECOND, "{} s", (last - back) / SECOND);
    // an hour forward, and home
    crew.now = START + 2 * SECOND;
    let ahead = START + 3_602 * SECOND;
    engine.set_clock(ahead).await;
    let mut there = Crew::new(engine, ahead);
    let copies = engine.copies(&mixed("c", 50)).await;
    there.take(copies);
    there.work(ahead + 500_000).await;
    engine.set_clock(START + 2 * SECOND).await;
    let copies = engine.copies(&mixed("d", 50)).await;
    assert!(copies.iter().all(|copy| slot_of(copy) < START + 9 * SECOND));
    crew.take(copies);
    crew.take(there.queue.into_values().map(|(copy, _)| copy));
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len() + there.sent.len(), 250);
    let home: Vec<_> = sends(&crew).into_iter().filter(|(at, _)| *at < ahead).collect();
    assert!(most_in_window(home, SECOND) <= 100);
    let last = crew.left("d49");
    assert!(last < START + 15 * SECOND, "no frozen hour: {} s", (last - START) / SECOND);
}

/// B12: whatever part is lost, the next calls work, and what is still booked ends.
pub async fn any_part_may_be_lost<E: Engine>(engine: &E) {
    let mut lost = BTreeSet::new();
    let mut from = START;
    for round in 0..40 {
        engine.set_clock(from).await;
        engine.set_policy(&everything()).await;
        let copies = engine.copies(&mixed(&format!("m{round}-"), 120)).await;
        for copy in copies.iter().step_by(9) {
            assert_eq!(engine.cancel(&copy.draft).await, Cancelled::Cancelled);
        }
        // of each kind of part one: records, recipients and hints by their first
        let kind = |part: &String| part["s{b}".len()..].split(':').next().map(str::to_owned);
        let parts = engine.parts().await;
        let Some(part) = parts.iter().find(|part| !lost.contains(&kind(part))) else { break };
        lost.insert(kind(part));
        engine.lose(part).await;
        let mut crew = Crew::new(engine, from);
        crew.take(copies);
        if part.ends_with("policy") {
            // only claims and bookings that need it hear so; it is set again
            engine.set_policy(&everything()).await;
        }
        crew.work(from + SECOND).await;
        let more = engine.copies(&mixed(&format!("n{round}-"), 30)).await;
        crew.take(more);
        crew.finish().await;
        assert!(most_in_window(sends(&crew), SECOND) <= 100, "{part}");
        let expected = 120 - 14 + 30;
        assert!(crew.sent.len() >= expected, "{part}: {} of {expected}", crew.sent.len());
        let ids: BTreeSet<_> = crew.sent.iter().map(|(.., id)| id).collect();
        assert_eq!(ids.len(), crew.sent.len(), "{part}: no send twice");
        from += 600 * SECOND;
    }
    let kinds: Vec<String> = lost.into_iter().flatten().collect();
    for kind in ["cal", "policy", "lu", "holes", "pre", "q", "sp", "r", "hints", "full"] {
        assert!(kinds.iter().any(|k| k == kind), "{kind} was there: {kinds:?}");
    }
}

/// The calendar is cut behind itself every few hours: bookings ahead, holes, marks and uses stay where they are.
pub async fn fourteen_hours_of_use_keep_everything_in_its_place<E: Engine>(engine: &E) {
    engine.set_policy(&everything()).await;
    let end = START + 14 * 3600 * SECOND;
    let later = |prefix: &str, n: usize, lane: &str| -> Vec<Draft> {
        let one =
            |i| message(format!("{prefix}{i}")).lane(lane).recipient(format!("{prefix}{i}")).not_before(time(end));
        (0..n).map(|i| good(one(i))).collect()
    };
    // in the far second: 64 of bulk, 4 places back, 4 one-time passwords
    let bulk = later("bulk", 64, "default");
    let first = engine.copies(&bulk).await;
    let otp = engine.copies(&later("otp", 4, "otp")).await;
    for draft in &bulk[10..14] {
        assert_eq!(engine.cancel(draft).await, Cancelled::Cancelled);
    }
    let mut crew = Crew::new(engine, START);
    for hour in 0..14 {
        crew.work(START + hour * 3600 * SECOND).await;
        let copies = engine.copies(&mixed(&format!("h{hour}-"), 40)).await;
        crew.take(copies);
    }
    crew.work(end - 10 * SECOND).await;
    assert_eq!((crew.sent.len(), crew.moves.iter().filter(|(_, why)| *why != MoveReason::Displaced).count()), (560, 0));
    let filled = engine.book(&later("fill", 5, "default")).await;
    let slots: Vec<_> = filled.iter().map(|b| b.slot).collect();
    let second = S + 14 * 3600;
    assert_eq!(slots[..4], [(second, 10), (second, 11), (second, 12), (second, 13)]);
    assert_eq!(slots[4].0, second + 1, "12 of 16 are still held");
    let more = engine.book(&later("more", 12, "otp")).await;
    assert_eq!(per_slot_second(&more), BTreeMap::from([(second, 12)]));
    crew.take(first.into_iter().chain(otp));
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 560 + 60 + 4);
}

/// B7, on the general path.
pub async fn any_rational_rate_has_an_exact_grid_with_lanes_as_well<E: Engine>(engine: &E) {
    for (i, (limit, per_ms, headroom)) in
        [(100, 1_000, 0.975), (1000, 300_000, 0.9), (1, 2_000, 0.8), (20, 3_600_000, 0.97), (7, 3_000, 0.7777)]
            .into_iter()
            .enumerate()
    {
        let from = START + i as u64 * 100_000 * SECOND + 123_457;
        engine.set_clock(from).await;
        let horizon = Duration::from_secs(14 * 86_400);
        let policy = Policy { per: Duration::from_millis(per_ms), horizon, ..per_second(limit, headroom) };
        engine.set_policy(&with_lanes(policy.clone(), [urgent()])).await;
        // an earlier rate holds for another few seconds
        let now = from + 60 * SECOND;
        engine.set_clock(now).await;
        let compiled = policy.compile().expect("a good policy");
        let (num, den) = (u128::from(compiled.num), u128::from(compiled.den));
        let first = (u128::from(now + 250_000) * num).div_ceil(den * 1_000_000);
        let expected: Vec<u64> = (0..60).map(|k| ((first + k) * den * 1_000_000).div_ceil(num) as u64).collect();
        let mut all = drafts(&format!("{i}-"), 40);
        let mut got: Vec<u64> = engine.book(&all.split_off(20)).await.iter().map(|b| b.at.as_micros()).collect();
        for one in &all {
            got.push(engine.reserve(one).await.expect("a slot").at.as_micros());
        }
        got.extend(engine.book(&drafts(&format!("{i}+"), 20)).await.iter().map(|b| b.at.as_micros()));
        assert_eq!(got, expected, "{limit} per {per_ms} ms x {headroom}");
    }
}

/// A start far ahead stalls nobody, up to the horizon.
pub async fn a_not_before_up_to_the_horizon_stalls_nobody<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(Policy { horizon: Duration::from_secs(14 * 86_400), ..eighty() }, [urgent()])).await;
    let far = START + 14 * 86_400 * SECOND - SECOND;
    let before = engine.operations().await;
    let booking = engine.reserve(&good(message("far").not_before(time(far)))).await.expect("a slot");
    assert_eq!(booking.at.as_micros(), far);
    assert!(engine.operations().await - before < 25);
    assert_eq!(engine.reserve(&good(message("now"))).await.expect("a slot").at.as_micros(), START + 250_000);
    let after = good(message("after").not_before(time(far + SECOND + 1)));
    assert!(engine.reserve(&after).await.is_err(), "behind the horizon");
}

/// 100,000 with the same start: as many operations for each of the last as for each of the first.
pub async fn a_hundred_thousand_with_one_start_cost_the_same_each<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let at = START + 7200 * SECOND;
    let mut work = vec![];
    for batch in many("m", 100_000, |m| m.not_before(time(at))).chunks(500) {
        let before = engine.operations().await;
        engine.book(batch).await;
        work.push(engine.operations().await - before);
    }
    let most = work.iter().max().expect("some");
    assert!(*most <= 600, "{most} operations for 500 bookings");
    assert!(work[199] <= work[1] + 10, "{} at first, {} in the end", work[1], work[199]);
}

/// P6: a clock that was a day ahead for 2 s has cut the calendar; back home bookings begin at once, and what waited leaves.
pub async fn a_clock_that_was_a_day_ahead_costs_no_day<E: Engine>(engine: &E) {
    for (n, ahead) in [7_200, 86_400].into_iter().enumerate() {
        let from = START + n as u64 * 40 * 86_400 * SECOND;
        engine.set_clock(from).await;
        engine.set_policy(&with_lanes(eighty(), [reserved("otp", 0.2)])).await;
        let copies = engine.copies(&drafts(&format!("a{n}-"), 200)).await;
        engine.set_clock(from + ahead * SECOND).await;
        engine.book(&drafts(&format!("b{n}-"), 3)).await;
        engine.set_clock(from + 2 * SECOND).await;
        let soon = engine.copies(&drafts(&format!("c{n}-"), 50)).await;
        let last = soon.iter().map(slot_of).max().expect("a slot");
        assert!(last < from + 6 * SECOND, "{ahead}: {} s ahead", (last - from) / SECOND);
        let mut crew = Crew::new(engine, from + 2 * SECOND);
        crew.take(copies.into_iter().chain(soon));
        crew.finish().await;
        assert_eq!(crew.sent.len(), 250);
        assert!(most_in_window(sends(&crew), SECOND) <= 100);
    }
}
