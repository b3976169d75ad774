//! The real worker killed at each line that matters, the scheduler given up at each of its two: the send ends as DESIGN's
//! table of crash points says. A proxy in front of Redis or SQS stops the process there; it is killed, and what it had asked
//! or was about to hear goes no further. `traces` plays the same on the scripts.
//!
//! | crash between | here | in `traces` |
//! |---|---|---|
//! | reserve and SendMessage | `caller_gone`, request | `a_booking_that_never_came_to_the_queue_…` |
//! | SendMessage and its reply | `caller_gone`, reply | `of_two_copies_of_one_booking_one_is_sent` |
//! | arrival and claim, waiting | `while_it_waits_for_its_slot` | `a_worker_that_died_waiting_leaves_nothing_in_doubt` |
//! | claim and settle | `after_the_claim_before_the_call`, `in_the_call`, `after_the_call_before_the_settle` | `verdicts::a_worker_that_died_leaves_an_unknown_outcome` |
//! | settle and the delete | `after_the_settle_before_the_delete` | `of_two_deliveries_of_one_message_one_may_call` |
//! | re-book or hop and SendMessage | `after_a_rebooking_before_its_copy` | `a_booking_whose_copy_was_never_put_back_is_reissued` |
//! | SendMessage and the acknowledgement | `after_a_put_back_before_the_acknowledgement` | `a_stale_copy_comes_back_at_any_time_and_one_is_sent` |
//! | terminal settle and the dead letter | `after_a_terminal_settle_before_the_dead_letter` | `whoever_was_told_to_dead_letter_hears_it_until_it_is_done` |
//! | the dead letter and the acknowledgement | `after_the_dead_letter_before_the_acknowledgement` | the same |

use std::time::{Duration, Instant, SystemTime};

use sendslot_localstack::event_source::EventSourceStats;
use sendslot_localstack::provider::ScriptedReply;
use sendslot_lua::{CLAIM, SCRIPTS, SETTLE};
use sendslot_scheduler::{Event, MoveReason, Scheduler, SendState, SendStatus};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::policy::{OnUnknown, Policy};
use sendslot_shared::store::Store;
use sendslot_tests::per_second;
use sendslot_tests::pipeline::{Pipeline, Setup};
use sendslot_tests::proxy::{Held, Proxy, Stop, Trap};
use sendslot_tests::queues::localstack;

const WORKER: &str = env!("CARGO_BIN_EXE_sendslot-worker-under-test");
const ID: &str = "m";
const SEND_MESSAGE: &str = "AmazonSQS.SendMessage";

/// A pipeline whose worker reaches Redis and SQS through proxies, and one send.
struct Scene {
    pipeline: Pipeline,
    redis: Proxy,
    sqs: Proxy,
}

/// How the send has to end, with nothing left on its queue.
struct End {
    state: SendState,
    /// Times the provider took it.
    accepted: usize,
    /// Reasons of its dead letters, sorted.
    letters: &'static [&'static str],
}

const SENT_ONCE: End = End { state: SendState::Sent, accepted: 1, letters: &[] };

fn port(url: &str) -> u16 {
    let digits = url.trim_end_matches('/').rsplit_once(':').expect("a port").1;
    digits.split('/').next().and_then(|port| port.parse().ok()).expect("a port")
}

fn hash(script: usize) -> String {
    redis::Script::new(SCRIPTS[script].source).get_hash().to_owned()
}

