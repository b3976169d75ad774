//! Cancelling, and the places that come back.

use sendslot_shared::cancel::Cancelled;
use sendslot_shared::claim::DeadReason;
use sendslot_shared::reserve::Refusal;
use sendslot_shared::status::SendState;

use super::*;

/// 80/s, `n` sends from position 20 of the first second on.
async fn booked<E: Engine>(engine: &E, n: usize) -> Vec<Draft> {
    engine.set_policy(&eighty()).await;
    let all = drafts("m", n);
    engine.book(&all).await;
    all
}

async fn cancel<'a, E: Engine>(engine: &E, all: impl IntoIterator<Item = &'a Draft>) {
    for draft in all {
        assert_eq!(engine.cancel(draft).await, Cancelled::Cancelled);
    }
}

async fn slots<E: Engine>(engine: &E, drafts: &[Draft]) -> Vec<(u32, u32)> {
    engine.book(drafts).await.iter().map(|b| b.slot).collect()
}

pub async fn a_cancelled_place_is_used_next_and_in_order<E: Engine>(engine: &E) {
    let all = booked(engine, 200).await;
    cancel(engine, [&all[70], &all[5], &all[3], &all[10]]).await;
    let singly = [slots(engine, &drafts("a", 1)).await, slots(engine, &drafts("b", 1)).await].concat();
    assert_eq!(singly, [(S, 23), (S, 25)]);
    assert_eq!(slots(engine, &drafts("c", 3)).await, [(S, 30), (S + 1, 10), (S + 2, 60)]);
}

pub async fn neighbouring_holes_become_one<E: Engine>(engine: &E) {
    for (i, order) in [[5, 6, 7], [5, 7, 6], [6, 5, 7], [7, 6, 5], [6, 7, 5], [7, 5, 6]].into_iter().enumerate() {
        engine.set_clock(START + i as u64 * 600 * SECOND).await;
        engine.set_policy(&eighty()).await;
        let all = drafts(&format!("{i}-"), 100);
        engine.book(&all).await;
        cancel(engine, order.map(|n: usize| &all[n])).await;
        let three = engine.reserve(&good(message(format!("three{i}")).cost(3))).await.expect("a slot");
        assert_eq!(three.slot.1, 25, "{order:?}");
        let next = engine.reserve(&good(message(format!("next{i}")))).await.expect("a slot");
        assert_eq!(next.slot.1, 40, "{order:?}: nothing is left of the hole");
    }
}

pub async fn a_hole_is_split_by_what_is_smaller<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let five = good(message("five").cost(5));
    engine.book(&[good(message("first")), five.clone()]).await;
    engine.book(&drafts("m", 100)).await;
    cancel(engine, [&five]).await;
    assert_eq!(slots(engine, &[good(message("two").cost(2))]).await, [(S, 21)]);
    assert_eq!(slots(engine, &[good(message("four").cost(4))]).await, [(S + 1, 46)], "4 do not fit 3");
    assert_eq!(slots(engine, &drafts("n", 4)).await, [(S, 23), (S, 24), (S, 25), (S + 1, 50)]);
}

/// The last booked places are simply free again, with the hole in front of them.
pub async fn the_top_of_a_second_lowers_its_high_water<E: Engine>(engine: &E) {
    let all = booked(engine, 30).await;
    cancel(engine, [&all[27], &all[29], &all[28]]).await;
    // eight fit where three were on top
    assert_eq!(slots(engine, &[good(message("eight").cost(8))]).await, [(S, 47)]);
    cancel(engine, all[..27].iter()).await;
    cancel(engine, [&good(message("eight").cost(8))]).await;
    assert_eq!(slots(engine, &drafts("n", 61)).await, (20..80).map(|p| (S, p)).chain([(S + 1, 0)]).collect::<Vec<_>>());
}

