//! Receipts from the front door to `status`.

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use aws_sdk_sqs::types::MessageSystemAttributeName;
use sendslot_localstack::QueueOptions;
use sendslot_receipts::raw::{MAX_RECEIPT_BYTES, RawReceipt};
use sendslot_shared::settle::Ending;
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;

use super::*;
use crate::metrics::series;

/// `printf %s secret | sha256sum`
const CONFIG: &str = r#"
[receipts.mail]
preset = "sendgrid"
sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
budget = "now"

[receipts.sms]
preset = "twilio"
sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"

[receipts.topic]
preset = "ses"
sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
"#;

/// A process of `sendslot` that goes on; it ends with this.
struct Running {
    child: Child,
    /// The rest of its first line on standard error after this word.
    address: String,
    /// Its other lines on standard error.
    said: Arc<Mutex<Vec<String>>>,
}

impl Desk {
    /// With a queue for receipts that no other test uses, and the providers `mail` and `sms`.
    async fn with_receipts(name: &str) -> (Self, TestQueue) {
        Self::with_receipts_on(name, QueueOptions::default()).await
    }

    async fn with_receipts_on(name: &str, options: QueueOptions) -> (Self, TestQueue) {
        let queue = TestQueue::create_with(&format!("{name}-receipts"), options).await;
        let desk = Desk::open(name).await;
        let file = desk.folder.path().join("sendslot.toml");
        std::fs::write(&file, CONFIG).unwrap();
        let desk = desk.with("SENDSLOT_CONFIG", file.to_str().unwrap());
        (desk.with("SENDSLOT_RECEIPTS_QUEUE_URL", &queue.url), queue)
    }

    async fn start(&self, args: &[&str], until: &str) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sendslot-under-test"));
        let kept = ["PATH", "HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.args(args).env_clear().envs(kept).envs(self.env.iter().cloned()).kill_on_drop(true);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        loop {
            let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("it ended before it said {until:?}"));
            if let Some((_, address)) = line.split_once(until) {
                let address = address.trim().to_owned();
                let said: Arc<Mutex<Vec<String>>> = Arc::default();
                let sink = said.clone();
                tokio::spawn(async move {
                    while let Ok(Some(line)) = lines.next_line().await {
                        sink.lock().unwrap().push(line);
                    }
                });
                return Running { child, address, said };
            }
        }
    }

    async fn serve(&self, args: &[&str]) -> Running {
        self.start(&[&["serve", "--listen", "127.0.0.1:0"], args].concat(), "listening on http://").await
    }

    async fn config_set(&self, name: &str, value: &str) {
        let client = redis::Client::open(self.redis.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let set = redis::cmd("CONFIG").arg("SET").arg(name).arg(value).query_async::<()>(&mut connection).await;
        set.unwrap();
    }

    /// Waits until `status` tells this state of the budget `now`'s send.
    async fn becomes(&self, id: &str, state: &str) {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            let json = self.run(&["status", "now", id, "--json"]).await.json();
            if json["state"] == state {
                return;
            }
            assert!(Instant::now() < give_up, "{json}");
        }
    }
}