impl Scene {
    /// `replies`: of the provider, before it takes whatever comes.
    async fn start(name: &'static str, on_unknown: OnUnknown, replies: Vec<ScriptedReply>) -> Self {
        let stack = localstack().await;
        let client = redis::Client::open(stack.redis_url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        // a script that Redis knows is called by its hash, which the proxy looks for
        for script in [CLAIM, SETTLE] {
            let mut load = redis::cmd("SCRIPT");
            let _: String = load.arg("LOAD").arg(SCRIPTS[script].source).query_async(&mut connection).await.unwrap();
        }
        let redis = Proxy::to(port(&stack.redis_url())).await;
        let sqs = Proxy::to(port(stack.endpoint_url())).await;
        let mut setup = Setup {
            policy: Policy { on_unknown, ..per_second(100, 0.9) },
            // a lease of 7 s, and copies that come back a second after it began to be worked on
            http_timeout: Duration::from_secs(2),
            function_timeout: Duration::from_secs(8),
            visibility: Duration::from_secs(8),
            environment: vec![
                ("REDIS_URL".into(), format!("redis://127.0.0.1:{}", redis.port())),
                ("AWS_ENDPOINT_URL".into(), format!("http://127.0.0.1:{}", sqs.port())),
            ],
            ..Setup::new(name)
        };
        setup.provider.scripted.insert(ID.into(), replies);
        Self { pipeline: Pipeline::start(stack, WORKER, setup).await, redis, sqs }
    }

    async fn schedule(&self) {
        self.pipeline.scheduler.schedule(self.pipeline.message(ID)).await.unwrap();
    }

    fn stop_script(&self, script: usize, stop: Stop) -> Trap {
        self.redis.stop(&[&hash(script)], stop)
    }

    async fn status(&self) -> SendStatus {
        self.pipeline.status(ID).await
    }

    /// Schedules the send and holds the reply to the claim that says `send`.
    async fn claimed(&self) -> Held {
        let mut trap = self.stop_script(CLAIM, Stop::Reply);
        self.schedule().await;
        loop {
            let held = trap.sprung().await;
            if self.status().await.state == SendState::Claimed {
                return held;
            }
            trap = self.stop_script(CLAIM, Stop::Reply);
            held.go_on();
        }
    }

    /// Schedules the send, stops the worker there and kills it.
    async fn killed_at(&self, trap: Trap) {
        self.schedule().await;
        self.killed_holding(trap.sprung().await).await;
    }

    /// Kills the worker; what was held goes no further.
    async fn killed_holding(&self, held: Held) {
        self.kill().await;
        drop(held);
    }

    async fn kill(&self) {
        self.pipeline.signal_workers("KILL");
        // on a slow machine the function's timeout may have killed it there
        let gone = |stats: EventSourceStats| stats.crashes + stats.timeouts > 0;
        self.until("the worker is gone", async || gone(self.pipeline.source.stats())).await;
    }

    async fn until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let give_up = Instant::now() + Duration::from_secs(60);
        while !condition().await {
            assert!(Instant::now() < give_up, "{}: not within a minute: {what}", self.pipeline.budget);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn ends(self, end: End) -> SendStatus {
        let name = self.pipeline.budget;
        self.pipeline.ended(&[ID.to_owned()], Duration::from_secs(60)).await;
        self.pipeline.drained(Duration::from_secs(60)).await;
        let status = self.status().await;
        assert_eq!(status.state, end.state, "{name}");
        assert_eq!(self.pipeline.dead_letter_count().await, end.letters.len(), "{name}");
        let mut letters = self.pipeline.dead_letters(end.letters.len()).await;
        letters.sort_by(|a, b| a.reason.cmp(&b.reason));
        let reasons: Vec<&str> = letters.iter().map(|letter| letter.reason.as_str()).collect();
        assert_eq!(reasons, end.letters, "{name}");
        for letter in letters {
            let payload = Envelope::from_body(&letter.body).unwrap().draft.payload;
            assert_eq!((letter.id.as_str(), payload.as_slice()), (ID, b"{\"id\":\"m\"}".as_slice()), "{name}");
        }
        let arrivals = self.pipeline.stop().await;
        assert_eq!(arrivals.iter().filter(|a| a.accepted).count(), end.accepted, "{name}: {arrivals:?}");
        self.redis.close().await;
        self.sqs.close().await;
        status
    }
}

/// Claimed, and the worker never learned it: the provider was not called.
async fn after_the_claim_before_the_call(name: &'static str, on_unknown: OnUnknown) -> Scene {
    let scene = Scene::start(name, on_unknown, vec![]).await;
    let held = scene.claimed().await;
    scene.killed_holding(held).await;
    assert_eq!(scene.pipeline.provider.stats().arrivals, 0);
    scene
}

/// The provider has the request and does not answer; it did not take it.
async fn in_the_call(name: &'static str, on_unknown: OnUnknown) -> Scene {
    let scene = Scene::start(name, on_unknown, vec![ScriptedReply::hang().accepted(false)]).await;
    // on a slow machine the call may time out first: Redis does not hear of it
    let _unheard = scene.stop_script(SETTLE, Stop::Request);
    scene.schedule().await;
    scene.until("the call has begun", async || scene.pipeline.provider.stats().arrivals == 1).await;
    scene.kill().await;
    scene
}

/// The provider took it, and Redis was not told.
async fn after_the_call_before_the_settle(name: &'static str, on_unknown: OnUnknown) -> Scene {
    let scene = Scene::start(name, on_unknown, vec![]).await;
    scene.killed_at(scene.stop_script(SETTLE, Stop::Request)).await;
    assert_eq!(scene.status().await.state, SendState::Claimed);
    scene
}

#[tokio::test]
async fn killed_between_claim_and_settle_a_send_is_parked_as_unknown() {
    let unknown = |accepted| End { state: SendState::Unknown, accepted, letters: &["unknown_outcome"] };
    let park = OnUnknown::Park;
    let ends = tokio::join!(
        async { after_the_claim_before_the_call("crash-claim", park).await.ends(unknown(0)).await },
        async { in_the_call("crash-call", park).await.ends(unknown(0)).await },
        async { after_the_call_before_the_settle("crash-settle", park).await.ends(unknown(1)).await },
    );
    for status in [ends.0, ends.1, ends.2] {
        assert_eq!(status.attempts, 1, "{status:?}");
    }
}

#[tokio::test]
async fn killed_between_claim_and_settle_a_send_is_made_again_where_the_policy_says_so() {
    let resend = OnUnknown::Resend;
    let twice = End { accepted: 2, ..SENT_ONCE };
    let ends = tokio::join!(
        async { after_the_claim_before_the_call("crash-claim-resend", resend).await.ends(SENT_ONCE).await },
        async { in_the_call("crash-call-resend", resend).await.ends(SENT_ONCE).await },
        // the second one is what this policy costs: both carry the same Idempotency-Key
        async { after_the_call_before_the_settle("crash-settle-resend", resend).await.ends(twice).await },
    );
    for status in [ends.0, ends.1, ends.2] {
        assert_eq!(status.attempts, 2, "the lost one counts: {status:?}");
        let moved = |event: &Event| matches!(event, Event::Moved { why: MoveReason::LeaseEnded, .. });
        assert!(status.history.iter().any(moved), "{status:?}");
    }
}

/// Settled as sent, the message not deleted: it comes back, and that is all.
async fn after_the_settle_before_the_delete() {
    let scene = Scene::start("crash-delete", OnUnknown::Park, vec![]).await;
    scene.killed_at(scene.stop_script(SETTLE, Stop::Reply)).await;
    assert_eq!(scene.status().await.state, SendState::Sent);
    scene.ends(SENT_ONCE).await;
}

/// Booked again, the copy not on SQS: the old copy, issuer of the new seq, is answered `reissue`.
async fn after_a_rebooking_before_its_copy() {
    let scene = Scene::start("crash-reissue", OnUnknown::Park, vec![ScriptedReply::status(429)]).await;
    scene.killed_at(scene.sqs.stop(&[SEND_MESSAGE], Stop::Request)).await;
    let status = scene.status().await;
    assert_eq!((status.state, status.seq, status.throttles), (SendState::Booked, 2, 1));
    scene.ends(SENT_ONCE).await;
}

/// The new copy is on SQS, the old one not deleted: two live copies, one send.
async fn after_a_put_back_before_the_acknowledgement() {
    let scene = Scene::start("crash-put-back", OnUnknown::Park, vec![ScriptedReply::status(429)]).await;
    scene.killed_at(scene.sqs.stop(&[SEND_MESSAGE], Stop::Reply)).await;
    scene.ends(SENT_ONCE).await;
}

/// Failed in Redis, the payload not in the dead-letter queue: the copy that was told comes back and hears it again.
async fn after_a_terminal_settle_before_the_dead_letter() {
    let scene = Scene::start("crash-dead", OnUnknown::Park, vec![ScriptedReply::status(400)]).await;
    scene.killed_at(scene.sqs.stop(&[SEND_MESSAGE], Stop::Request)).await;
    assert_eq!((scene.status().await.state, scene.pipeline.dead_letter_count().await), (SendState::Failed, 0));
    scene.ends(End { state: SendState::Failed, accepted: 0, letters: &["failed"] }).await;
}

/// Dead-lettered, the message not deleted: dead letters are delivered at least once.
async fn after_the_dead_letter_before_the_acknowledgement() {
    let scene = Scene::start("crash-dead-twice", OnUnknown::Park, vec![ScriptedReply::status(400)]).await;
    scene.killed_at(scene.sqs.stop(&[SEND_MESSAGE], Stop::Reply)).await;
    scene.ends(End { state: SendState::Failed, accepted: 0, letters: &["failed", "rejected"] }).await;
}

#[tokio::test]
async fn killed_behind_its_settle_a_worker_leaves_nothing_lost_and_nothing_twice() {
    tokio::join!(
        after_the_settle_before_the_delete(),
        after_a_rebooking_before_its_copy(),
        after_a_put_back_before_the_acknowledgement(),
        after_a_terminal_settle_before_the_dead_letter(),
        after_the_dead_letter_before_the_acknowledgement(),
    );
}

/// Nothing is claimed before the slot: the copy comes back and is sent, late or at a new slot.
async fn while_it_waits_for_its_slot() {
    let scene = Scene::start("crash-wait", OnUnknown::Park, vec![]).await;
    let trap = scene.stop_script(CLAIM, Stop::Reply);
    let slot = SystemTime::now() + Duration::from_secs(5);
    scene.pipeline.scheduler.schedule(scene.pipeline.message(ID).not_before(slot)).await.unwrap();
    // told to wait for about two seconds
    trap.sprung().await.go_on();
    scene.kill().await;
    let status = scene.status().await;
    assert_eq!((status.state, status.attempts), (SendState::Booked, 0), "{status:?}");
    let status = scene.ends(SENT_ONCE).await;
    assert_eq!(status.attempts, 1);
}

/// model A3: a worker that stood still after its claim knows by its own clock that it may not call any more.
async fn stopped_across_its_start_window() {
    let scene = Scene::start("crash-stall", OnUnknown::Park, vec![]).await;
    let held = scene.claimed().await;
    assert_eq!(scene.pipeline.signal_workers("STOP"), 1);
    held.go_on();
    // a lease of 7 s with a call of 2 s and its settle of 2 s: no call begins after 3 s
    tokio::time::sleep(Duration::from_millis(3_300)).await;
    assert_eq!(scene.pipeline.signal_workers("CONT"), 1);
    let status = scene.ends(SENT_ONCE).await;
    assert_eq!(status.attempts, 1, "what was not started is no attempt: {status:?}");
}

#[tokio::test]
async fn killed_or_stopped_before_its_call_a_worker_leaves_nothing_in_doubt() {
    tokio::join!(while_it_waits_for_its_slot(), stopped_across_its_start_window());
}

/// Gives a caller up where `stop` says, on its way to SQS. Then the same ID is scheduled again, with slots well ahead.
async fn caller_gone(name: &'static str, stop: Stop) -> Scene {
    let scene = Scene::start(name, OnUnknown::Park, vec![]).await;
    let sqs = scene.pipeline.sqs.config().to_builder();
    let sqs = sqs.endpoint_url(format!("http://127.0.0.1:{}", scene.sqs.port())).build();
    let store = Store::new(&localstack().await.redis_url()).unwrap();
    let builder = Scheduler::builder().store(store).sqs(aws_sdk_sqs::Client::from_conf(sqs));
    let caller = builder.queue_url(&scene.pipeline.queues.queue_url).build().await.unwrap();
    let trap = scene.sqs.stop(&[SEND_MESSAGE], stop);
    let message = scene.pipeline.message(ID).not_before(SystemTime::now() + Duration::from_secs(4));
    let again = message.clone();
    let call = tokio::spawn(async move { caller.schedule(message).await });
    let held = trap.sprung().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    drop(held);
    let booked = scene.pipeline.scheduler.schedule(again).await.unwrap();
    let booked = booked.booked().expect("Redis is there");
    assert_eq!((booked.was_booked(), booked.seq()), (true, 1), "the booking that stands");
    scene
}

#[tokio::test]
async fn a_caller_that_crashed_schedules_the_same_id_again_and_it_is_sent_once() {
    let unsent = async {
        let scene = caller_gone("crash-reserve", Stop::Request).await;
        scene.pipeline.ended(&[ID.to_owned()], Duration::from_secs(60)).await;
        assert_eq!(scene.pipeline.source.stats().records, 1, "the first one never came to SQS");
        scene.ends(SENT_ONCE).await;
    };
    let unheard = async {
        let scene = caller_gone("crash-enqueue", Stop::Reply).await;
        scene.until("both copies are done", async || scene.pipeline.source.stats().deleted == 2).await;
        scene.ends(SENT_ONCE).await;
    };
    tokio::join!(unsent, unheard);
}
