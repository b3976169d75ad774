//! Booking: positions, rates, costs, refusals, batches.

use std::collections::BTreeMap;
use std::time::{Duration, Instant as Monotonic, UNIX_EPOCH};

use sendslot_shared::budget;
use sendslot_shared::id::LaneName;
use sendslot_shared::limits::{Adaptive, Lane, Quota, RampStep, Share};
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::Policy;
use sendslot_shared::quote::{QuoteRequest, Stopped, quote};
use sendslot_shared::reserve::Refusal;
use sendslot_shared::settle::Ending;
use sendslot_shared::status::budget_status;
use sendslot_shared::time::Instant;
use sendslot_tests::{Bench, SECOND, START, costing, draft, most_in_window, on_each_redis, per_second};

fn drafts(prefix: &str, n: usize) -> Vec<Draft> {
    (0..n).map(|i| draft(format!("{prefix}{i}"))).collect()
}

fn at(us: u64) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_micros(us)
}

#[tokio::test]
async fn a_burst_becomes_an_even_schedule_behind_the_transit() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        bench.set_clock(START + 300_000).await;
        let booked = bench.reserve_all(&drafts("m", 500)).await;
        for (i, booking) in booked.iter().enumerate() {
            let booking = booking.as_ref().unwrap();
            // now + transit = .55 s is position 44 of 80
            assert_eq!(booking.at.as_micros(), START + 550_000 + i as u64 * 12_500);
            let n = i as u32 + 44;
            assert_eq!(booking.slot, ((START / SECOND) as u32 + n / 80, n % 80));
            assert_eq!(booking.seq, 1);
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_stamped_is_the_slot_handed_out_not_the_time_asked() {
    // B1, zone-mta#511
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(10, 0.9)).await;
        let mut sends = vec![];
        for i in 0..60_u64 {
            bench.set_clock(START + [0, 40, 141][i as usize % 3] * 1000 + i / 3 * 20_000).await;
            let booking = bench.reserve(&draft(format!("m{i}"))).await.unwrap();
            sends.push((booking.at.as_micros(), 1));
        }
        assert_eq!(most_in_window(sends, SECOND), 9);
    })
    .await;
}

#[tokio::test]
async fn a_refusal_changes_nothing() {
    // B2: a send that is refused leaves no trace, so asking every second for what does not fit never uses capacity up
    on_each_redis(async |bench: Bench| {
        let policy = Policy { per: Duration::from_secs(10), ..per_second(1, 0.9) };
        bench.policy(&policy).await;
        let (mut granted, mut refused) = (0, 0);
        for s in 0..60 {
            let now = START + s * SECOND;
            bench.set_clock(now).await;
            let message = Message::new("b", format!("m{s}"), "x").deadline(at(now + 11 * SECOND)).check().unwrap();
            let before = bench.keys("*").await.len();
            match bench.reserve(&message).await {
                Ok(_) => granted += 1,
                Err(Refusal::PastDeadline { would_be_at, would_be_in }) => {
                    assert_eq!(would_be_at.as_micros(), now + would_be_in.as_micros() as u64);
                    assert!(would_be_in > Duration::from_secs(11));
                    refused += 1;
                    assert!(bench.status(&message).await.is_none());
                    assert_eq!(bench.keys("*r:*").await.len(), granted);
                    assert!(bench.keys("*").await.len() <= before + 2, "hints at most");
                }
                other => panic!("{other:?}"),
            }
        }
        // one unit every 10/0.9 s
        assert_eq!((granted, granted + refused), (6, 60));
    })
    .await;
}

#[tokio::test]
async fn a_cost_above_the_most_is_a_permanent_refusal() {
    // B4, redis-gcra#6
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        assert_eq!(bench.reserve(&costing("big", 101)).await, Err(Refusal::CostTooLarge { max_cost: 100 }));
        assert!(bench.keys("*r:*").await.is_empty());
        bench.policy(&Policy { max_cost: Some(250), ..per_second(100, 0.8) }).await;
        assert!(bench.reserve(&costing("big", 250)).await.is_ok());
    })
    .await;
}

