//! What settle notes of each call, read back.

use std::collections::BTreeMap;
use std::time::Duration;

use sendslot_shared::audit::{self, Call};
use sendslot_shared::claim::Verdict;
use sendslot_shared::envelope::{Envelope, fresh_tag};
use sendslot_shared::message::Message;
use sendslot_shared::policy::{OnUnknown, Policy};
use sendslot_shared::settle::{Action, Ending, Report, settle};
use sendslot_shared::status::Event;
use sendslot_shared::time::Instant;
use sendslot_tests::{Bench, SECOND, START, costing, draft, on_each_redis, per_second};

const MS: u64 = 1000;
/// Each call's.
const HELD_UP: Duration = Duration::from_micros(7900);

async fn calls(bench: &Bench) -> Vec<(u64, u32)> {
    let (from, to) = (Instant::from_micros(START - 3600 * SECOND), Instant::from_micros(START + 7200 * SECOND));
    let mut minutes = audit::calls(&bench.store, &bench.budget, from, to);
    let mut all = vec![];
    while let Some(calls) = minutes.next().await.unwrap() {
        all.extend(calls.into_iter().map(|Call { at, cost }| (at.as_micros(), cost)));
    }
    assert!(all.is_sorted(), "{all:?}");
    all
}

async fn endings(bench: &Bench) -> BTreeMap<String, u64> {
    let (from, to) = (Instant::from_micros(START), Instant::from_micros(START + 3600 * SECOND));
    audit::endings(&bench.store, &bench.budget, from, to).await.unwrap()
}

async fn report(bench: &Bench, envelope: &Envelope, nonce: u32, ending: Ending, elapsed_us: u64) -> Action {
    let elapsed = Duration::from_micros(elapsed_us);
    let report = Report { envelope, nonce, ending, delay: Duration::ZERO, cooldown: None, elapsed, held_up: HELD_UP };
    settle(&bench.store, report).await.unwrap()
}

/// Claims a copy at its slot; the instant.
async fn claim(bench: &Bench, copy: &Envelope, nonce: u32) -> u64 {
    let at = copy.at.unwrap().as_micros();
    bench.set_clock(at).await;
    let verdict = bench.verdict(copy, nonce).await;
    assert!(matches!(verdict, Verdict::Send { .. }), "{verdict:?}");
    at
}

fn whole_ms(us: u64) -> u64 {
    us / MS * MS
}

#[tokio::test]
async fn each_call_is_noted_once_at_the_millisecond_it_began() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.5)).await;
        let mut expected = vec![];
        for (i, (cost, took)) in [(1, 0), (1, 50_000), (3, 50_500), (70, 2_000_000)].into_iter().enumerate() {
            let copy = bench.copy(&costing(format!("m{i}"), cost)).await;
            let at = claim(&bench, &copy, 1).await;
            let now = at + 40 * MS + took;
            bench.set_clock(now).await;
            for retry in [0, 300 * MS, 2100 * MS] {
                bench.set_clock(now + retry).await;
                assert_eq!(report(&bench, &copy, 1, Ending::Sent, took).await, Action::Acknowledge);
            }
            expected.push((whole_ms(at + 40 * MS), cost));
        }
        assert_eq!(calls(&bench).await, expected);
        assert_eq!(endings(&bench).await, BTreeMap::new());
        let size: u64 = bench.command(redis::cmd("STRLEN").arg(format!("s{{b}}au:{}", START / SECOND / 60))).await;
        assert_eq!(size, 2 + 2 + 8 + 8);
    })
    .await;
}

#[tokio::test]
async fn a_record_keeps_how_long_its_call_took_and_was_held_up() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.5)).await;
        let hour = 3600 * SECOND;
        // what is told after 70 minutes, as after an outage of Redis, is kept in seconds
        let told = [
            (0, 7900, 7),
            (50 * MS, 999, 0),
            (70 * MS, 5_000_000, 1022),
            (4_194_303 * MS, 7900, 7),
            (5 * hour, 7900, 0),
        ];
        let (mut now, mut noted) = (START, 0);
        for (i, (took, held_us, kept_ms)) in told.into_iter().enumerate() {
            for lost in [false, true] {
                bench.set_clock(now).await;
                let id = format!("m{i}{lost}");
                let copy = bench.copy(&draft(&id)).await;
                let began = claim(&bench, &copy, 1).await;
                if lost {
                    let _: i64 = bench.command(redis::cmd("DEL").arg(format!("s{{b}}r:{id}"))).await;
                }
                // told twice, it is one call
                for later in [0, 30 * SECOND] {
                    now = began + took + later;
                    bench.set_clock(now).await;
                    let (elapsed, held_up) = (Duration::from_micros(took + later), Duration::from_micros(held_us));
                    let (delay, cooldown, nonce, ending) = (Duration::ZERO, None, 1, Ending::Sent);
                    let report = Report { envelope: &copy, nonce, ending, delay, cooldown, elapsed, held_up };
                    assert_eq!(settle(&bench.store, report).await.unwrap(), Action::Acknowledge);
                    let send = bench.status(&copy.draft).await.unwrap();
                    assert_eq!(send.held_up, Some(Duration::from_millis(kept_ms)), "{id}");
                    let called = send.history.iter().find_map(|event| match event {
                        Event::Called { at } => Some(at.as_micros()),
                        _ => None,
                    });
                    let off = called.unwrap().abs_diff(began);
                    assert!(off <= if took > 2 * hour { SECOND } else { MS }, "{id}: off by {off} us");
                }
                noted += 1;
            }
        }
        let mut found = vec![];
        let (from, to) = (Instant::from_micros(START), Instant::from_micros(now));
        let mut minutes = audit::calls(&bench.store, &bench.budget, from, to);
        while let Some(calls) = minutes.next().await.unwrap() {
            found.extend(calls);
        }
        assert_eq!(found.len(), noted, "{found:?}");
    })
    .await;
}

