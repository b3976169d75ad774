//! Deadlines, bounded waits, and refusals that leave no trace.

use sendslot_shared::claim::DeadReason;
use sendslot_shared::limits::Quota;
use sendslot_shared::reserve::Refusal;
use sendslot_shared::settle::{Cooldown, Report, Scope};
use sendslot_shared::status::SendState;

use super::*;

const EXPIRED: DeadReason = DeadReason::Expired;

fn until(id: impl Into<String>, deadline: u64) -> Draft {
    good(message(id).deadline(time(deadline)))
}

/// Policies of the straight path, of lanes, and of quotas.
fn policies() -> [Policy; 3] {
    let quotas = vec![Quota::new(10_000, Duration::from_secs(3600))];
    [eighty(), with_lanes(eighty(), [reserved("otp", 0.2)]), Policy { quotas, ..eighty() }]
}

pub async fn past_its_deadline_a_send_is_refused_with_the_slot_it_would_get<E: Engine>(engine: &E) {
    for (i, policy) in policies().iter().enumerate() {
        let now = START + i as u64 * 3600 * SECOND;
        engine.set_clock(now).await;
        engine.set_policy(policy).await;
        engine.book(&drafts(&format!("m{i}-"), 333)).await;
        let Err(Refusal::PastDeadline { would_be_at, would_be_in }) =
            engine.reserve(&until(format!("late{i}"), now + 2 * SECOND)).await
        else {
            panic!("there is no slot before the deadline")
        };
        assert_eq!(would_be_at.as_micros(), now + us(would_be_in));
        let short = engine.reserve(&until(format!("short{i}"), would_be_at.as_micros() - 1)).await;
        assert_eq!(short, Err(Refusal::PastDeadline { would_be_at, would_be_in }));
        let exact = engine.reserve(&until(format!("exact{i}"), would_be_at.as_micros())).await.expect("in time");
        assert_eq!(exact.at, would_be_at);
    }
}

/// L5: while it hops; a lowered rate moves its instant behind the deadline.
pub async fn a_deadline_that_passes_or_is_out_of_reach_at_a_hop_ends_the_send<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let at = START + 100 * SECOND;
    // nobody there can wait
    engine.book(&many("m", 30, |m| m.not_before(time(at)).deadline(time(at + 400_000)))).await;
    let both = |id: &str| good(message(id).not_before(time(at)).deadline(time(at + 400_000)));
    let (passed, reach) = (engine.copy(&both("passed")).await, engine.copy(&both("reach")).await);
    assert_eq!(slot_of(&reach), at + 31 * 12_500);
    engine.set_clock(at + 400_001).await;
    assert_eq!(engine.verdict(&passed, 1).await, Verdict::Dead { reason: EXPIRED, attempts: 0 });
    engine.set_clock(START + 10 * SECOND).await;
    engine.set_policy(&per_second(50, 0.8)).await;
    assert_eq!(engine.verdict(&reach, 2).await, Verdict::Dead { reason: EXPIRED, attempts: 0 });
    for copy in [&passed, &reach] {
        assert_eq!(engine.send(&copy.draft).await.expect("a record").state, SendState::Expired);
        assert_eq!(engine.reserve(&copy.draft).await, Err(Refusal::Expired));
    }
}

/// One that a lowered rate moves behind its deadline gets the place of one that can wait, and that one the next free place.
pub async fn out_of_reach_it_takes_the_place_of_one_that_can_wait<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let at = START + 100 * SECOND;
    let others = engine.copies(&many("m", 30, |m| m.not_before(time(at)))).await;
    let copy = engine.copy(&good(message("reach").not_before(time(at)).deadline(time(at + 400_000)))).await;
    engine.set_clock(START + 10 * SECOND).await;
    engine.set_policy(&per_second(50, 0.8)).await;
    let Verdict::PutBack { slot, why } = engine.verdict(&copy, 1).await else { panic!("it is far") };
    assert_eq!((slot.at.as_micros(), why), (at, PutBack::Rebooked(MoveReason::Capacity)));
    let copy = next(&copy, slot);
    let (slot, why) = moved(claim_on_time(engine, &others[0], 2).await, at);
    assert_eq!((slot, why), (at + 30 * 25_000, MoveReason::Displaced));
    assert_send(claim_on_time(engine, &copy, 3).await);
}