#[tokio::test]
async fn a_cost_above_one_second_takes_a_run_of_seconds() {
    // B4: cost 12 against 10 units a second takes two seconds, and the rest of the second one stays bookable
    on_each_redis(async |bench: Bench| {
        let policy = Policy { transit: Duration::ZERO, ..per_second(16, 0.625) };
        assert_eq!(policy.compile().unwrap().u0, 3);
        bench.policy(&policy).await;
        let heavy = bench.reserve(&costing("heavy", 12)).await.unwrap();
        // nothing was before it: it leaves at position 0 of 10, and goes on through 12 positions
        assert_eq!(heavy.slot, ((START / SECOND) as u32, 0));
        let next = bench.reserve(&draft("next")).await.unwrap();
        assert_eq!(next.slot, ((START / SECOND) as u32 + 1, 2), "the rest of its last second stays bookable");
        // 8 positions in front of 13: the guard may count four units where the window has the one
        let heavier = bench.reserve(&costing("heavier", 13)).await.unwrap();
        assert_eq!(heavier.slot, ((START / SECOND) as u32 + 2, 1), "the tail of the second is where it starts");
        let last = bench.reserve(&draft("last")).await.unwrap();
        assert_eq!(last.slot, ((START / SECOND) as u32 + 3, 4), "the rest of its last second stays bookable");
    })
    .await;
}

#[tokio::test]
async fn an_exact_fit_is_taken_and_one_more_is_not() {
    // B5, notification-api#1644
    on_each_redis(async |bench: Bench| {
        // 8/s where a cost of 2 fits beside others
        let policy = Policy { transit: Duration::ZERO, ..per_second(20, 0.4) };
        bench.policy(&policy).await;
        let second = (START / SECOND) as u32;
        bench.reserve_all(&drafts("m", 6)).await;
        assert_eq!(bench.reserve(&costing("two", 2)).await.unwrap().slot, (second, 6), "2 left, cost 2");
        bench.reserve_all(&drafts("n", 7)).await;
        assert_eq!(bench.reserve(&costing("two more", 2)).await.unwrap().slot, (second + 2, 0), "1 left, cost 2");
        assert_eq!(bench.reserve(&draft("one")).await.unwrap().slot, (second + 1, 7), "the hole is filled");
    })
    .await;
}

#[tokio::test]
async fn the_same_send_gets_the_same_slot() {
    // B6, rate-limit-redis#251: the reply of a committed script is lost and the client asks again
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let first = bench.reserve(&draft("m")).await.unwrap();
        assert!(!first.existing);
        for _ in 0..3 {
            let again = bench.reserve(&draft("m")).await.unwrap();
            assert!(again.existing);
            assert_eq!((again.slot, again.seq, again.at), (first.slot, first.seq, first.at));
        }
        assert_eq!(bench.reserve(&draft("n")).await.unwrap().slot.1, first.slot.1 + 1, "one position was used");
        assert_eq!(bench.reserve(&costing("m", 2)).await, Err(Refusal::Conflict));
    })
    .await;
}

#[tokio::test]
async fn a_batch_sees_its_own_duplicates_and_conflicts() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let batch = [draft("a"), draft("b"), draft("a"), costing("b", 2), draft("c")];
        let booked = bench.reserve_all(&batch).await;
        let slots: Vec<_> = booked.iter().map(|b| b.map(|b| (b.slot.1, b.existing))).collect();
        let first = slots[0].unwrap().0;
        let expected = [
            Ok((first, false)),
            Ok((first + 1, false)),
            Ok((first, true)),
            Err(Refusal::Conflict),
            Ok((first + 2, false)),
        ];
        assert_eq!(slots, expected);
    })
    .await;
}

#[tokio::test]
async fn a_booking_whose_slot_has_passed_is_booked_anew() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let first = bench.reserve(&draft("m")).await.unwrap();
        bench.set_clock(first.at.as_micros() + 20_000).await;
        assert!(bench.reserve(&draft("m")).await.unwrap().existing, "within the patience it stands");
        bench.set_clock(first.at.as_micros() + 10 * SECOND).await;
        let second = bench.reserve(&draft("m")).await.unwrap();
        assert_eq!((second.seq, second.existing), (2, false));
        assert!(second.at.as_micros() >= first.at.as_micros() + 10 * SECOND);
    })
    .await;
}

