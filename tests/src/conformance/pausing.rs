//! Stopping a budget, and letting it go on.

use sendslot_shared::reserve::Refusal;

use super::*;
use crate::most_in_window;

fn paused(verdict: Verdict) -> Duration {
    match verdict {
        Verdict::PutBack { slot, why: PutBack::Paused } => slot.wait,
        other => panic!("not paused: {other:?}"),
    }
}

/// A copy comes back after a minute, one at the head stays with its worker; when the pause is over all leave in their order.
pub async fn while_paused_nothing_is_sent_and_the_order_is_kept<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let copies = engine.copies(&drafts("m", 400)).await;
    let at = |i: usize| slot_of(&copies[i]);
    engine.pause(Some(Duration::from_secs(90))).await;
    assert_eq!(engine.state().await.paused_until.map(|at| at.as_micros()), Some(START + 90 * SECOND));
    // the told instant is true at once, and a deadline inside the pause is refused
    assert_eq!(
        engine.send(&copies[300].draft).await.expect("a record").at.map(|at| at.as_micros()),
        Some(at(300) + 90 * SECOND)
    );
    let inside = engine.reserve(&good(message("inside").deadline(time(START + 20 * SECOND)))).await;
    assert!(matches!(inside, Err(Refusal::PastDeadline { .. })), "{inside:?}");
    let new = engine.reserve(&good(message("new"))).await.expect("a slot");
    assert_eq!(new.at.as_micros(), at(399) + 12_500 + 90 * SECOND, "behind those that wait");
    go_to(engine, &copies[0]).await;
    let head = engine.verdict(&copies[0], 1).await;
    assert!(matches!(head, Verdict::Wait { wait, moved: None } if wait <= Duration::from_millis(2500)), "{head:?}");
    // a minute, and the lead that a worker takes off
    assert_eq!(paused(engine.verdict(&copies[300], 1).await), Duration::from_millis(61_500));
    engine.set_clock(START + 60 * SECOND).await;
    assert_eq!(us(paused(engine.verdict(&copies[301], 1).await)), at(301) + 90 * SECOND - (START + 60 * SECOND));
    let status = engine.send(&copies[300].draft).await.expect("a record");
    assert_eq!((status.attempts, status.hops, status.seq), (0, 1, 2));
    engine.set_clock(START + 90 * SECOND).await;
    assert_eq!(engine.state().await.paused_until, None, "a pause that is over needs no word");
    let mut crew = Crew::new(engine, START + 90 * SECOND);
    crew.take(copies.iter().filter(|c| !["m300", "m301"].contains(&c.draft.id.as_str())).cloned());
    crew.finish().await;
    crew.assert_sound();
    assert!(crew.moves.is_empty(), "{:?}", crew.moves);
    for (i, copy) in copies.iter().enumerate().filter(|(i, _)| ![300, 301].contains(i)) {
        assert_eq!(crew.left(copy.draft.id.as_str()), at(i) + 90 * SECOND);
    }
}

/// Without an end nobody knows when it goes on; told so, everything leaves from then on, in the same order.
pub async fn a_pause_that_is_lifted_early_or_has_no_end_keeps_the_order<E: Engine>(engine: &E) {
    for (n, rest) in [Duration::from_secs(600), sendslot_shared::budget::UNTIL_RESUMED].into_iter().enumerate() {
        let from = START + n as u64 * 3600 * SECOND;
        engine.set_clock(from).await;
        engine.set_policy(&eighty()).await;
        let copies = engine.copies(&drafts(&format!("m{n}-"), 200)).await;
        engine.set_clock(from + SECOND).await;
        engine.pause(Some(rest)).await;
        engine.set_clock(from + 6 * SECOND).await;
        assert!(engine.reserve(&good(message(format!("new{n}")))).await.is_ok());
        engine.pause(None).await;
        let mut crew = Crew::new(engine, from + 6 * SECOND);
        crew.take(copies[60..].iter().cloned());
        crew.finish().await;
        assert!(crew.moves.is_empty(), "{:?}", crew.moves);
        for copy in &copies[60..] {
            assert_eq!(crew.left(copy.draft.id.as_str()), slot_of(copy) + 5 * SECOND, "{n}");
        }
    }
}

/// What is booked for later than the pause's end, with room before it, leaves when it was told to.
pub async fn a_pause_delays_nothing_behind_room_enough<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let copies = engine.copies(&drafts("m", 100)).await;
    let tomorrow = START + 40_000 * SECOND;
    let later = engine.copy(&good(message("later").not_before(time(tomorrow)))).await;
    engine.pause(Some(Duration::from_secs(1200))).await;
    assert_eq!(engine.send(&later.draft).await.expect("a record").at.map(|at| at.as_micros()), Some(tomorrow));
    engine.set_clock(START + 1200 * SECOND).await;
    let mut crew = Crew::new(engine, START + 1200 * SECOND);
    crew.take(copies);
    crew.work(START + 1300 * SECOND).await;
    assert_eq!(crew.sent.len(), 100);
    // it hops on its way
    engine.set_clock(tomorrow - 890 * SECOND).await;
    let Verdict::PutBack { slot, why: PutBack::Hop } = engine.verdict(&later, 1).await else { panic!("a hop") };
    assert_eq!(slot.at.as_micros(), tomorrow);
    assert_send(claim_on_time(engine, &next(&later, slot), 2).await);
}

/// Nothing lost, nothing sent meanwhile, no burst.
pub async fn after_a_pause_everything_is_sent_and_nothing_at_once<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(eighty(), [reserved("otp", 0.2)])).await;
    let copies = engine.copies(&drafts("m", 400)).await;
    let mut crew = Crew::new(engine, START);
    crew.take(copies);
    crew.work(START + 2 * SECOND).await;
    let before = crew.sent.len();
    engine.pause(Some(sendslot_shared::budget::UNTIL_RESUMED)).await;
    crew.work(START + 150 * SECOND).await;
    assert_eq!(crew.sent.len(), before);
    engine.pause(None).await;
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 400);
    let sends: Vec<(u64, u32)> = crew.sent.iter().map(|(at, _, cost, _)| (*at, *cost)).collect();
    let last = sends.iter().map(|(at, _)| *at).max().expect("a send");
    assert!(most_in_window(sends, SECOND) <= 100);
    assert!(last < START + 150 * SECOND + 70 * SECOND, "hops are a minute, and then the rate: {}", last - START);
}

/// B12: a calendar that is lost forgets no pause.
pub async fn a_pause_outlives_a_lost_calendar<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let copy = engine.copy(&good(message("m"))).await;
    engine.pause(Some(Duration::from_secs(600))).await;
    let calendar = engine.parts().await.into_iter().find(|part| part.ends_with("cal")).expect("a calendar");
    engine.lose(&calendar).await;
    go_to(engine, &copy).await;
    let Verdict::PutBack { slot, why: PutBack::Rebooked(MoveReason::Lost) } = engine.verdict(&copy, 1).await else {
        panic!("its booking is void")
    };
    let copy = next(&copy, slot);
    assert_eq!(slot_of(&copy), START + 600 * SECOND, "behind the pause");
    engine.set_clock(START + 30 * SECOND).await;
    let verdict = engine.verdict(&copy, 2).await;
    assert!(!matches!(verdict, Verdict::Send { .. }), "{verdict:?}");
    // and a new policy does not lift it
    engine.set_policy(&per_second(50, 0.8)).await;
    assert!(engine.state().await.paused_until.is_some());
}
