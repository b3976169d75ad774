//! `sendslot dlq` on a real queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Instant, SystemTime};

use aws_sdk_sqs::types::QueueAttributeName;
use sendslot_localstack::provider::{ScriptedReply, max_units_in_rolling_window};
use sendslot_shared::envelope::{Envelope, PendingReport};
use sendslot_shared::id::{BudgetName, SendId};
use sendslot_shared::message::Message;
use sendslot_shared::queue::{Entry, Queue};
use sendslot_shared::settle::{Ending, Report, settle};
use sendslot_shared::status::{SendState, status};
use sendslot_shared::store::Store;
use sendslot_shared::time::DelaySeconds;
use sendslot_tests::pipeline::{Pipeline, Setup};
use sendslot_tests::proxy::{Proxy, Stop};

use super::*;

impl Desk {
    /// With a dead-letter queue and the budgets `sms` (100/s, a minute ahead) and `mail`.
    async fn with_letters(name: &str) -> Self {
        let desk = Self::open(name).await;
        let url = desk.queue.dlq_url.clone();
        let desk = desk.with("SENDSLOT_DLQ_URL", &url);
        desk.set_sms().await;
        assert_eq!(desk.run(&["budget", "set", "sms", "--lane", "otp"]).await.code, 0);
        assert_eq!(desk.run(&["budget", "set", "mail", "--limit", "10", "--transit", "60s"]).await.code, 0);
        desk
    }

    async fn bury_body(&self, body: String, attributes: &[(&str, &str)]) {
        let dead = Queue::new(self.queue.sqs.clone(), &self.queue.dlq_url).unwrap();
        dead.send(&Entry { body, delay: DelaySeconds::ZERO }, attributes).await.unwrap();
    }

    /// A send that has failed, dead-lettered as a worker does it.
    async fn bury(&self, message: Message, reason: &str) {
        let (envelope, _) = self.fail(message).await;
        let of = &envelope.draft;
        let names = [("send_id", of.id.as_str()), ("budget", of.budget.as_str())];
        let why = [("reason", reason), ("attempts", "5"), ("last_error", "HTTP 400: no such number")];
        self.bury_body(envelope.to_body().unwrap(), &[&names[..], &why[..]].concat()).await;
    }

    async fn fail(&self, message: Message) -> (Envelope, Store) {
        let store = Store::new(&self.redis.url()).unwrap();
        let at = SystemTime::now().into();
        let envelope = Envelope::first(message.check().unwrap(), 3, at);
        let (delay, cooldown, elapsed) = (Duration::ZERO, None, Duration::ZERO);
        let report = Report {
            envelope: &envelope,
            nonce: 1,
            ending: Ending::Rejected,
            delay,
            cooldown,
            elapsed,
            held_up: Duration::ZERO,
        };
        let _ = settle(&store, report).await.unwrap();
        (envelope, store)
    }

    /// Dead letters: those that can be received, and those that somebody holds.
    async fn letters(&self) -> (usize, usize) {
        letters(&self.queue.sqs, &self.queue.dlq_url).await
    }

    async fn dlq(&self, args: &[&str]) -> Ran {
        self.run(&[&["dlq"], args].concat()).await
    }

    /// The IDs that a list has with these options, sorted.
    async fn listed(&self, options: &[&str]) -> Vec<String> {
        let ran = self.dlq(&[&["list", "--json"], options].concat()).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        ids(&ran.json()["letters"])
    }
}

async fn letters(sqs: &aws_sdk_sqs::Client, url: &str) -> (usize, usize) {
    let names =
        [QueueAttributeName::ApproximateNumberOfMessages, QueueAttributeName::ApproximateNumberOfMessagesNotVisible];
    let request = sqs.get_queue_attributes().queue_url(url).set_attribute_names(Some(names.to_vec()));
    let attributes = request.send().await.unwrap().attributes.unwrap();
    let [visible, held] = names.map(|name| attributes[&name].parse().unwrap());
    (visible, held)
}

