//! Receipts: presets, order, who is found, what cannot be read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use metrics_exporter_prometheus::PrometheusRecorder;
use sendslot_localstack::{QueueOptions, Queues};
use sendslot_receipts::config::{Preset, ProviderConfig, Providers};
use sendslot_receipts::mapper::Mapper;
use sendslot_receipts::mapping::{Mapped, Named, Unreadable};
use sendslot_receipts::raw::RawReceipt;
use sendslot_scheduler::{Delivery, DeliveryStatus, Receipt};
use sendslot_shared::aws_sdk_sqs::Client;
use sendslot_shared::claim::Verdict;
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::SendId;
use sendslot_shared::receipt::{self, Recorded};
use sendslot_shared::settle::{Action, Ending};
use sendslot_shared::status::Event;
use sendslot_shared::time::Instant;
use sendslot_tests::queues::{TestQueue, localstack};
use sendslot_tests::{Bench, SECOND, START, draft, on_each_redis, per_second};

/// `printf %s secret | sha256sum`
const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

fn sample(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/receipts/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn raw(provider: &str, query: &str, body: impl Into<Vec<u8>>) -> RawReceipt {
    RawReceipt {
        provider: provider.to_owned(),
        received: Instant::from_micros(START),
        query: query.to_owned(),
        headers: BTreeMap::new(),
        body: body.into(),
    }
}

fn preset(preset: Preset) -> ProviderConfig {
    ProviderConfig { preset: Some(preset), sha256: SECRET.to_owned(), ..ProviderConfig::default() }
}

fn providers(tables: impl IntoIterator<Item = (&'static str, ProviderConfig)>) -> Providers {
    Providers::new(tables.into_iter().map(|(name, table)| (name.to_owned(), table)).collect()).unwrap()
}

fn read(table: ProviderConfig, query: &str, body: &[u8]) -> Result<Vec<Mapped>, Unreadable> {
    providers([("p", table)]).get("p").unwrap().mapping.read(&raw("p", query, body))
}

fn ours(id: &str) -> Named {
    Named::Ours(SendId::new(id).unwrap())
}

fn theirs(id: &str) -> Named {
    Named::Theirs(id.to_owned())
}

/// As a test writes it: who, what, the provider's word, milliseconds since 2030.
fn told(mapped: &[Mapped]) -> Vec<(Named, Delivery, &str, u64)> {
    const NEW_YEAR: u64 = 1_893_456_000_000;
    assert!(mapped.iter().all(|event| event.budget.as_str() == "b"), "{mapped:?}");
    let line = |event: &Mapped| {
        let Receipt { delivery, at, word } = &event.receipt;
        (event.send.clone(), *delivery, word.clone(), at.as_micros() / 1000 - NEW_YEAR)
    };
    mapped.iter().map(line).map(|(a, b, c, d)| (a, b, &*c.leak(), d)).collect()
}

#[test]
fn presets_read_what_their_providers_send() {
    use Delivery::{Delivered, Undelivered};
    assert_eq!(
        told(&read(preset(Preset::Sendgrid), "", &sample("sendgrid.json")).unwrap()),
        [
            (ours("order-17"), Delivered, "delivered", 4000),
            (theirs("a7Xk2mZ0T8mG3QwYb1c9Pw"), Undelivered, "bounce", 7000)
        ]
    );
    let sid = "SM2xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    let came = START / 1000 - 1_893_456_000_000;
    let twilio = |query| read(preset(Preset::Twilio), query, &sample("twilio.form"));
    assert_eq!(told(&twilio("id=a%2F1&budget=b").unwrap()), [(ours("a/1"), Delivered, "delivered", came)]);
    assert_eq!(told(&twilio("budget=b").unwrap()), [(theirs(sid), Delivered, "delivered", came)]);
    assert_eq!(twilio("id=a"), Err(Unreadable::Event { index: 0, what: "it names no budget" }));
    let whatsapp = read(preset(Preset::Whatsapp), "budget=b", &sample("whatsapp.json")).unwrap();
    assert_eq!(
        told(&whatsapp),
        [
            (ours("order-17"), Delivered, "delivered", 9000),
            (theirs("wamid.HBgLMTY1MDM4Nzk0MzkVAgARGBIyRkVCRUQ5RkE5MkQzRkYA"), Undelivered, "failed", 10_000)
        ]
    );
    let ses = |file| read(preset(Preset::Ses), "", &sample(file));
    assert_eq!(told(&ses("ses-delivery.json").unwrap()), [(ours("order-17"), Delivered, "Delivery", 9213)]);
    assert_eq!(told(&ses("ses-bounce.json").unwrap()), [(ours("order-18"), Undelivered, "Bounce", 12_669)]);
    assert_eq!(ses("sns-subscription.json"), Err(Unreadable::Subscription));
    // raw message delivery: without the envelope of SNS
    let outer: serde_json::Value = serde_json::from_slice(&sample("ses-bounce.json")).unwrap();
    let inner = outer["Message"].as_str().unwrap();
    assert_eq!(read(preset(Preset::Ses), "", inner.as_bytes()), ses("ses-bounce.json"));
    let untagged = inner.replace("X-Sendslot-Id", "X-Other");
    let found = read(preset(Preset::Ses), "", untagged.as_bytes()).unwrap();
    assert_eq!(found[0].send, theirs("EXAMPLE8d202cf56-f0bfec0b-13a0-5e23-b98e-ee1100b18a9b-000000"));
}

#[test]
fn a_mapping_of_ones_own_reads_json_and_forms() {
    let list = |items: &[&str]| Some(items.iter().map(|item| (*item).to_owned()).collect());
    let json = ProviderConfig {
        sha256: SECRET.to_owned(),
        format: Some(sendslot_receipts::config::Format::Json),
        events: Some("/events/*".to_owned()),
        budget: Some("b".to_owned()),
        id: list(&["/ref"]),
        status: list(&["/state"]),
        at: list(&["/when"]),
        delivered: list(&["ok"]),
        undelivered: list(&["no"]),
        ignored: list(&["wait"]),
        ..ProviderConfig::default()
    };
    let body = br#"{"events":[{"ref":7,"state":"ok","when":1893456001500},{"ref":"a","state":"wait"},{"ref":"b","state":"no"}]}"#;
    let found = read(json.clone(), "", body).unwrap();
    let of = |event: &Mapped| (event.send.clone(), event.receipt.delivery, event.receipt.at.as_micros());
    assert_eq!(
        found.iter().map(of).collect::<Vec<_>>(),
        [(ours("7"), Delivery::Delivered, 1_893_456_001_500_000), (ours("b"), Delivery::Undelivered, START)]
    );
    for (body, why) in [
        (&b"hello"[..], Unreadable::Json),
        (b"\xff\xfe", Unreadable::Json),
        (b"{}", Unreadable::Events),
        (br#"{"events":[{"state":"ok"}]}"#, Unreadable::Event { index: 0, what: "it names no send" }),
        (br#"{"events":[{"ref":"a"}]}"#, Unreadable::Event { index: 0, what: "it has no status" }),
        (
            br#"{"events":[{"ref":"a","state":"else"}]}"#,
            Unreadable::Event { index: 0, what: "its status is none of the configured words" },
        ),
        (
            br#"{"events":[{"ref":"a","state":"ok","when":"soon"}]}"#,
            Unreadable::Event { index: 0, what: "its instant cannot be read" },
        ),
    ] {
        assert_eq!(read(json.clone(), "", body), Err(why), "{}", String::from_utf8_lossy(body));
    }
    assert_eq!(read(json.clone(), "", br#"{"events":[]}"#), Ok(vec![]));
    for (change, words) in [
        (ProviderConfig { sha256: "00".to_owned(), ..json.clone() }, "sha256sum"),
        (ProviderConfig { budget: None, ..json.clone() }, "budget"),
        (ProviderConfig { budget: Some("B".to_owned()), ..json.clone() }, "budget"),
        (ProviderConfig { id: None, ..json.clone() }, "neither id nor provider_id"),
        (ProviderConfig { id: list(&["ref"]), ..json.clone() }, "JSON pointer"),
        (ProviderConfig { format: None, ..json.clone() }, "preset"),
        (ProviderConfig { ignored: list(&["ok"]), ..json.clone() }, "two meanings"),
    ] {
        let error = Providers::new(BTreeMap::from([("p".to_owned(), change)])).unwrap_err().to_string();
        assert!(error.starts_with("[receipts.p] ") && error.contains(words), "{error}");
    }
}

/// A send that was claimed.
async fn sending(bench: &Bench, id: &str) -> Envelope {
    let copy = bench.copy(&draft(id)).await;
    bench.set_clock(copy.at.unwrap().as_micros()).await;
    assert!(matches!(bench.verdict(&copy, 1).await, Verdict::Send { .. }));
    copy
}

async fn record(bench: &Bench, id: &str, delivery: Delivery, at_s: u64, word: &str) -> Recorded {
    let receipt = Receipt { delivery, at: Instant::from_micros(START + at_s * SECOND), word: word.to_owned() };
    receipt::record(&bench.store, &bench.budget, &SendId::new(id).unwrap(), &receipt).await.unwrap()
}

#[tokio::test]
async fn the_last_receipt_by_the_providers_instant_stands_whatever_order_they_come_in() {
    use Delivery::{Delivered, Undelivered};
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.5)).await;
        let copy = sending(&bench, "a").await;
        assert_eq!(record(&bench, "nobody", Delivered, 9, "x").await, Recorded::UnknownSend);
        // before its settle
        assert_eq!(record(&bench, "a", Undelivered, 5, "deferred").await, Recorded::Recorded);
        assert_eq!(bench.settle(&copy, 1, Ending::Sent).await, Action::Acknowledge);
        let status = async || {
            let send = bench.status(&draft("a")).await.unwrap();
            (send.status, send.since.unwrap().as_micros(), send.receipt.unwrap().receipt.word)
        };
        let at = |s: u64| START + s * SECOND;
        assert_eq!(status().await, (DeliveryStatus::Undelivered, at(5), "deferred".to_owned()));
        assert_eq!(record(&bench, "a", Undelivered, 5, "again").await, Recorded::Older);
        assert_eq!(record(&bench, "a", Delivered, 5, "delivered").await, Recorded::Recorded);
        assert_eq!(record(&bench, "a", Undelivered, 5, "bounce").await, Recorded::Older, "delivered stands");
        assert_eq!(record(&bench, "a", Undelivered, 4, "bounce").await, Recorded::Older);
        assert_eq!(status().await, (DeliveryStatus::Delivered, at(5), "delivered".to_owned()));
        assert_eq!(record(&bench, "a", Undelivered, 60, "bounce").await, Recorded::Recorded);
        assert_eq!(status().await, (DeliveryStatus::Undelivered, at(60), "bounce".to_owned()));
        let history = bench.status(&draft("a")).await.unwrap().history;
        let said = Event::Receipt { at: Instant::from_micros(at(60)), delivery: Undelivered };
        assert_eq!(history.last(), Some(&said));
        let ttl: i64 = bench.command(redis::cmd("TTL").arg("s{b}d:a")).await;
        let of_record: i64 = bench.command(redis::cmd("TTL").arg("s{b}r:a")).await;
        assert!(ttl >= of_record && of_record > 86_000, "{ttl} {of_record}");
    })
    .await;
}

#[tokio::test]
async fn each_state_has_its_word_and_its_instant() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.5)).await;
        let booked_at = START + 20_000;
        bench.set_clock(booked_at).await;
        let later = sendslot_shared::message::Message::new("b", "later", "x")
            .not_before(Instant::from_micros(START + 60 * SECOND).to_system_time());
        let later = later.check().unwrap();
        let copy = bench.copy(&later).await;
        let status = async |id: &str| {
            let send = bench.status(&draft(id)).await.unwrap();
            (send.status, send.since.map(|at| at.as_micros()))
        };
        assert_eq!(status("later").await, (DeliveryStatus::Booked, Some(booked_at)));
        // 2.5 s before its slot its message may be visible: lead + 1 s
        bench.set_clock(START + 57 * SECOND + 499_000).await;
        assert_eq!(status("later").await.0, DeliveryStatus::Booked);
        for late in [0, 30 * SECOND] {
            bench.set_clock(START + 57 * SECOND + 500_000 + late).await;
            assert_eq!(status("later").await, (DeliveryStatus::Waiting, Some(START + 57 * SECOND + 500_000)));
        }
        let slot = copy.at.unwrap().as_micros();
        bench.set_clock(slot).await;
        assert!(matches!(bench.verdict(&copy, 1).await, Verdict::Send { .. }));
        assert_eq!(status("later").await, (DeliveryStatus::Sending, Some(slot)));
        bench.set_clock(slot + 70_000).await;
        let _ = bench.settle(&copy, 1, Ending::Sent).await;
        assert_eq!(status("later").await, (DeliveryStatus::Sent, Some(slot + 70_000)));
        for (id, ending, expected) in [
            ("rejected", Ending::Rejected, DeliveryStatus::Failed),
            ("unknown", Ending::Unknown, DeliveryStatus::Unknown),
        ] {
            let copy = sending(&bench, id).await;
            let _ = bench.settle(&copy, 1, ending).await;
            let now = copy.at.unwrap().as_micros() / 1000 * 1000;
            assert_eq!(status(id).await, (expected, Some(now)), "{id}");
        }
        let cancelled = sendslot_shared::cancel::cancel(&bench.store, &bench.budget, &SendId::new("c").unwrap()).await;
        let _ = cancelled.unwrap();
        assert_eq!(status("c").await.0, DeliveryStatus::Cancelled);
        // a receipt outweighs an end that nobody knew
        assert_eq!(record(&bench, "unknown", Delivery::Delivered, 99, "delivered").await, Recorded::Recorded);
        assert_eq!(status("unknown").await, (DeliveryStatus::Delivered, Some(START + 99 * SECOND)));
    })
    .await;
}

