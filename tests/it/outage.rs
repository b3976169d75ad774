//! Redis is away: sends are accepted unbooked and held, or go on locally, and everything is sent once when it is back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use futures_util::{StreamExt as _, stream};
use sendslot_localstack::RedisServer;
use sendslot_localstack::event_source::WorkerLog;
use sendslot_localstack::provider::{Arrival, ScriptedReply, max_units_in_rolling_window};
use sendslot_scheduler::{
    Message, PolicyFile, RedisPolicy, Refusal, ScheduleError, Scheduled, Scheduler, SendState, StoreError,
};
use sendslot_shared::claim::{DeadReason, MoveReason, PutBack, Verdict};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::{BudgetName, LaneName};
use sendslot_shared::limits::Lane;
use sendslot_shared::policy::Policy;
use sendslot_shared::settle::{Action, Ending};
use sendslot_shared::store::Store;
use sendslot_shared::{budget, cancel};
use sendslot_tests::pipeline::{Pipeline, Setup};
use sendslot_tests::proxy::Proxy;
use sendslot_tests::queues::localstack;
use sendslot_tests::{Bench, costing, draft, on_each_redis, per_second};

const WORKER: &str = env!("CARGO_BIN_EXE_sendslot-worker-under-test");
const SECOND: Duration = Duration::from_secs(1);
const UNBOOKED: Scheduled = Scheduled::Unbooked { policy: RedisPolicy::Hold };