/// The grid, computed from exact fractions: the instants (us, rounded up) of the units k/r with s <= k/r from `from` on.
fn grid(num: u128, den: u128, from_us: u128, n: usize) -> Vec<u64> {
    let first = (from_us * num).div_ceil(den * 1_000_000);
    (0..n as u128).map(|i| ((first + i) * den * 1_000_000).div_ceil(num) as u64).collect()
}

#[tokio::test]
async fn any_rational_rate_has_an_exact_grid() {
    // B7, bullmq#1565
    on_each_redis(async |bench: Bench| {
        let cases: [(u32, u64, f64); 9] = [
            (100, 1_000, 0.8),
            (100, 1_000, 0.975),
            (1000, 300_000, 0.9),
            (1, 2_000, 0.8),
            (20, 3_600_000, 0.97),
            (15, 10_000, 0.9),
            (10_000, 1_000, 0.9877),
            (7, 3_000, 0.7777),
            (3, 1_000, 0.5),
        ];
        for (i, (limit, per_ms, headroom)) in cases.into_iter().enumerate() {
            let now = START + i as u64 * 100_000 * SECOND + 123_457;
            bench.set_clock(now).await;
            let horizon = Duration::from_secs(14 * 86_400);
            let policy = Policy { per: Duration::from_millis(per_ms), horizon, ..per_second(limit, headroom) };
            bench.policy(&policy).await;
            let _: i64 = bench.command(redis::cmd("DEL").arg("s{b}cal").arg("s{b}policy")).await;
            bench.policy(&policy).await;
            let compiled = policy.compile().unwrap();
            let from = u128::from(now) + 250_000;
            let expected = grid(compiled.num.into(), compiled.den.into(), from, 300);
            let mut got = vec![];
            for (j, chunk) in drafts(&format!("{i}-"), 300).chunks(90).enumerate() {
                let booked = if j == 1 {
                    let mut all = vec![];
                    for one in chunk {
                        all.push(bench.reserve(one).await);
                    }
                    all
                } else {
                    bench.reserve_all(chunk).await
                };
                got.extend(booked.into_iter().map(|b| b.unwrap().at.as_micros()));
            }
            assert_eq!(got, expected, "{limit} per {per_ms} ms x {headroom}");
        }
    })
    .await;
}

#[tokio::test]
async fn order_inside_a_budget_is_arrival_order() {
    // B10, bull#1053
    on_each_redis(async |bench: Bench| {
        bench.policy(&Policy { transit: Duration::ZERO, ..per_second(2, 0.5) }).await;
        for (i, draft) in drafts("m", 100).iter().enumerate() {
            let booking = bench.reserve(draft).await.unwrap();
            assert_eq!(booking.at.as_micros(), START + i as u64 * SECOND);
        }
    })
    .await;
}

#[tokio::test]
async fn windows_hold_over_second_minute_hour_day_and_year_boundaries() {
    // B11, oban#750: 2030-12-31 23:59:30 to 2031-01-01 00:01:00
    on_each_redis(async |bench: Bench| {
        let eve = 1_924_991_970 * SECOND;
        bench.set_clock(eve).await;
        bench.policy(&per_second(50, 0.9)).await;
        let mut sends = vec![];
        for half_second in 0..180 {
            bench.set_clock(eve + half_second * 500_000).await;
            for booking in bench.reserve_all(&drafts(&format!("{half_second}-"), 23)).await {
                sends.push((booking.unwrap().at.as_micros(), 1));
            }
        }
        let span = sends.last().unwrap().0 - sends[0].0;
        assert_eq!(most_in_window(sends.clone(), SECOND), 45);
        assert!(span.abs_diff((sends.len() as u64 - 1) * SECOND / 45) < SECOND, "no second is lost or used twice");
    })
    .await;
}