#[tokio::test]
async fn a_send_is_found_by_the_providers_id_for_as_long_as_sends_are_remembered() {
    on_each_redis(async |bench: Bench| {
        bench
            .policy(&sendslot_shared::policy::Policy { dedup_ttl: Duration::from_secs(7200), ..per_second(100, 0.5) })
            .await;
        let id = SendId::new("a").unwrap();
        let find = async |theirs: &str| receipt::find(&bench.store, &bench.budget, theirs).await.unwrap();
        assert_eq!(find("wamid.1").await, None);
        receipt::remember(&bench.store, &bench.budget, "wamid.1", &id).await.unwrap();
        assert_eq!((find("wamid.1").await, find("wamid.2").await), (Some(id), None));
        let keys = bench.keys("s{b}p:*").await;
        let ttl: i64 = bench.command(redis::cmd("TTL").arg(&keys[0])).await;
        assert!((7190..=7200).contains(&ttl), "{keys:?} {ttl}");
    })
    .await;
}

/// What the mapper has counted on this thread.
fn counted(recorder: &PrometheusRecorder, provider: &str, outcome: &str) -> f64 {
    let labels = [("provider", provider), ("outcome", outcome)];
    crate::metrics::series(&recorder.handle().render(), "sendslot_receipts_total", &labels)
}

