//! Shares of each second that other lanes cannot take.

use sendslot_shared::reserve::{BoundBy, Refusal};

use super::*;

const SHARE: f64 = 0.2;

fn otp_and_bulk() -> Policy {
    with_lanes(eighty(), [reserved("otp", SHARE)])
}

/// Books one-time passwords at an even rate for `s` seconds; each must stand in the current or the next second.
async fn assert_soon<E: Engine>(engine: &E, prefix: &str, from: u64, per_s: u64, s: u64) {
    for i in 0..per_s * s {
        let now = from + i * SECOND / per_s;
        engine.set_clock(now).await;
        let booking = engine.reserve(&in_lane("otp", format!("{prefix}{i}"))).await.expect("a slot");
        let second = (now / SECOND) as u32;
        assert!(booking.slot.0 <= second + 1, "{per_s}/s, number {i}: second {second} got {:?}", booking.slot);
    }
}

/// L1, L2: behind 100,000 of bulk, at any even rate up to the share.
pub async fn a_reserved_lane_finds_room_in_this_or_the_next_second_behind_a_hundred_thousand<E: Engine>(engine: &E) {
    engine.set_policy(&otp_and_bulk()).await;
    let bulk = engine.book(&drafts("bulk", 100_000)).await;
    let counts = per_slot_second(&bulk);
    // 60 units of the first second are left, and 12 of the 16 held ones
    assert_eq!(counts[&S], 48);
    let last = *counts.keys().last().expect("a second");
    assert!(counts.iter().all(|(s, n)| *s == S || *s == last || *n == 64), "80 less 16 held in each whole second");
    assert_eq!(counts.len(), 1 + (100_000 - 48_usize).div_ceil(64));
    let mut from = START;
    for per_s in [16, 1, 5, 10, 13, 15, 16] {
        assert_soon(engine, &format!("otp{per_s}-{from}-"), from, per_s, 3).await;
        from += 4 * SECOND;
    }
}

/// The same while bulk keeps coming and hints are lost: bulk takes its part of what is left of a second and no more.
pub async fn a_reserved_lane_keeps_its_share_while_bulk_keeps_coming<E: Engine>(engine: &E) {
    engine.set_policy(&otp_and_bulk()).await;
    engine.book(&drafts("bulk", 1_000)).await;
    for i in 0..48_u64 {
        let now = START + i * SECOND / 16;
        for part in engine.parts().await.iter().filter(|part| part.contains("full:")) {
            engine.lose(part).await;
        }
        engine.set_clock(now).await;
        engine.book(&drafts(&format!("more{i}-"), 8)).await;
        let booking = engine.reserve(&in_lane("otp", format!("otp{i}"))).await.expect("a slot");
        assert!(booking.slot.0 <= (now / SECOND) as u32 + 1, "number {i} got {:?}", booking.slot);
    }
}

pub async fn with_no_bulk_a_reserved_lane_uses_all<E: Engine>(engine: &E) {
    engine.set_policy(&otp_and_bulk()).await;
    let booked = engine.book(&many("otp", 220, |m| m.lane("otp"))).await;
    assert_eq!(per_slot_second(&booked), BTreeMap::from([(S, 60), (S + 1, 80), (S + 2, 80)]));
    assert_eq!(booked[0].bound_by, Some(BoundBy::Transit));
    assert_eq!(booked[1].bound_by, Some(BoundBy::Rate));
}

/// L2: the low lane has a share of its own, whatever the high one does.
pub async fn two_saturated_lanes_and_the_rest_each_get_their_part<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(eighty(), [reserved("otp", 0.2), reserved("mail", 0.3)])).await;
    engine.set_clock(START - 250_000).await;
    // one-time passwords may take their 16 and the 40 that nobody holds; then mail has its 24, and nothing is left
    let otp = engine.book(&many("otp", 560, |m| m.lane("otp"))).await;
    assert_eq!(per_slot_second(&otp), (0..10).map(|s| (S + s, 56)).collect());
    let mail = engine.book(&many("mail", 240, |m| m.lane("mail"))).await;
    assert_eq!(per_slot_second(&mail), (0..10).map(|s| (S + s, 24)).collect());
    let bulk = engine.book(&drafts("bulk", 40)).await;
    assert_eq!(per_slot_second(&bulk), BTreeMap::from([(S + 10, 40)]));
    assert_eq!(bulk[0].bound_by, Some(BoundBy::Rate));
    let more = engine.reserve(&good(message("more"))).await.expect("a slot");
    assert_eq!((more.slot, more.bound_by), ((S + 11, 0), Some(BoundBy::Lanes)));
}