#[tokio::test]
async fn keys_may_vanish_between_any_two_calls() {
    // B12, bottleneck#205
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(10, 0.9)).await;
        bench.reserve_all(&drafts("m", 100)).await;
        for key in bench.keys("s{b}*").await {
            let _: i64 = bench.command(redis::cmd("DEL").arg(&key)).await;
            let answer = bench.reserve(&draft(format!("after {key}"))).await;
            if key == "s{b}policy" {
                assert!(answer.is_ok(), "the calendar carries on");
                bench.policy(&per_second(10, 0.9)).await;
            } else {
                let booking = answer.unwrap();
                if key == "s{b}cal" {
                    // what was just sent is unknown: nothing for a whole window
                    assert!(booking.at.as_micros() >= START + SECOND, "{key}");
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_budget_without_policy_is_refused() {
    on_each_redis(async |bench: Bench| {
        assert_eq!(bench.reserve(&draft("m")).await, Err(Refusal::UnknownBudget));
        assert!(bench.keys("s{b}*").await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn not_before_is_rounded_up_and_holds_up_nobody() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let later = |id: &str, us| Message::new("b", id, "x").not_before(at(START + us)).check().unwrap();
        let booked = bench.reserve(&later("a", 60_400_000)).await.unwrap();
        assert_eq!(booked.at.as_micros(), START + 61 * SECOND);
        assert_eq!(bench.reserve(&draft("b")).await.unwrap().at.as_micros(), START + 250_000);
        let mixed = [draft("c"), later("d", 61_000_000), draft("e")];
        let booked: Vec<u64> = bench.reserve_all(&mixed).await.into_iter().map(|b| b.unwrap().at.as_micros()).collect();
        assert_eq!(booked, [START + 262_500, START + 61_012_500, START + 275_000]);
    })
    .await;
}

#[tokio::test]
async fn a_slot_behind_the_horizon_is_too_far() {
    on_each_redis(async |bench: Bench| {
        let policy = Policy { horizon: Duration::from_secs(10), ..per_second(10, 0.9) };
        bench.policy(&policy).await;
        let booked = bench.reserve_all(&drafts("m", 200)).await;
        let good = booked.iter().filter(|b| b.is_ok()).count();
        assert!((87..=90).contains(&good), "{good}");
        for refused in booked.iter().filter_map(|b| b.as_ref().err()) {
            assert!(matches!(refused, Refusal::TooFar { would_be_in } if *would_be_in >= Duration::from_secs(10)));
        }
        let far = Message::new("b", "far", "x").not_before(at(START + 3600 * SECOND)).check().unwrap();
        assert!(matches!(bench.reserve(&far).await, Err(Refusal::TooFar { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_not_before_of_any_year_is_refused_at_once_and_leaves_nothing() {
    on_each_redis(async |bench: Bench| {
        // a rate with seconds that hold nothing, and one with many units each
        for (limit, per_s) in [(20, 3600), (100, 1)] {
            bench.policy(&Policy { per: Duration::from_secs(per_s), ..per_second(limit, 0.8) }).await;
            let keys = bench.keys("*").await;
            // 3 days, 2150, and 2200: behind the last second that has 32 bits
            for ahead_s in [3 * 86_400, 3_786_912_000, 5_364_662_400] {
                let not_before = Instant::from_micros(START + ahead_s * SECOND);
                let far = |id| Message::new("b", id, "x").not_before(not_before.to_system_time()).check().unwrap();
                for answer in bench.reserve_all(&[far("a"), far("b"), far("c")]).await {
                    let would_be_in = Duration::from_secs(ahead_s);
                    assert_eq!(answer.err(), Some(Refusal::TooFar { would_be_in }), "{ahead_s}");
                }
                let question = QuoteRequest { sends: 10, not_before: Some(not_before), ..QuoteRequest::default() };
                let quote = quote(&bench.store, &bench.budget, &question).await.unwrap();
                assert_eq!((quote.placed, quote.last, quote.stopped), (0, None, Some(Stopped::TooFar)), "{ahead_s}");
            }
            assert_eq!(bench.keys("*").await, keys);
        }
    })
    .await;
}

#[tokio::test]
async fn a_long_backlog_is_found_through_without_walking_it_each_time() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(10, 0.8)).await;
        for chunk in drafts("m", 20_000).chunks(500) {
            bench.reserve_all(chunk).await;
        }
        let calls = async || -> u64 {
            let info: String = bench.command(redis::cmd("INFO").arg("commandstats")).await;
            let of = |line: &str| line.split_once("calls=")?.1.split_once(',')?.0.parse::<u64>().ok();
            info.lines().filter(|l| !l.contains("info") && !l.contains("evalsha")).filter_map(of).sum()
        };
        let before = calls().await;
        for one in drafts("n", 100) {
            bench.reserve(&one).await.unwrap();
        }
        let each = (calls().await - before) as f64 / 100.0;
        assert!(each < 9.0, "{each} Redis calls a booking behind 2,500 full seconds");
    })
    .await;
}

#[tokio::test]
async fn the_calendar_is_cut_behind_itself_and_outlives_its_last_booking() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(10, 0.8)).await;
        let mut last = 0;
        for hour in 0..14_u64 {
            bench.set_clock(START + hour * 3600 * SECOND).await;
            for booking in bench.reserve_all(&drafts(&format!("{hour}-"), 500)).await {
                let at = booking.unwrap().at.as_micros();
                assert!(at > last, "no second twice over a cut");
                last = at;
            }
        }
        let length: usize = bench.command(redis::cmd("STRLEN").arg("s{b}cal")).await;
        assert!(length < 232 + 4 * 4 * 3600, "{length}");
        // a booking ten hours ahead keeps the calendar alive past it
        let far = Message::new("b", "far", "x").not_before(at(START + 23 * 3600 * SECOND)).check().unwrap();
        bench.reserve(&far).await.unwrap();
        let ttl: i64 = bench.command(redis::cmd("TTL").arg("s{b}cal")).await;
        assert!(ttl > 10 * 3600, "{ttl}");
        let ttl: i64 = bench.command(redis::cmd("TTL").arg("s{b}r:far")).await;
        assert!((34 * 3600 - 5..=34 * 3600 + 5).contains(&ttl), "slot + dedup_ttl: {ttl}");
    })
    .await;
}

#[tokio::test]
async fn nothing_is_left_that_a_script_has_to_walk() {
    // D7, bottleneck#115: days of use leave a bounded number of keys besides the records
    on_each_redis(async |bench: Bench| {
        for day in 0..12_u64 {
            for rate in [0.7, 0.8, 0.9] {
                bench.set_clock(START + day * 86_400 * SECOND).await;
                bench.policy(&per_second(10 + day as u32, rate)).await;
                for cost in 1..=4 {
                    bench
                        .reserve_all(
                            &(0..40).map(|i| costing(format!("{day}{rate}{cost}{i}"), cost)).collect::<Vec<_>>(),
                        )
                        .await;
                }
            }
        }
        let others: Vec<String> = bench.keys("s{b}*").await.into_iter().filter(|k| !k.starts_with("s{b}r:")).collect();
        assert!(others.len() <= 3 + 32, "{others:?}");
    })
    .await;
}

#[tokio::test]
async fn a_lowered_rate_holds_at_once_and_a_raised_one_makes_nobody_late() {
    // B8, redis-cell#54
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let booked = bench.reserve_all(&drafts("m", 400)).await;
        bench.policy(&per_second(10, 0.8)).await;
        let low = bench.reserve(&draft("low")).await.unwrap();
        assert!(low.at.as_micros() > booked[399].unwrap().at.as_micros());
        bench.policy(&per_second(100, 0.8)).await;
        let status = bench.status(&draft("low")).await.unwrap();
        assert!(status.at.unwrap() <= low.at, "raising makes nobody wait longer");
        // seconds within lead + 2 s keep the rate that held before: what stands above it there will move, and status says so
        let soon = bench.status(&draft("m3")).await.unwrap();
        assert_eq!((soon.slot, soon.stands), (booked[3].unwrap().slot, false));
        assert!(soon.at.unwrap().as_micros() > START + 3 * SECOND);
    })
    .await;
}

#[tokio::test]
async fn ids_and_payloads_are_opaque() {
    // D6, redis#3224
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let ids = ["12345678901234567", "order/42:a", "a b\u{0}\r\n$5", "}{*?[", "é\u{1F60E}", &"x".repeat(256)];
        for id in ids {
            let message = Message::new("b", id, "{\"to\":[]}").check().unwrap();
            let booked = bench.reserve(&message).await.unwrap();
            assert_eq!(bench.status(&message).await.unwrap().slot, booked.slot, "{id:?}");
        }
        assert_eq!(bench.command::<Vec<String>>(redis::cmd("KEYS").arg("*r:*")).await.len(), ids.len());
    })
    .await;
}

