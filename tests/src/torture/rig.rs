//! Everything that runs: servers, proxies, provider, workers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::QueueAttributeName;
use sendslot_localstack::event_source::{EventSource, EventSourceOptions, WorkerLog};
use sendslot_localstack::provider::{ProviderOptions, StrictProvider};
use sendslot_localstack::{LocalStackServer, QueueOptions, Queues, Services, Tick, create_queues};
use sendslot_lua::VIRTUAL_CLOCK_KEY;
use sendslot_shared::budget;
use sendslot_shared::id::BudgetName;
use sendslot_shared::store::{STEPPED_CLOCK, Store};

use super::guarded::processes;
use super::journal::{Journal, ids_in};
use super::load::{BATCH_WINDOW, Budget};
use super::monitor::Monitor;
use super::redis_node::RedisNode;
use super::redis_proxy::RedisProxy;
use super::scheduler_process::Program;
use super::sqs_proxy::SqsProxy;

/// How long a worker waits for the provider.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_millis(1000);
/// How long a claim holds a record: the worker's start window, call and settle.
pub(super) const LEASE: Duration = Duration::from_millis(6100);
/// How long the provider takes, so that calls are under way when something dies.
const LATENCY: Duration = Duration::from_millis(150);
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(15);
/// A message of a dead worker comes back after this.
pub(super) const VISIBILITY: Duration = Duration::from_secs(20);
/// More receives than any message needs: SQS' own redrive would take a message without a word to Redis.
const MAX_RECEIVES: u32 = 50;
const REGION: &str = "us-east-1";

/// The programs that run.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The worker.
    pub worker: PathBuf,
    /// The torture program, which is also the scheduler process when its first argument is `load`.
    pub torture: PathBuf,
}

/// Everything running; all of it ends when it is dropped.
pub(super) struct Rig {
    pub(super) journal: Arc<Journal>,
    pub(super) redis: RedisNode,
    pub(super) redis_proxy: RedisProxy,
    pub(super) monitor: Monitor,
    pub(super) sqs_proxy: SqsProxy,
    pub(super) provider: StrictProvider,
    pub(super) queues: Queues,
    /// Not through the proxies.
    pub(super) store: Store,
    pub(super) sqs: Client,
    pub(super) budgets: Vec<Budget>,
    /// How far Redis' clock is set forward, us.
    clock_us: i64,
    source: Option<EventSource>,
    worker: PathBuf,
    torture: PathBuf,
    _localstack: LocalStackServer,
    _folder: tempfile::TempDir,
}

impl Rig {
    pub(super) async fn start(programs: &Programs, budgets: Vec<Budget>, seed: u64) -> Result<Self> {
        let journal = Arc::<Journal>::default();
        let (redis, localstack) = tokio::join!(RedisNode::start(), LocalStackServer::start(Tick::Fast, Services::Sqs));
        let (redis, localstack) = (redis?, localstack?);
        let mut monitor = Monitor::new(journal.clone());
        monitor.attach(redis.port()).await?;
        let redis_proxy = RedisProxy::to(redis.port(), seed).await?;
        let sqs_proxy = SqsProxy::to(localstack.port(), seed, journal.clone()).await?;
        let sqs = client(&localstack.url());
        let visibility = QueueOptions { visibility_timeout: VISIBILITY, ..QueueOptions::default() };
        let options = QueueOptions { max_receive_count: MAX_RECEIVES, ..visibility };
        let queues = create_queues(&sqs, "torture", options).await?;
        // it counts and does not refuse: what is above the limit is to be seen
        let provider = ProviderOptions { latency: LATENCY, seed, ..ProviderOptions::new(1_000_000) };
        let provider = StrictProvider::start(provider)?;
        let folder = tempfile::tempdir()?;
        // a path that no other process has
        let worker = folder.path().join("torture-worker");
        std::fs::hard_link(&programs.worker, &worker)
            .or_else(|_| std::fs::copy(&programs.worker, &worker).map(drop))
            .with_context(|| format!("a copy of {}", programs.worker.display()))?;
        let store = Store::with_stepped_clock(&redis.url())?;
        let torture = programs.torture.clone();
        let mut rig = Self {
            journal,
            redis,
            redis_proxy,
            monitor,
            sqs_proxy,
            provider,
            queues,
            store,
            sqs,
            budgets,
            clock_us: 0,
            source: None,
            worker,
            torture,
            _localstack: localstack,
            _folder: folder,
        };
        rig.set_policies().await?;
        rig.redis.sample();
        rig.start_workers().await?;
        Ok(rig)
    }

    /// What an operator does after Redis lost everything.
    pub(super) async fn set_policies(&self) -> Result<()> {
        for Budget { name, policy } in &self.budgets {
            budget::set(&self.store, &BudgetName::new(*name)?, policy).await?;
        }
        Ok(())
    }

    /// What an operator does after Redis came back at a state that has no policies.
    pub(super) async fn set_missing_policies(&self) -> Result<()> {
        for Budget { name, .. } in &self.budgets {
            if budget::get(&self.store, &BudgetName::new(*name)?).await?.is_none() {
                return self.set_policies().await;
            }
        }
        Ok(())
    }