/// Of a second that has begun other lanes hold their share of what is left.
pub async fn of_a_partly_elapsed_second_a_lane_holds_its_share_of_what_is_left<E: Engine>(engine: &E) {
    engine.set_policy(&otp_and_bulk()).await;
    // elapsed positions (start = now + 250 ms), bulk's units of this second
    for (i, (offset_ms, elapsed, expected)) in
        [(0, 20, 48), (100, 28, 41), (250, 40, 32), (500, 60, 16), (700, 76, 3), (740, 80, 0)].into_iter().enumerate()
    {
        let start = START + i as u64 * 600 * SECOND;
        let second = (start / SECOND) as u32;
        engine.set_clock(start + offset_ms * 1000).await;
        let booked = engine.book(&drafts(&format!("{i}-"), 80)).await;
        let here = booked.iter().filter(|b| b.slot.0 == second).count();
        assert_eq!(here, expected, "at {offset_ms} ms");
        if here > 0 {
            assert_eq!(booked[0].slot.1, elapsed, "at {offset_ms} ms");
        }
    }
}

/// What a lane has booked of its share is not held once more.
pub async fn what_a_lane_has_used_of_its_share_is_no_longer_held<E: Engine>(engine: &E) {
    engine.set_policy(&otp_and_bulk()).await;
    engine.book(&many("otp", 10, |m| m.lane("otp"))).await;
    let bulk = engine.book(&drafts("bulk", 200)).await;
    // 60 left, 10 taken, 6 of 16 still held: less than a share of 12 of what is left
    assert_eq!(per_slot_second(&bulk)[&S], 44);
    assert_eq!(per_slot_second(&bulk)[&(S + 1)], 64);
}

/// Whole units of a rate that is none: 20% of 97.5/s are 19, and a half of 7/3 per second is 1.
pub async fn shares_of_rates_that_are_no_whole_numbers_are_whole_units<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(per_second(100, 0.975), [reserved("otp", SHARE)])).await;
    engine.set_clock(START - 250_000).await;
    let bulk = engine.book(&drafts("a", 500)).await;
    let rooms: Vec<usize> = per_slot_second(&bulk).into_values().take(6).collect();
    assert_eq!(rooms, [79, 78, 79, 78, 79, 78], "98 and 97 in turn, less 19");
    assert_soon(engine, "otp", START, 19, 4).await;

    let later = START + 7200 * SECOND;
    let slow = Policy { per: Duration::from_secs(3), ..per_second(10, 0.7) };
    engine.set_policy(&with_lanes(slow, [reserved("otp", 0.5)])).await;
    engine.set_clock(later - 250_000).await;
    let bulk = engine.book(&drafts("b", 20)).await;
    let counts = per_slot_second(&bulk);
    // 7/3 per second: 3, 2, 2; one of each second is held
    assert_eq!(counts.values().take(6).copied().collect::<Vec<_>>(), [2, 1, 1, 2, 1, 1]);
    assert_soon(engine, "slow", later, 1, 5).await;
}

pub async fn an_unknown_lane_is_refused_and_leaves_no_trace<E: Engine>(engine: &E) {
    engine.set_policy(&otp_and_bulk()).await;
    engine.book(&drafts("m", 3)).await;
    let before = engine.dump().await;
    assert_eq!(engine.reserve(&in_lane("mail", "x")).await, Err(Refusal::UnknownLane));
    let mixed = [in_lane("mail", "y"), in_lane("otp", "z"), in_lane("default", "w")];
    let answers: Vec<bool> = engine.reserve_batch(&mixed).await.iter().map(Result::is_ok).collect();
    assert_eq!(answers, [false, true, true]);
    assert_eq!(engine.cancel(&mixed[1]).await, sendslot_shared::cancel::Cancelled::Cancelled);
    let after = engine.dump().await;
    assert!(!after.keys().any(|part| part.ends_with(":x") || part.ends_with(":y")));
    assert!(before.keys().all(|part| after.contains_key(part)));
}