#[tokio::test]
async fn a_cut_of_the_calendar_survives_callers_that_only_look() {
    // duplicates that hear `done` or `busy` after the calendar is due to be cut
    on_each_redis(async |bench: Bench| {
        bench.policy(&Policy { horizon: Duration::from_secs(14 * 86_400), ..per_second(10, 0.8) }).await;
        let copies = [bench.copy(&draft("failed")).await, bench.copy(&draft("claimed")).await];
        for copy in &copies {
            bench.set_clock(copy.at.unwrap().as_micros()).await;
            let _ = bench.verdict(copy, 1).await;
        }
        let _ = bench.settle(&copies[0], 1, Ending::Rejected).await;
        let later = START + 4 * 3600 * SECOND;
        let ahead = Message::new("b", "x", "x").not_before(at(later + 2 * 3600 * SECOND)).check().unwrap();
        let mut slots = std::collections::BTreeSet::new();
        for i in 0..200 {
            let one = Message::new("b", format!("before{i}"), "x").not_before(at(later + 60 * SECOND)).check().unwrap();
            assert!(slots.insert(bench.reserve(&one).await.unwrap().slot));
        }
        bench.reserve(&ahead).await.unwrap();
        bench.set_clock(later).await;
        for _ in 0..3 {
            let _ = bench.verdict(&copies[0], 2).await;
            let _ = bench.verdict(&copies[1], 2).await;
        }
        for i in 0..200 {
            let one = Message::new("b", format!("after{i}"), "x").not_before(at(later + 60 * SECOND)).check().unwrap();
            assert!(slots.insert(bench.reserve(&one).await.unwrap().slot), "no position twice");
        }
    })
    .await;
}

