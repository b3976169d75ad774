//! Several limits at once, where they meet each other, a lost calendar, a changed policy.

use std::time::{Duration, UNIX_EPOCH};

use sendslot_shared::budget;
use sendslot_shared::claim::{MoveReason, PutBack, Verdict};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::{BudgetName, LaneName};
use sendslot_shared::limits::{Lane, Quota};
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::Policy;
use sendslot_shared::reserve::{self, Refusal};
use sendslot_shared::store::Store;
use sendslot_tests::{Bench, SECOND, START, draft, on_each_redis, per_second};

const DAY_S: u64 = 86_400;

fn message(id: impl Into<String>) -> Message {
    Message::new("b", id, "x")
}

fn at(us: u64) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_micros(us)
}

fn checked(message: Message) -> Draft {
    message.check().unwrap()
}

/// The first copy of a draft that was booked.
fn copy(draft: &Draft, slot_us: u64) -> Envelope {
    Envelope::first(draft.clone(), 1, sendslot_shared::time::Instant::from_micros(slot_us))
}

#[tokio::test]
async fn a_recipient_with_a_thousand_sends_waiting_gets_them_one_by_one_and_no_more() {
    on_each_redis(async |bench: Bench| {
        let spacing = Some(Duration::from_secs(1));
        bench.policy(&Policy { spacing, ..per_second(100, 0.9) }).await;
        let drafts: Vec<Draft> = (0..1001).map(|i| checked(message(format!("m{i}")).recipient("channel"))).collect();
        let mut booked = vec![];
        for part in drafts.chunks(100) {
            booked.extend(bench.reserve_all(part).await);
        }
        let full = Refusal::Full { retry_after: Duration::from_secs(1) };
        assert_eq!(booked[1000].unwrap_err(), full);
        let slots: Vec<u64> = booked[..1000].iter().map(|b| b.unwrap().at.as_micros()).collect();
        assert!(slots.windows(2).all(|w| w[1] - w[0] >= SECOND));
        for i in [0, 1, 2, 500, 999] {
            bench.set_clock(slots[i]).await;
            let verdict = bench.verdict(&copy(&drafts[i], slots[i]), 1).await;
            assert!(matches!(verdict, Verdict::Send { .. }), "{i}: {verdict:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_send_to_a_recipient_whose_gaps_hold_no_whole_second_stands_behind_them() {
    on_each_redis(async |bench: Bench| {
        let spacing = Some(Duration::from_secs(1));
        bench.policy(&Policy { spacing, ..per_second(100, 0.9) }).await;
        let to = |id: String, s: u64| checked(message(id).recipient("r").not_before(at(START + s * SECOND)));
        for i in 0..150 {
            bench.reserve(&to(format!("m{i}"), 10 + 2 * i)).await.unwrap();
        }
        let next = bench.reserve(&to("next".into(), 10)).await.unwrap();
        assert!(next.at.as_micros() >= START + 310 * SECOND, "{next:?}");
    })
    .await;
}

#[tokio::test]
async fn a_batch_over_two_windows_charges_each_quota_window_its_own() {
    on_each_redis(async |bench: Bench| {
        let quotas = vec![Quota::new(500, Duration::from_secs(DAY_S))];
        let horizon = Duration::from_secs(5 * DAY_S);
        bench.policy(&Policy { quotas, horizon, ..per_second(100, 0.9) }).await;
        let tomorrow = at(START + DAY_S * SECOND);
        let mut drafts: Vec<Draft> = (0..499).map(|i| draft(format!("m{i}"))).collect();
        drafts.push(checked(message("tomorrow").not_before(tomorrow)));
        assert!(bench.reserve_all(&drafts).await.iter().all(Result::is_ok));
        let midnight = START + DAY_S / 2 * SECOND;
        let last = bench.reserve(&draft("last of today")).await.unwrap();
        assert!(last.at.as_micros() < midnight);
        let first = bench.reserve(&draft("first of tomorrow")).await.unwrap();
        assert_eq!(first.at.as_micros(), midnight);
        // two of tomorrow's 500 are taken
        let drafts: Vec<Draft> = (0..499).map(|i| draft(format!("t{i}"))).collect();
        let booked = bench.reserve_all(&drafts).await;
        assert!(booked[497].unwrap().at.as_micros() < midnight + DAY_S * SECOND);
        assert_eq!(booked[498].unwrap().at.as_micros(), midnight + DAY_S * SECOND);
    })
    .await;
}

#[tokio::test]
async fn a_quota_of_short_windows_beside_a_long_grace_is_used_up() {
    on_each_redis(async |bench: Bench| {
        let quotas = vec![Quota::new(10, Duration::from_secs(1))];
        let per = Duration::from_secs(300);
        bench.policy(&Policy { quotas, per, max_cost: Some(1), ..per_second(6000, 0.9) }).await;
        let drafts: Vec<Draft> = (0..100).map(|i| draft(format!("m{i}"))).collect();
        let booked = bench.reserve_all(&drafts).await;
        let last = booked[99].unwrap().at.as_micros();
        assert!((START + 9 * SECOND..START + 12 * SECOND).contains(&last), "100 at 10 a second: {last}");
    })
    .await;
}

#[tokio::test]
async fn a_cost_above_the_most_is_refused_wherever_it_would_stand() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&Policy { max_cost: Some(5), ..per_second(100, 0.8) }).await;
        let later = at(START + 100 * SECOND);
        let costing = |id: &str, units| checked(message(id).cost(units).not_before(later));
        let batch = [costing("a", 5), costing("b", 7), costing("c", 5)];
        let booked = bench.reserve_all(&batch).await;
        assert!(booked[0].is_ok() && booked[2].is_ok());
        assert_eq!(booked[1].unwrap_err(), Refusal::CostTooLarge { max_cost: 5 });
    })
    .await;
}