/// A lane that is gone leaves its bookings valid, and no other lane inherits them.
pub async fn lanes_removed_and_added_again_keep_their_bookings<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(eighty(), [reserved("a", 0.1), reserved("otp", SHARE)])).await;
    engine.set_clock(START - 250_000).await;
    let copies = engine.copies(&many("otp", 16, |m| m.lane("otp"))).await;
    let otp = LaneName::new("otp").ok();
    assert_eq!(engine.send(&copies[0].draft).await.expect("a record").lane, otp);
    for lanes in [vec![], vec![reserved("mail", 0.5)], vec![reserved("mail", 0.1), reserved("a", 0.1)]] {
        engine.set_policy(&with_lanes(eighty(), lanes)).await;
        assert_eq!(engine.send(&copies[0].draft).await.expect("a record").lane, None);
        assert_eq!(engine.reserve(&in_lane("otp", "refused")).await, Err(Refusal::UnknownLane));
    }
    engine.set_policy(&otp_and_bulk()).await;
    assert_eq!(engine.send(&copies[0].draft).await.expect("a record").lane, otp);
    // what it uses counts from the moment it has a share again: 16 of this second are held once more
    let bulk = engine.book(&drafts("bulk", 100)).await;
    assert_eq!(per_slot_second(&bulk)[&S], 48);
    // and a send whose lane is gone is sent all the same
    engine.set_policy(&eighty()).await;
    let mut crew = Crew::new(engine, START);
    crew.take(copies);
    crew.finish().await;
    assert_eq!(crew.sent.len(), 16);
    crew.assert_sound();
}

pub async fn reservations_may_be_changed_while_a_backlog_waits<E: Engine>(engine: &E) {
    engine.set_policy(&otp_and_bulk()).await;
    engine.set_clock(START - 250_000).await;
    let backlog = engine.book(&drafts("bulk", 640)).await;
    assert_eq!(per_slot_second(&backlog), (0..10).map(|s| (S + s, 64)).collect());
    // lowered: the units that came free are used first
    engine.set_policy(&with_lanes(eighty(), [reserved("otp", 0.1)])).await;
    let more = engine.book(&drafts("more", 80)).await;
    assert_eq!(per_slot_second(&more), (0..10).map(|s| (S + s, 8)).collect());
    // raised: what is booked stands, what comes next leaves more
    engine.set_policy(&with_lanes(eighty(), [reserved("otp", 0.4)])).await;
    let last = engine.book(&drafts("last", 96)).await;
    assert_eq!(per_slot_second(&last), (10..12).map(|s| (S + s, 48)).collect());
    let otp = engine.book(&many("otp", 80 + 32, |m| m.lane("otp"))).await;
    assert_eq!(per_slot_second(&otp).into_values().collect::<Vec<_>>(), [[8; 10].as_slice(), &[32]].concat());
    // without lanes everything is for everybody
    engine.set_policy(&eighty()).await;
    assert_eq!(engine.reserve(&good(message("free"))).await.expect("a slot").slot, (S + 11, 48));
}

/// T33: what a lane could take over at any time is not kept free for it.
pub async fn a_reserved_lane_that_preempts_leaves_nothing_idle<E: Engine>(engine: &E) {
    let otp = Lane { preempts: true, ..reserved("otp", 0.2) };
    engine.set_policy(&with_lanes(eighty(), [otp, reserved("bills", 0.1)])).await;
    let bulk = engine.book(&drafts("m", 800)).await;
    let counts = per_slot_second(&bulk);
    assert!((1..10).all(|s| counts[&(S + s)] == 72), "all but the eight of bills: {counts:?}");
    // and it has its share at once
    engine.set_clock(START + SECOND).await;
    for i in 0..16 {
        let slot = engine.reserve(&in_lane("otp", format!("o{i}"))).await.expect("a slot");
        assert!(slot.at.as_micros() < START + 1_600_000, "{i}: {slot:?}");
    }
}
