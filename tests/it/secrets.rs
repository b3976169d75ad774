//! Payloads, recipients and credentials stand in no log, no error and no attribute, and no name reaches another budget's keys.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use sendslot_localstack::RedisServer;
use sendslot_localstack::event_source::WorkerLog;
use sendslot_localstack::provider::ScriptedReply;
use sendslot_scheduler::{Event, Message, SendState};
use sendslot_shared::claim::Verdict;
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::BudgetName;
use sendslot_shared::message::Draft;
use sendslot_shared::settle::{Action, Ending};
use sendslot_shared::store::Store;
use sendslot_shared::{budget, cancel, reserve, status};
use sendslot_tests::pipeline::{Pipeline, Setup};
use sendslot_tests::queues::localstack;
use sendslot_tests::{Bench, on_each_redis, per_second};
use sendslot_worker::{HttpConfig, HttpProvider, Outgoing};
use tokio::process::Command;

const WORKER: &str = env!("CARGO_BIN_EXE_sendslot-worker-under-test");
const COMMAND: &str = env!("CARGO_BIN_EXE_sendslot-under-test");
/// Stands in all that is secret.
const MARK: &str = "xyzzyMARK";

fn clean(what: &str, text: &str) {
    // whoever reads it would also understand it in these forms
    for form in [MARK.to_owned(), MARK.to_lowercase(), "eHl6enlNQVJL".to_owned()] {
        let found = text.find(&form).map(|at| &text[text.floor_char_boundary(at.saturating_sub(300))..]);
        assert_eq!(found, None, "{what}");
    }
}

/// A Redis that asks for a password.
async fn guarded_redis() -> (RedisServer, String) {
    let redis = RedisServer::start().await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let set = redis::cmd("CONFIG").arg("SET").arg("requirepass").arg(MARK).query_async(&mut connection).await;
    let () = set.unwrap();
    let url = redis.url().replace("redis://", &format!("redis://:{MARK}@"));
    (redis, url)
}

fn message(budget: &str, id: &str) -> Message {
    Message::new(budget, id, format!("{{\"to\":\"{MARK}\",\"n\":\"{id}\"}}")).recipient(format!("+316{MARK}"))
}