/// A mapper on a queue of its own, and what it needs.
struct Desk {
    bench: Bench,
    queues: Queues,
    sqs: Client,
    mapper: Mapper,
}

impl Desk {
    async fn open(name: &str) -> Self {
        let stack = localstack().await;
        let options = QueueOptions { max_receive_count: 2, ..QueueOptions::default() };
        let queues = stack.create_queues(name, options).await.unwrap();
        let bench = Bench::start().await;
        bench.policy(&per_second(100, 0.5)).await;
        let providers = Arc::new(providers([
            ("mail", preset(Preset::Sendgrid)),
            ("chat", preset(Preset::Whatsapp)),
            ("topic", preset(Preset::Ses)),
        ]));
        let mapper = Mapper::new(bench.store.clone(), stack.sqs(), &queues.queue_url, providers);
        Self { bench, queues, sqs: stack.sqs(), mapper }
    }

    async fn put(&self, raw: &RawReceipt) {
        self.put_text(&raw.to_message()).await;
    }

    async fn put_text(&self, body: &str) {
        self.sqs.send_message().queue_url(&self.queues.queue_url).message_body(body).send().await.unwrap();
    }

    /// Lets the mapper work until that many calls came.
    async fn take(&self, n: usize) {
        let give_up = Clock::now() + Duration::from_secs(60);
        let mut taken = 0;
        while taken < n {
            assert!(Clock::now() < give_up, "{taken} of {n} came");
            taken += self.mapper.once(Duration::from_secs(2)).await.unwrap();
        }
    }

