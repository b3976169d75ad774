//! Sends that weigh more than one unit.

use sendslot_shared::claim::DeadReason;
use sendslot_shared::reserve::Refusal;

use super::*;
use crate::most_in_window;

/// 80/s that begins with a whole second.
async fn whole_seconds<E: Engine>(engine: &E, policy: &Policy) {
    engine.set_policy(policy).await;
    engine.set_clock(START - 250_000).await;
}

/// 80/s with u0 = 58.
fn roomy() -> Policy {
    let policy = per_second(200, 0.4);
    assert_eq!(policy.compile().expect("a good policy").u0, 58);
    policy
}

/// B5 on the way: three left take three and not four.
pub async fn light_sends_fill_what_heavier_ones_leave<E: Engine>(engine: &E) {
    for (round, policy) in [roomy(), with_lanes(roomy(), [lane("other")])].iter().enumerate() {
        let second = S + round as u32 * 600;
        engine.set_policy(policy).await;
        engine.set_clock(u64::from(second) * SECOND - 250_000).await;
        let elevens = engine.book(&many(&format!("e{round}-"), 70, |m| m.cost(11))).await;
        assert!(elevens.iter().enumerate().all(|(i, b)| b.slot == (second + i as u32 / 7, i as u32 % 7 * 11)));
        let fours = engine.book(&many(&format!("f{round}-"), 2, |m| m.cost(4))).await;
        assert_eq!([fours[0].slot, fours[1].slot], [(second + 10, 0), (second + 10, 4)]);
        let threes = engine.book(&many(&format!("t{round}-"), 5, |m| m.cost(3))).await;
        assert!(threes.iter().enumerate().all(|(i, b)| b.slot == (second + i as u32, 77)));
        let ones = engine.book(&drafts(&format!("o{round}-"), 16)).await;
        assert!(ones[..15].iter().enumerate().all(|(i, b)| b.slot == (second + 5 + i as u32 / 3, 77 + i as u32 % 3)));
        assert_eq!(ones[15].slot, (second + 10, 8));
    }
}

/// Constant work for a booking behind 10,000 seconds that are half full.
pub async fn ten_thousand_seconds_that_do_not_fit_are_not_walked_twice<E: Engine>(engine: &E) {
    whole_seconds(engine, &roomy()).await;
    let mut work = vec![];
    let mut booked = vec![];
    for batch in many("m", 10_000, |m| m.cost(41)).chunks(500) {
        let before = engine.operations().await;
        booked.extend(engine.book(batch).await);
        work.push(engine.operations().await - before);
    }
    assert!(booked.iter().enumerate().all(|(i, b)| b.slot == (S + i as u32, 0)));
    let (first, last) = (work[0], work[19]);
    assert!(last <= first + 50, "500 bookings: {first} operations at first, {last} in the end");
    let single = async |cost: u32, i: usize| {
        let before = engine.operations().await;
        let slot = engine.reserve(&good(message(format!("{cost}-{i}")).cost(cost))).await.expect("a slot").slot;
        (slot, engine.operations().await - before)
    };
    for i in 0..3 {
        let (slot, operations) = single(41, i).await;
        assert_eq!(slot, (S + 10_000 + i as u32, 0));
        assert!(operations <= 14, "{operations}");
    }
    // 3 ms a call: what is behind these seconds is walked by the next one
    for i in 0..8 {
        let (slot, operations) = single(40, i).await;
        assert_eq!(slot, (S + 10_003 + i as u32 / 2, i as u32 % 2 * 40));
        let most = if i < 5 { 300 } else { 14 };
        assert!(operations <= most, "every second fails a cost once, and a walk reads many at once: {operations}");
    }
    for i in 0..3 {
        let (slot, operations) = single(39, i).await;
        assert_eq!(slot, (S + i as u32, 41));
        assert!(operations <= 14, "{operations}");
    }
}