pub async fn heavy_sends_and_runs_give_back_all_their_places<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    // 20 units from position 20 on, with nothing before them; 64 + 90 from position 40 on, over three seconds: its own begin a window
    // (84 positions) behind the others', since 20 + 90 are too many
    let (heavy, run) = (good(message("heavy").cost(20)), good(message("run").cost(90)));
    assert_eq!(slots(engine, &[heavy.clone(), run.clone()]).await, [(S, 20), (S + 1, 24)]);
    let rest = drafts("m", 300);
    assert_eq!(slots(engine, &rest).await[0], (S + 2, 34));
    cancel(engine, [&run, &heavy]).await;
    let n = drafts("n", 20 + 154 + 1);
    let expected: Vec<_> = (20..80).map(|p| (S, p)).chain((0..80).map(|p| (S + 1, p))).collect();
    let got = slots(engine, &n).await;
    assert_eq!(got[..140], expected);
    assert_eq!(got[140..174], (0..34).map(|p| (S + 2, p)).collect::<Vec<_>>());
    assert_eq!(got[174], (S + 2 + 334 / 80, 334 % 80), "and then behind all the others");
}

/// W6: too late, sent, ended, unknown; each time the same.
/// Sends over several seconds: places that came back are found by what begins in front of them, though the calendar knew
/// all of that to be full.
pub async fn a_run_finds_the_places_of_others<E: Engine>(engine: &E) {
    let window = Policy { per: Duration::from_secs(300), max_cost: Some(100), ..Policy::per_second(1000) };
    engine.set_policy(&window).await;
    let heavy = |id: String, cost| good(message(id).cost(cost));
    let runs: Vec<_> = (0..200).map(|i| heavy(format!("run{i}"), 30)).collect();
    let booked = slots(engine, &runs).await;
    // these walk over all of it
    for cost in [1, 30, 100] {
        assert!(slots(engine, &[heavy(format!("last{cost}"), cost)]).await[0] > booked[199]);
    }
    cancel(engine, &runs[100..112]).await;
    for (i, cost) in [100, 30, 30].into_iter().enumerate() {
        let [slot] = slots(engine, &[heavy(format!("again{i}"), cost)]).await[..] else { unreachable!("one slot") };
        assert!(slot >= booked[100] && slot < booked[112], "{cost} at {slot:?}, free from {:?}", booked[100]);
    }
}

pub async fn cancel_says_what_it_found<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let copies = engine.copies(&drafts("m", 4)).await;
    cancel(engine, [&copies[3].draft, &copies[3].draft]).await;
    assert_send(claim_on_time(engine, &copies[0], 1).await);
    for _ in 0..2 {
        assert_eq!(engine.cancel(&copies[0].draft).await, Cancelled::TooLate);
    }
    assert_eq!(engine.settle(&copies[0], 1, Ending::Sent).await, Action::Acknowledge);
    for _ in 0..2 {
        assert_eq!(engine.cancel(&copies[0].draft).await, Cancelled::AlreadySent);
    }
    assert_send(claim_on_time(engine, &copies[1], 2).await);
    let rejected = Action::Dead { reason: DeadReason::Rejected, attempts: 1 };
    assert_eq!(engine.settle(&copies[1], 2, Ending::Rejected).await, rejected);
    for _ in 0..2 {
        assert_eq!(engine.cancel(&copies[1].draft).await, Cancelled::Ended(SendState::Failed));
    }
    assert_eq!(engine.verdict(&copies[3], 3).await, Verdict::Done);
}

/// What is cancelled before it was ever booked is never sent.
pub async fn an_unknown_id_leaves_a_tombstone<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let draft = good(message("m"));
    assert_eq!(engine.cancel(&draft).await, Cancelled::Unknown);
    assert_eq!(engine.cancel(&draft).await, Cancelled::Unknown, "asked again, it answers the same");
    assert_eq!(engine.reserve(&draft).await, Err(Refusal::Cancelled));
    assert_eq!(engine.redrive(&draft).await, Err(Refusal::Cancelled));
    let unbooked = Envelope { draft, seq: 0, tag: 7, at: None, accepted: None, report: None };
    assert_eq!(engine.verdict(&unbooked, 1).await, Verdict::Done);
    let status = engine.send(&unbooked.draft).await.expect("a tombstone");
    assert_eq!((status.state, status.seq, status.at), (SendState::Cancelled, 0, None));
}