#[tokio::test]
async fn hints_that_vanish_are_made_anew_and_cut_with_the_calendar() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&Policy { horizon: Duration::from_secs(14 * 86_400), ..per_second(10, 0.8) }).await;
        let mut n = 0;
        let mut burst = async |size: usize| {
            for chunk in (0..size).collect::<Vec<_>>().chunks(250) {
                let drafts: Vec<Draft> = chunk.iter().map(|i| draft(format!("{n}-{i}"))).collect();
                bench.reserve_all(&drafts).await;
            }
            n += 1;
        };
        for hour in 0..6_u64 {
            let now = START + hour * 2 * 3600 * SECOND;
            bench.set_clock(now).await;
            for hint in bench.keys("s{b}full*").await {
                let _: i64 = bench.command(redis::cmd("DEL").arg(hint)).await;
            }
            burst(6000).await;
            let registered: Vec<String> = bench.command(redis::cmd("SMEMBERS").arg("s{b}hints")).await;
            for hint in bench.keys("s{b}full*").await {
                assert!(registered.contains(&hint), "{hint} is known");
                let ttl: i64 = bench.command(redis::cmd("TTL").arg(&hint)).await;
                assert!(ttl > 0, "{hint} ends by itself");
            }
            // 750 s of backlog: what comes next stands right behind it
            let next = bench.reserve(&draft(format!("next{hour}"))).await.unwrap().at.as_micros();
            assert!((749 * SECOND..752 * SECOND).contains(&(next - now)), "{} s", (next - now) / SECOND);
        }
    })
    .await;
}