fn ids(letters: &Value) -> Vec<String> {
    let mut ids: Vec<String> =
        letters.as_array().unwrap().iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

fn text(budget: &str, id: impl Into<String>) -> Message {
    Message::new(budget, id, "a secret text")
}

#[tokio::test]
async fn dead_letters_are_listed_by_every_filter_and_given_back() {
    let desk = Desk::with_letters("dlq-list").await;
    desk.bury(text("sms", "a"), "attempts").await;
    desk.bury(text("sms", "b").lane("otp"), "rejected").await;
    desk.bury(text("mail", "c"), "rejected").await;
    desk.bury_body("not an envelope".to_owned(), &[("reason", "malformed"), ("last_error", "the body is not …")]).await;
    desk.bury_body(Envelope::unbooked(text("mail", "e").check().unwrap()).to_body().unwrap(), &[]).await;
    let all = desk.dlq(&["list", "--json"]).await.json();
    let letters = all["letters"].as_array().unwrap();
    assert_eq!((letters.len(), &all["seen"], &all["complete"]), (5, &json!(5), &json!(true)));
    let foreign = letters.iter().find(|letter| letter["readable"] == false).unwrap();
    assert_eq!((&foreign["id"], &foreign["reason"]), (&foreign["message_id"], &json!("malformed")));
    let foreign = foreign["id"].as_str().unwrap().to_owned();
    for (options, expected) in [
        (&["--budget", "sms"][..], &["a", "b"][..]),
        (&["--budget", "mail"], &["c", "e"]),
        (&["--lane", "otp"], &["b"]),
        (&["--lane", "default", "--budget", "mail"], &["c", "e"]),
        (&["--reason", "rejected"], &["b", "c"]),
        (&["--reason", "rejected", "--reason", "attempts"], &["a", "b", "c"]),
        (&["--reason", "malformed"], &[&foreign]),
        (&["--reason", "received_too_often"], &["e"]),
        (&["--older-than", "1h"], &[]),
        (&["--newer-than", "1h", "--budget", "sms"], &["a", "b"]),
        (&["--id", "c"], &["c"]),
        (&["--id", "nobody"], &[]),
    ] {
        assert_eq!(desk.listed(options).await, expected, "{options:?}");
    }
    assert_eq!(desk.listed(&["--limit", "2"]).await.len(), 2);
    assert_eq!(desk.letters().await, (5, 0), "all were given back");
    let table = desk.dlq(&["list"]).await;
    let row = table.stdout.lines().find(|line| line.starts_with("b ")).unwrap();
    for word in ["sms/otp", "rejected", "HTTP 400: no such number"] {
        assert!(row.contains(word), "{row}");
    }
    table.assert_says(&["5 dead letters, of 5 looked at"]);
    assert!(!format!("{table:?} {all}").contains("secret"), "no payload");
    // show: with the payload only when it is asked for
    let shown = desk.dlq(&["show", "b"]).await;
    assert!(shown.stdout.contains("HTTP 400") && !shown.stdout.contains("secret"), "{shown:?}");
    assert!(desk.dlq(&["show", "b", "--payload"]).await.stdout.ends_with("\na secret text\n"));
    let shown = desk.dlq(&["show", &foreign, "--payload", "--json"]).await.json();
    assert_eq!((&shown[0]["payload"], &shown[0]["readable"]), (&json!("not an envelope"), &json!(false)));
    desk.dlq(&["show", "nobody"]).await.assert_fails(4, &["nobody"]);
    desk.dlq(&["list", "--reason", "bored"]).await.assert_fails(2, &["unknown_outcome", "received_too_often"]);
    assert_eq!(desk.letters().await, (5, 0));
}

#[tokio::test]
async fn a_redrive_leaves_at_the_limits_pace_and_keeps_what_is_past_its_deadline() {
    let desk = Desk::with_letters("dlq-redrive").await;
    for i in 0..27 {
        desk.bury(text("mail", format!("m{i:02}")), "attempts").await;
    }
    let soon = SystemTime::now() + Duration::from_secs(2);
    desk.bury(text("mail", "late").deadline(soon), "expired").await;
    desk.bury(text("mail", "odd"), "unknown_outcome").await;
    desk.bury(text("sms", "other"), "attempts").await;
    desk.bury_body("not an envelope".to_owned(), &[("budget", "mail")]).await;
    let ran = desk.dlq(&["redrive", "--budget", "mail", "--json"]).await;
    let report = ran.json();
    assert_eq!((ran.code, &report["redriven"], &report["matched"]), (3, &json!(27), &json!(30)), "{ran:?}");
    assert_eq!(report["kept_by"], json!({ "past_deadline": 1, "unknown_outcome": 1, "unreadable": 1 }));
    ran.assert_says(&["late: ", "behind the deadline", "--resend-unknown", "not a Sendslot envelope"]);
    assert_eq!(desk.letters().await, (4, 0), "what was kept, and the other budget's");
    // 9.7 a second: one slot each, none within a tenth of another
    let copies = desk.queue_bodies(27).await;
    let mut slots: Vec<u64> = copies.iter().map(|copy| copy.at.unwrap().as_micros()).collect();
    slots.sort_unstable();
    let closest = slots.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(closest >= 103_000, "{closest} us apart: {slots:?}");
    assert!(copies.iter().all(|copy| copy.seq == 4), "booked anew, behind seq 3");
    let again = desk.dlq(&["redrive", "--budget", "mail", "--reason", "unknown_outcome", "--resend-unknown"]).await;
    assert_eq!((again.code, desk.letters().await), (0, (3, 0)), "{again:?}");
}

impl Desk {
    /// The copies on the queue, though their delays have not ended: as the records have them.
    async fn queue_bodies(&self, n: usize) -> Vec<Copy> {
        assert_eq!(self.queue.depth().await, (0, n), "all wait for their slots");
        let store = Store::new(&self.redis.url()).unwrap();
        let budget = BudgetName::new("mail").unwrap();
        let mut copies = vec![];
        for i in 0..n {
            let id = SendId::new(format!("m{i:02}")).unwrap();
            let send = status(&store, &budget, &id).await.unwrap().1.unwrap();
            assert_eq!(send.state, SendState::Booked);
            copies.push(Copy { seq: send.seq, at: send.at });
        }
        copies
    }
}

struct Copy {
    seq: u32,
    at: Option<sendslot_shared::time::Instant>,
}

#[tokio::test]
async fn what_sqs_moved_by_itself_goes_back_as_it_is_unless_redis_knows_that_it_waits_or_ended() {
    let desk = Desk::with_letters("dlq-moved").await;
    // no record: the claim knows what that means
    let unknown = Envelope::first(text("mail", "unknown").check().unwrap(), 2, SystemTime::now().into());
    desk.bury_body(unknown.to_body().unwrap(), &[]).await;
    // a copy that has to say that it was sent while Redis was away
    let report = PendingReport { nonce: 9, ending: Ending::Sent, unclaimed: true, called_at_us: None };
    let told = Envelope { report: Some(report), ..Envelope::unbooked(text("mail", "told").check().unwrap()) };
    desk.bury_body(told.to_body().unwrap(), &[]).await;
    let (failed, _) = desk.fail(text("mail", "failed")).await;
    desk.bury_body(failed.to_body().unwrap(), &[]).await;
    let held = desk.hold("held", "").await;
    desk.bury_body(held.envelope.to_body().unwrap(), &[]).await;
    let report = desk.dlq(&["redrive", "--json"]).await.json();
    assert_eq!(
        (&report["redriven"], &report["requeued"], &report["kept"]),
        (&json!(1), &json!(3), &json!(0)),
        "{report}"
    );
    assert_eq!(desk.letters().await, (0, 0));
    let back = desk.queue.receive(3).await;
    let mut expected = vec![held.envelope.clone(), told, unknown];
    expected.sort_by(|a, b| a.draft.id.cmp(&b.draft.id));
    assert_eq!(back, expected, "unchanged");
    // of one that was sent in the meantime nothing is left to do
    held.settle(Ending::Sent, None).await;
    desk.bury_body(held.envelope.to_body().unwrap(), &[("reason", "attempts")]).await;
    let report = desk.dlq(&["redrive", "--json"]).await.json();
    assert_eq!((&report["already_sent"], desk.letters().await), (&json!(1), (0, 0)), "{report}");
}

#[tokio::test]
async fn a_purge_deletes_only_what_matches_and_only_when_told_so() {
    let desk = Desk::with_letters("dlq-purge").await;
    for i in 0..25 {
        desk.bury(text("sms", format!("s{i:02}")), "attempts").await;
    }
    desk.bury(text("mail", "kept"), "attempts").await;
    desk.bury_body("{\"Records\":[]}".to_owned(), &[("reason", "malformed")]).await;
    desk.dlq(&["purge", "--budget", "sms"]).await.assert_fails(2, &["25 dead letters match", "--yes"]);
    assert_eq!(desk.letters().await, (27, 0));
    let some = desk.dlq(&["purge", "--budget", "sms", "--limit", "12", "--yes", "--json"]).await.json();
    assert_eq!((&some["purged"], &some["complete"]), (&json!(12), &json!(false)));
    let rest = desk.dlq(&["purge", "--budget", "sms", "--yes", "--json"]).await.json();
    assert_eq!((&rest["purged"], &rest["seen"], &rest["complete"]), (&json!(13), &json!(15), &json!(true)));
    assert_eq!(desk.listed(&["--budget", "mail"]).await, ["kept"]);
    let foreign = desk.dlq(&["purge", "--reason", "malformed", "--yes"]).await;
    assert_eq!((foreign.code, desk.letters().await), (0, (1, 0)), "{foreign:?}");
}

#[tokio::test]
async fn letters_are_given_back_after_an_error_and_after_ctrl_c() {
    let desk = Desk::with_letters("dlq-broken").await;
    for i in 0..25 {
        desk.bury(text("sms", format!("s{i:02}")), "attempts").await;
    }
    // Redis goes away in the middle: nothing is lost, and what is held comes back
    let proxy = Proxy::to(desk.redis.port()).await;
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let trap = proxy.stop(&["s{sms}r:s"], Stop::Request);
    let broken = {
        let env = with(&desk.env, "REDIS_URL", &url);
        tokio::spawn(async move { run(&env, &["dlq", "redrive", "--json"], b"").await })
    };
    let held = trap.sprung().await;
    proxy.close().await;
    drop(held);
    let broken = broken.await.unwrap();
    assert_eq!(broken.code, 1, "{broken:?}");
    broken.assert_says(&["stopped; run it again"]);
    assert_eq!(desk.letters().await, (25, 0));
    // Ctrl-C while it is receiving
    let proxy = Proxy::to(localstack_port().await).await;
    let trap = proxy.stop(&["AmazonSQS.ReceiveMessage"], Stop::Reply);
    let env = with(&desk.env, "AWS_ENDPOINT_URL", &format!("http://127.0.0.1:{}", proxy.port()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendslot-under-test"));
    command.args(["dlq", "list"]).env_clear().envs(env).kill_on_drop(true);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let held = trap.sprung().await;
    assert_eq!(desk.letters().await.1, 10, "the first ten are in its hands");
    let interrupt = Command::new("kill").args(["-INT", &child.id().unwrap().to_string()]).status().await.unwrap();
    assert!(interrupt.success());
    held.go_on();
    let output = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(desk.letters().await, (25, 0));
}

#[tokio::test]
async fn a_redrive_killed_half_way_and_run_again_sends_nothing_twice() {
    let setup = Setup::new("dlq-killed");
    let mut provider = setup.provider.clone();
    let names: Vec<String> = (0..60).map(|i| format!("m{i:05}")).collect();
    for id in &names {
        provider.scripted.insert(id.clone(), vec![ScriptedReply::status(400)]);
    }
    let stack = localstack().await;
    let worker = env!("CARGO_BIN_EXE_sendslot-worker-under-test");
    let pipeline = Pipeline::start(stack, worker, Setup { provider, ..setup }).await;
    assert_eq!(pipeline.schedule(60).await, names);
    pipeline.ended(&names, Duration::from_secs(60)).await;
    pipeline.drained(Duration::from_secs(30)).await;
    assert_eq!(pipeline.dead_letter_count().await, 60);
    // it is killed when some copies are on the queue and their letters not yet deleted
    let mut env = stack.environment();
    env.push(("SENDSLOT_QUEUE_URL".to_owned(), pipeline.queues.queue_url.clone()));
    env.push(("SENDSLOT_DLQ_URL".to_owned(), pipeline.queues.dlq_url.clone()));
    let proxy = Proxy::to(localstack_port().await).await;
    let through = with(&env, "AWS_ENDPOINT_URL", &format!("http://127.0.0.1:{}", proxy.port()));
    let first = proxy.stop(&["AmazonSQS.DeleteMessageBatch"], Stop::Request);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendslot-under-test"));
    command.args(["dlq", "redrive", "--visibility", "3s"]).env_clear().envs(through).kill_on_drop(true);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let held = first.sprung().await;
    child.kill().await.unwrap();
    drop(held);
    let give_up = Instant::now() + Duration::from_secs(30);
    while letters(&pipeline.sqs, &pipeline.queues.dlq_url).await != (60, 0) {
        assert!(Instant::now() < give_up, "what it held shows up again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let again = run(&env, &["dlq", "redrive", "--json"], b"").await;
    assert_eq!((again.code, again.json()["matched"].as_u64()), (0, Some(60)), "{again:?}");
    pipeline.ended(&names, Duration::from_secs(60)).await;
    pipeline.drained(Duration::from_secs(60)).await;
    for id in &names {
        assert_eq!(pipeline.status(id).await.state, SendState::Sent, "{id}");
    }
    assert_eq!(pipeline.dead_letter_count().await, 0);
    let arrivals = pipeline.stop().await;
    let mut sent: BTreeMap<&str, u32> = BTreeMap::new();
    for arrival in arrivals.iter().filter(|arrival| arrival.accepted) {
        *sent.entry(&arrival.send_id).or_default() += 1;
    }
    assert_eq!(sent.keys().copied().collect::<BTreeSet<_>>(), names.iter().map(String::as_str).collect());
    assert!(sent.values().all(|n| *n == 1), "{sent:?}");
    assert_eq!(arrivals.len(), 120, "each was refused once and taken once");
    let units: Vec<(u64, u32)> = arrivals.iter().map(|arrival| (arrival.at_us, arrival.units)).collect();
    assert!(max_units_in_rolling_window(&units, Duration::from_secs(1)) <= 100);
}

async fn localstack_port() -> u16 {
    localstack().await.endpoint_url().rsplit_once(':').unwrap().1.parse().unwrap()
}

fn with(env: &[(String, String)], name: &str, value: &str) -> Vec<(String, String)> {
    let mut env: Vec<_> = env.iter().filter(|(n, _)| n != name).cloned().collect();
    env.push((name.to_owned(), value.to_owned()));
    env
}

#[tokio::test]
async fn a_dead_letter_queue_that_is_none_is_said_to_be_so() {
    let desk = Desk::with_letters("dlq-setup").await;
    let (own, missing) = (desk.queue.url.clone(), desk.queue.dlq_url.replace("dlq-setup-dlq", "dlq-setup-gone"));
    let desk = desk.with("SENDSLOT_DLQ_URL", &own);
    desk.dlq(&["purge", "--yes"]).await.assert_fails(2, &["SENDSLOT_QUEUE_URL", "dead-letter queue"]);
    let desk = desk.with("SENDSLOT_DLQ_URL", &missing);
    desk.dlq(&["list"]).await.assert_fails(1, &["dlq-setup-gone", "cannot be used"]);
    let desk = desk.with("SENDSLOT_DLQ_URL", &format!("{own}.fifo"));
    desk.dlq(&["list"]).await.assert_fails(2, &["FIFO"]);
    let desk = desk.without("SENDSLOT_DLQ_URL");
    desk.dlq(&["list"]).await.assert_fails(2, &["SENDSLOT_DLQ_URL is not set"]);
}
