//! What people are shown of a budget: exact numbers from known bookings, and nothing written.

use std::time::Duration;

use sendslot_shared::budget;
use sendslot_shared::cancel;
use sendslot_shared::claim::Verdict;
use sendslot_shared::id::{BudgetName, LaneName};
use sendslot_shared::limits::{Adaptive, Lane, RampStep, Share};
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::Policy;
use sendslot_shared::settle::Ending;
use sendslot_shared::time::Instant;
use sendslot_shared::view::{self, AHEAD, PAST, View};
use sendslot_tests::{Bench, SECOND, START, draft, on_each_redis, per_second};

/// 80/s; the first position that a booking at START gets is 20.
fn eighty() -> Policy {
    per_second(100, 0.8)
}

fn lane(name: &str, reserved: f64, preempts: bool) -> Lane {
    let (name, reserved) = (LaneName::new(name).unwrap(), Share::new(reserved).unwrap());
    Lane { reserved, preempts, ..Lane::new(name) }
}

fn drafts(name: &str, n: usize, lane: &str) -> Vec<Draft> {
    (0..n).map(|i| Message::new("b", format!("{name}{i}"), "x").lane(lane).check().unwrap()).collect()
}

async fn book(bench: &Bench, drafts: &[Draft]) {
    for part in drafts.chunks(100) {
        assert!(bench.reserve_all(part).await.iter().all(Result::is_ok));
    }
}

async fn look(bench: &Bench) -> View {
    view::view(&bench.store, &bench.budget).await.unwrap().expect("a policy")
}

/// The units of seconds from now on, those in which nothing is booked left out.
fn ahead(units: &[u32]) -> Vec<(usize, u32)> {
    assert_eq!(units.len(), PAST + AHEAD);
    assert!(units[..PAST].iter().all(|units| *units == 0));
    units[PAST..].iter().copied().enumerate().filter(|(_, units)| *units > 0).collect()
}

fn at(us: u64) -> Option<Instant> {
    Some(Instant::from_micros(us))
}

fn band<'a>(view: &'a View, name: &str) -> &'a [u32] {
    &view.bands.iter().find(|band| band.name() == name).unwrap_or_else(|| panic!("{name}: {:?}", view.bands)).units
}

