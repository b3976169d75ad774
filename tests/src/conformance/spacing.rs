//! Time between sends to one recipient, and rests of one recipient or of all.

use sendslot_shared::cancel::Cancelled;
use sendslot_shared::limits::Quota;
use sendslot_shared::reserve::{BoundBy, Refusal};
use sendslot_shared::settle::{Cooldown, Report, Scope};

use super::*;

fn spaced() -> Policy {
    Policy { spacing: Some(Duration::from_secs(6)), ..eighty() }
}

fn to(recipient: &str, id: impl Into<String>) -> Draft {
    good(message(id).recipient(recipient))
}

async fn instants<E: Engine>(engine: &E, drafts: &[Draft]) -> Vec<u64> {
    engine.book(drafts).await.iter().map(|b| b.at.as_micros() - START).collect()
}

async fn throttle<E: Engine>(engine: &E, copy: &Envelope, nonce: u32, rest: Cooldown, elapsed: Duration) {
    let (delay, cooldown, ending) = (Duration::ZERO, Some(rest), Ending::Throttled);
    let action = engine
        .report(Report { envelope: copy, nonce, ending, delay, cooldown, elapsed, held_up: Duration::ZERO })
        .await;
    assert!(matches!(action, Action::PutBack(_)), "{action:?}");
}

/// 6 s and the jitter apart, from a whole second on; in between everybody else goes on.
pub async fn one_recipient_waits_and_holds_up_nobody<E: Engine>(engine: &E) {
    engine.set_policy(&spaced()).await;
    let mut batch: Vec<Draft> = (0..4).map(|i| to("r", format!("r{i}"))).collect();
    for i in 0..100 {
        batch.insert(2 * i.min(3) + 1, to(&format!("o{i}"), format!("o{i}")));
    }
    let bookings = engine.book(&batch).await;
    let of = |prefix: &str| -> Vec<u64> {
        let named = batch.iter().zip(&bookings).filter(|(d, _)| d.id.as_str().starts_with(prefix));
        let mut at: Vec<u64> = named.map(|(_, b)| b.at.as_micros() - START).collect();
        at.sort_unstable();
        at
    };
    assert_eq!(of("r"), [250_000, 7 * SECOND, 14 * SECOND, 21 * SECOND]);
    assert_eq!(of("o"), (1..=100).map(|i| 250_000 + i * 12_500).collect::<Vec<_>>());
    let second = batch.iter().position(|d| d.id.as_str() == "r1").expect("it is there");
    assert_eq!(bookings[second].bound_by, Some(BoundBy::Spacing));
    // asked singly, the same
    assert_eq!(instants(engine, &[to("r", "r4")]).await, [28 * SECOND]);
    assert_eq!(instants(engine, &[to("new", "n")]).await, [250_000 + 101 * 12_500]);
}

pub async fn a_cancelled_send_gives_its_time_back<E: Engine>(engine: &E) {
    engine.set_policy(&spaced()).await;
    let all: Vec<Draft> = (0..3).map(|i| to("r", format!("r{i}"))).collect();
    assert_eq!(instants(engine, &all).await, [250_000, 7 * SECOND, 14 * SECOND]);
    assert_eq!(engine.cancel(&all[1]).await, Cancelled::Cancelled);
    assert_eq!(instants(engine, &[to("r", "a")]).await, [7 * SECOND]);
    assert_eq!(engine.cancel(&all[0]).await, Cancelled::Cancelled);
    assert_eq!(instants(engine, &[to("r", "b")]).await, [250_000]);
    assert_eq!(instants(engine, &[to("r", "c")]).await, [21 * SECOND]);
}

pub async fn spacing_and_quotas_hold_together<E: Engine>(engine: &E) {
    let quotas = vec![Quota::new(3, Duration::from_secs(60))];
    engine.set_policy(&Policy { quotas, max_cost: Some(1), ..spaced() }).await;
    let to_r: Vec<Draft> = (0..2).map(|i| to("r", format!("r{i}"))).collect();
    assert_eq!(instants(engine, &to_r).await, [250_000, 7 * SECOND]);
    assert_eq!(instants(engine, &[to("s", "s0"), to("s", "s1")]).await, [262_500, 60 * SECOND]);
    // r may go at 14 s, but the minute is full; s may not go right at the next one's start
    assert_eq!(instants(engine, &[to("r", "r2"), to("s", "s2")]).await, [60 * SECOND + 12_500, 67 * SECOND]);
    assert_eq!(instants(engine, &[to("t", "t")]).await, [120 * SECOND]);
    assert_eq!(engine.cancel(&to("r", "r1")).await, Cancelled::Cancelled);
    assert_eq!(instants(engine, &[to("r", "r3")]).await, [7 * SECOND], "both came back");
}