/// At its slot it is sent, a microsecond behind its deadline never.
pub async fn a_deadline_holds_at_the_claim<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(eighty(), [urgent()])).await;
    let at = START + 250_000;
    let copies = engine.copies(&[until("a", at), until("b", at + 12_500)]).await;
    assert_send(claim_on_time(engine, &copies[0], 1).await);
    engine.set_clock(at + 12_501).await;
    assert_eq!(engine.verdict(&copies[1], 2).await, Verdict::Dead { reason: EXPIRED, attempts: 0 });
    assert_eq!(engine.verdict(&copies[1], 3).await, Verdict::Dead { reason: EXPIRED, attempts: 0 });
}

/// L5: by a cooldown, by being displaced.
pub async fn a_deadline_holds_when_a_send_is_booked_again<E: Engine>(engine: &E) {
    engine.set_policy(&with_lanes(eighty(), [urgent()])).await;
    let limited = many("d", 3, |m| m.deadline(time(START + 5 * SECOND)));
    let copies = engine.copies(&limited).await;
    engine.book(&many("m", 300, |m| m.deadline(time(START + 5 * SECOND)))).await;
    assert_eq!(engine.reserve(&in_lane("now", "u")).await.expect("a slot").slot, (S, 20), "there is room in time");
    engine.book(&many("n", 400, |m| m.deadline(time(START + 9_300_000)))).await;
    let last = engine.reserve(&in_lane("now", "late")).await.expect("a slot");
    assert!(last.at.as_micros() > START + 9 * SECOND, "now nobody can make room: {last:?}");
    let verdict = claim_on_time(engine, &copies[0], 1).await;
    let reason = DeadReason::ExpiredDisplaced;
    assert_eq!(verdict, Verdict::Dead { reason, attempts: 0 }, "displaced behind others that cannot wait");
    assert_send(claim_on_time(engine, &copies[1], 2).await);
    let cooldown = Some(Cooldown { rest: Duration::from_secs(1), scope: Scope::Account });
    let (delay, elapsed, ending) = (Duration::ZERO, Duration::ZERO, Ending::Throttled);
    let report = Report { envelope: &copies[1], nonce: 2, ending, delay, cooldown, elapsed, held_up: Duration::ZERO };
    let reason = DeadReason::ExpiredCooldown;
    assert_eq!(engine.report(report).await, Action::Dead { reason, attempts: 0 });
    let verdict = claim_on_time(engine, &copies[2], 3).await;
    let after = Verdict::Wait { wait: Duration::from_secs(1), moved: None };
    assert_eq!(verdict, after, "where all leave a second later it is in time");
    for copy in &copies[..2] {
        assert_eq!(engine.send(&copy.draft).await.expect("a record").state, SendState::Expired);
    }
}

/// L5: in the dead letters, before redrive.
pub async fn a_redrive_books_what_failed_and_refuses_what_is_too_late<E: Engine>(engine: &E) {
    engine.set_policy(&eighty()).await;
    let copy = engine.copy(&until("m", START + 10 * SECOND)).await;
    assert!(engine.redrive(&copy.draft).await.expect("it stands").existing, "what is booked stands");
    assert_send(claim_on_time(engine, &copy, 1).await);
    assert_eq!(engine.redrive(&copy.draft).await, Err(Refusal::InProgress));
    assert!(matches!(engine.settle(&copy, 1, Ending::Rejected).await, Action::Dead { .. }));
    assert_eq!(engine.reserve(&copy.draft).await, Err(Refusal::Failed));
    let again = engine.redrive(&copy.draft).await.expect("a slot");
    assert_eq!((again.seq, again.existing), (2, false));
    let second = Envelope::first(copy.draft.clone(), again.seq, again.at);
    assert_send(claim_on_time(engine, &second, 3).await);
    assert!(matches!(engine.settle(&second, 3, Ending::Rejected).await, Action::Dead { .. }));
    engine.set_clock(START + 10 * SECOND).await;
    let Err(Refusal::PastDeadline { would_be_at, .. }) = engine.redrive(&copy.draft).await else { panic!("too late") };
    assert_eq!(would_be_at.as_micros(), START + 10_250_000);
    assert_eq!(engine.send(&copy.draft).await.expect("a record").state, SendState::Failed);
    let never = engine.redrive(&good(message("new"))).await.expect("a slot");
    assert_eq!(never.seq, 1, "an ID that is not known is a first booking");
}