/// W6: whichever comes first.
pub async fn of_cancel_and_claim_one_wins<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let copies = engine.copies(&drafts("m", 41)).await;
    let mut won = [0, 0];
    for (i, pair) in copies[..40].chunks(2).enumerate() {
        engine.set_clock(slot_of(&pair[1])).await;
        let copy = &pair[1];
        let (cancelled, verdict) = if i % 2 == 0 {
            tokio::join!(engine.cancel(&copy.draft), engine.verdict(copy, 1))
        } else {
            let (verdict, cancelled) = tokio::join!(engine.verdict(copy, 1), engine.cancel(&copy.draft));
            (cancelled, verdict)
        };
        match (cancelled, verdict) {
            (Cancelled::Cancelled, Verdict::Done) => won[0] += 1,
            (Cancelled::TooLate, Verdict::Send { .. }) => won[1] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(won[0] + won[1], 20);
    assert!(won[0] > 0 && won[1] > 0, "{won:?}");
    // a copy that waits for its slot learns it as well
    let last = &copies[40];
    engine.set_clock(slot_of(last) - 1_000).await;
    assert!(matches!(engine.verdict(last, 1).await, Verdict::Wait { .. }));
    cancel(engine, [&last.draft]).await;
    assert_eq!(claim_on_time(engine, last, 1).await, Verdict::Done);
}

pub async fn a_place_in_the_past_does_not_come_back<E: Engine>(engine: &E) {
    let all = booked(engine, 100).await;
    // position 40 is now: of ten cancelled places around it the five behind it come back
    engine.set_clock(START + 500_000).await;
    cancel(engine, all[15..26].iter()).await;
    engine.set_policy(&Policy { transit: Duration::ZERO, ..eighty() }).await;
    let booked = slots(engine, &drafts("n", 6)).await;
    assert_eq!(booked, [(S, 41), (S, 42), (S, 43), (S, 44), (S, 45), (S + 1, 40)]);
}

/// Random bookings and cancellations: no place twice, and in the end every place is taken.
pub async fn every_hole_is_filled_and_no_place_is_given_twice<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let mut random = fastrand::Rng::with_seed(20_250_101);
    let mut live: Vec<(Draft, (u32, u32))> = vec![];
    for i in 0..400 {
        if random.u8(0..5) < 2 && !live.is_empty() {
            let (draft, _) = live.swap_remove(random.usize(0..live.len()));
            cancel(engine, [&draft]).await;
        } else {
            let draft = good(message(format!("m{i}")).cost(random.u32(1..=8)));
            let slot = engine.reserve(&draft).await.expect("a slot").slot;
            live.push((draft, slot));
        }
    }
    let last = live.iter().map(|(_, slot)| slot.0).max().expect("a booking");
    let mut n = 0;
    while live.iter().map(|(_, slot)| slot.0).max() == Some(last) {
        let draft = good(message(format!("n{n}")));
        let slot = engine.reserve(&draft).await.expect("a slot").slot;
        live.push((draft, slot));
        n += 1;
    }
    let mut taken = BTreeSet::new();
    for (draft, (s, p)) in &live {
        assert!((*p..*p + draft.cost).all(|q| q < 80 && taken.insert((*s, q))), "{} at {s} {p}", draft.id);
    }
    let free: Vec<_> = (S..=last)
        .flat_map(|s| (if s == S { 20 } else { 0 }..80).map(move |p| (s, p)))
        .filter(|at| !taken.contains(at))
        .collect();
    assert!(free.is_empty(), "{free:?}");
}