    async fn status(&self, id: &str) -> DeliveryStatus {
        self.bench.status(&draft(id)).await.unwrap().status
    }

    /// Bodies that ended in the receipts' dead letters.
    async fn dead(&self, n: usize) -> Vec<String> {
        let give_up = Clock::now() + Duration::from_secs(60);
        let mut bodies = vec![];
        while bodies.len() < n {
            assert!(Clock::now() < give_up, "{} of {n} dead letters", bodies.len());
            // a queue that is looked at moves what came too often
            let _ = self.mapper.once(Duration::ZERO).await.unwrap();
            let request = self.sqs.receive_message().queue_url(&self.queues.dlq_url).wait_time_seconds(1);
            let messages = request.send().await.unwrap().messages.unwrap_or_default();
            bodies.extend(messages.into_iter().filter_map(|message| message.body));
        }
        bodies
    }
}

#[tokio::test]
async fn a_call_waits_on_sqs_for_its_mapper_and_is_recorded() {
    let recorder = sendslot_prometheus::recorder();
    let _recorder = ::metrics::set_default_local_recorder(&recorder);
    let desk = Desk::open("receipts-recorded").await;
    let copy = sending(&desk.bench, "order-17").await;
    let theirs = sending(&desk.bench, "other").await;
    for (copy, provider_id) in [(&copy, "sQ5gTNQlQ7uXWkvTmUb5Tg"), (&theirs, "a7Xk2mZ0T8mG3QwYb1c9Pw")] {
        let _ = desk.bench.settle(copy, 1, Ending::Sent).await;
        receipt::remember(&desk.bench.store, &desk.bench.budget, provider_id, &copy.draft.id).await.unwrap();
    }
    for _ in 0..2 {
        desk.put(&raw("mail", "", sample("sendgrid.json"))).await;
    }
    desk.take(2).await;
    assert_eq!(desk.status("order-17").await, DeliveryStatus::Delivered);
    assert_eq!(desk.status("other").await, DeliveryStatus::Undelivered);
    let counted = |outcome| counted(&recorder, "mail", outcome);
    assert_eq!(["delivered", "undelivered", "older", "unknown_send"].map(counted), [1.0, 1.0, 2.0, 0.0]);
    assert_eq!(desk.mapper.once(Duration::ZERO).await.unwrap(), 0, "they are off the queue");
}

