//! Redis faults: what breaks is an error or is repaired, and never a permission to send.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use sendslot_shared::claim::{self, Claim, MoveReason, PutBack, Verdict};
use sendslot_shared::envelope::{Envelope, fresh_tag};
use sendslot_shared::message::Draft;
use sendslot_shared::reserve::{self, Booking, Refusal};
use sendslot_shared::settle::{self, Action, Ending, Report};
use sendslot_shared::status::{SendState, status_all};
use sendslot_shared::store::{Store, StoreError};
use sendslot_tests::proxy::Proxy;
use sendslot_tests::{Bench, LEASE, SECOND, START, costing, draft, most_in_window, on_each_redis, per_second};

/// Books one draft through a store; only what Redis did can fail.
async fn reserve(store: &Store, draft: &Draft) -> Result<Booking, StoreError> {
    let mut answers = reserve::reserve(store, &draft.budget, &[draft]).await?;
    Ok(answers.remove(0).expect("no refusal"))
}

async fn claim(store: &Store, copy: &Envelope, nonce: u32) -> Result<Verdict, StoreError> {
    Ok(claim::claim(store, Claim { envelope: copy, nonce, lease: LEASE }).await?.verdict)
}

async fn settle(store: &Store, copy: &Envelope, nonce: u32) -> Result<Action, StoreError> {
    let (delay, elapsed) = (Duration::ZERO, Duration::ZERO);
    settle::settle(
        store,
        Report { envelope: copy, nonce, ending: Ending::Sent, delay, cooldown: None, elapsed, held_up: Duration::ZERO },
    )
    .await
}

/// A copy whose slot is now.
async fn due(bench: &Bench, id: &str) -> Envelope {
    let copy = bench.copy(&draft(id)).await;
    bench.set_clock(copy.at.expect("a slot").as_micros()).await;
    copy
}

/// Redis answered, with an error of this code or with these words.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, StoreError>, words: &str) {
    let Err(StoreError::Refused { source, .. }) = &result else { panic!("{result:?}") };
    let text = format!("{} {source}", source.code().unwrap_or_default());
    assert!(text.contains(words), "{text}");
}

/// No call of any kind is answered but with this error.
async fn assert_all_refused(store: &Store, copy: &Envelope, words: &str) {
    assert_refused(reserve(store, &draft("new")).await, words);
    assert_refused(claim(store, copy, 1).await, words);
    assert_refused(settle(store, copy, 1).await, words);
}

/// Everything that Redis holds, keys and values.
async fn contents(bench: &Bench) -> Vec<(String, String)> {
    let mut all = vec![];
    for key in bench.keys("*").await {
        let value: Option<Vec<u8>> = bench.command(redis::cmd("DUMP").arg(&key)).await;
        all.push((key, format!("{value:?}")));
    }
    all
}

async fn config(bench: &Bench, name: &str, value: &str) {
    let _: () = bench.command(redis::cmd("CONFIG").arg("SET").arg(name).arg(value)).await;
}

/// A connection that waits for as long as a command takes.
async fn patient_connection(bench: &Bench) -> MultiplexedConnection {
    let client = redis::Client::open(bench.server.url()).expect("a URL");
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
}

/// The server's process.
async fn process_id(bench: &Bench) -> String {
    let info: String = bench.command(redis::cmd("INFO").arg("server")).await;
    info.lines().find_map(|line| line.strip_prefix("process_id:")).expect("a process").to_owned()
}

async fn signal(process: &str, name: &str) {
    let sent = tokio::process::Command::new("kill").args(["-s", name, process]).status().await;
    assert!(sent.expect("kill runs").success());
}

/// A store behind a proxy, with its scripts loaded.
async fn proxied(bench: &Bench) -> (Proxy, Store) {
    let proxy = Proxy::to(bench.server.port()).await;
    let store = Store::with_virtual_clock(&format!("redis://127.0.0.1:{}", proxy.port())).expect("a store");
    reserve(&store, &draft("first")).await.expect("Redis answers");
    (proxy, store)
}