    pub(super) async fn start_workers(&mut self) -> Result<()> {
        let mut options = EventSourceOptions::new(client(&self.sqs_proxy.url()), &self.queues.queue_url, &self.worker);
        options.environment = self.environment();
        for (name, value) in [
            ("SENDSLOT_HTTP_URL", self.provider.url()),
            ("SENDSLOT_HTTP_HEADERS", r#"{"x-units":"{cost}"}"#.to_owned()),
            ("SENDSLOT_HTTP_TIMEOUT_MS", CALL_TIMEOUT.as_millis().to_string()),
            ("SENDSLOT_HOLD_MS", "2000".to_owned()),
            ("AWS_LAMBDA_LOG_LEVEL", "warn,sendslot_worker=debug".to_owned()),
        ] {
            options.environment.push((name.to_owned(), value));
        }
        options.batch_size = 50;
        options.window = BATCH_WINDOW;
        options.max_environments = 32;
        options.function_timeout = FUNCTION_TIMEOUT;
        let journal = self.journal.clone();
        options.log = WorkerLog::Lines(Arc::new(move |environment, line| {
            for id in ids_in(line.as_bytes()) {
                journal.note(&id, format!("worker {environment}: {line}"));
            }
        }));
        self.source = Some(EventSource::start(options).await?);
        Ok(())
    }

    /// Kills all workers, and starts none.
    pub(super) async fn stop_workers(&mut self, limit: Duration) {
        if let Some(source) = self.source.take() {
            source.stop(limit).await;
        }
    }

    /// The program that all workers, and nobody else, run.
    pub(super) fn worker(&self) -> &Path {
        &self.worker
    }

    /// The process IDs of the workers.
    pub(super) fn workers(&self) -> Result<Vec<String>> {
        processes(&self.worker)
    }

    /// Batches that workers have in hand.
    pub(super) fn in_hand(&self) -> usize {
        self.source.as_ref().map_or(0, |source| source.stats().in_flight)
    }

    pub(super) fn last_log_lines(&self) -> Vec<String> {
        self.source.as_ref().map(EventSource::last_log_lines).unwrap_or_default()
    }

    /// How the scheduler process is started.
    pub(super) fn scheduler(&self) -> Program {
        Program { path: self.torture.clone(), environment: self.environment() }
    }

    /// Through the proxies.
    fn environment(&self) -> Vec<(String, String)> {
        let variables = [
            ("REDIS_URL", self.redis_proxy.url()),
            ("AWS_ENDPOINT_URL", self.sqs_proxy.url()),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("SENDSLOT_QUEUE_URL", self.queues.queue_url.clone()),
            ("SENDSLOT_DLQ_URL", self.queues.dlq_url.clone()),
            (STEPPED_CLOCK, "1".to_owned()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Messages on the queue: to be received, delayed, in a worker's hand.
    pub(super) async fn depth(&self) -> Result<[usize; 3]> {
        use QueueAttributeName::{
            ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed, ApproximateNumberOfMessagesNotVisible,
        };
        let names =
            [ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed, ApproximateNumberOfMessagesNotVisible];
        let asked = self.sqs.get_queue_attributes().queue_url(&self.queues.queue_url);
        let told = asked.set_attribute_names(Some(names.to_vec())).send().await?.attributes.unwrap_or_default();
        Ok(names.map(|name| told.get(&name).and_then(|n| n.parse().ok()).unwrap_or(0)))
    }

    /// Sets Redis' clock forward, or back.
    pub(super) async fn step_clock(&mut self, by_us: i64) -> Result<()> {
        self.clock_us += by_us;
        self.commands(redis::pipe().set(VIRTUAL_CLOCK_KEY, self.clock_us)).await
    }

    /// All data is gone, while the clock goes on.
    pub(super) async fn flush(&self) -> Result<()> {
        self.commands(redis::pipe().atomic().cmd("FLUSHALL").set(VIRTUAL_CLOCK_KEY, self.clock_us)).await
    }

    /// Plain commands to Redis, not through the proxy.
    async fn commands(&self, commands: &redis::Pipeline) -> Result<()> {
        let client = redis::Client::open(self.redis.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        Ok(commands.exec_async(&mut connection).await?)
    }

    /// All dead letters: send ID (empty when it has none) and reason.
    pub(super) async fn dead_letters(&self) -> Result<Vec<(String, String)>> {
        let mut letters = vec![];
        loop {
            let asked = self.sqs.receive_message().queue_url(&self.queues.dlq_url).max_number_of_messages(10);
            // those that were taken stay hidden until all are
            let asked = asked.visibility_timeout(3600).message_attribute_names("All");
            let taken = asked.send().await?.messages.unwrap_or_default();
            if taken.is_empty() {
                return Ok(letters);
            }
            for letter in taken {
                let attributes = letter.message_attributes.unwrap_or_default();
                let text = |name: &str| attributes.get(name).and_then(|a| a.string_value.clone()).unwrap_or_default();
                let body = letter.body.unwrap_or_default();
                let id = ids_in(body.as_bytes()).into_iter().next().unwrap_or_default();
                letters.push((id, text("reason")));
            }
        }
    }
}

fn client(url: &str) -> Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .endpoint_url(url)
        .credentials_provider(Credentials::new("test", "test", None, None, "sendslot"));
    Client::from_conf(config.build())
}

/// The worker beside the running program, or a fresh one.
///
/// # Errors
/// When there is none and it cannot be built.
pub fn worker_beside(program: &Path) -> Result<PathBuf> {
    let beside = program.with_file_name("sendslot-worker-under-test");
    if beside.is_file() { Ok(beside) } else { Ok(sendslot_localstack::worker_binary()?) }
}