#[tokio::test]
async fn known_bookings_give_exact_numbers_and_looking_changes_nothing() {
    on_each_redis(async |bench: Bench| {
        assert_eq!(view::view(&bench.store, &bench.budget).await.unwrap(), None, "unknown budget");
        bench.policy(&eighty()).await;
        let empty = look(&bench).await;
        assert_eq!((empty.now, empty.from_s), (at(START).unwrap(), START / SECOND - 60));
        assert_eq!((empty.limit, empty.per, empty.scheduled_per_s), (100.0, Duration::from_secs(1), 80.0));
        assert!((empty.capacity.iter().all(|units| *units == 80), empty.capacity.len()) == (true, PAST + AHEAD));
        assert_eq!((ahead(&empty.booked), empty.waiting_units, empty.booked_until), (vec![], Some(0), None));
        assert_eq!((empty.paused_until, empty.cooldown_until, empty.overdue_since), (None, None, None));
        assert_eq!((empty.adaptive_level, empty.throttled, empty.called.len()), (None, [0, 0], PAST + 1));

        let all = drafts("m", 200, "default");
        book(&bench, &all).await;
        let state = async || {
            let calendar: Vec<u8> = bench.command(redis::cmd("GET").arg("s{b}cal")).await;
            let policy: std::collections::BTreeMap<String, Vec<u8>> =
                bench.command(redis::cmd("HGETALL").arg("s{b}policy")).await;
            (bench.keys("*").await, calendar, policy)
        };
        let before = state().await;
        let full = look(&bench).await;
        assert_eq!(ahead(&full.booked), [(0, 80), (1, 80), (2, 60)], "20 of the first second were behind");
        assert_eq!(ahead(band(&full, "others")), [(0, 80), (1, 80), (2, 60)]);
        assert_eq!((full.waiting_units, full.booked_until), (Some(220), at(START + 3 * SECOND)));
        assert_eq!(full.backlog(), Duration::from_secs(3));
        assert!(state().await == before, "it is only read");

        // a hole is not booked, nor is what was taken from the end
        for i in [70, 71, 199] {
            let _ = cancel::cancel(&bench.store, &bench.budget, &all[i].id).await.unwrap();
        }
        let rest = look(&bench).await;
        assert_eq!((ahead(&rest.booked), rest.waiting_units), (vec![(0, 80), (1, 78), (2, 59)], Some(217)));

        // a calendar that the next booking would cut
        bench.set_clock(START + 4 * 3600 * SECOND).await;
        let before = state().await;
        let later = look(&bench).await;
        assert_eq!((later.booked_until, later.waiting_units, later.overdue_since), (None, Some(0), None));
        assert!(state().await == before, "it is only read");
        // a lost one: its policy tells the rest
        let _: () = bench.command(redis::cmd("DEL").arg("s{b}cal")).await;
        let lost = look(&bench).await;
        assert_eq!((lost.capacity[0], lost.scheduled_per_s, ahead(&lost.booked)), (80, 80.0, vec![]));
        assert_eq!(bench.keys("*cal").await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn what_is_booked_is_told_by_lane() {
    on_each_redis(async |bench: Bench| {
        let lanes =
            vec![lane("otp", 0.25, true), lane("bulk", 0.1, false), lane("now", 0.0, true), lane("news", 0.0, false)];
        bench.policy(&Policy { lanes, ..eighty() }).await;
        for (name, n, lane) in [("o", 10, "otp"), ("b", 40, "bulk"), ("n", 5, "news"), ("d", 1, "default")] {
            book(&bench, &drafts(name, n, lane)).await;
        }
        let view = look(&bench).await;
        let names: Vec<&str> = view.bands.iter().map(view::Band::name).collect();
        assert_eq!(names, ["bulk", "otp", "urgent", "others"]);
        for (i, units) in view.booked.iter().enumerate() {
            assert_eq!(view.bands.iter().map(|band| band.units[i]).sum::<u32>(), *units, "{i}");
        }
        let total = |name: &str| band(&view, name).iter().sum::<u32>();
        assert_eq!((total("otp"), total("bulk"), total("urgent")), (10, 40, 0));
        assert_eq!(total("others"), 6 + 20, "5 + 1, and the 20 that were behind");
        // a lane that preempts without a reservation is told apart from the others
        book(&bench, &drafts("u", 3, "now")).await;
        let view = look(&bench).await;
        assert_eq!(band(&view, "urgent").iter().sum::<u32>(), 3);
    })
    .await;
}

#[tokio::test]
async fn one_lane_less_than_its_displaced_sends_is_never_counted_twice() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&Policy { lanes: vec![lane("now", 0.0, true)], ..eighty() }).await;
        book(&bench, &drafts("m", 500, "default")).await;
        book(&bench, &drafts("u", 7, "now")).await;
        let view = look(&bench).await;
        assert_eq!((view.booked[PAST], band(&view, "urgent")[PAST], band(&view, "others")[PAST]), (80, 7, 73));
    })
    .await;
}

#[tokio::test]
async fn a_step_of_the_ramp_changes_the_capacity_at_its_second() {
    on_each_redis(async |bench: Bench| {
        let ramp = vec![RampStep { from: Instant::from_micros(START + 30 * SECOND), limit: 50 }];
        bench.policy(&Policy { ramp, ..eighty() }).await;
        let view = look(&bench).await;
        assert_eq!((view.capacity[PAST + 29], view.capacity[PAST + 30], view.capacity[PAST + 119]), (80, 40, 40));
        assert_eq!((view.limit, view.scheduled_per_s), (100.0, 80.0));
        // nobody has booked since the step
        bench.set_clock(START + 31 * SECOND).await;
        let view = look(&bench).await;
        assert_eq!((view.limit, view.scheduled_per_s, view.capacity[PAST]), (50.0, 40.0, 40));
        assert_eq!((view.capacity[PAST - 2], view.capacity[PAST - 1]), (80, 40));
    })
    .await;
}