#[tokio::test]
async fn a_large_send_is_displaced_once() {
    // L3, scale#172
    on_each_redis(async |bench: Bench| {
        let urgent = Lane { preempts: true, ..Lane::new(LaneName::new("otp").unwrap()) };
        bench.policy(&Policy { lanes: vec![urgent], ..per_second(100, 0.9) }).await;
        let large = checked(message("large").cost(6));
        let mut copy = bench.copy(&large).await;
        let (mut now, mut displaced) = (START, 0);
        for round in 0..5 {
            // urgent sends take every place that they may, up to behind the large one
            let slot = bench.status(&large).await.unwrap().at.unwrap().as_micros();
            let campaign: Vec<Draft> = (0..400).map(|i| draft(format!("m{round}-{i}"))).collect();
            bench.reserve_all(&campaign).await;
            now = now.max(slot.saturating_sub(400_000));
            bench.set_clock(now).await;
            for i in 0..60 {
                let otp = checked(message(format!("otp{round}-{i}")).lane("otp"));
                bench.reserve(&otp).await.unwrap();
            }
            match bench.verdict(&copy, 1).await {
                Verdict::Wait { moved: Some(MoveReason::Displaced), .. } => displaced += 1,
                Verdict::PutBack { slot, why: PutBack::Rebooked(MoveReason::Displaced) } => {
                    displaced += 1;
                    copy = Envelope { seq: slot.seq, tag: 100 + round, at: Some(slot.at), ..copy };
                }
                Verdict::PutBack { slot, .. } => copy = Envelope { seq: slot.seq, tag: 100 + round, ..copy },
                Verdict::Wait { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(displaced, 1, "once: the place that it got is its own");
    })
    .await;
}

#[tokio::test]
async fn after_a_lost_calendar_only_what_was_sent_counts_against_a_quota() {
    on_each_redis(async |bench: Bench| {
        let quotas = vec![Quota::new(200, Duration::from_secs(DAY_S))];
        let horizon = Duration::from_secs(5 * DAY_S);
        bench.policy(&Policy { quotas, horizon, ..per_second(100, 0.9) }).await;
        let drafts: Vec<Draft> = (0..200).map(|i| draft(format!("m{i}"))).collect();
        let slots: Vec<u64> = bench.reserve_all(&drafts).await.iter().map(|b| b.unwrap().at.as_micros()).collect();
        for i in 0..20 {
            bench.set_clock(slots[i]).await;
            assert!(matches!(bench.verdict(&copy(&drafts[i], slots[i]), 1).await, Verdict::Send { .. }));
        }
        let _: i64 = bench.command(redis::cmd("DEL").arg("s{b}cal")).await;
        let midnight = START + DAY_S / 2 * SECOND;
        for i in 20..200 {
            let verdict = bench.verdict(&copy(&drafts[i], slots[i]), 1).await;
            let Verdict::PutBack { slot, why } = verdict else { panic!("{verdict:?}") };
            assert_eq!(why, PutBack::Rebooked(MoveReason::Lost));
            assert!(slot.at.as_micros() < midnight, "{i} leaves today");
        }
        let more = bench.reserve(&draft("more")).await.unwrap();
        assert_eq!(more.at.as_micros(), midnight);
    })
    .await;
}

#[tokio::test]
async fn a_policy_that_is_set_while_a_raise_is_under_way_makes_nobody_wait_longer() {
    // B8, redis-cell#54
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        bench.reserve_all(&(0..300).map(|i| draft(format!("m{i}"))).collect::<Vec<_>>()).await;
        bench.policy(&per_second(200, 0.9)).await;
        let drafts: Vec<Draft> = (0..400).map(|i| draft(format!("n{i}"))).collect();
        let booked = bench.reserve_all(&drafts).await;
        bench.set_clock(START + 3 * SECOND).await;
        bench.policy(&Policy { transit: Duration::from_millis(300), ..per_second(200, 0.9) }).await;
        for (draft, booked) in drafts.iter().zip(booked) {
            let booked = booked.unwrap();
            let now = bench.status(draft).await.unwrap().at.unwrap();
            assert_eq!(now, booked.at, "{}", draft.id);
        }
    })
    .await;
}

#[tokio::test]
async fn one_stored_policy_decides_for_all_programs() {
    // B9, go-redisstore#10
    on_each_redis(async |bench: Bench| {
        let other = Store::with_virtual_clock(&bench.server.url()).unwrap();
        bench.policy(&per_second(100, 0.8)).await;
        budget::set(&other, &bench.budget, &per_second(50, 0.8)).await.unwrap();
        let drafts: Vec<Draft> = (0..80).map(|i| draft(format!("m{i}"))).collect();
        let (mine, theirs) = drafts.split_at(40);
        let mut slots: Vec<u64> = bench.reserve_all(mine).await.iter().map(|b| b.unwrap().at.as_micros()).collect();
        let refs: Vec<&Draft> = theirs.iter().collect();
        for booked in reserve::reserve(&other, &bench.budget, &refs).await.unwrap() {
            slots.push(booked.unwrap().at.as_micros());
        }
        assert!(slots.windows(2).all(|w| w[1] - w[0] == 25_000), "40 a second for both: {slots:?}");
    })
    .await;
}

#[tokio::test]
async fn a_backlog_of_one_budget_is_nothing_to_another() {
    // L1, sidekiq-throttled#188
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(1, 0.9)).await;
        for part in (0..10_000).map(|i| draft(format!("m{i}"))).collect::<Vec<_>>().chunks(500) {
            bench.reserve_all(part).await;
        }
        let other = BudgetName::new("other").unwrap();
        budget::set(&bench.store, &other, &per_second(100, 0.9)).await.unwrap();
        let one = Message::new("other", "one", "x").check().unwrap();
        let booked = reserve::reserve(&bench.store, &other, &[&one]).await.unwrap().remove(0).unwrap();
        assert!(booked.at.as_micros() < START + SECOND);
    })
    .await;
}