#[tokio::test]
async fn a_slow_rate_is_searched_by_its_units_and_not_by_its_seconds() {
    on_each_redis(async |bench: Bench| {
        let policy = Policy { per: Duration::from_secs(30 * 86_400), ..per_second(100, 0.9) };
        bench.policy(&policy).await;
        let began = Monotonic::now();
        let refused = bench.reserve(&costing("m", 100)).await;
        assert!(matches!(refused, Err(Refusal::TooFar { .. })), "{refused:?}");
        assert!(began.elapsed() < Duration::from_secs(1), "no walk over millions of seconds");
    })
    .await;
}

#[tokio::test]
async fn a_long_quote_keeps_quotas_and_the_horizon_over_all_its_parts() {
    on_each_redis(async |bench: Bench| {
        let hour = Duration::from_secs(3600);
        let per_day = Quota::new(5000, 24 * hour);
        let per_hour = Quota::new(1500, hour);
        for quotas in [vec![per_day], vec![per_hour], vec![Quota::new(2600, hour), per_day]] {
            let policy = Policy { horizon: 13 * 24 * hour + hour / 2, quotas: quotas.clone(), ..per_second(1, 0.8) };
            bench.policy(&policy).await;
            let question = QuoteRequest { sends: 20_000, ..QuoteRequest::default() };
            let quote = quote(&bench.store, &bench.budget, &question).await.unwrap();
            assert_eq!(quote.placed, 20_000, "{quotas:?}");
            for quota in &quotas {
                let window = |at: Instant| at.as_micros() / 1_000_000 / quota.window.as_secs();
                let mut used = BTreeMap::<u64, u32>::new();
                quote.hours.iter().for_each(|&(at, n)| *used.entry(window(at)).or_default() += n);
                // a send that may be late into the next window is not put into this one
                let full = quota.units - 2..=quota.units;
                let last = *used.keys().max().unwrap();
                let binds = quotas.len() == 1 || *quota == per_day;
                assert!(!binds || used.iter().all(|(w, n)| full.contains(n) || *w == last), "{quotas:?}: {used:?}");
                assert!(used.values().all(|n| *n <= quota.units), "{quotas:?}: {used:?}");
            }
        }
        bench.policy(&Policy { horizon: Duration::from_secs(60), ..per_second(10, 0.8) }).await;
        let question = QuoteRequest { sends: 1000, cost: 2, ..QuoteRequest::default() };
        let quote = quote(&bench.store, &bench.budget, &question).await.unwrap();
        assert_eq!(quote.stopped, Some(Stopped::TooFar));
        assert!(quote.lasts() <= Duration::from_secs(60), "{quote:?}");
    })
    .await;
}

#[tokio::test]
async fn a_pause_is_told_when_nothing_is_booked() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        assert!(budget::pause(&bench.store, &bench.budget, Some(Duration::from_secs(86_400))).await.unwrap());
        // its time is over: nobody booked
        bench.command::<()>(redis::cmd("DEL").arg("s{b}cal")).await;
        let paused = || async { budget_status(&bench.store, &bench.budget).await.unwrap().paused_until };
        assert_eq!(paused().await, Some(Instant::from_micros(START + 86_400 * SECOND)));
        bench.set_clock(START + 86_401 * SECOND).await;
        assert_eq!(paused().await, None);
    })
    .await;
}