#[tokio::test]
async fn a_call_belongs_to_the_minute_in_which_it_began() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.5)).await;
        let start = START + 59 * SECOND + 990 * MS;
        let message =
            Message::new("b", "a", "x").not_before(Instant::from_micros(START + 59 * SECOND).to_system_time());
        let copy = bench.copy(&message.check().unwrap()).await;
        claim(&bench, &copy, 1).await;
        bench.set_clock(start + 70 * MS).await;
        let _ = report(&bench, &copy, 1, Ending::Sent, 70 * MS).await;
        assert_eq!(calls(&bench).await, [(start, 1)]);
        let minute = START / SECOND / 60;
        assert_eq!(bench.keys("s{b}au:*").await, [format!("s{{b}}au:{minute}")]);
        // and it is found by who asks for exactly its millisecond
        let mut found =
            audit::calls(&bench.store, &bench.budget, Instant::from_micros(start), Instant::from_micros(start + 1));
        assert_eq!(found.next().await.unwrap().unwrap().len(), 1);
        assert_eq!(found.next().await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn calls_that_were_not_sent_are_noted_with_their_ends_and_each_once() {
    on_each_redis(async |bench: Bench| {
        let policy = Policy { on_unknown: OnUnknown::Resend, ..per_second(100, 0.5) };
        bench.policy(&policy).await;
        let mut expected = vec![];
        for (i, ending) in
            [Ending::Throttled, Ending::Unavailable, Ending::Unknown, Ending::Rejected, Ending::NotStarted]
                .into_iter()
                .enumerate()
        {
            let copy = bench.copy(&draft(format!("m{i}"))).await;
            let at = claim(&bench, &copy, 9).await;
            for _ in 0..3 {
                let _ = report(&bench, &copy, 9, ending, 0).await;
            }
            if ending != Ending::NotStarted {
                expected.push((whole_ms(at), 1));
            }
        }
        assert_eq!(calls(&bench).await, expected);
        let each = ["rejected", "throttled", "unavailable", "unknown"].map(|outcome| (outcome.to_owned(), 1));
        assert_eq!(endings(&bench).await, BTreeMap::from(each));
    })
    .await;
}

#[tokio::test]
async fn a_second_call_of_a_send_is_noted_as_well() {
    on_each_redis(async |bench: Bench| {
        let policy = Policy { on_unknown: OnUnknown::Resend, ..per_second(100, 0.5) };
        bench.policy(&policy).await;
        let copy = bench.copy(&draft("a")).await;
        let first = claim(&bench, &copy, 1).await;
        // its worker hangs; the lease ends
        bench.set_clock(first + 16 * SECOND).await;
        let Verdict::PutBack { slot, .. } = bench.verdict(&copy, 2).await else { panic!("it is booked again") };
        let again = Envelope { seq: slot.seq, tag: fresh_tag(), at: Some(slot.at), ..copy.clone() };
        let second = claim(&bench, &again, 2).await;
        bench.set_clock(second + 50 * MS).await;
        let (late, on_time) = ((&copy, 1, second + 50 * MS - first), (&again, 2, 50 * MS));
        for (copy, nonce, elapsed) in [on_time, on_time, late, late] {
            assert_eq!(report(&bench, copy, nonce, Ending::Sent, elapsed).await, Action::Acknowledge);
        }
        assert_eq!(calls(&bench).await, [(whole_ms(first), 1), (whole_ms(second), 1)]);
    })
    .await;
}

#[tokio::test]
async fn a_call_whose_record_is_lost_is_noted() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.5)).await;
        let mut at = 0;
        for (id, ending) in [("a", Ending::Sent), ("b", Ending::Rejected), ("c", Ending::Unknown)] {
            let copy = bench.copy(&draft(id)).await;
            at = claim(&bench, &copy, 1).await;
            let _: i64 = bench.command(redis::cmd("DEL").arg(format!("s{{b}}r:{id}"))).await;
            for _ in 0..2 {
                let _ = report(&bench, &copy, 1, ending, 0).await;
            }
        }
        assert_eq!(calls(&bench).await.len(), 3);
        // without the calendar as well
        let copy = bench.copy(&draft("d")).await;
        claim(&bench, &copy, 1).await;
        let _: i64 = bench.command(redis::cmd("DEL").arg("s{b}cal").arg("s{b}policy")).await;
        bench.set_clock(at + 120 * SECOND).await;
        let _ = report(&bench, &copy, 1, Ending::Sent, 0).await;
        assert_eq!(calls(&bench).await.len(), 4);
    })
    .await;
}

#[tokio::test]
async fn what_is_noted_lives_for_a_day_or_for_as_long_as_16_million_units_take() {
    on_each_redis(async |bench: Bench| {
        for (limit, lives_s) in [(100, 86_400), (1000, 33_554), (20_000, 1677), (1_000_000, 120)] {
            let _: () = bench.command(redis::cmd("FLUSHALL").arg("SYNC")).await;
            bench.set_clock(START).await;
            bench.policy(&per_second(limit, 0.5)).await;
            let copy = bench.copy(&draft("a")).await;
            claim(&bench, &copy, 1).await;
            let _ = report(&bench, &copy, 1, Ending::Throttled, 0).await;
            for kind in ["au", "en"] {
                let key = format!("s{{b}}{kind}:{}", START / SECOND / 60);
                let ttl: i64 = bench.command(redis::cmd("TTL").arg(&key)).await;
                assert!((lives_s - 60..=lives_s).contains(&ttl), "{limit}/s: {kind} lives for {ttl} s");
            }
        }
    })
    .await;
}