impl Running {
    /// The status and the body of an answer.
    async fn ask(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // a server that has answered already may not read it all
        let _ = stream.write_all(body).await;
        let mut answer = vec![];
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or(0);
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    async fn metrics(&self) -> String {
        let (status, text) = self.ask("GET", "/metrics", "", b"").await;
        assert_eq!(status, 200);
        text
    }

    async fn post(&self, target: &str, body: &[u8]) -> u16 {
        self.ask("POST", target, "", body).await.0
    }

    /// Waits until it has said this on standard error.
    async fn says(&self, word: &str) {
        let give_up = Instant::now() + Duration::from_secs(60);
        while !self.said.lock().unwrap().iter().any(|line| line.contains(word)) {
            assert!(Instant::now() < give_up, "{word:?} in {:?}", self.said);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Its exit code after SIGTERM.
    async fn told_to_end(&mut self) -> i32 {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(std::process::Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        let ended = tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await;
        ended.expect("it ends within a minute").unwrap().code().expect("no signal")
    }
}

/// What SendGrid says of a send that arrived.
fn event(id: &str) -> String {
    json!([{ "event": "delivered", "timestamp": 1_900_000_000, "sendslot_id": id, "sg_message_id": "x.recv" }])
        .to_string()
}

/// How many a scrape tells of.
fn receipts(text: &str, provider: &str, outcome: &str) -> f64 {
    series(text, "sendslot_receipts_total", &[("provider", provider), ("outcome", outcome)])
}

#[tokio::test]
async fn a_receipt_is_on_the_queue_as_it_came_before_it_is_answered() {
    let (desk, queue) = Desk::with_receipts("cli-receipts-raw").await;
    let server = desk.serve(&["--no-receipts-mapper"]).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let target = "/receipts/mail?token=secret&id=a%2Fb";
    let (status, body) = server.ask("POST", target, "Content-Type: text/plain\r\nCookie: x\r\n", &bytes).await;
    assert_eq!((status, body.as_str()), (204, ""));
    let received = queue.sqs.receive_message().queue_url(&queue.url).wait_time_seconds(5).send().await.unwrap();
    let raw = RawReceipt::from_message(received.messages.unwrap()[0].body.as_ref().unwrap()).unwrap();
    assert_eq!((raw.provider.as_str(), raw.query.as_str(), raw.body == bytes), ("mail", "id=a%2Fb", true));
    assert_eq!(raw.headers, BTreeMap::from([("content-type".to_owned(), "text/plain".to_owned())]));
    // Bearer, and the password of Basic (user:secret)
    for header in ["Authorization: Bearer secret\r\n", "Authorization: Basic dXNlcjpzZWNyZXQ=\r\n"] {
        assert_eq!(server.ask("POST", "/receipts/sms", header, b"").await.0, 204, "{header}");
    }
    for (target, header) in [
        ("/receipts/mail", ""),
        ("/receipts/mail?token=", ""),
        ("/receipts/mail?token=wrong", ""),
        ("/receipts/mail?Token=secret", ""),
        ("/receipts/mail", "Authorization: Bearer wrong\r\n"),
        ("/receipts/mail", "Authorization: Basic !\r\n"),
    ] {
        let (status, body) = server.ask("POST", target, header, b"{}").await;
        assert!(status == 401 && body.contains("?token="), "{target} {header} {status} {body}");
    }
    let (status, body) = server.ask("POST", "/receipts/nobody?token=secret", "", b"{}").await;
    assert!(status == 404 && body.contains("[receipts.NAME]"), "{status} {body}");
    assert_eq!(server.post("/receipts/mail?token=secret", &vec![0; MAX_RECEIPT_BYTES]).await, 204);
    assert_eq!(server.post("/receipts/mail?token=secret", &vec![0; MAX_RECEIPT_BYTES + 1]).await, 413);
    // how WhatsApp asks whether the address is wanted
    let verify = "/receipts/mail?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=";
    assert_eq!(server.ask("GET", &format!("{verify}secret"), "", b"").await, (200, "1158201444".to_owned()));
    assert_eq!(server.ask("GET", &format!("{verify}wrong"), "", b"").await.0, 401);
    // the first one is hidden for a while, since it was received
    let waiting = queue.depth().await.0;
    assert_eq!(waiting, 3, "what was refused is not on the queue");
}

#[tokio::test]
async fn receipts_make_a_send_delivered_whoever_reads_them() {
    let (desk, _queue) = Desk::with_receipts("cli-receipts").await;
    let event = |id: &str, event: &str, at: u64| {
        json!([{ "event": event, "timestamp": at, "sendslot_id": id, "sg_message_id": "x.recv" }]).to_string()
    };
    let server = desk.serve(&["--no-receipts-mapper"]).await;
    let held = desk.hold("a", "").await;
    assert_eq!(server.post("/receipts/mail?token=secret", event("a", "bounce", 1_900_000_000).as_bytes()).await, 204);
    held.settle(Ending::Sent, None).await;
    desk.becomes("a", "sent").await;
    // whoever took it is gone: another process reads it
    drop(server);
    let mapper = desk.start(&["receipts"], "reading receipts from").await;
    desk.becomes("a", "undelivered").await;
    drop(mapper);
    let server = desk.serve(&[]).await;
    assert_eq!(
        server.post("/receipts/mail?token=secret", event("a", "delivered", 1_900_000_060).as_bytes()).await,
        204
    );
    desk.becomes("a", "delivered").await;
    let give_up = Instant::now() + Duration::from_secs(60);
    while receipts(&server.metrics().await, "mail", "delivered") != 1.0 {
        assert!(Instant::now() < give_up, "{}", server.metrics().await);
    }
    let told = desk.run(&["status", "now", "a"]).await.stdout;
    assert!(told.starts_with("a: delivered since 2030-03-17T17:47:40Z (the provider says \"delivered\")"), "{told}");
    assert!(told.ends_with("  delivered 2030-03-17T17:47:40Z by the provider's receipt\n"), "{told}");
    let json = desk.run(&["status", "now", "a", "--json"]).await.json();
    let last = json["history"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["event"], &last["state"]), (&json!("receipt"), &json!("delivered")));
    let (status, body) = server.ask("GET", "/v1/budgets/now/sends/a", "", b"").await;
    let view: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &view["state"], &view["since"]), (200, &json!("delivered"), &json!("2030-03-17T17:47:40Z")));
}

#[tokio::test]
async fn the_mapper_is_scraped_and_a_topic_that_asks_to_be_confirmed_is_named() {
    let (desk, _queue) = Desk::with_receipts("cli-receipts-metrics").await;
    let server = desk.serve(&["--no-receipts-mapper"]).await;
    let _held = desk.hold("a", "").await;
    let event = |id: &str, event: &str| {
        json!([{ "event": event, "timestamp": 1_900_000_000, "sendslot_id": id, "sg_message_id": "x.recv" }])
            .to_string()
    };
    let asks = include_str!("../../receipts/sns-subscription.json");
    let forged = asks.replace("//sns.us-east-1.amazonaws.com/?", "//sns.us-east-1.amazonaws.com.example.org/?");
    for (provider, body) in [
        ("mail", event("a", "bounce")),
        ("mail", event("nobody", "bounce")),
        ("mail", "no json".to_owned()),
        ("topic", asks.to_owned()),
        ("topic", forged),
    ] {
        assert_eq!(server.post(&format!("/receipts/{provider}?token=secret"), body.as_bytes()).await, 204);
    }
    drop(server);

    let mapper = desk.start(&["receipts", "--metrics-listen", "127.0.0.1:0"], "metrics on http://").await;
    let expected = [
        ("mail", "undelivered"),
        ("mail", "unknown_send"),
        ("mail", "unreadable"),
        ("topic", "subscription"),
        ("topic", "unreadable"),
    ];
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let text = mapper.metrics().await;
        let counted = expected.map(|(provider, outcome)| receipts(&text, provider, outcome));
        let said = mapper.said.lock().unwrap().concat();
        // a send that is not known is asked for again
        if counted[0] == 1.0 && counted[1] >= 1.0 && counted[2..] == [1.0; 3] && said.contains("sns_subscription") {
            break;
        }
        assert!(Instant::now() < give_up && counted[2..].iter().all(|n| *n <= 1.0), "{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(mapper.ask("GET", "/healthz", "", b"").await.0, 200);
    let url: Value = serde_json::from_str(asks).unwrap();
    let url = url["SubscribeURL"].as_str().unwrap();
    let said = mapper.said.lock().unwrap().join("\n");
    assert_eq!(said.matches(url).count(), 1, "{said}");
    let words = ["WARN", "sns_subscription", url, "open subscribe_url"];
    assert!(said.lines().any(|line| words.iter().all(|word| line.contains(word))), "{said}");
    assert!(!said.contains("example.org"), "{said}");

    let taken = mapper.address.clone();
    let ran = desk.run(&["receipts", "--metrics-listen", &taken]).await;
    ran.assert_fails(1, &[&format!("--metrics-listen={taken} cannot be listened on"), "in use"]);
}

#[tokio::test]
async fn without_a_queue_or_a_provider_receipts_are_refused_and_say_why() {
    let (desk, _queue) = Desk::with_receipts("cli-receipts-none").await;
    let desk = desk.without("SENDSLOT_RECEIPTS_QUEUE_URL");
    desk.run(&["receipts"]).await.assert_fails(2, &["SENDSLOT_RECEIPTS_QUEUE_URL"]);
    let mut server = desk.serve(&[]).await;
    let (status, body) = server.ask("POST", "/receipts/mail?token=secret", "", b"{}").await;
    assert!(status == 404 && body.contains("SENDSLOT_RECEIPTS_QUEUE_URL"), "{status} {body}");
    assert!(server.child.try_wait().unwrap().is_none());
    let file = desk.folder.path().join("sendslot.toml");
    for (text, words) in [
        ("[receipts.mail]\npreset = \"sendgrid\"\n", ["receipts.mail", "sha256"]),
        ("[receipts.mail]\npreset = \"pigeon\"\n", ["sendslot.toml:2", "pigeon"]),
        ("[receipts.mail]\nbudgets = \"x\"\n", ["sendslot.toml:2", "budgets"]),
    ] {
        std::fs::write(&file, text).unwrap();
        desk.run(&["serve", "--listen", "127.0.0.1:0"]).await.assert_fails(2, &words);
    }
}

#[tokio::test]
async fn a_mapper_that_waits_for_redis_or_sqs_ends_when_it_is_told_to() {
    // the loop polled the signal once more after it had come
    for away in ["redis", "sqs"] {
        let (mut desk, _queue) = Desk::with_receipts(&format!("cli-receipts-{away}-away")).await;
        let server = desk.serve(&["--no-receipts-mapper"]).await;
        if away == "sqs" {
            desk = desk.with("AWS_ENDPOINT_URL", &format!("http://127.0.0.1:{}", closed_port().await));
        }
        let mut mapper = desk.start(&["receipts"], "reading receipts from").await;
        // the front door's own mapper, and whether it ended well
        let mut both = desk.serve(&[]).await;
        if away == "redis" {
            desk.redis.kill();
            for _ in 0..20 {
                assert_eq!(server.post("/receipts/mail?token=secret", event("a").as_bytes()).await, 204);
            }
        }
        for waiting in [&mut mapper, &mut both] {
            waiting.says("receipts_rest").await;
            assert_eq!(waiting.told_to_end().await, 0, "{away}: {:?}", waiting.said);
            let said = waiting.said.lock().unwrap().join("\n");
            assert!(!said.contains("panicked") && !said.contains("mapper of receipts failed"), "{away}: {said}");
        }
    }
}

#[tokio::test]
async fn a_receipt_that_comes_while_redis_takes_no_writes_is_recorded_afterwards() {
    let queue = QueueOptions { max_receive_count: 2, ..QueueOptions::default() };
    let (desk, queue) = Desk::with_receipts_on("cli-receipts-oom", queue).await;
    let server = desk.serve(&["--no-receipts-mapper"]).await;
    let held = desk.hold("a", "").await;
    held.settle(Ending::Sent, None).await;
    desk.config_set("maxmemory", "1").await;
    let mapper = desk.start(&["receipts"], "reading receipts from").await;
    assert_eq!(server.post("/receipts/mail?token=secret", event("a").as_bytes()).await, 204);
    mapper.says("receipts_rest").await;
    // it can be received again, and is left alone: INFO is answered all the while
    let dead = TestQueue { url: queue.dlq_url.clone(), ..queue.clone() };
    let give_up = Instant::now() + Duration::from_secs(60);
    while queue.depth().await.0 == 0 {
        assert!(dead.is_empty().await, "its receives were used up");
        assert!(Instant::now() < give_up);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    desk.config_set("maxmemory", "0").await;
    desk.becomes("a", "delivered").await;
    assert!(dead.is_empty().await);
}

#[tokio::test]
async fn a_front_door_without_providers_leaves_the_receipts_of_others_alone() {
    let (desk, queue) = Desk::with_receipts("cli-receipts-others").await;
    std::fs::write(desk.folder.path().join("sendslot.toml"), "").unwrap();
    let server = desk.serve(&[]).await;
    let raw = RawReceipt {
        provider: "mail".to_owned(),
        received: SystemTime::now().into(),
        query: String::new(),
        headers: BTreeMap::new(),
        body: event("a").into_bytes(),
    };
    let count = MessageSystemAttributeName::ApproximateReceiveCount;
    for _ in 0..10 {
        queue.sqs.send_message().queue_url(&queue.url).message_body(raw.to_message()).send().await.unwrap();
        let mut received = vec![];
        while received.is_empty() {
            let request = queue.sqs.receive_message().queue_url(&queue.url).wait_time_seconds(10);
            let answer = request.message_system_attribute_names(count.clone()).send().await.unwrap();
            received = answer.messages.unwrap_or_default();
        }
        assert_eq!(received[0].attributes.as_ref().unwrap()[&count], "1", "nobody else received it");
        let handle = received[0].receipt_handle.as_ref().unwrap();
        queue.sqs.delete_message().queue_url(&queue.url).receipt_handle(handle).send().await.unwrap();
    }
    let (status, body) = server.ask("POST", "/receipts/mail?token=secret", "", b"{}").await;
    assert!(status == 404 && body.contains("[receipts.NAME]"), "{status} {body}");
}
