//! The front door, `sendslot serve`, as a process: a real socket, a real Redis, LocalStack.

mod bad_input;
mod faults;
mod keys;
mod refusals;
mod schemathesis;
mod sends;

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use sendslot_localstack::RedisServer;
use sendslot_tests::queues::{TestQueue, localstack};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// A server, and what it needs. Killed when dropped.
struct Front {
    redis: RedisServer,
    queue: TestQueue,
    process: Process,
    client: reqwest::Client,
    /// Goes along with each request.
    key: Option<String>,
    _folder: TempDir,
}

/// A running `sendslot serve`.
struct Process {
    child: Child,
    /// `127.0.0.1:port`.
    address: String,
    log: Arc<Mutex<Vec<String>>>,
    /// Ends when the log does.
    reading: tokio::task::JoinHandle<()>,
}

/// What differs from test to test.
#[derive(Default)]
struct Setup {
    /// The TOML file.
    config: String,
    /// Variables, over those that lead to Redis and the queue.
    env: Vec<(&'static str, String)>,
    key: Option<String>,
}

/// An answer.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: reqwest::header::HeaderMap,
    text: String,
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendslot-under-test"));
    let kept = ["PATH", "HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(kept).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Variables that lead to a Redis and a queue.
async fn variables(redis_url: &str, queue: &TestQueue) -> Vec<(String, String)> {
    let mut variables = localstack().await.environment();
    variables.retain(|(name, _)| name != "REDIS_URL");
    variables.push(("REDIS_URL".to_owned(), redis_url.to_owned()));
    variables.push(("SENDSLOT_QUEUE_URL".to_owned(), queue.url.clone()));
    variables
}

impl Process {
    /// Starts it on a free port, and waits until it listens.
    async fn start(mut command: Command, config: Option<&PathBuf>) -> Self {
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        config.map(|path| command.arg("--config").arg(path));
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(vec![]));
        let heard = log.clone();
        let (found, address) = tokio::sync::oneshot::channel();
        let reading = tokio::spawn(async move {
            let mut found = Some(found);
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(address) = line.strip_prefix("listening on http://") {
                    found.take().map(|found| found.send(address.to_owned()));
                }
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let address = tokio::time::timeout(Duration::from_secs(60), address).await.expect("it listens within a minute");
        let address = address.unwrap_or_else(|_| panic!("it ended: {:?}", log.lock()));
        Self { child, address, log, reading }
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    async fn ended(&mut self) -> i32 {
        let status = tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await;
        let status = status.expect("it ends within a minute").unwrap();
        // its last words may still be on their way
        (&mut self.reading).await.unwrap();
        status.code().expect("no signal")
    }
}

impl Front {
    /// `name` is the queue's, and no other test's.
    async fn open(name: &str) -> Self {
        Self::with(name, Setup::default()).await
    }

    async fn with(name: &str, setup: Setup) -> Self {
        let redis = RedisServer::start().await.unwrap();
        let queue = TestQueue::create(name).await;
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sendslot.toml");
        std::fs::write(&config, &setup.config).unwrap();
        let mut command = program();
        command.envs(variables(&redis.url(), &queue).await).envs(setup.env);
        let process = Process::start(command, Some(&config)).await;
        Self { redis, queue, process, client: reqwest::Client::new(), key: setup.key, _folder: folder }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.process.address)
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let mut request = self.client.request(method, self.url(path));
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, text: response.text().await.unwrap() }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, None).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// Schedules a send of the budget `sms`.
    async fn send(&self, body: Value) -> Answer {
        self.post("/v1/budgets/sms/sends", body).await
    }

    /// Sets the policy of the budget `sms`: every slot at least a minute ahead, so that none passes during a test.
    async fn set_sms(&self, mut policy: Value) {
        let fields = policy.as_object_mut().unwrap();
        fields.entry("limit").or_insert(json!(100));
        fields.entry("transit_ms").or_insert(json!(60_000));
        let set = self.ask(Method::PUT, "/v1/budgets/sms", Some(policy)).await;
        assert!([200, 201].contains(&set.status), "{set:?}");
    }

    /// Writes bytes, and reads until the server closes or has answered in full.
    async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.process.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        read_answer(&mut stream).await
    }

    /// Waits until the server says this of its readiness.
    async fn readiness(&self, ready: bool) -> Value {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = self.get("/readyz").await;
            assert_eq!(answer.json()["ready"], json!(answer.status == 200), "{answer:?}");
            if answer.json()["ready"] == json!(ready) {
                return answer.json();
            }
            assert!(Instant::now() < give_up, "{answer:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// One answer with a Content-Length, or what comes before the end.
async fn read_answer(stream: &mut TcpStream) -> String {
    let mut bytes = vec![];
    let reading = async {
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let lines = head.to_ascii_lowercase();
                let length =
                    lines.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
                if length.is_some_and(|length| body.len() >= length) {
                    return text;
                }
            }
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return text;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reading).await.expect("an answer within a minute")
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("{name} in {self:?}")).to_str().unwrap()
    }

    /// It is a problem of this status and type that says these words.
    fn assert_problem(&self, status: u16, slug: &str, words: &[&str]) -> Value {
        assert_eq!((self.status, self.header("content-type")), (status, "application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!((&problem["status"], &problem["type"]), (&json!(status), &json!(format!("/problems/{slug}"))));
        assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()), "{problem}");
        for word in words {
            assert!(problem["detail"].as_str().unwrap().contains(word), "{word:?} in {problem}");
        }
        let retry = problem.get("retry_after_s").and_then(Value::as_u64);
        let header = self.headers.get("retry-after").map(|value| value.to_str().unwrap().parse().unwrap());
        assert_eq!(retry, header, "{self:?}");
        assert!(retry.is_none_or(|seconds| seconds >= 1), "{self:?}");
        problem
    }
}

fn message(id: &str) -> Value {
    json!({ "id": id, "payload": "hello" })
}