/// L3: with more traffic than the rate, a send of cost 8 leaves at the slot it was given, right behind what was there.
pub async fn endless_light_traffic_starves_no_heavy_send<E: Engine>(engine: &E) {
    whole_seconds(engine, &eighty()).await;
    let mut crew = Crew::new(engine, START - 250_000);
    let mut eight = None;
    for tenth in 0..60_u64 {
        crew.work(START - 250_000 + tenth * 100_000).await;
        let copies = engine.copies(&drafts(&format!("{tenth}-"), 16)).await;
        crew.take(copies);
        if tenth == 20 {
            let copy = engine.copy(&good(message("eight").cost(8))).await;
            assert_eq!(slot_of(&copy), START + 21 * 16 * 12_500, "behind 336 units");
            eight = Some(slot_of(&copy));
            crew.take([copy]);
        }
    }
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(Some(crew.left("eight")), eight);
    assert_eq!((crew.sent.len(), crew.moves.len()), (961, 0));
}

/// B4: with lanes, too, the most that fits is what the policy takes; a run is sent whole, behind its front. Others may stand between
/// its places, so it leaves as many in front as the guard asks for.
pub async fn a_run_of_seconds_leaves_a_reserved_lane_its_share<E: Engine>(engine: &E) {
    whole_seconds(engine, &with_lanes(eighty(), [reserved("otp", 0.2)])).await;
    let run = engine.copy(&good(message("run").cost(100))).await;
    // 92 + 100 units, 64 of each second: its own begin in the second one
    assert_eq!(engine.send(&run.draft).await.expect("a record").slot, (S + 1, 28));
    let otp = engine.book(&many("otp", 48, |m| m.lane("otp"))).await;
    assert_eq!(per_slot_second(&otp), (0..3).map(|s| (S + s, 16)).collect());
    let next = engine.reserve(&good(message("next"))).await.expect("a slot");
    assert_eq!(next.slot, (S + 3, 0), "nothing of its last second is left");
    assert_eq!(engine.reserve(&good(message("big").cost(101))).await, Err(Refusal::CostTooLarge { max_cost: 100 }));
    assert_send(claim_on_time(engine, &run, 1).await);
}

/// B4: lowered so far that it can never fit, it ends with that reason; one that fits in another way moves.
pub async fn queued_work_that_can_no_longer_fit_ends<E: Engine>(engine: &E) {
    whole_seconds(engine, &with_lanes(eighty(), [lane("other")])).await;
    engine.book(&drafts("m", 400)).await;
    let never = engine.copy(&good(message("never").cost(60))).await;
    let other = engine.copy(&good(message("other").cost(30))).await;
    engine.set_policy(&with_lanes(per_second(50, 0.8), [lane("other")])).await;
    let verdict = claim_on_time(engine, &never, 1).await;
    assert_eq!(verdict, Verdict::Dead { reason: DeadReason::Cost, attempts: 0 });
    let mut crew = Crew::new(engine, slot_of(&never));
    crew.take([other]);
    crew.finish().await;
    assert_eq!(crew.sent.len(), 1);
}

/// What becomes of sends of these costs that are offered at once: units a second, and how often one was moved. No rolling
/// second holds more than the limit, and everything is sent.
async fn used<E: Engine>(engine: &E, policy: &Policy, costs: &[u32], late: impl Fn(usize) -> u64) -> (f64, usize) {
    whole_seconds(engine, policy).await;
    let drafts: Vec<_> = costs.iter().enumerate().map(|(i, cost)| good(message(format!("m{i}")).cost(*cost))).collect();
    let mut crew = Crew::new(engine, START - 250_000);
    for (i, copy) in engine.copies(&drafts).await.into_iter().enumerate() {
        crew.late = late(i);
        crew.take([copy]);
    }
    crew.late = late(0);
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), costs.len(), "everything is sent");
    let mut calls: Vec<_> = crew.sent.iter().map(|(at, _, cost, _)| (*at, *cost)).collect();
    let most = most_in_window(calls.clone(), SECOND);
    assert!(most <= policy.limit, "{most} units in a second");
    calls.sort_unstable();
    let (first, last) = (calls[0], calls[calls.len() - 1]);
    let units: u32 = costs.iter().sum();
    (f64::from(units - last.1) / ((last.0 - first.0) as f64 / SECOND as f64), crew.moves.len())
}