#[tokio::test]
async fn slow_rates_and_other_windows_are_told_by_the_second() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&Policy { per: Duration::from_secs(10), limit: 2, ..eighty() }).await;
        book(&bench, &drafts("m", 3, "default")).await;
        let view = look(&bench).await;
        assert_eq!((view.limit, view.per.as_secs(), view.limit_per_s(), view.scheduled_per_s), (2.0, 10, 0.2, 0.16));
        // one unit each 6.25 s
        let units: u32 = view.capacity[PAST..].iter().sum();
        assert!((19..=20).contains(&units) && view.capacity.iter().all(|units| *units <= 1), "{:?}", view.capacity);
        let seconds: Vec<usize> = ahead(&view.booked).iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds.len(), 3);
        assert!(seconds.windows(2).all(|w| (6..=7).contains(&(w[1] - w[0]))), "{seconds:?}");
        assert!(seconds.iter().all(|second| view.capacity[PAST + second] == 1), "{seconds:?}");
        bench.policy(&Policy { per: Duration::from_millis(100), limit: 10, ..eighty() }).await;
        let view = look(&bench).await;
        assert_eq!((view.limit, view.limit_per_s(), view.capacity[PAST + 119]), (10.0, 100.0, 80));
    })
    .await;
}

#[tokio::test]
async fn a_pause_a_cooldown_and_the_adaptive_rate_are_told() {
    on_each_redis(async |bench: Bench| {
        let adaptive = Some(Adaptive { floor: 10, ceiling: None });
        bench.policy(&Policy { adaptive, ..eighty() }).await;
        assert_eq!(look(&bench).await.adaptive_level, Some(1.0));
        let copy = bench.copy(&draft("m")).await;
        bench.set_clock(START + 250_000).await;
        assert!(matches!(bench.verdict(&copy, 1).await, Verdict::Send { .. }));
        let rest = Some(Duration::from_secs(20));
        let _ = bench.settle_with(&copy, 1, Ending::Throttled, Duration::ZERO, rest).await;
        budget::pause(&bench.store, &bench.budget, Some(Duration::from_secs(600))).await.unwrap();
        let view = look(&bench).await;
        assert_eq!(view.cooldown_until, at(START + 250_000 + 20 * SECOND));
        assert_eq!(view.paused_until, at(START + 250_000 + 600 * SECOND));
        assert_eq!((view.adaptive_level, view.scheduled_per_s, view.limit), (Some(0.75), 60.0, 100.0));
        // a pause outlives the calendar
        let _: () = bench.command(redis::cmd("DEL").arg("s{b}cal")).await;
        let view = look(&bench).await;
        assert_eq!((view.paused_until, view.cooldown_until), (at(START + 250_000 + 600 * SECOND), None));
        bench.set_clock(START + 600 * SECOND).await;
        assert_eq!(look(&bench).await.paused_until, at(START + 250_000 + 600 * SECOND));
        bench.set_clock(START + 601 * SECOND).await;
        assert_eq!(look(&bench).await.paused_until, None);
    })
    .await;
}

/// '<I2' milliseconds of a call of cost 1, or '<I2I2I4' with another cost, as settle.lua notes them.
async fn call(bench: &Bench, at_ms: u64, cost: u32) {
    let ms = u16::try_from(at_ms % 60_000).unwrap().to_le_bytes().to_vec();
    let entry = if cost == 1 { ms } else { [vec![0xff, 0xff], ms, cost.to_le_bytes().to_vec()].concat() };
    let key = format!("s{{b}}au:{}", at_ms / 60_000);
    let _: () = bench.command(redis::cmd("APPEND").arg(key).arg(entry)).await;
}