#[tokio::test]
async fn a_policy_that_was_lost_can_be_set_again() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(10, 0.9)).await;
        let _: i64 = bench.command(redis::cmd("DEL").arg("s{b}policy")).await;
        // the calendar lives on and leaves a trace of itself where the policy was
        bench.reserve_all(&drafts("m", 400)).await;
        let far = Message::new("b", "far", "x").not_before(at(START + 20 * 3600 * SECOND)).check().unwrap();
        bench.reserve(&far).await.unwrap();
        assert!(budget::get(&bench.store, &bench.budget).await.unwrap().is_none());
        bench.policy(&per_second(10, 0.9)).await;
        assert!(budget::get(&bench.store, &bench.budget).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn urgent_sends_stand_anywhere_in_a_second_of_many_units() {
    // a bitmap of 16,000 bytes is more than one call of a Lua function may answer
    on_each_redis(async |bench: Bench| {
        let urgent = Lane { preempts: true, ..Lane::new(LaneName::new("otp").unwrap()) };
        bench.policy(&Policy { lanes: vec![urgent], ..per_second(200_000, 0.8) }).await;
        bench.set_clock(START + 600_000).await;
        let second = (START / SECOND) as u32;
        for i in 0..3 {
            let otp = Message::new("b", format!("otp{i}"), "x").lane("otp").cost(2).check().unwrap();
            // now + transit = .85 s is position 136,000 of 160,000
            assert_eq!(bench.reserve(&otp).await.unwrap().slot, (second, 136_000 + 2 * i));
        }
    })
    .await;
}

#[tokio::test]
async fn an_adaptive_rate_keeps_its_floor_and_ceiling_in_units_under_every_step_of_a_ramp() {
    on_each_redis(async |bench: Bench| {
        let step = |s: u64, limit| RampStep { from: Instant::from_micros(START + s * SECOND), limit };
        let adaptive = Some(Adaptive { floor: 40, ceiling: Some(80) });
        bench.policy(&Policy { ramp: vec![step(0, 100), step(60, 200)], adaptive, ..per_second(400, 0.9) }).await;
        // 80 of 400, of 100 and of 200 are all 72 units a second
        for (at, rate) in [(0, 72.0), (30, 72.0), (90, 72.0)] {
            bench.set_clock(START + at * SECOND).await;
            let drafts: Vec<Draft> = (0..72).map(|i| draft(format!("{at}-{i}"))).collect();
            let booked = bench.reserve_all(&drafts).await;
            let last = booked[71].unwrap().at.as_micros() - booked[0].unwrap().at.as_micros();
            assert!((985_000..=987_000).contains(&last), "71 gaps of 13.9 ms: {last} us");
            let status = budget_status(&bench.store, &bench.budget).await.unwrap();
            assert_eq!(status.rate, Some(rate), "{at}");
        }
    })
    .await;
}

#[tokio::test]
async fn lanes_whose_slots_lie_in_different_windows_are_charged_to_their_own() {
    // both in one call: what one lane took was once charged to the window of the other
    on_each_redis(async |bench: Bench| {
        let otp = Lane { reserved: Share::new(0.3).unwrap(), ..Lane::new(LaneName::new("otp").unwrap()) };
        let quotas = vec![Quota::new(100_000, Duration::from_secs(3600))];
        bench.policy(&Policy { lanes: vec![otp], quotas, ..per_second(100, 0.8) }).await;
        let hour = |us: u64| us / (3600 * SECOND);
        // the backlog reaches over the end of the hour, which is 10 s ahead
        bench.set_clock(START + 3590 * SECOND).await;
        let mut slots: Vec<u64> = vec![];
        for round in 0..3 {
            let lane = |i: usize| if round > 0 && i.is_multiple_of(3) { "otp" } else { LaneName::DEFAULT };
            let drafts: Vec<Draft> = (0..if round == 0 { 900 } else { 90 })
                .map(|i| Message::new("b", format!("{round}-{i}"), "x").lane(lane(i)).check().unwrap())
                .collect();
            for chunk in drafts.chunks(300) {
                slots.extend(bench.reserve_all(chunk).await.iter().map(|b| b.as_ref().unwrap().at.as_micros()));
            }
        }
        let packed: Vec<u8> = bench.command(redis::cmd("GET").arg("s{b}q:3600:0")).await;
        let word = |i: usize| u32::from_le_bytes(packed[4 * i..4 * i + 4].try_into().unwrap()) as usize;
        for now in [hour(START), hour(START) + 1] {
            let booked = word(3 + 2 * (now as usize - word(0)));
            assert_eq!(booked, slots.iter().filter(|at| hour(**at) == now).count(), "hour {now}");
        }
    })
    .await;
}