#[tokio::test]
async fn nothing_that_is_secret_is_logged_by_the_worker_or_stands_in_a_dead_letters_attributes() {
    let (mut redis, url) = guarded_redis().await;
    let setup = Setup::new("secrets");
    let echo = format!(r#"{{"error":"{MARK}","code":"{MARK}","message":"cannot send {{\"to\":\"{MARK}\"}}"}}"#);
    let mut provider = setup.provider.clone();
    let mut scripted = |id: &str, replies: Vec<ScriptedReply>| provider.scripted.insert(id.into(), replies);
    scripted("rejected", vec![ScriptedReply::status(400).body(&echo)]);
    let retry = |status| ScriptedReply::status(status).body(&echo).header("x-message-id", "m1");
    scripted("throttled", vec![retry(429)]);
    scripted("unavailable", vec![retry(503), retry(401)]);
    scripted("silent", vec![ScriptedReply::hang()]);
    scripted("dropped", vec![ScriptedReply::drop_connection()]);
    let lines = Arc::new(Mutex::new(vec![]));
    let sink = lines.clone();
    let log = WorkerLog::Lines(Arc::new(move |_, line| sink.lock().unwrap().push(line.to_owned())));
    let environment = [
        ("AWS_LAMBDA_LOG_LEVEL", "TRACE".to_owned()),
        ("SENDSLOT_HTTP_HEADERS", format!(r#"{{"authorization":"Bearer {MARK}","x-units":"{{cost}}"}}"#)),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let http_timeout = Duration::from_secs(1);
    let setup = Setup { redis_url: Some(url), log, environment, http_timeout, provider, ..setup };
    let pipeline = Pipeline::start(localstack().await, WORKER, setup).await;
    let ids = ["plain", "rejected", "throttled", "unavailable", "silent", "dropped"];
    for id in ids {
        pipeline.scheduler.schedule(message(pipeline.budget, id)).await.unwrap();
    }
    let unbooked = |id: &str| Envelope::unbooked(message(pipeline.budget, id).check().unwrap());
    let mut bodies = vec![
        format!("\"{MARK}\""),
        MARK.to_owned(),
        format!("{{\"v\":\"{MARK}\"}}"),
        format!("{{\"v\":1,\"budget\":\"{MARK}\"}}"),
    ];
    let good: serde_json::Value = serde_json::from_str(&unbooked("edited").to_body().unwrap()).unwrap();
    for field in ["cost", "seq", "lane", "digest", "report", "text", "recipient", "at_us"] {
        let mut body = good.clone();
        body[field] = MARK.into();
        bodies.push(body.to_string());
    }
    // another payload for an ID that is booked
    let later = message(pipeline.budget, "later").not_before(SystemTime::now() + Duration::from_secs(3600));
    pipeline.scheduler.schedule(later).await.unwrap();
    let conflict = Message::new(pipeline.budget, "later", format!("other {MARK}")).check().unwrap();
    bodies.push(Envelope::unbooked(conflict).to_body().unwrap());
    for body in &bodies {
        let request = pipeline.sqs.send_message().queue_url(&pipeline.queues.queue_url).message_body(body);
        request.send().await.unwrap();
    }
    let letters = pipeline.dead_letters(12 + 1 + 3).await;
    for letter in &letters {
        clean("attributes", &format!("{} {} {} {}", letter.id, letter.reason, letter.attempts, letter.error));
    }
    let rejected = letters.iter().find(|letter| letter.id == "rejected").unwrap();
    assert_eq!(rejected.error, "HTTP 400");
    let sent = ["plain", "throttled", "unavailable"].map(str::to_owned);
    pipeline.ended(&sent, Duration::from_secs(60)).await;
    // and without Redis
    redis.kill();
    let held = pipeline.scheduler.schedule(message(pipeline.budget, "held")).await;
    clean("scheduled", &format!("{held:?}"));
    let error = pipeline.scheduler.status(pipeline.budget, "held").await.unwrap_err();
    clean("error", &format!("{error} {error:?}"));
    let unavailable = || lines.lock().unwrap().iter().any(|line| line.contains("redis_unavailable"));
    let give_up = Instant::now() + Duration::from_secs(30);
    while !unavailable() {
        assert!(Instant::now() < give_up);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    pipeline.stop().await;
    let lines = lines.lock().unwrap().join("\n");
    assert!(lines.contains("DEBUG") && lines.contains("send"), "the worker was not quiet");
    clean("the worker's lines", &lines);
}

#[tokio::test]
async fn nothing_that_is_secret_is_printed_by_the_command() {
    let (_redis, url) = guarded_redis().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("messages.jsonl");
    let good = format!(r#"{{"id":"a","payload":{{"to":"{MARK}"}},"recipient":"{MARK}"}}"#);
    let bad = [
        format!(r#"{{"id":"b","payload":"{MARK}","cost":"{MARK}"}}"#),
        format!(r#"{{"id":"c","payload":"{MARK}\ud800"}}"#),
        format!(r#"{{"id":["{MARK}"],"payload":"{MARK}"}}"#),
        format!(r#""{MARK}""#),
        format!(r#"{{"payload":"{MARK}"}}"#),
        format!(r#"{{"id":"d","payload":"{MARK}"}} {MARK}"#),
        format!(r#"{{"id":"","payload":"{MARK}","recipient":"{MARK}"}}"#),
        format!(r#"{{"id":"e","payload":"{MARK}","cost":0}}"#),
        format!(r#"{{"id":"f","payload":"{}{MARK}"}}"#, "x".repeat(1 << 20)),
        format!(r#"{{"id":"a","payload":"other {MARK}"}}"#),
    ];
    std::fs::write(&file, [vec![good], bad.to_vec()].concat().join("\n")).unwrap();
    let file = file.to_str().unwrap();
    let queue = sendslot_tests::queues::TestQueue::create("secrets-command").await;
    let mut environment = localstack().await.environment();
    environment.extend([
        ("SENDSLOT_QUEUE_URL".to_owned(), queue.url.clone()),
        ("REDIS_URL".to_owned(), url.clone()),
        ("RUST_LOG".to_owned(), "TRACE".to_owned()),
    ]);
    let run = async |environment: &[(String, String)], args: &[&str], codes: &[i32]| {
        let mut command = Command::new(COMMAND);
        command.args(args).env_clear().envs(environment.iter().cloned()).kill_on_drop(true);
        let output = command.output().await.unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(output.status.code().is_some_and(|ended| codes.contains(&ended)), "{args:?}: {text}");
        clean(&format!("{args:?}"), &text);
    };
    run(&environment, &["budget", "set", "sms", "--limit", "100", "--transit", "60s"], &[0]).await;
    for json in [&["--json"][..], &[]] {
        run(&environment, &[&["send", "--budget", "sms", file], json].concat(), &[3]).await;
        run(&environment, &[&["status", "sms", "a"], json].concat(), &[0]).await;
        run(&environment, &[&["cancel", "sms", "b"], json].concat(), &[4]).await;
    }
    // URLs that cannot be used, with what they hold
    let port = url.rsplit_once(':').unwrap().1;
    let wrong = [
        format!("redis://:{MARK}@127.0.0.1:1"),
        format!("redis://:wrong{MARK}@127.0.0.1:{port}"),
        format!("redis://:{MARK}@127.0.0.1:port"),
        format!("redis://{MARK}:{MARK}@:{port}/{MARK}"),
        format!("http://{MARK}@127.0.0.1"),
        format!("{MARK}@127.0.0.1:{port}"),
    ];
    for url in wrong {
        environment.retain(|(name, _)| name != "REDIS_URL");
        environment.push(("REDIS_URL".to_owned(), url));
        run(&environment, &["status", "sms"], &[1, 2]).await;
    }
}

#[test]
fn what_is_printed_for_debugging_leaves_secrets_out() {
    let given = message("b", "a");
    clean("message", &format!("{given:?}"));
    let draft = given.check().unwrap();
    clean("draft", &format!("{draft:?}"));
    let recipient = format!("{:?}", draft.recipient);
    assert_eq!(recipient, "Some(Recipient(…))");
    let envelope = Envelope::unbooked(draft);
    clean("envelope", &format!("{envelope:?}"));
    let entry = sendslot_shared::queue::Entry {
        body: envelope.to_body().unwrap(),
        delay: sendslot_shared::time::DelaySeconds::ZERO,
    };
    clean("entry", &format!("{entry:?}"));
    clean("outgoing", &format!("{:?}", Outgoing::new("a", "b", MARK)));
    let mut config = HttpConfig::new(format!("https://user:{MARK}@example.org/{MARK}?key={MARK}"));
    config.headers.insert("authorization".into(), MARK.into());
    clean("configuration", &format!("{config:?}"));
    clean("provider", &format!("{:?}", HttpProvider::new(config.clone()).unwrap()));
    config.headers.insert("bad header".into(), MARK.into());
    let error = HttpProvider::new(config).unwrap_err();
    clean("header", &format!("{error} {error:?}"));
    let error = HttpProvider::new(HttpConfig::new(format!("ftp://{MARK}@example.org"))).unwrap_err();
    clean("URL", &format!("{error} {error:?}"));
    let url = format!("redis://:{MARK}@127.0.0.1:1");
    clean("store", &format!("{:?}", Store::new(&url).unwrap()));
    clean("builder", &format!("{:?}", sendslot_scheduler::Scheduler::builder().redis_url(&url)));
}

/// IDs that try to look like something else.
fn odd_ids() -> Vec<String> {
    let short =
        ["}", "{", "s{a}cal", "s{b}policy", "{b}", "}{b}r:x", " ", "\n", "\r\n", ":", "r:m", "*", "\0", "é", "'; --"];
    let mut ids: Vec<String> = short.map(str::to_owned).to_vec();
    ids.extend(["é".repeat(128), "}".repeat(256), format!("{}\n", "{".repeat(255)), "s{a}h:m".to_owned()]);
    ids
}

#[tokio::test]
async fn ids_of_one_budget_reach_no_key_of_another() {
    on_each_redis(async |bench: Bench| {
        let [a, b] = ["a", "b"].map(|name| BudgetName::new(name).unwrap());
        for name in [&a, &b] {
            budget::set(&bench.store, name, &per_second(100, 0.8)).await.unwrap();
        }
        let drafts = |budget: &str| -> Vec<Draft> {
            odd_ids().iter().map(|id| Message::new(budget, id, "x").check().unwrap()).collect()
        };
        let (of_a, of_b) = (drafts("a"), drafts("b"));
        let refs: Vec<&Draft> = of_b.iter().collect();
        let booked = reserve::reserve(&bench.store, &b, &refs).await.unwrap();
        assert!(booked.iter().all(Result::is_ok));
        let before = values(&bench, "s{b}*").await;
        // everything that is done with a send is done with those of a: booked, moved, claimed, settled, cancelled
        for (i, draft) in of_a.iter().enumerate() {
            let booking = reserve::reserve(&bench.store, &a, &[draft]).await.unwrap().remove(0).unwrap();
            assert!(!booking.existing, "{:?}", draft.id);
            let copy = Envelope::first(draft.clone(), booking.seq, booking.at);
            match i % 3 {
                0 => drop(cancel::cancel(&bench.store, &a, &draft.id).await.unwrap()),
                1 => {
                    bench.set_clock(booking.at.as_micros()).await;
                    assert!(matches!(bench.verdict(&copy, 1).await, Verdict::Send { .. }));
                    assert_eq!(bench.settle(&copy, 1, Ending::Sent).await, Action::Acknowledge);
                }
                _ => {
                    bench.set_clock(booking.at.as_micros()).await;
                    assert!(matches!(bench.verdict(&copy, 1).await, Verdict::Send { .. }));
                    let moved = bench.settle(&copy, 1, Ending::Unavailable).await;
                    assert!(matches!(moved, Action::PutBack(_)), "{moved:?}");
                }
            }
        }
        assert_eq!(values(&bench, "s{b}*").await, before, "not one byte of the other budget changed");
        for (i, (of_a, of_b)) in of_a.iter().zip(&of_b).enumerate() {
            let state = [SendState::Cancelled, SendState::Sent, SendState::Booked][i % 3];
            let known = status::status(&bench.store, &a, &of_a.id).await.unwrap().1.unwrap();
            assert_eq!(known.state, state, "{:?}", of_a.id);
            let moved = known.history.iter().any(|event| matches!(event, Event::Moved { .. }));
            assert_eq!(moved, i % 3 == 2, "{known:?}");
            let known = status::status(&bench.store, &b, &of_b.id).await.unwrap().1.unwrap();
            assert_eq!((known.state, known.seq), (SendState::Booked, 1));
        }
        let others: Vec<String> = bench.keys("*").await;
        let ours = |key: &String| ["s{a}", "s{b}", "sendslot:"].iter().any(|start| key.starts_with(start));
        assert!(others.iter().all(ours), "{others:?}");
    })
    .await;
}

/// Keys and values with a name.
async fn values(bench: &Bench, pattern: &str) -> Vec<(String, Option<Vec<u8>>)> {
    let mut all = vec![];
    for key in bench.keys(pattern).await {
        let value = bench.command(redis::cmd("DUMP").arg(&key)).await;
        all.push((key, value));
    }
    all
}