#[tokio::test]
async fn a_receipt_that_comes_before_its_send_is_known_comes_again() {
    let recorder = sendslot_prometheus::recorder();
    let _recorder = ::metrics::set_default_local_recorder(&recorder);
    let desk = Desk::open("receipts-early").await;
    let body = sample("whatsapp.json");
    desk.put(&raw("chat", "budget=b", body)).await;
    desk.take(1).await;
    assert_eq!(counted(&recorder, "chat", "unknown_send"), 1.0);
    sending(&desk.bench, "order-17").await;
    let other = sending(&desk.bench, "other").await;
    let id = "wamid.HBgLMTY1MDM4Nzk0MzkVAgARGBIyRkVCRUQ5RkE5MkQzRkYA";
    receipt::remember(&desk.bench.store, &desk.bench.budget, id, &other.draft.id).await.unwrap();
    desk.take(1).await;
    assert_eq!(desk.status("order-17").await, DeliveryStatus::Delivered);
    assert_eq!(desk.status("other").await, DeliveryStatus::Undelivered);
}

#[tokio::test]
async fn what_redis_refuses_comes_again_later_each_time() {
    let desk = Desk::open("receipts-refused").await;
    sending(&desk.bench, "order-17").await;
    let memory = async |bytes: u32| {
        let set = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).clone();
        desk.bench.command::<()>(&mut set.clone()).await;
    };
    memory(1).await;
    desk.put(&raw("chat", "budget=b", sample("whatsapp.json"))).await;
    let give_up = Clock::now() + Duration::from_secs(60);
    let mut refused = 0;
    while refused < 2 {
        assert!(Clock::now() < give_up, "{refused} of 2 were refused");
        refused += usize::from(desk.mapper.once(Duration::from_secs(2)).await.is_err());
    }
    memory(0).await;
    // the second time it is hidden for 30 s
    assert_eq!(desk.mapper.once(Duration::from_secs(10)).await.unwrap(), 0);
    let Queues { dlq_url, .. } = &desk.queues;
    let dead = TestQueue { sqs: desk.sqs.clone(), url: dlq_url.clone(), dlq_url: dlq_url.clone() };
    assert!(dead.is_empty().await, "it came a third time");
}

