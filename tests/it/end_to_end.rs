//! The whole way, with the real worker binary.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use futures_util::{StreamExt as _, stream};
use sendslot_localstack::provider::{
    Arrival, Body, BodyCapture, Faults, ProviderOptions, ScriptedReply, max_units_in_rolling_window,
};
use sendslot_localstack::{RedisCluster, RedisServer, Servers, Stack, StackOptions, Tick};
use sendslot_scheduler::{BoundBy, Cancelled, Event, MoveReason, Refusal, ScheduleError, SendState};
use sendslot_shared::budget;
use sendslot_shared::id::{BudgetName, LaneName};
use sendslot_shared::limits::Lane;
use sendslot_shared::policy::Policy;
use sendslot_shared::store::Store;
use sendslot_tests::per_second;
use sendslot_tests::pipeline::{Pipeline, Setup};
use sendslot_tests::queues::localstack;

const WORKER: &str = env!("CARGO_BIN_EXE_sendslot-worker-under-test");
const SECOND: Duration = Duration::from_secs(1);

async fn start(setup: Setup) -> Pipeline {
    Pipeline::start(localstack().await, WORKER, setup).await
}

fn most_in_a_second(arrivals: &[Arrival]) -> u64 {
    let units: Vec<_> = arrivals.iter().map(|a| (a.at_us, a.units)).collect();
    max_units_in_rolling_window(&units, SECOND)
}

fn accepted(arrivals: &[Arrival]) -> BTreeMap<String, u32> {
    let mut times = BTreeMap::new();
    for arrival in arrivals.iter().filter(|a| a.accepted) {
        *times.entry(arrival.send_id.to_string()).or_default() += 1;
    }
    times
}

fn each_once(arrivals: &[Arrival], ids: &[String]) {
    let times = accepted(arrivals);
    assert_eq!(times.len(), ids.len());
    assert!(ids.iter().all(|id| times.get(id) == Some(&1)), "{times:?}");
}

#[tokio::test]
async fn a_burst_is_sent_at_its_slots_and_each_message_once() {
    let setup = Setup::new("e2e-burst");
    let provider = ProviderOptions { body: BodyCapture::Bytes, ..setup.provider.clone() };
    let pipeline = start(Setup { provider, ..setup }).await;
    let ids = pipeline.schedule(200).await;
    pipeline.ended(&ids, Duration::from_secs(30)).await;
    for id in &ids {
        let status = pipeline.status(id).await;
        assert_eq!((status.state, status.hops, status.attempts), (SendState::Sent, 0, 1), "{id}");
    }
    let arrivals = pipeline.stop().await;
    each_once(&arrivals, &ids);
    assert!(arrivals.iter().all(|a| a.status == Some(200)));
    assert!(most_in_a_second(&arrivals) <= 100);
    for arrival in &arrivals {
        let body = format!("{{\"id\":\"{}\"}}", arrival.send_id);
        assert_eq!(arrival.body, Body::Bytes(body.as_bytes().into()), "the payload arrives as it was");
    }
}

#[tokio::test]
async fn a_burst_is_sent_by_way_of_a_cluster() {
    let program = RedisServer::start().await.unwrap().program().to_owned();
    let cluster = RedisCluster::start(program, &[]).await.unwrap();
    let pipeline = start(Setup { redis_url: Some(cluster.url()), ..Setup::new("e2e-cluster") }).await;
    let ids = pipeline.schedule(100).await;
    pipeline.ended(&ids, Duration::from_secs(30)).await;
    let arrivals = pipeline.stop().await;
    each_once(&arrivals, &ids);
    assert!(most_in_a_second(&arrivals) <= 100);
}