#[tokio::test]
async fn scripts_that_are_flushed_all_the_time_book_everything_once() {
    // D1, bottleneck#118, redis-rs#603
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let drafts: Vec<Draft> = (0..50).map(|i| draft(format!("m{i}"))).collect();
        let flush = async || {
            for _ in 0..50 {
                let _: () = bench.command(redis::cmd("SCRIPT").arg("FLUSH")).await;
            }
        };
        for round in 0..4 {
            let books = join_all(drafts.iter().map(|draft| reserve(&bench.store, draft)));
            let (booked, ()) = tokio::join!(books, flush());
            let mut slots: Vec<_> = booked.iter().map(|booking| booking.as_ref().unwrap().slot).collect();
            assert!(booked.iter().all(|booking| booking.as_ref().unwrap().existing == (round > 0)));
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), 50);
        }
        assert_eq!(bench.keys("*r:*").await.len(), 50);
        let next = bench.reserve(&draft("next")).await.unwrap();
        // the transit of .25 s is position 20 of 80
        assert_eq!(next.slot, ((START / SECOND) as u32, 20 + 50), "one position each");
    })
    .await;
}

#[tokio::test]
async fn a_script_that_is_gone_comes_back_with_one_text_for_a_whole_pipeline() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(1000, 0.8)).await;
        let drafts: Vec<Draft> = (0..200).map(|i| draft(format!("m{i}"))).collect();
        let ids: Vec<_> = drafts.iter().map(|draft| &draft.id).collect();
        assert!(bench.reserve_all(&drafts).await.iter().all(Result::is_ok));
        let _: () = bench.command(redis::cmd("SCRIPT").arg("FLUSH")).await;
        let _: () = bench.command(redis::cmd("CONFIG").arg("RESETSTAT")).await;
        let known = status_all(&bench.store, &bench.budget, &ids).await.unwrap();
        assert!(known.iter().all(|send| send.as_ref().is_some_and(|send| send.state == SendState::Booked)));
        let stats: String = bench.command(redis::cmd("INFO").arg("commandstats")).await;
        assert!(stats.contains("cmdstat_eval:calls=1,"), "{stats}");
    })
    .await;
}

#[tokio::test]
async fn a_redis_that_does_not_answer_is_unreachable_until_it_does() {
    let bench = Bench::start().await;
    bench.policy(&per_second(100, 0.8)).await;
    let first = bench.reserve(&draft("first")).await.unwrap();
    let process = process_id(&bench).await;
    signal(&process, "STOP").await;
    let began = Instant::now();
    let stopped = reserve(&bench.store, &draft("m")).await;
    let took = began.elapsed();
    signal(&process, "CONT").await;
    assert!(matches!(&stopped, Err(StoreError::Unreachable { .. })), "{stopped:?}");
    assert!((Duration::from_secs(2)..Duration::from_secs(6)).contains(&took), "{took:?}");
    let booked = reserve(&bench.store, &draft("m")).await.unwrap();
    assert_eq!((booked.slot.1, booked.seq), (first.slot.1 + 1, 1));
    assert_eq!(bench.reserve(&draft("next")).await.unwrap().slot.1, first.slot.1 + 2, "one position was used");
}

#[tokio::test]
async fn many_callers_of_a_redis_that_does_not_answer_do_not_wait_for_each_other() {
    let bench = Bench::start().await;
    bench.policy(&per_second(100, 0.8)).await;
    let drafts: Vec<Draft> = (0..10).map(|i| draft(format!("m{i}"))).collect();
    bench.reserve(&drafts[0]).await.unwrap();
    let process = process_id(&bench).await;
    signal(&process, "STOP").await;
    let began = Instant::now();
    let all = join_all(drafts.iter().map(|draft| reserve(&bench.store, draft)));
    let answers = tokio::time::timeout(Duration::from_secs(8), all).await;
    let took = began.elapsed();
    signal(&process, "CONT").await;
    let answers = answers.unwrap_or_else(|_| panic!("not all of 10 callers have an answer after {took:?}"));
    assert!(answers.iter().all(|a| matches!(a, Err(StoreError::Unreachable { .. }))), "{answers:?}");
}

#[tokio::test]
async fn a_booking_whose_reply_is_lost_on_the_wire_is_not_booked_twice() {
    // B6, rate-limit-redis#251
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let (proxy, store) = proxied(&bench).await;
        proxy.swallow_script_replies(1);
        let booked = reserve(&store, &draft("m")).await.unwrap();
        assert_eq!((booked.existing, booked.seq, proxy.to_swallow()), (true, 1, 0), "asked twice");
        proxy.swallow_script_replies(2);
        let lost = reserve(&store, &draft("n")).await;
        assert!(matches!(&lost, Err(StoreError::Unreachable { .. })), "{lost:?}");
        let found = reserve(&store, &draft("n")).await.unwrap();
        assert_eq!((found.existing, found.slot.1), (true, booked.slot.1 + 1));
        let next = reserve(&store, &draft("next")).await.unwrap();
        assert_eq!((next.existing, next.slot.1), (false, booked.slot.1 + 2), "one position each");
        assert_eq!(bench.keys("*r:*").await.len(), 4);
    })
    .await;
}