pub async fn without_a_recipient_a_send_is_refused<E: Engine>(engine: &E) {
    engine.set_policy(&spaced()).await;
    let answers = engine.reserve_batch(&[good(message("a")), to("r", "b"), in_lane("default", "c")]).await;
    assert_eq!((answers[0], answers[2]), (Err(Refusal::NoRecipient), Err(Refusal::NoRecipient)));
    assert!(answers[1].is_ok());
    engine.set_policy(&eighty()).await;
    assert!(engine.reserve(&good(message("a"))).await.is_ok());
}

/// However late workers ask, the spacing holds between what was really sent, and everything is sent.
pub async fn what_is_sent_keeps_the_spacing_however_late<E: Engine>(engine: &E) {
    engine.set_policy(&spaced()).await;
    let all: Vec<Draft> = (0..60).map(|i| to(&format!("r{}", i % 12), format!("m{i}"))).collect();
    let copies = engine.copies(&all).await;
    let mut crew = Crew::new(engine, START);
    for (i, copy) in copies.into_iter().enumerate() {
        let late = [0, 123_000, 0, 2_000_000, 60_000][i % 5];
        crew.put(slot_of(&copy) + late, copy, fresh_tag());
    }
    crew.finish().await;
    crew.assert_sound();
    assert_eq!(crew.sent.len(), 60);
    for recipient in 0..12 {
        let mut at: Vec<u64> = (0..5).map(|i| crew.left(&format!("m{}", recipient + i * 12))).collect();
        at.sort_unstable();
        assert!(at.windows(2).all(|w| w[1] - w[0] >= 6 * SECOND), "r{recipient}: {at:?}");
    }
}

/// R8: a 429 for number A does not stop number B, and stops A also where it is booked already.
pub async fn a_recipients_rest_stops_only_that_recipient<E: Engine>(engine: &E) {
    for policy in [eighty(), Policy { spacing: Some(Duration::from_millis(10)), ..eighty() }] {
        let from = START + u64::from(policy.spacing.is_some()) * 3600 * SECOND;
        let p = if policy.spacing.is_some() { "x" } else { "y" };
        engine.set_clock(from).await;
        engine.set_policy(&policy).await;
        let [a0, a1, b0, b1] = ["a0", "a1", "b0", "b1"].map(|id| to(&id[..1], format!("{p}{id}")));
        let first = engine.copy(&a0).await;
        let other = engine.copy(&b0).await;
        let booked = engine.copy(&a1).await;
        assert_send(claim_on_time(engine, &first, 1).await);
        let rest = Cooldown { rest: Duration::from_secs(30), scope: Scope::Recipient };
        throttle(engine, &first, 1, rest, Duration::ZERO).await;
        let till = slot_of(&first) + 30 * SECOND;
        let moved_to = engine.send(&a0).await.expect("a record").at.expect("a slot").as_micros();
        assert!((till..till + 2 * SECOND).contains(&moved_to), "{}", moved_to - from);
        assert_eq!(engine.state().await.cooldown_until, None);
        assert_send(claim_on_time(engine, &other, 2).await);
        let verdict = claim_on_time(engine, &booked, 3).await;
        let (at, why) = moved(verdict, slot_of(&booked));
        assert_eq!(why, MoveReason::Cooldown);
        assert!((till..till + 2 * SECOND).contains(&at));
        let b = engine.reserve(&b1).await.expect("a slot");
        assert!(b.at.as_micros() < from + 2 * SECOND, "{:?}", b.slot);
        let a = engine.reserve(&to("a", format!("{p}a2"))).await.expect("a slot");
        assert!((till..till + 3 * SECOND).contains(&a.at.as_micros()));
    }
}

/// R7: an account's rest stops all, and late replies to calls begun before it do not extend it.
pub async fn an_accounts_rest_stops_all_and_is_one<E: Engine>(engine: &E) {
    engine.set_policy(&spaced()).await;
    let all: Vec<Draft> = (0..40).map(|i| to(&format!("r{i}"), format!("m{i}"))).collect();
    let copies = engine.copies(&all).await;
    for (nonce, copy) in (1..).zip(&copies[..20]) {
        assert_send(claim_on_time(engine, copy, nonce).await);
    }
    let rest = Cooldown { rest: Duration::from_secs(89), scope: Scope::Account };
    let now = slot_of(&copies[19]);
    for (i, copy) in copies[..20].iter().enumerate() {
        engine.set_clock(now + i as u64 * 200_000).await;
        throttle(engine, copy, i as u32 + 1, rest, Duration::from_millis(200 * i as u64 + 1)).await;
    }
    let till = now + 89 * SECOND;
    assert_eq!(engine.state().await.cooldown_until.map(|at| at.as_micros()), Some(till));
    let (at, why) = moved(engine.verdict(&copies[30], 99).await, now + 19 * 200_000);
    assert_eq!(why, MoveReason::Cooldown);
    assert!((till..till + 2 * SECOND).contains(&at));
    let new = engine.reserve(&to("new", "new")).await.expect("a slot");
    assert!((till..till + 2 * SECOND).contains(&new.at.as_micros()));
    assert_eq!(new.bound_by, Some(BoundBy::Rate), "behind those that rest as well");
}