/// A pipeline on a Redis of its own, and what its workers say.
struct Outage {
    redis: RedisServer,
    pipeline: Pipeline,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Outage {
    async fn start(redis: RedisServer, setup: Setup) -> Self {
        let lines = Arc::new(Mutex::new(vec![]));
        let sink = lines.clone();
        let log = WorkerLog::Lines(Arc::new(move |_, line| sink.lock().unwrap().push(line.to_owned())));
        let mut environment = setup.environment;
        environment.push(("AWS_LAMBDA_LOG_LEVEL".to_owned(), "info,sendslot_worker=debug".to_owned()));
        let setup = Setup { redis_url: Some(redis.url()), log, environment, ..setup };
        let pipeline = Pipeline::start(localstack().await, WORKER, setup).await;
        Self { redis, pipeline, lines }
    }

    fn lines(&self, words: &[&str]) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).cloned().collect()
    }

    /// Schedules a burst.
    async fn burst(&self, n: usize) -> Vec<String> {
        let ids: Vec<String> = (0..n).map(|i| format!("m{i:05}")).collect();
        let messages: Vec<Message> = ids.iter().map(|id| self.pipeline.message(id)).collect();
        let results: Vec<_> = self.pipeline.scheduler.schedule_all(stream::iter(messages)).collect().await;
        assert!(results.iter().all(|result| matches!(result, Ok(Scheduled::Booked(_)))), "{results:?}");
        ids
    }

    async fn schedule(&self, message: Message) -> Result<Scheduled, ScheduleError> {
        self.pipeline.scheduler.schedule(message).await
    }

    /// Schedules these while Redis is away: each is accepted and said to be unbooked.
    async fn schedule_unbooked(&self, prefix: &str, n: usize) -> Vec<String> {
        let ids: Vec<String> = (0..n).map(|i| format!("{prefix}{i:03}")).collect();
        let (singles, stream) = ids.split_at(n / 2);
        for id in singles {
            assert_eq!(self.schedule(self.pipeline.message(id)).await.unwrap(), UNBOOKED, "{id}");
        }
        let messages: Vec<Message> = stream.iter().map(|id| self.pipeline.message(id)).collect();
        let results: Vec<_> = self.pipeline.scheduler.schedule_all(stream::iter(messages)).collect().await;
        assert!(results.iter().all(|result| result.as_ref().is_ok_and(|given| *given == UNBOOKED)), "{results:?}");
        ids
    }

    async fn arrivals(&self, n: usize) {
        wait_for("arrivals at the provider", || self.pipeline.provider.stats().arrivals >= n as u64).await;
    }

    /// Some copy went round this often while Redis was away.
    async fn held(&self, rounds: usize) {
        wait_for("copies that go round", || {
            let mut received: BTreeMap<String, usize> = BTreeMap::new();
            for line in self.lines(&["received", "seq=0"]) {
                let id = line.split("id=").nth(1).unwrap_or_default().split(' ').next().unwrap_or_default().to_owned();
                *received.entry(id).or_default() += 1;
            }
            received.values().any(|times| *times > rounds)
        })
        .await;
    }

    /// Waits until the scheduler has seen that Redis is back: workers see it at their own time.
    async fn scheduler_asks_again(&self) {
        let give_up = Instant::now() + Duration::from_secs(60);
        let (scheduler, budget) = (&self.pipeline.scheduler, self.pipeline.budget);
        while matches!(scheduler.status(budget, "any").await, Err(ScheduleError::Redis(_))) {
            assert!(Instant::now() < give_up, "the scheduler does not ask again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until all of these are recorded as sent.
    async fn all_sent(&self, ids: &[String]) {
        let give_up = Instant::now() + Duration::from_secs(60);
        for id in ids {
            loop {
                let status = self.pipeline.scheduler.status(self.pipeline.budget, id).await;
                match &status {
                    Ok(Some(send)) if send.state == SendState::Sent => break,
                    Ok(None) | Err(ScheduleError::Redis(_) | ScheduleError::Refused(Refusal::UnknownBudget)) => {}
                    Ok(Some(send)) if matches!(send.state, SendState::Booked | SendState::Claimed) => {}
                    _ => panic!("{id}: {status:?}"),
                }
                assert!(Instant::now() < give_up, "{id}: {status:?}; {:?}", self.pipeline.source.last_log_lines());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// What must hold in any case: each of these was accepted once, within the limit, and no receive count climbed.
    async fn stop(self, ids: &[String]) -> Vec<Arrival> {
        let receives = |line: &String| -> u32 {
            let text = line.split("receives=\"").nth(1).and_then(|rest| rest.split('"').next());
            text.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        };
        let most = self.lines(&["received", "receives="]).iter().map(receives).max();
        assert_eq!(most, Some(1), "ApproximateReceiveCount");
        let arrivals = self.pipeline.stop().await;
        let mut times: BTreeMap<&str, u32> = BTreeMap::new();
        arrivals.iter().filter(|a| a.accepted).for_each(|a| *times.entry(&a.send_id).or_default() += 1);
        let once: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        assert_eq!(times.keys().copied().collect::<BTreeSet<_>>(), once);
        assert!(times.values().all(|n| *n == 1), "{times:?}");
        let units: Vec<_> = arrivals.iter().map(|a| (a.at_us, a.units)).collect();
        assert!(max_units_in_rolling_window(&units, SECOND) <= 100);
        arrivals
    }
}

async fn wait_for(what: &str, ready: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !ready() {
        assert!(Instant::now() < give_up, "no {what} within 60 s");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn signal(redis: &RedisServer, name: &str) {
    // asked once: a stopped server does not answer
    static IDS: Mutex<BTreeMap<u16, String>> = Mutex::new(BTreeMap::new());
    let known = IDS.lock().unwrap().get(&redis.port()).cloned();
    let id = match known {
        Some(id) => id,
        None => {
            let client = redis::Client::open(redis.url()).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await.unwrap();
            let id = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().to_owned();
            IDS.lock().unwrap().insert(redis.port(), id.clone());
            id
        }
    };
    let sent = tokio::process::Command::new("kill").args(["-s", name, &id]).status().await;
    assert!(sent.unwrap().success());
}

fn is_unreachable<T>(result: &Result<T, ScheduleError>) -> bool {
    matches!(result, Err(ScheduleError::Redis(StoreError::Unreachable { .. })))
}

#[tokio::test]
async fn sends_through_a_kill_of_redis_are_held_and_leave_once_when_its_data_is_back() {
    let mut outage = Outage::start(RedisServer::start_durable().await.unwrap(), Setup::new("outage-kill")).await;
    let mut ids = outage.burst(250).await;
    outage.arrivals(20).await;
    outage.redis.kill();
    ids.extend(outage.schedule_unbooked("u", 60).await);
    let (scheduler, budget) = (&outage.pipeline.scheduler, outage.pipeline.budget);
    let refused = scheduler.reserve(outage.pipeline.message("never")).await;
    assert!(is_unreachable(&refused), "{refused:?}");
    assert!(is_unreachable(&scheduler.status(budget, "u000").await));
    assert!(is_unreachable(&scheduler.cancel(budget, "u000").await));
    let counters = scheduler.counters();
    assert_eq!((counters.unbooked, counters.booked), (60, 250));
    assert!(counters.redis_unavailable > 30, "{counters:?}");
    outage.held(2).await;
    let before = outage.pipeline.provider.stats().arrivals;
    outage.redis.restart().await.unwrap();
    let back = Instant::now();
    outage.arrivals(before as usize + 1).await;
    let first = back.elapsed();
    assert!(first < 5 * SECOND, "the first send leaves {first:?} after Redis is back");
    outage.all_sent(&ids).await;
    wait_for("end of the alarm", || !outage.lines(&["redis_available", "outage_ms="]).is_empty()).await;
    let alarms = outage.lines(&["redis_unavailable", "budget=outage-kill", "lane=default", "policy=hold", "error="]);
    assert!(!alarms.is_empty());
    outage.stop(&ids).await;
}

#[tokio::test]
async fn a_redis_that_comes_back_empty_sends_what_was_held_when_its_policy_is_set_again() {
    let mut outage = Outage::start(RedisServer::start().await.unwrap(), Setup::new("outage-flush")).await;
    let mut ids = outage.burst(250).await;
    outage.arrivals(20).await;
    outage.redis.kill();
    let unbooked = outage.schedule_unbooked("u", 40).await;
    ids.extend(unbooked.clone());
    outage.held(1).await;
    outage.redis.restart().await.unwrap();
    wait_for("a budget without a policy", || !outage.lines(&["budget has no policy"]).is_empty()).await;
    outage.scheduler_asks_again().await;
    let refused = outage.schedule(outage.pipeline.message("never")).await;
    assert!(matches!(refused, Err(ScheduleError::Refused(Refusal::UnknownBudget))), "{refused:?}");
    let store = Store::new(&outage.redis.url()).unwrap();
    let name = BudgetName::new(outage.pipeline.budget).unwrap();
    budget::set(&store, &name, &per_second(100, 0.9)).await.unwrap();
    outage.arrivals(ids.len()).await;
    // what had left before is forgotten with the data
    outage.all_sent(&unbooked).await;
    wait_for_empty(&outage.pipeline).await;
    outage.stop(&ids).await;
}

#[tokio::test]
async fn a_policy_that_redis_lost_is_set_again_from_the_file_that_workers_and_schedulers_carry() {
    let redis = RedisServer::start().await.unwrap();
    let shown = |budget: &str| {
        format!(
            r#"{{"budget":"{budget}","limit":100,"per_ms":1000,"headroom":0.9,"transit_ms":250,"lead_ms":1500,"horizon_s":86400,
            "dedup_ttl_s":86400,"max_cost_set":null,"max_attempts":5,"on_unknown":"park","lanes":[],"quotas":[],
            "spacing_ms":null,"ramp":[],"adaptive":null}}"#
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.json");
    std::fs::write(&path, format!("[{},{}]", shown("outage-seed"), shown("outage-new"))).unwrap();
    let environment = vec![("SENDSLOT_POLICY_FILE".to_owned(), path.to_string_lossy().into_owned())];
    let mut outage = Outage::start(redis, Setup { environment, ..Setup::new("outage-seed") }).await;
    outage.redis.kill();
    let ids = outage.schedule_unbooked("u", 20).await;
    outage.redis.restart().await.unwrap();
    outage.all_sent(&ids).await;
    assert!(!outage.lines(&["policy_seeded", "budget=outage-seed"]).is_empty());
    // and a budget that nobody has set yet, by a scheduler
    let builder = Scheduler::builder().redis_url(outage.redis.url()).policy_file(PolicyFile::read(&path).unwrap());
    let builder = builder.sqs(outage.pipeline.sqs.clone()).queue_url(&outage.pipeline.queues.queue_url);
    let scheduler = builder.build().await.unwrap();
    let booked = scheduler.reserve(Message::new("outage-new", "m", "payload")).await.unwrap();
    assert_eq!(booked.seq(), 1);
    outage.stop(&ids).await;
}

#[tokio::test]
async fn sends_through_a_redis_that_stands_still_are_held_and_leave_once_when_it_goes_on() {
    let outage = Outage::start(RedisServer::start().await.unwrap(), Setup::new("outage-stop")).await;
    signal(&outage.redis, "CONT").await;
    let mut ids = outage.burst(250).await;
    outage.arrivals(20).await;
    signal(&outage.redis, "STOP").await;
    let began = Instant::now();
    ids.extend(outage.schedule_unbooked("u", 40).await);
    let took = began.elapsed();
    outage.held(1).await;
    signal(&outage.redis, "CONT").await;
    assert!(took < 40 * SECOND, "40 calls took {took:?}: only the first waits for Redis");
    outage.all_sent(&ids).await;
    outage.stop(&ids).await;
}

#[tokio::test]
async fn a_local_lane_goes_on_at_its_low_rate_while_others_are_held_and_is_known_as_sent_afterwards() {
    let codes = Lane::new(LaneName::new("codes").unwrap());
    let policy = Policy { lanes: vec![codes], ..per_second(100, 0.9) };
    let base = Setup { policy, redis_policies: "codes=local:5", ..Setup::new("outage-local") };
    // one worker process: the limit is each process's own
    let setup = Setup { max_environments: 1, ..base };
    let mut outage = Outage::start(RedisServer::start_durable().await.unwrap(), setup).await;
    let warm = outage.pipeline.schedule(3).await;
    outage.arrivals(3).await;
    outage.all_sent(&warm).await;
    outage.redis.kill();
    let mut ids = warm;
    for i in 0..15 {
        let code = outage.pipeline.message(format!("code{i:02}")).lane("codes").cost(1 + u32::from(i == 7) * 3);
        let scheduled = outage.schedule(code).await.unwrap();
        let Scheduled::Unbooked { policy: RedisPolicy::Local { units_per_s } } = scheduled else {
            panic!("{scheduled:?}")
        };
        assert_eq!(units_per_s.get(), 5.0);
        ids.push(format!("code{i:02}"));
    }
    ids.extend(outage.schedule_unbooked("held", 10).await);
    outage.arrivals(3 + 15).await;
    outage.held(1).await;
    assert_eq!(outage.pipeline.provider.stats().arrivals, 18, "nothing of the other lane");
    outage.redis.restart().await.unwrap();
    outage.all_sent(&ids).await;
    // a duplicate of what was sent locally
    let draft = outage.pipeline.message("code03").lane("codes").check().unwrap();
    let again = outage.schedule(outage.pipeline.message("code03").lane("codes")).await;
    assert!(matches!(again, Err(ScheduleError::Refused(Refusal::AlreadySent))), "{again:?}");
    let body = Envelope::unbooked(draft).to_body().unwrap();
    let url = &outage.pipeline.queues.queue_url;
    wait_for_empty(&outage.pipeline).await;
    let done = outage.pipeline.source.stats().deleted;
    outage.pipeline.sqs.send_message().queue_url(url).message_body(body).send().await.unwrap();
    wait_for("the duplicate's end", || outage.pipeline.source.stats().deleted > done).await;
    wait_for_empty(&outage.pipeline).await;
    assert!(!outage.lines(&["redis_unavailable", "lane=codes", "policy=local:5"]).is_empty());
    let arrivals = outage.stop(&ids).await;
    let codes: Vec<_> = arrivals.iter().filter(|a| a.send_id.starts_with("code")).map(|a| (a.at_us, a.units)).collect();
    // evenly spaced, and the send of 4 units waits for them first: at most 5 and one more, or 4 with it
    assert!(max_units_in_rolling_window(&codes, SECOND) <= 5 + 4, "{codes:?}");
    let span = Duration::from_micros((codes[14].0 - codes[0].0) as u64);
    assert!(span > Duration::from_millis(3300), "18 units at 5 a second took {span:?}");
}

/// Nothing is on the queue, and nothing is under way.
async fn wait_for_empty(pipeline: &Pipeline) {
    use aws_sdk_sqs::types::QueueAttributeName::{
        ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed, ApproximateNumberOfMessagesNotVisible,
    };
    let names =
        [ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed, ApproximateNumberOfMessagesNotVisible];
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let request = pipeline.sqs.get_queue_attributes().queue_url(&pipeline.queues.queue_url);
        let asked = request.set_attribute_names(Some(names.to_vec())).send().await.unwrap();
        let attributes = asked.attributes.unwrap_or_default();
        if names.iter().all(|name| attributes[name] == "0") {
            return;
        }
        assert!(Instant::now() < give_up, "{attributes:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_booking_whose_reply_was_lost_and_its_unbooked_copy_are_sent_once() {
    let outage = Outage::start(RedisServer::start().await.unwrap(), Setup::new("outage-reply")).await;
    let proxy = Proxy::to(outage.redis.port()).await;
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    // with the script in Redis' cache a call is one question
    let mut ids = outage.pipeline.schedule(1).await;
    ids.extend((0..5).map(|i| format!("m{i}")));
    for id in &ids[1..] {
        // one that knows of no outage yet
        let builder = Scheduler::builder().redis_url(&url).sqs(outage.pipeline.sqs.clone());
        let scheduler = builder.queue_url(&outage.pipeline.queues.queue_url).build().await.unwrap();
        proxy.swallow_script_replies(2);
        assert_eq!(scheduler.schedule(outage.pipeline.message(id)).await.unwrap(), UNBOOKED);
        assert_eq!(proxy.to_swallow(), 0, "it was booked, twice");
        // the caller makes sure: this one's copy is the second of the same booking
        let again = outage.schedule(outage.pipeline.message(id)).await;
        match again {
            Ok(Scheduled::Booked(_)) => {}
            // a worker was faster
            Err(ScheduleError::Refused(Refusal::InProgress | Refusal::AlreadySent)) => {}
            other => panic!("{other:?}"),
        }
    }
    outage.all_sent(&ids).await;
    wait_for_empty(&outage.pipeline).await;
    outage.stop(&ids).await;
}

#[tokio::test]
async fn an_error_that_needs_people_accepts_nothing_and_sends_nothing() {
    let setup = Setup { redis_policies: "local:100", ..Setup::new("outage-oom") };
    let outage = Outage::start(RedisServer::start().await.unwrap(), setup).await;
    let client = redis::Client::open(outage.redis.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let mut memory = async |bytes: u32| {
        let set = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).query_async(&mut redis).await;
        let () = set.unwrap();
    };
    let ids: Vec<String> = (0..5).map(|i| format!("m{i}")).collect();
    for id in &ids {
        // late enough that no worker has asked before Redis refuses
        let message = outage.pipeline.message(id).not_before(SystemTime::now() + 6 * SECOND);
        outage.schedule(message).await.unwrap();
    }
    memory(1).await;
    let error = outage.schedule(outage.pipeline.message("never")).await;
    assert!(matches!(&error, Err(ScheduleError::Redis(StoreError::Refused { .. }))), "{error:?}");
    let oom = || !outage.lines(&["redis_unavailable", "policy=hold", "OOM"]).is_empty();
    wait_for("held sends", oom).await;
    memory(0).await;
    outage.all_sent(&ids).await;
    assert!(outage.lines(&["sent without Redis"]).is_empty());
    outage.stop(&ids).await;
}

#[tokio::test]
async fn a_local_call_without_an_answer_is_never_made_again_and_one_refused_for_good_has_failed() {
    let setup = Setup { redis_policies: "local:20", http_timeout: SECOND, ..Setup::new("outage-unknown") };
    let mut provider = setup.provider.clone();
    let hang = || vec![ScriptedReply::hang().accepted(true)];
    provider.scripted.insert("m00000".into(), hang());
    provider.scripted.insert("m00001".into(), vec![ScriptedReply::status(400)]);
    provider.scripted.insert("u0".into(), hang());
    provider.scripted.insert("u1".into(), vec![ScriptedReply::status(400)]);
    provider.scripted.insert("u2".into(), vec![ScriptedReply::status(503), ScriptedReply::status(429)]);
    let redis = RedisServer::start_durable().await.unwrap();
    let mut outage = Outage::start(redis, Setup { provider, ..setup }).await;
    // booked, and not yet claimed when Redis goes
    let start = SystemTime::now() + 3 * SECOND;
    for id in ["m00000", "m00001"] {
        outage.schedule(outage.pipeline.message(id).not_before(start)).await.unwrap();
    }
    outage.redis.kill();
    for id in ["u0", "u1", "u2"] {
        outage.schedule(outage.pipeline.message(id)).await.unwrap();
    }
    // four once, and one three times
    outage.arrivals(7).await;
    outage.redis.restart().await.unwrap();
    outage.all_sent(&["u2".to_owned()]).await;
    let mut letters: Vec<(String, String)> =
        outage.pipeline.dead_letters(4).await.into_iter().map(|letter| (letter.id, letter.reason)).collect();
    letters.sort();
    let letter = |id: &str, reason: &str| (id.to_owned(), reason.to_owned());
    assert_eq!(
        letters,
        [
            letter("m00000", "unknown_outcome"),
            letter("m00001", "rejected"),
            letter("u0", "unknown_outcome"),
            letter("u1", "rejected")
        ]
    );
    for (id, state) in [("m00000", SendState::Unknown), ("m00001", SendState::Failed), ("u0", SendState::Unknown)] {
        assert_eq!(outage.pipeline.status(id).await.state, state, "{id}");
    }
    assert_eq!(outage.pipeline.stop().await.len(), 7, "no call was made again");
}

#[tokio::test]
async fn an_unbooked_copy_meets_each_record_without_a_second_send() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        // none: it is booked, and the second copy of the same send gives way
        let copy = Envelope::unbooked(draft("new"));
        let again = Envelope::unbooked(draft("new"));
        let first = bench.verdict(&copy, 1).await;
        let Verdict::PutBack { slot, why: PutBack::Rebooked(MoveReason::Lost) } = first else { panic!("{first:?}") };
        assert_eq!(slot.seq, 1);
        assert_eq!(bench.verdict(&again, 2).await, Verdict::Done);
        // its worker died before it put the new copy on the queue
        let told = bench.verdict(&copy, 3).await;
        assert!(matches!(told, Verdict::PutBack { slot, why: PutBack::Reissue } if slot.seq == 1), "{told:?}");
        // booked, and the reply was lost: the booking stands
        let booked = bench.copy(&draft("lost")).await;
        let told = bench.verdict(&Envelope::unbooked(draft("lost")), 4).await;
        let Verdict::PutBack { slot, why: PutBack::Reissue } = told else { panic!("{told:?}") };
        assert_eq!((slot.seq, slot.at), (1, booked.at.unwrap()));
        // claimed, sent: it gives way
        bench.set_clock(booked.at.unwrap().as_micros()).await;
        assert!(matches!(bench.verdict(&booked, 5).await, Verdict::Send { .. }));
        assert_eq!(bench.verdict(&Envelope::unbooked(draft("lost")), 6).await, Verdict::Done);
        assert_eq!(bench.settle(&booked, 5, Ending::Sent).await, Action::Acknowledge);
        assert_eq!(bench.verdict(&Envelope::unbooked(draft("lost")), 7).await, Verdict::Done);
        // A11: other content under its ID
        bench.reserve(&draft("other")).await.unwrap();
        let told = bench.verdict(&Envelope::unbooked(costing("other", 2)), 8).await;
        assert!(matches!(told, Verdict::Dead { reason: DeadReason::Conflict, .. }), "{told:?}");
        // A14: cancelled before it was booked
        let name = draft("cancelled");
        let _ = cancel::cancel(&bench.store, &bench.budget, &name.id).await.unwrap();
        assert_eq!(bench.verdict(&Envelope::unbooked(name), 9).await, Verdict::Done);
        // what a caller would have been told ends it
        let past = Message::new("b", "late", "payload").deadline(SystemTime::UNIX_EPOCH + SECOND).check().unwrap();
        let told = bench.verdict(&Envelope::unbooked(past), 10).await;
        assert!(matches!(told, Verdict::Dead { reason: DeadReason::Expired, .. }), "{told:?}");
        let told = bench.verdict(&Envelope::unbooked(costing("large", 101)), 11).await;
        assert!(matches!(told, Verdict::Dead { reason: DeadReason::Cost, .. }), "{told:?}");
        // sent locally before it was ever booked
        let copy = Envelope::unbooked(draft("local"));
        assert_eq!(bench.settle(&copy, 12, Ending::Sent).await, Action::Acknowledge);
        assert_eq!(bench.verdict(&copy, 13).await, Verdict::Done);
        assert_eq!(bench.status(&copy.draft).await.unwrap().state, SendState::Sent);
    })
    .await;
}