#[tokio::test]
async fn a_claim_whose_reply_is_lost_on_the_wire_sends_once() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let (proxy, store) = proxied(&bench).await;
        let copy = due(&bench, "m").await;
        let early = Envelope { tag: 9, ..copy.clone() };
        proxy.swallow_script_replies(1);
        let verdict = claim(&store, &copy, 7).await.unwrap();
        assert!(matches!(verdict, Verdict::Send { attempt: 1, .. }), "{verdict:?}");
        assert!(matches!(claim(&store, &early, 8).await.unwrap(), Verdict::Busy { .. }), "another delivery waits");
        proxy.swallow_script_replies(1);
        assert_eq!(settle(&store, &copy, 7).await.unwrap(), Action::Acknowledge);
        let known = bench.status(&copy.draft).await.unwrap();
        assert_eq!((known.state, known.attempts, proxy.to_swallow()), (SendState::Sent, 1, 0));
    })
    .await;
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_replaced() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let (proxy, store) = proxied(&bench).await;
        for round in 2..5 {
            let _: i64 = bench.command(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal")).await;
            assert!(!reserve(&store, &draft(format!("m{round}"))).await.unwrap().existing);
            assert_eq!(proxy.connections(), round);
        }
    })
    .await;
}

#[tokio::test]
async fn out_of_memory_refuses_and_writes_nothing() {
    // D3, berkeleytime#1135
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let copy = due(&bench, "m").await;
        config(&bench, "maxmemory", "1").await;
        let before = contents(&bench).await;
        assert_all_refused(&bench.store, &copy, "OOM").await;
        assert_eq!(contents(&bench).await, before);
        config(&bench, "maxmemory", "0").await;
        assert!(matches!(bench.verdict(&copy, 1).await, Verdict::Send { .. }));
    })
    .await;
}

#[tokio::test]
async fn a_script_error_is_never_a_permission() {
    // D4, spring-cloud-gateway#248
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let copy = due(&bench, "m").await;
        let _: () = bench.command(redis::cmd("RENAME").arg("s{b}cal").arg("aside")).await;
        let _: i64 = bench.command(redis::cmd("RPUSH").arg("s{b}cal").arg("a list")).await;
        let before = contents(&bench).await;
        assert_refused(reserve(&bench.store, &draft("new")).await, "WRONGTYPE");
        assert_refused(claim(&bench.store, &copy, 1).await, "WRONGTYPE");
        assert_eq!(contents(&bench).await, before);
        let _: () = bench.command(redis::cmd("RENAME").arg("aside").arg("s{b}cal")).await;
        let _: () = bench.command(redis::cmd("SET").arg("s{b}r:odd").arg("no record")).await;
        let odd = Envelope { draft: draft("odd"), ..copy.clone() };
        assert_refused(reserve(&bench.store, &odd.draft).await, "data string too short");
        assert_refused(claim(&bench.store, &odd, 1).await, "data string too short");
        assert!(matches!(bench.verdict(&copy, 1).await, Verdict::Send { .. }));
    })
    .await;
}

#[tokio::test]
async fn a_server_that_became_a_replica_permits_nothing() {
    // D2, redis-client#64
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let copy = due(&bench, "m").await;
        let _: () = bench.command(redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1)).await;
        assert_all_refused(&bench.store, &copy, "READONLY").await;
        let _: () = bench.command(redis::cmd("REPLICAOF").arg("NO").arg("ONE")).await;
        assert!(matches!(bench.verdict(&copy, 1).await, Verdict::Send { .. }));
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_loading_permits_nothing() {
    // D5, redis-py-cluster#244
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let copy = due(&bench, "m").await;
        for i in 0..1000 {
            let _: () = bench.command(redis::cmd("SET").arg(format!("filler{i}")).arg("x".repeat(100))).await;
        }
        config(&bench, "loading-process-events-interval-bytes", "1024").await;
        config(&bench, "key-load-delay", "1000").await;
        let mut patient = patient_connection(&bench).await;
        let reload = async {
            let done: redis::RedisResult<()> = redis::cmd("DEBUG").arg("RELOAD").query_async(&mut patient).await;
            done.unwrap();
        };
        let ask = async {
            // the reload is on its way on the other connection: the first error is LOADING
            while reserve(&bench.store, &copy.draft).await.is_ok() {}
            assert_all_refused(&bench.store, &copy, "LOADING").await;
            config(&bench, "key-load-delay", "0").await;
        };
        tokio::join!(reload, ask);
        assert!(matches!(bench.verdict(&copy, 1).await, Verdict::Send { .. }));
    })
    .await;
}