/// L6: whole seconds, up, at least 1.
pub async fn a_full_lane_says_when_to_come_back<E: Engine>(engine: &E) {
    let patient = Lane { max_wait: Some(Duration::from_secs(2)), ..lane("patient") };
    engine.set_policy(&with_lanes(eighty(), [patient])).await;
    let offered = many("p", 163, |m| m.lane("patient"));
    let answers = engine.reserve_batch(&offered).await;
    assert!(answers[..161].iter().all(Result::is_ok), "2 s behind the first slot, exactly");
    let full = |s| Err(Refusal::Full { retry_after: Duration::from_secs(s) });
    assert_eq!(answers[161..], [full(1), full(1)]);
    // 5,000 ms too far, and 5,012.5 ms
    engine.book(&drafts("m", 399)).await;
    assert_eq!(engine.reserve(&in_lane("patient", "x")).await, full(5));
    engine.book(&drafts("n", 1)).await;
    assert_eq!(engine.reserve(&in_lane("patient", "x")).await, full(6));
    engine.set_clock(START + 6 * SECOND).await;
    assert!(engine.reserve(&in_lane("patient", "x")).await.is_ok(), "it was worth the wait");
    // a not_before is no wait
    let later = good(message("later").lane("patient").not_before(time(START + 3600 * SECOND)));
    assert!(engine.reserve(&later).await.is_ok());
}

/// B2, B3: all rules charged or none; what is looked up leaves at most hints, and asked again nothing at all.
pub async fn a_refusal_leaves_no_trace<E: Engine>(engine: &E) {
    let patient = Lane { max_wait: Some(Duration::from_secs(2)), ..reserved("patient", 0.1) };
    let policy = Policy {
        horizon: Duration::from_secs(600),
        quotas: vec![Quota::new(1000, Duration::from_secs(60)), Quota::new(5000, Duration::from_secs(3600))],
        spacing: Some(Duration::from_secs(6)),
        ..with_lanes(eighty(), [patient, urgent()])
    };
    engine.set_policy(&policy).await;
    engine.book(&many("m", 60, |m| m.recipient("r").deadline(time(START + 500 * SECOND)))).await;
    let each: Vec<Draft> = (0..900).map(|i| good(message(format!("e{i}")).recipient(format!("r{i}")))).collect();
    engine.book(&each).await;
    let refused = |round: u32| {
        let new = |id: &str| message(format!("{id}{round}"));
        [
            new("deadline").recipient("x").deadline(time(START + SECOND)),
            new("far").recipient("x").not_before(time(START + 700 * SECOND)),
            new("cost").recipient("x").cost(101),
            new("lane").recipient("x").lane("none"),
            new("recipient"),
            new("full").recipient("y").lane("patient").cost(60),
            new("waits").recipient("r").deadline(time(START + 300 * SECOND)),
            message("e0").recipient("other"),
        ]
        .map(good)
    };
    let known: BTreeSet<String> = engine.parts().await.into_iter().collect();
    for round in 0..2 {
        let before = engine.dump().await;
        for draft in refused(round) {
            let answer = engine.reserve(&draft).await;
            assert!(answer.is_err(), "{}: {answer:?}", draft.id);
        }
        assert!(engine.reserve_batch(&refused(round + 10)).await.iter().all(Result::is_err));
        let new: Vec<String> = engine.parts().await.into_iter().filter(|p| !known.contains(p)).collect();
        assert!(new.iter().all(|part| part.contains("full:")), "{new:?}");
        if round == 1 {
            let after = engine.dump().await;
            let changed: Vec<_> =
                after.iter().filter(|(part, v)| before.get(*part) != Some(v)).map(|(p, _)| p).collect();
            assert!(changed.is_empty(), "{changed:?}");
        }
    }
}

/// B3: ten asks, one accepted: the wider rule shows one used.
pub async fn what_one_rule_refuses_is_not_charged_to_another<E: Engine>(engine: &E) {
    let wide = Quota::new(10, Duration::from_secs(3600));
    let narrow = Quota::new(1, Duration::from_secs(60));
    engine.set_policy(&Policy { quotas: vec![wide, narrow], max_cost: Some(1), ..per_second(10, 0.9) }).await;
    let end = START + 60 * SECOND;
    let asks: Vec<Draft> = (0..10).map(|i| until(format!("m{i}"), end - 1)).collect();
    let answers = engine.reserve_batch(&asks).await;
    assert!(answers[0].is_ok());
    for answer in &answers[1..] {
        assert!(matches!(answer, Err(Refusal::PastDeadline { would_be_at, .. }) if would_be_at.as_micros() == end));
    }
    engine.set_policy(&Policy { quotas: vec![wide], max_cost: Some(1), ..per_second(10, 0.9) }).await;
    let asks: Vec<Draft> = (0..10).map(|i| until(format!("n{i}"), end - 1)).collect();
    let good = engine.reserve_batch(&asks).await.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(good, 9);
}