#[tokio::test]
async fn a_message_that_sqs_delivers_twice_is_sent_once() {
    let pipeline = start(Setup::new("e2e-duplicate")).await;
    let ids: Vec<String> = (0..20).map(|i| format!("m{i}")).collect();
    let start = SystemTime::now() + 4 * SECOND;
    for id in ids.iter().chain(&ids) {
        // the second time it is another SQS message of the same booking
        pipeline.scheduler.schedule(pipeline.message(id).not_before(start)).await.unwrap();
    }
    pipeline.ended(&ids, Duration::from_secs(30)).await;
    let give_up = Instant::now() + Duration::from_secs(30);
    while pipeline.source.stats().deleted < 40 {
        assert!(Instant::now() < give_up, "both copies are acknowledged: {:?}", pipeline.source.stats());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    each_once(&pipeline.stop().await, &ids);
}

#[tokio::test]
async fn a_429_with_retry_after_rests_the_budget_and_the_send_is_made_later() {
    let setup = Setup::new("e2e-throttle");
    let mut provider = setup.provider.clone();
    let reply = ScriptedReply::status(429).header("retry-after", "2");
    provider.scripted.insert("m00010".into(), vec![reply]);
    let pipeline = start(Setup { provider, ..setup }).await;
    let ids = pipeline.schedule(60).await;
    pipeline.ended(&ids, Duration::from_secs(30)).await;
    let status = pipeline.status("m00010").await;
    assert_eq!((status.state, status.attempts, status.throttles), (SendState::Sent, 1, 1));
    let arrivals = pipeline.stop().await;
    each_once(&arrivals, &ids);
    let refused = arrivals.iter().find(|a| a.status == Some(429)).unwrap().at_us;
    // calls that began before the refusal was known may still arrive
    let resting = arrivals.iter().filter(|a| a.at_us > refused + 300_000 && a.at_us < refused + 2_000_000).count();
    assert_eq!(resting, 0, "nothing is sent while the budget rests");
}

#[tokio::test]
async fn a_message_that_can_never_be_sent_is_dead_lettered_with_its_reason() {
    let setup = Setup::new("e2e-dead");
    let mut provider = setup.provider.clone();
    let refusal = ScriptedReply::status(400).body("{\"error\":\"no_such_address\"}");
    provider.scripted.insert("m00001".into(), vec![refusal]);
    let pipeline = start(Setup { provider, ..setup }).await;
    let ids = pipeline.schedule(3).await;
    let malformed = "{\"not\":\"an envelope\"}";
    pipeline.sqs.send_message().queue_url(&pipeline.queues.queue_url).message_body(malformed).send().await.unwrap();
    pipeline.ended(&ids, Duration::from_secs(30)).await;
    let mut letters = pipeline.dead_letters(2).await;
    letters.sort_by(|a, b| a.reason.cmp(&b.reason));
    assert_eq!((letters[0].reason.as_str(), letters[0].body.as_str()), ("malformed", malformed));
    assert_eq!(
        (letters[1].id.as_str(), letters[1].reason.as_str(), letters[1].attempts.as_str()),
        ("m00001", "rejected", "1")
    );
    assert_eq!(letters[1].error, "HTTP 400 (no_such_address)");
    assert_eq!(pipeline.status("m00001").await.state, SendState::Failed);
    assert_eq!(accepted(&pipeline.stop().await).len(), 2, "the others are sent");
}

#[tokio::test]
async fn with_faults_everything_ends_sent_or_dead_lettered_and_the_limit_holds() {
    let setup = Setup::new("e2e-faults");
    let faults = Faults { server_error: 0.05, throttle: 0.03, ..Faults::default() };
    let provider = ProviderOptions { faults, seed: 7, ..setup.provider.clone() };
    let pipeline = start(Setup { provider, ..setup }).await;
    let ids = pipeline.schedule(300).await;
    pipeline.ended(&ids, Duration::from_secs(60)).await;
    let mut failed = vec![];
    for id in &ids {
        match pipeline.status(id).await.state {
            SendState::Sent => {}
            SendState::Failed => failed.push(id.clone()),
            other => panic!("{id}: {other:?}"),
        }
    }
    let letters = pipeline.dead_letters(failed.len()).await;
    assert!(letters.iter().all(|l| l.reason == "attempts" && l.error.starts_with("HTTP 500")), "{letters:?}");
    let arrivals = pipeline.stop().await;
    let sent: Vec<String> = ids.into_iter().filter(|id| !failed.contains(id)).collect();
    each_once(&arrivals, &sent);
    assert!(most_in_a_second(&arrivals) <= 100);
}

#[tokio::test]
async fn an_unanswered_call_is_never_made_again() {
    let setup = Setup { http_timeout: SECOND, ..Setup::new("e2e-unanswered") };
    let mut provider = setup.provider.clone();
    provider.scripted.insert("m00000".into(), vec![ScriptedReply::hang().accepted(true)]);
    provider.scripted.insert("m00001".into(), vec![ScriptedReply::drop_connection().accepted(true)]);
    let pipeline = start(Setup { provider, ..setup }).await;
    let ids = pipeline.schedule(2).await;
    let letters = pipeline.dead_letters(2).await;
    assert!(letters.iter().all(|l| l.reason == "unknown_outcome"), "{letters:?}");
    pipeline.ended(&ids, SECOND).await;
    each_once(&pipeline.stop().await, &ids);
}

#[tokio::test]
async fn costs_and_deadlines_travel_with_the_send() {
    let setup = Setup::new("e2e-costs");
    let pipeline = start(Setup { policy: per_second(100, 0.8), ..setup }).await;
    let mut ids = vec![];
    for (i, cost) in [1, 41, 7, 90, 1, 1, 60, 3].into_iter().enumerate() {
        let message = pipeline.message(format!("m{i}")).cost(cost).deadline(SystemTime::now() + 30 * SECOND);
        pipeline.scheduler.schedule(message).await.unwrap();
        ids.push(format!("m{i}"));
    }
    pipeline.ended(&ids, Duration::from_secs(30)).await;
    let arrivals = pipeline.stop().await;
    each_once(&arrivals, &ids);
    assert_eq!(arrivals.iter().map(|a| a.units).sum::<u32>(), 204);
    assert!(most_in_a_second(&arrivals) <= 100 && arrivals.iter().all(|a| a.status == Some(200)));
}

#[tokio::test]
async fn lead_and_rebooking_absorb_the_stock_tick_of_localstack() {
    let options = StackOptions { tick: Tick::Stock, servers: Servers::Own, ..StackOptions::default() };
    let stack = Stack::start(options).await.unwrap();
    let pipeline = Pipeline::start(&stack, WORKER, Setup::new("e2e-stock")).await;
    let ids = pipeline.schedule(400).await;
    pipeline.ended(&ids, Duration::from_secs(40)).await;
    let arrivals = pipeline.stop().await;
    each_once(&arrivals, &ids);
    assert!(arrivals.iter().all(|a| a.status == Some(200)));
    assert!(most_in_a_second(&arrivals) <= 100);
    stack.stop().await;
}

#[tokio::test]
async fn an_urgent_lane_overtakes_a_campaign_and_the_displaced_are_sent_as_well() {
    let urgent = Lane { preempts: true, ..Lane::new(LaneName::new("otp").unwrap()) };
    let policy = Policy { lanes: vec![urgent], ..per_second(100, 0.9) };
    let pipeline = start(Setup { policy, ..Setup::new("e2e-lanes") }).await;
    let mut ids: Vec<String> = (0..1000).map(|i| format!("m{i:05}")).collect();
    let campaign: Vec<_> = ids.iter().map(|id| pipeline.message(id)).collect();
    let booked: Vec<_> = pipeline.scheduler.schedule_all(stream::iter(campaign)).collect().await;
    assert!(booked.iter().all(Result::is_ok));
    let mut taken_over = 0;
    for i in 0..20 {
        let id = format!("otp{i}");
        let booked = pipeline.scheduler.schedule(pipeline.message(&id).lane("otp")).await.unwrap();
        let booked = booked.booked().expect("Redis is there");
        assert!(booked.wait() < 3 * SECOND, "{:?} behind a campaign of eleven seconds", booked.wait());
        taken_over += usize::from(booked.bound_by() == Some(BoundBy::TakeOver));
        ids.push(id);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    pipeline.ended(&ids, Duration::from_secs(60)).await;
    let mut displaced = 0;
    for id in &ids {
        let status = pipeline.status(id).await;
        assert_eq!(status.state, SendState::Sent, "{id}");
        let moved = |event: &Event| matches!(event, Event::Moved { why: MoveReason::Displaced, .. });
        displaced += usize::from(status.history.iter().any(moved));
    }
    // on a slow machine late sends leave places, and move before they are displaced
    assert!(taken_over >= 1 && displaced >= 1, "{taken_over} took a place over, {displaced} were displaced");
    let arrivals = pipeline.stop().await;
    each_once(&arrivals, &ids);
    assert!(most_in_a_second(&arrivals) <= 100);
    let place = |prefix: &str| arrivals.iter().rposition(|a| a.send_id.starts_with(prefix)).unwrap();
    assert!(place("otp") < place("m"), "the last urgent one leaves before the campaign ends");
}

#[tokio::test]
async fn a_cancelled_send_never_reaches_the_provider_and_a_paused_budget_goes_on_later() {
    let pipeline = start(Setup::new("e2e-cancel")).await;
    let store = Store::new(&localstack().await.redis_url()).unwrap();
    let name = BudgetName::new("e2e-cancel").unwrap();
    assert!(budget::pause(&store, &name, Some(budget::UNTIL_RESUMED)).await.unwrap());
    let ids = pipeline.schedule(60).await;
    let (cancelled, kept) = ids.split_at(20);
    for id in cancelled {
        assert_eq!(pipeline.scheduler.cancel(pipeline.budget, id).await.unwrap(), Cancelled::Cancelled);
    }
    // every copy has asked during the pause
    let give_up = Instant::now() + Duration::from_secs(20);
    while pipeline.status(&kept[39]).await.hops == 0 {
        assert!(Instant::now() < give_up, "{:?}", pipeline.status(&kept[39]).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(pipeline.provider.stats().arrivals, 0, "nothing leaves during the pause");
    assert!(budget::pause(&store, &name, None).await.unwrap());
    // copies that were put back for a minute are not waited for: new ones go on at once
    let next: Vec<String> = (0..5).map(|i| format!("next{i}")).collect();
    for id in &next {
        pipeline.scheduler.schedule(pipeline.message(id)).await.unwrap();
    }
    pipeline.ended(&next, Duration::from_secs(30)).await;
    let again = pipeline.scheduler.schedule(pipeline.message(&cancelled[0])).await;
    assert!(matches!(again, Err(ScheduleError::Refused(Refusal::Cancelled))), "{again:?}");
    pipeline.ended(kept, Duration::from_secs(90)).await;
    each_once(&pipeline.stop().await, &[kept, &next].concat());
}

#[tokio::test]
async fn a_dead_letter_is_booked_again_by_a_redrive_and_sent() {
    let setup = Setup::new("e2e-redrive");
    let mut provider = setup.provider.clone();
    provider.scripted.insert("m00000".into(), vec![ScriptedReply::status(400)]);
    let pipeline = start(Setup { provider, ..setup }).await;
    let ids = pipeline.schedule(1).await;
    let letter = pipeline.dead_letters(1).await.remove(0);
    let asked = pipeline.scheduler.schedule(pipeline.message(&ids[0])).await;
    assert!(matches!(asked, Err(ScheduleError::Refused(Refusal::Failed))), "only a redrive leaves an end: {asked:?}");
    pipeline.scheduler.redrive(&letter.body).await.unwrap();
    pipeline.ended(&ids, Duration::from_secs(30)).await;
    let status = pipeline.status(&ids[0]).await;
    assert_eq!(status.state, SendState::Sent);
    assert!(status.history.iter().any(|event| matches!(event, Event::Moved { why: MoveReason::Redrive, .. })));
    let refused = pipeline.scheduler.redrive("no letter").await.unwrap_err().to_string();
    assert!(refused.contains("cannot be booked again"), "{refused}");
    assert_eq!(pipeline.stop().await.len(), 2, "the refused call, and the one that was taken");
}
