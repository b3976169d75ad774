//! A queue of its own for each test on one shared LocalStack, and the scripted worker.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use serde_json::Value;
use tempfile::TempDir;

use crate::access::SqsAccess;
use crate::event_source::{EventSource, EventSourceOptions, EventSourceStats, WorkerLog};
use crate::{LocalStackServer, Services, Tick};

pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// One queue and one worker.
pub(super) struct Rig {
    pub(super) endpoint: &'static str,
    pub(super) sqs: Client,
    pub(super) queue_url: String,
    pub(super) directory: TempDir,
    lines: Arc<Mutex<Vec<(u64, String)>>>,
}

/// The server lives on a thread of its own until the test process ends.
fn endpoint() -> &'static str {
    static ENDPOINT: OnceLock<String> = OnceLock::new();
    ENDPOINT.get_or_init(|| {
        let (report, url) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let server = runtime.block_on(LocalStackServer::start(Tick::Fast, Services::Sqs)).unwrap();
            report.send(server.url()).unwrap();
            runtime.block_on(std::future::pending::<()>());
        });
        url.recv().unwrap()
    })
}

impl Rig {
    pub(super) async fn new(name: &str, visibility_s: u64) -> Self {
        let url = tokio::task::spawn_blocking(endpoint).await.unwrap();
        let sqs = SqsAccess::local(url.to_owned()).client();
        let attribute = (QueueAttributeName::VisibilityTimeout, visibility_s.to_string());
        let made = sqs.create_queue().queue_name(name).set_attributes(Some(HashMap::from([attribute]))).send().await;
        let queue_url = made.unwrap().queue_url.unwrap();
        let directory = tempfile::tempdir().unwrap();
        Self { endpoint: url, sqs, queue_url, directory, lines: Arc::default() }
    }

    /// A timeout of 2 s, and every line of the worker kept.
    pub(super) fn options(&self) -> EventSourceOptions {
        let lines = Arc::clone(&self.lines);
        let keep = move |number, line: &str| lines.lock().unwrap().push((number, line.to_owned()));
        EventSourceOptions {
            function_timeout: Duration::from_secs(2),
            log: WorkerLog::Lines(Arc::new(keep)),
            ..EventSourceOptions::new(self.sqs.clone(), &self.queue_url, self.worker())
        }
    }

    /// The path is unique to this rig, so that its processes can be found.
    pub(super) fn worker(&self) -> PathBuf {
        let path = self.directory.path().join("worker.py");
        if !path.exists() {
            fs::write(&path, include_str!("worker.py")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        path
    }

    pub(super) async fn send(&self, bodies: &[&str]) {
        for chunk in bodies.chunks(10) {
            let entry = |(n, body): (usize, &&str)| {
                SendMessageBatchRequestEntry::builder().id(n.to_string()).message_body(*body).build().unwrap()
            };
            let entries = chunk.iter().enumerate().map(entry).collect();
            let request = self.sqs.send_message_batch().queue_url(&self.queue_url).set_entries(Some(entries));
            assert!(request.send().await.unwrap().failed().is_empty());
        }
    }

    /// Messages on the queue: visible, in flight.
    pub(super) async fn counts(&self) -> (usize, usize) {
        let (visible, hidden) = (
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        );
        let names = Some(vec![visible.clone(), hidden.clone()]);
        let request = self.sqs.get_queue_attributes().queue_url(&self.queue_url).set_attribute_names(names);
        let attributes = request.send().await.unwrap().attributes.unwrap();
        let read = |name| attributes[&name].parse().unwrap();
        (read(visible), read(hidden))
    }

    /// The events that the workers were given, with the time they had left.
    pub(super) fn events(&self) -> Vec<Value> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter_map(|(_, line)| serde_json::from_str(line).ok()).collect()
    }

    /// How many times each body was delivered.
    pub(super) fn deliveries(&self, body: &str) -> usize {
        let records =
            self.events().into_iter().flat_map(|event| event["event"]["Records"].as_array().cloned().unwrap());
        records.filter(|record| record["body"] == body).count()
    }

    /// Processes of this rig's worker, guardians too.
    pub(super) fn processes(&self) -> Vec<String> {
        let worker = self.worker().display().to_string();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines
            .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
            .filter(|line| line.contains(&worker))
            .collect()
    }
}

/// Waits until the statistics satisfy the condition.
pub(super) async fn until(source: &EventSource, what: impl Fn(&EventSourceStats) -> bool) -> EventSourceStats {
    let end = Instant::now() + LIMIT;
    loop {
        let stats = source.stats();
        if what(&stats) {
            return stats;
        }
        assert!(Instant::now() < end, "{stats:?}\n{}", source.last_log_lines().join("\n"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until no process of the rig is left.
pub(super) async fn until_nothing_runs(rig: &Rig) {
    let end = Instant::now() + Duration::from_secs(5);
    while !rig.processes().is_empty() {
        assert!(Instant::now() < end, "{:?}", rig.processes());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