#[tokio::test]
async fn what_cannot_be_read_or_is_of_nobody_ends_among_the_dead_letters() {
    let recorder = sendslot_prometheus::recorder();
    let _recorder = ::metrics::set_default_local_recorder(&recorder);
    let desk = Desk::open("receipts-dead").await;
    let unreadable = raw("mail", "", &b"\xff\x00 no json"[..]);
    let unknown = raw("nobody", "", &b"{}"[..]);
    let of_nobody = raw("mail", "", sample("sendgrid.json"));
    let forged = raw("topic", "", subscription().replace("//sns.us-east-1.amazonaws.com/?", "//example.org/?"));
    for raw in [&unreadable, &unknown, &of_nobody, &forged] {
        desk.put(raw).await;
    }
    desk.put_text("hello").await;
    let mut dead = desk.dead(5).await;
    dead.sort();
    let mut expected: Vec<String> =
        [&unreadable, &unknown, &of_nobody, &forged].map(RawReceipt::to_message).into_iter().collect();
    expected.push("hello".to_owned());
    expected.sort();
    assert_eq!(dead, expected, "as they came");
    let unreadable = ["mail", "topic", "unknown"].map(|provider| counted(&recorder, provider, "unreadable"));
    assert_eq!(unreadable, [1.0, 1.0, 2.0], "each is counted and logged once");
    assert_eq!(counted(&recorder, "topic", "subscription"), 0.0);
}

fn subscription() -> String {
    String::from_utf8(sample("sns-subscription.json")).unwrap()
}

#[tokio::test]
async fn a_topic_that_asks_to_be_confirmed_is_heard_once() {
    let recorder = sendslot_prometheus::recorder();
    let _recorder = ::metrics::set_default_local_recorder(&recorder);
    let desk = Desk::open("receipts-topic").await;
    desk.put(&raw("topic", "", subscription())).await;
    desk.put(&raw("topic", "", subscription().replace("SubscriptionConf", "UnsubscribeConf"))).await;
    desk.take(2).await;
    assert_eq!(["subscription", "unreadable"].map(|outcome| counted(&recorder, "topic", outcome)), [2.0, 0.0]);
    let Queues { queue_url, dlq_url, .. } = &desk.queues;
    for url in [queue_url, dlq_url] {
        let queue = TestQueue { sqs: desk.sqs.clone(), url: url.clone(), dlq_url: dlq_url.clone() };
        assert!(queue.is_empty().await, "they are off the queue, and no dead letters: {url}");
    }
}

#[test]
fn a_providers_secret_is_known_by_its_hash() {
    let all = providers([("mail", preset(Preset::Sendgrid))]);
    let mail = all.get("mail").unwrap();
    assert!(mail.knows("secret") && !mail.knows("") && !mail.knows("Secret") && !mail.knows(SECRET));
    assert!(all.get("other").is_none());
}