const ON_TIME: fn(usize) -> u64 = |_| 0;

/// P7: two of 41 pass in a window of 100, where the guard alone lets one pass; and 39 beside 41.
pub async fn heavy_sends_use_what_the_law_allows<E: Engine>(engine: &E) {
    let (units, moves) = used(engine, &eighty(), &[41; 112], ON_TIME).await;
    assert!(units >= 75.0 && moves == 0, "{units} a second, {moves} moves");
}

pub async fn another_cost_fits_beside_a_heavy_one<E: Engine>(engine: &E) {
    let (units, moves) = used(engine, &eighty(), &[41, 39].repeat(55), ON_TIME).await;
    assert!(units >= 74.0 && moves == 0, "{units} a second, {moves} moves");
}

/// A window holds one of 41 with its twenty ones: 61 units in 1.05 s.
pub async fn heavy_sends_among_small_ones_keep_the_law<E: Engine>(engine: &E) {
    let costs: Vec<u32> = (0..30).flat_map(|_| [1; 20].into_iter().chain([41])).collect();
    let (units, moves) = used(engine, &eighty(), &costs, ON_TIME).await;
    assert!(units >= 57.0 && moves == 0, "{units} a second, {moves} moves");
}

/// At the default headroom u0 is 1: costs of 2 and 3 use the scheduled rate all the same.
pub async fn small_costs_above_one_use_the_scheduled_rate<E: Engine>(engine: &E) {
    let policy = per_second(100, 0.97);
    assert_eq!(policy.compile().expect("a good policy").u0, 1);
    let (units, moves) = used(engine, &policy, &[2; 1000], ON_TIME).await;
    assert!(units >= 96.5 && moves == 0, "{units} a second, {moves} moves");
}

pub async fn costs_of_three_use_the_scheduled_rate<E: Engine>(engine: &E) {
    let (units, moves) = used(engine, &per_second(100, 0.97), &[3; 600], ON_TIME).await;
    assert!(units >= 96.5 && moves == 0, "{units} a second, {moves} moves");
}

/// Those that are a little late go a little later, with no other moved; one that is seconds late loses its own place at most.
pub async fn late_heavy_sends_keep_the_law_and_most_of_the_rate<E: Engine>(engine: &E) {
    let random = |i: usize| fastrand::Rng::with_seed(i as u64);
    let (units, moves) = used(engine, &eighty(), &[41; 112], |i| random(i).u64(0..50_000)).await;
    assert!(units >= 75.0 && moves == 0, "{units} a second, {moves} moves");
}

pub async fn heavy_sends_that_are_seconds_late_keep_the_law<E: Engine>(engine: &E) {
    let late = |i: usize| match i % 20 {
        7 => fastrand::Rng::with_seed(i as u64).u64(0..5 * SECOND),
        _ => fastrand::Rng::with_seed(i as u64).u64(0..50_000),
    };
    // one in twenty loses its place
    let (units, _) = used(engine, &eighty(), &[41; 112], late).await;
    assert!(units >= 70.0, "{units} a second");
}

/// All of them are up to 5 s late: what is left then is what the law still has to hold.
pub async fn heavy_sends_that_are_all_seconds_late_keep_the_law<E: Engine>(engine: &E) {
    let late = |i: usize| fastrand::Rng::with_seed(i as u64).u64(0..5 * SECOND);
    let (units, _) = used(engine, &eighty(), &[41; 40], late).await;
    assert!(units > 0.0);
}