#[tokio::test]
async fn calls_of_the_last_minute_are_counted_by_the_second_and_endings_by_the_minute() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&eighty()).await;
        let now = START + 20 * SECOND + 500_000;
        bench.set_clock(now).await;
        let ms = now / 1000;
        // too old; the first second that counts; two in one second; another cost; the running second
        for (ago, cost) in [(61_000, 1), (60_500, 1), (59_600, 3), (21_000, 1), (1_501, 1), (1_500, 1), (400, 9)] {
            call(&bench, ms - ago, cost).await;
        }
        let minute = ms / 60_000;
        for (minute, outcome, n) in [(minute - 1, "throttled", 4), (minute, "throttled", 2), (minute, "unknown", 1)] {
            let key = format!("s{{b}}en:{minute}");
            let _: () = bench.command(redis::cmd("HSET").arg(key).arg(outcome).arg(n)).await;
        }
        let view = look(&bench).await;
        let called: Vec<(usize, u32)> = view.called.iter().copied().enumerate().filter(|(_, n)| *n > 0).collect();
        assert_eq!(called, [(0, 4), (39, 1), (58, 1), (59, 1), (60, 9)]);
        assert_eq!(view.throttled, [4, 2]);
        assert_eq!((view.endings["throttled"], view.endings["unknown"]), (6, 1));
    })
    .await;
}

#[tokio::test]
async fn the_oldest_booked_second_without_a_call_behind_it_is_overdue() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&eighty()).await;
        book(&bench, &drafts("m", 200, "default")).await;
        let overdue = async |us: u64| {
            bench.set_clock(us).await;
            look(&bench).await.overdue_since
        };
        assert_eq!(overdue(START + 900_000).await, None, "the running second is not over");
        assert_eq!(overdue(START + SECOND).await, at(START));
        assert_eq!(overdue(START + 50 * SECOND).await, at(START));
        assert_eq!(overdue(START + 40 * 60 * SECOND).await, at(START), "far behind what is shown");
        assert_eq!(overdue(START + 61 * 60 * SECOND).await, None, "older than an hour");
        call(&bench, START / 1000 + 700, 1).await;
        assert_eq!(overdue(START + 50 * SECOND).await, at(START + SECOND));
        call(&bench, START / 1000 + 2300, 1).await;
        assert_eq!(overdue(START + 50 * SECOND).await, None);
        // the last call lies minutes back, and something was booked since
        bench.set_clock(START + 5 * 60 * SECOND).await;
        book(&bench, &drafts("later", 10, "default")).await;
        assert_eq!(overdue(START + 9 * 60 * SECOND).await, at(START + 5 * 60 * SECOND));
    })
    .await;
}

#[tokio::test]
async fn a_backlog_of_days_is_read_no_further_than_it_is_shown() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&Policy { horizon: Duration::from_secs(14 * 86_400), ..eighty() }).await;
        let far = std::time::UNIX_EPOCH + Duration::from_micros(START + 13 * 86_400 * SECOND);
        let draft = Message::new("b", "far", "x").not_before(far).check().unwrap();
        bench.reserve(&draft).await.unwrap();
        book(&bench, &drafts("m", 10, "default")).await;
        let read = async || {
            let info: String = bench.command(redis::cmd("INFO").arg("stats")).await;
            let line = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:")).map(str::to_owned);
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        look(&bench).await;
        let before = read().await;
        let view = look(&bench).await;
        let bytes = read().await - before;
        assert_eq!(view.booked_until, at(START + (13 * 86_400 + 1) * SECOND));
        assert_eq!((view.waiting_units, ahead(&view.booked)), (None, vec![(0, 30)]));
        assert!(bytes < 20_000, "{bytes} bytes are answered");
        let unknown = BudgetName::new("other").unwrap();
        assert_eq!(view::view(&bench.store, &unknown).await.unwrap(), None);
    })
    .await;
}
