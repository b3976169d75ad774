//! Stopping a budget, and letting it go on.

use super::*;
use crate::most_in_window;

fn paused(verdict: Verdict) -> Duration {
    match verdict {
        Verdict::PutBack { slot, why: PutBack::Paused } => slot.wait,
        other => panic!("not paused: {other:?}"),
    }
}

pub async fn while_paused_nothing_is_sent_and_hops_are_at_most_a_minute<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let copies = engine.copies(&drafts("m", 3)).await;
    engine.pause(Some(Duration::from_secs(90))).await;
    assert_eq!(engine.state().await.paused_until.map(|at| at.as_micros()), Some(START + 90 * SECOND));
    go_to(engine, &copies[0]).await;
    assert_eq!(paused(engine.verdict(&copies[0], 1).await), Duration::from_secs(60));
    engine.set_clock(START + 60 * SECOND).await;
    assert_eq!(paused(engine.verdict(&copies[1], 1).await), Duration::from_secs(30));
    let status = engine.send(&copies[0].draft).await.expect("a record");
    assert_eq!((status.attempts, status.hops, status.seq), (0, 1, 2));
    // bookings go on meanwhile, and a pause that is over needs no word
    assert!(engine.reserve(&good(message("new"))).await.is_ok());
    engine.set_clock(START + 90 * SECOND).await;
    assert_send(engine.verdict(&copies[2], 2).await);
    assert_eq!(engine.state().await.paused_until, None);
}

/// Booked again when it goes on: nothing lost, nothing sent meanwhile, no burst.
pub async fn after_a_pause_everything_is_booked_again_and_sent<E: Engine>(engine: &E) {
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
    go_to(engine, &copy).await;
    assert_eq!(paused(engine.verdict(&copy, 2).await), Duration::from_secs(60));
    // and a new policy does not lift it
    engine.set_policy(&per_second(50, 0.8)).await;
    assert!(engine.state().await.paused_until.is_some());
}
