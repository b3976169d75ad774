//! Limits in fixed windows besides the rate.

use sendslot_shared::cancel::Cancelled;
use sendslot_shared::limits::Quota;

use super::*;

const HOUR: u64 = 3600;

fn quota(units: u32, window_s: u64, offset_s: i32) -> Quota {
    Quota { units, window: Duration::from_secs(window_s), offset_s }
}

fn with_quotas(policy: Policy, quotas: &[Quota]) -> Policy {
    Policy { quotas: quotas.to_vec(), ..policy }
}

/// Five an hour.
fn five() -> Policy {
    with_quotas(eighty(), &[quota(5, HOUR, 0)])
}

async fn instants<E: Engine>(engine: &E, drafts: &[Draft]) -> Vec<u64> {
    engine.book(drafts).await.iter().map(|b| b.at.as_micros() - START).collect()
}

/// How many leave in each window of `window_s` from [`START`] on.
fn per_window(instants: &[u64], window_s: u64) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for at in instants {
        *counts.entry(at / SECOND / window_s * window_s).or_insert(0) += 1;
    }
    counts
}

/// Windows from half past to half past; nothing stands within the jitter before an edge, and the first at the edge itself.
pub async fn windows_begin_at_their_offset_to_the_microsecond<E: Engine>(engine: &E) {
    let edge = 1800 * SECOND;
    engine.set_policy(&with_quotas(eighty(), &[quota(10, HOUR, 1800)])).await;
    engine.set_clock(START + edge - SECOND).await;
    let all = instants(engine, &drafts("m", 25)).await;
    assert_eq!(all[..10], (0..10).map(|i| edge - 750_000 + i * 12_500).collect::<Vec<_>>());
    assert_eq!(all[10..20], (0..10).map(|i| edge + i * 12_500).collect::<Vec<_>>());
    assert_eq!(all[20..], (0..5).map(|i| edge + HOUR * SECOND + i * 12_500).collect::<Vec<_>>());
    // the jitter is 50 ms: 62.5 before the edge is early enough, 50 is not
    let later = edge + 8 * HOUR * SECOND;
    engine.set_clock(START + later - 312_500).await;
    assert_eq!(instants(engine, &drafts("a", 2)).await, [later - 62_500, later]);
}

/// The earliest instant that satisfies all.
pub async fn of_several_quotas_each_holds<E: Engine>(engine: &E) {
    let policy = Policy { max_cost: Some(1), ..with_quotas(eighty(), &[quota(5, 60, 0), quota(8, 90, 0)]) };
    for singly in [false, true] {
        let from = START + u64::from(singly) * 9000 * SECOND;
        engine.set_clock(from).await;
        engine.set_policy(&policy).await;
        let all = drafts(&format!("{singly}"), 32);
        let mut got = vec![];
        for part in all.chunks(if singly { 1 } else { 500 }) {
            got.extend(engine.book(part).await.iter().map(|b| b.at.as_micros() - from));
        }
        let expected = [(0, 5), (60, 3), (90, 2), (120, 5), (180, 5), (240, 3), (270, 2), (300, 5), (360, 2)];
        assert_eq!(per_window(&got, 30), BTreeMap::from(expected), "singly: {singly}");
        assert!(got.windows(2).all(|w| w[0] < w[1]));
        assert_eq!((got[5], got[8], got[10]), (60 * SECOND, 90 * SECOND, 120 * SECOND));
    }
}

pub async fn light_sends_fill_what_heavier_ones_leave_of_a_window<E: Engine>(engine: &E) {
    engine.set_policy(&with_quotas(eighty(), &[quota(10, HOUR, 0)])).await;
    let fours = instants(engine, &many("four", 4, |m| m.cost(4))).await;
    assert_eq!(per_window(&fours, HOUR), BTreeMap::from([(0, 2), (HOUR, 2)]));
    let ones = instants(engine, &drafts("one", 5)).await;
    assert_eq!(per_window(&ones, HOUR), BTreeMap::from([(0, 2), (HOUR, 2), (2 * HOUR, 1)]));
}

/// By cancelling, by an ended deadline, and when a passed booking is scheduled again.
pub async fn what_is_not_sent_comes_back_to_its_window<E: Engine>(engine: &E) {
    engine.set_policy(&five()).await;
    let mut all = drafts("m", 4);
    all.push(good(message("limited").deadline(time(START + 5 * SECOND))));
    let copies = engine.copies(&all).await;
    let here = async |id: &str| instants(engine, &[good(message(id))]).await[0] < HOUR * SECOND;
    assert!(!here("a").await);
    assert_eq!(engine.cancel(&copies[1].draft).await, Cancelled::Cancelled);
    assert!(here("b").await);
    assert!(!here("c").await, "once");
    engine.set_clock(START + 10 * SECOND).await;
    assert!(matches!(engine.verdict(&copies[4], 1).await, Verdict::Dead { .. }));
    assert!(here("d").await);
    assert!(!here("e").await);
    assert!(here("m0").await, "booked again, it has its own place");
    assert!(!here("f").await, "and it counts once");
}

/// Moved within its window it counts once, moved out of it no longer.
pub async fn a_send_that_is_booked_again_counts_once<E: Engine>(engine: &E) {
    engine.set_policy(&five()).await;
    let copies = engine.copies(&drafts("m", 5)).await;
    let mut crew = Crew::new(engine, START);
    for (nonce, copy) in (1..).zip(&copies[..3]) {
        assert_send(claim_on_time(engine, copy, nonce).await);
        let ending = [Ending::NotStarted, Ending::Throttled, Ending::Sent][nonce as usize - 1];
        match engine.settle(copy, nonce, ending).await {
            Action::PutBack(slot) => crew.take([next(copy, slot)]),
            Action::Again => crew.put(slot_of(copy), copy.clone(), 9),
            other => assert_eq!(other, Action::Acknowledge),
        }
    }
    // too late by seconds, they book again
    crew.late = 5 * SECOND;
    crew.take(copies[3..].iter().cloned());
    crew.late = 0;
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 4);
    assert!(crew.sent.iter().all(|(at, ..)| *at < START + HOUR * SECOND), "{:?}", crew.sent);
    assert_eq!(instants(engine, &drafts("n", 1)).await[0], HOUR * SECOND);
}