#[tokio::test]
async fn a_redis_that_lost_everything_holds_until_the_policy_is_back_and_then_books_again() {
    let mut bench = Bench::start().await;
    bench.policy(&per_second(100, 0.8)).await;
    let copy = due(&bench, "m").await;
    let now = copy.at.unwrap().as_micros();
    bench.server.restart().await.unwrap();
    let client = redis::Client::open(bench.server.url()).unwrap();
    bench.redis = client.get_multiplexed_async_connection().await.unwrap();
    bench.set_clock(now).await;
    assert_eq!(bench.verdict(&copy, 1).await, Verdict::Hold);
    assert_eq!(bench.reserve(&draft("new")).await, Err(Refusal::UnknownBudget));
    assert_eq!(bench.keys("s{*}*").await, [""; 0]);
    bench.policy(&per_second(100, 0.8)).await;
    let verdict = bench.verdict(&copy, 1).await;
    let Verdict::PutBack { slot, why } = verdict else { panic!("{verdict:?}") };
    assert_eq!((slot.seq, why), (2, PutBack::Rebooked(MoveReason::Lost)));
    assert!(slot.at.as_micros() >= now);
}

/// Plays the worker for copies of a budget of 50 units a second until all are sent, on the virtual clock in steps of 2 ms;
/// at `flush_at` Redis loses everything and the policy is set again. Copies show up a lead before their slots. Gives
/// instants and costs of the sends.
async fn send_through_a_flush(bench: &Bench, copies: Vec<Envelope>, flush_at: u64) -> Vec<(u64, u32)> {
    let lead = 1_500_000;
    let shows_up = |copy: Envelope| (copy.at.expect("a slot").as_micros() - lead, copy);
    let mut waiting: Vec<(u64, Envelope)> = copies.into_iter().map(shows_up).collect();
    let (mut sends, mut now, mut flushed) = (vec![], START, false);
    while !waiting.is_empty() {
        assert!(now < START + 60 * SECOND, "{} copies are never sent", waiting.len());
        if now >= flush_at && !flushed {
            let _: () = bench.command(&mut redis::cmd("FLUSHALL")).await;
            bench.set_clock(now).await;
            bench.policy(&per_second(50, 0.8)).await;
            flushed = true;
        }
        bench.set_clock(now).await;
        let (due, mut rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(look, _)| *look <= now);
        for (nonce, (_, copy)) in (1..).zip(due) {
            match bench.verdict(&copy, nonce).await {
                Verdict::Send { .. } => {
                    assert_eq!(bench.settle(&copy, nonce, Ending::Sent).await, Action::Acknowledge);
                    sends.push((now, copy.draft.cost));
                }
                Verdict::PutBack { slot, .. } => {
                    let next = Envelope { seq: slot.seq, tag: fresh_tag(), at: Some(slot.at), ..copy };
                    rest.push((slot.at.as_micros() - lead, next));
                }
                Verdict::Wait { wait, .. } => rest.push((now + wait.as_micros() as u64, copy)),
                other => panic!("{other:?}"),
            }
        }
        (waiting, now) = (rest, now + 2_000);
    }
    sends
}

#[tokio::test]
async fn what_waits_through_a_flush_is_sent_within_the_limit() {
    for flush_at in [START + 300_000, START + 1_500_000, START + 2_900_000] {
        let bench = Bench::start().await;
        bench.policy(&per_second(50, 0.8)).await;
        let mut copies = vec![];
        for i in 0..200 {
            copies.push(bench.copy(&draft(format!("m{i}"))).await);
        }
        let sends = send_through_a_flush(&bench, copies, flush_at).await;
        assert_eq!(sends.len(), 200);
        let most = most_in_window(sends, SECOND);
        assert!(most <= 50, "{most} in one second, flushed at {flush_at}");
    }
}

#[tokio::test]
async fn a_flush_just_behind_a_heavy_send_lets_nothing_go_faster_than_the_limit() {
    let bench = Bench::start().await;
    bench.policy(&per_second(50, 0.8)).await;
    let heavy = bench.copy(&costing("heavy", 50)).await;
    let flush_at = heavy.at.unwrap().as_micros() + 4_000;
    let mut copies = vec![heavy];
    for i in 0..100 {
        copies.push(bench.copy(&draft(format!("m{i}"))).await);
    }
    let sends = send_through_a_flush(&bench, copies, flush_at).await;
    assert_eq!(sends.len(), 101);
    let most = most_in_window(sends, SECOND);
    assert!(most <= 50, "{most} in one second");
}