/// A quota is a law at the claim: lowered, it holds for what is booked.
pub async fn a_lowered_quota_holds_for_what_is_booked<E: Engine>(engine: &E) {
    engine.set_policy(&with_quotas(eighty(), &[quota(1000, HOUR, 0)])).await;
    let copies = engine.copies(&drafts("m", 50)).await;
    let mut crew = Crew::new(engine, START);
    crew.take(copies);
    crew.work(START + 300_000).await;
    assert_eq!(crew.sent.len(), 5);
    engine.set_policy(&Policy { max_cost: Some(1), ..with_quotas(eighty(), &[quota(20, HOUR, 0)]) }).await;
    crew.finish().await;
    crew.assert_sound();
    let sent: Vec<u64> = crew.sent.iter().map(|(at, ..)| at - START).collect();
    assert_eq!(per_window(&sent, HOUR), BTreeMap::from([(0, 20), (HOUR, 20), (2 * HOUR, 10)]));
    assert!(crew.moves.iter().all(|(_, why)| *why == MoveReason::Quota), "{:?}", crew.moves);
}

/// B11: 2030-12-31 23:59:30 to 2031-01-01 00:01:00.
pub async fn windows_hold_over_a_new_year<E: Engine>(engine: &E) {
    let midnight = 1_924_992_000 * SECOND;
    let policy = with_quotas(per_second(50, 0.9), &[quota(1_000, 86_400, 0), quota(600, 60, 0)]);
    engine.set_policy(&policy).await;
    let mut at = vec![];
    for half in 0..180 {
        engine.set_clock(midnight - 30 * SECOND + half * 500_000).await;
        at.extend(engine.book(&drafts(&format!("{half}-"), 12)).await.iter().map(|b| b.at.as_micros()));
    }
    let within = |from: u64, s: u64| at.iter().filter(|at| (from..from + s * SECOND).contains(at)).count();
    // 600 in the last minute of the year, then 600 and 400, and the rest on the second of January
    assert_eq!(within(midnight - 60 * SECOND, 60), 600);
    assert_eq!((within(midnight, 60), within(midnight + 60 * SECOND, 60)), (600, 400));
    assert_eq!(within(midnight, 86_400), 1_000);
    assert_eq!(within(midnight + 86_400 * SECOND, 60), 2_160 - 1_600);
}

/// B12: a quota's use that is lost begins at nothing, and nobody is stuck.
pub async fn a_lost_quota_begins_anew<E: Engine>(engine: &E) {
    engine.set_policy(&five()).await;
    let copies = engine.copies(&drafts("m", 8)).await;
    let uses: Vec<String> = engine.parts().await.into_iter().filter(|part| part.contains("q:")).collect();
    assert_eq!(uses.len(), 1);
    engine.lose(&uses[0]).await;
    assert!(instants(engine, &drafts("n", 1)).await[0] < HOUR * SECOND);
    assert_eq!(engine.cancel(&copies[0].draft).await, Cancelled::Cancelled);
    let mut crew = Crew::new(engine, START);
    crew.take(copies[1..].iter().cloned());
    crew.finish().await;
    let sent: Vec<u64> = crew.sent.iter().map(|(at, ..)| at - START).collect();
    assert_eq!(per_window(&sent, HOUR), BTreeMap::from([(0, 4), (HOUR, 3)]));
}

/// Wherever something comes back in a long backlog of full windows, and after the hours: nobody walks them again.
pub async fn full_windows_are_not_walked_twice<E: Engine>(engine: &E) {
    engine.set_policy(&with_quotas(eighty(), &[quota(2, 1, 0)])).await;
    let all = drafts("m", 20_000);
    let booked = engine.book(&all).await;
    for i in [15_000, 19_000, 300, 9_000, 9_001, 12_000] {
        let before = engine.operations().await;
        assert_eq!(engine.cancel(&all[i]).await, Cancelled::Cancelled);
        let next = engine.reserve(&good(message(format!("n{i}")))).await.expect("a slot");
        assert_eq!(next.slot.0, booked[i].slot.0, "what came back is used next");
        let operations = engine.operations().await - before;
        assert!(operations <= 70, "{operations} operations for a cancel and a booking");
    }
    // ten places of one unit fit no two
    for i in (100..10_000).step_by(1_000) {
        assert_eq!(engine.cancel(&all[i]).await, Cancelled::Cancelled);
    }
    let mut work = vec![];
    for i in 0..3 {
        let before = engine.operations().await;
        let two = engine.reserve(&good(message(format!("two{i}")).cost(2))).await.expect("a slot");
        assert!(two.slot.0 > booked[19_999].slot.0);
        work.push(engine.operations().await - before);
    }
    assert!(work[1] <= 70 && work[2] <= 70, "{work:?}");
    engine.set_clock(START + 4 * HOUR * SECOND).await;
    for i in 0..3 {
        let before = engine.operations().await;
        engine.reserve(&good(message(format!("later{i}")))).await.expect("a slot");
        let operations = engine.operations().await - before;
        assert!(operations <= 100, "{operations} operations after four hours");
    }
}
