//! The whole way: scheduler, Redis, SQS, event source, the real worker binary and a strict provider.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName::{
    ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed, ApproximateNumberOfMessagesNotVisible,
};
use sendslot_localstack::event_source::{EventSource, EventSourceOptions, WorkerLog};
use sendslot_localstack::provider::{Arrival, ProviderOptions, StrictProvider};
use sendslot_localstack::{QueueOptions, Queues, Stack};
use sendslot_scheduler::{Message, Scheduler, SendState, SendStatus};
use sendslot_shared::budget;
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::Policy;
use sendslot_shared::store::Store;

/// What differs from test to test.
pub struct Setup {
    /// Name of budget and queue; no two tests may give the same one.
    pub name: &'static str,
    /// The budget's policy.
    pub policy: Policy,
    /// The provider.
    pub provider: ProviderOptions,
    /// How long the worker waits for the provider.
    pub http_timeout: Duration,
    /// Queues that are there already; else some with the budget's name are made.
    pub queues: Option<Queues>,
    /// The queue's visibility timeout, at least the function's timeout.
    pub visibility: Duration,
    /// The function's timeout.
    pub function_timeout: Duration,
    /// Messages per invocation.
    pub batch_size: usize,
    /// How long a batch is gathered.
    pub batch_window: Duration,
    /// Variables of the worker, over those of the stack.
    pub environment: Vec<(String, String)>,
    /// Most workers at once.
    pub max_environments: usize,
    /// A Redis of its own; else the stack's.
    pub redis_url: Option<String>,
    /// What becomes of sends while Redis cannot be asked: for scheduler and workers.
    pub redis_policies: &'static str,
    /// Where the workers' lines go.
    pub log: WorkerLog,
}

impl Setup {
    /// A budget and a provider of 100 units a second.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            policy: crate::per_second(100, 0.9),
            provider: ProviderOptions::new(100),
            http_timeout: Duration::from_secs(3),
            queues: None,
            visibility: Duration::from_secs(30),
            function_timeout: Duration::from_secs(30),
            batch_size: 10,
            batch_window: Duration::ZERO,
            environment: vec![],
            max_environments: 40,
            redis_url: None,
            redis_policies: "hold",
            log: WorkerLog::Discard,
        }
    }
}

/// Everything running.
pub struct Pipeline {
    /// Books and enqueues.
    pub scheduler: Scheduler,
    /// The provider.
    pub provider: StrictProvider,
    /// The event source with its workers.
    pub source: EventSource,
    /// A client for the queues.
    pub sqs: Client,
    /// The queue and its dead letters.
    pub queues: Queues,
    /// The budget's name.
    pub budget: &'static str,
    /// The worker's path, unlike any other test's.
    pub worker: PathBuf,
    _folder: tempfile::TempDir,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Attribute `send_id`.
    pub id: String,
    /// Attribute `reason`.
    pub reason: String,
    /// Attribute `attempts`.
    pub attempts: String,
    /// Attribute `last_error`.
    pub error: String,
    /// The body.
    pub body: String,
}

impl Pipeline {
    /// Starts it on a stack, with this worker binary.
    pub async fn start(stack: &Stack, worker: &str, setup: Setup) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join(format!("worker-{}", setup.name));
        std::fs::hard_link(worker, &own)
            .or_else(|_| std::fs::copy(worker, &own).map(drop))
            .expect("a copy of the worker");
        let options = QueueOptions { visibility_timeout: setup.visibility, ..QueueOptions::default() };
        let queues = match setup.queues.clone() {
            Some(queues) => queues,
            None => stack.create_queues(setup.name, options).await.expect("queues"),
        };
        let redis_url = setup.redis_url.clone().unwrap_or_else(|| stack.redis_url());
        let store = Store::new(&redis_url).expect("a URL");
        let name = BudgetName::new(setup.name).expect("a name");
        budget::set(&store, &name, &setup.policy).await.expect("the policy is set");
        let provider = StrictProvider::start(setup.provider.clone()).expect("the provider starts");
        let source = event_source(stack, &queues, &own, &provider, &setup).await;
        let policies = setup.redis_policies.parse().expect("policies");
        let builder = Scheduler::builder().store(store).redis_policies(policies);
        let builder = builder.sqs(stack.sqs()).queue_url(&queues.queue_url);
        let scheduler = builder.build().await.expect("a scheduler");
        let (sqs, budget) = (stack.sqs(), setup.name);
        Self { scheduler, provider, source, sqs, queues, budget, worker: own, _folder: folder }
    }

    /// A message of the budget.
    #[must_use]
    pub fn message(&self, id: impl Into<String>) -> Message {
        let id = id.into();
        Message::new(self.budget, &id, format!("{{\"id\":\"{id}\"}}"))
    }

    /// Schedules `n` messages and gives their IDs.
    pub async fn schedule(&self, n: usize) -> Vec<String> {
        let mut ids = vec![];
        for i in 0..n {
            let id = format!("m{i:05}");
            self.scheduler.schedule(self.message(&id)).await.expect("it is scheduled");
            ids.push(id);
        }
        ids
    }

    /// What is known of a send.
    pub async fn status(&self, id: &str) -> SendStatus {
        self.scheduler.status(self.budget, id).await.expect("Redis answers").expect("a record")
    }

    /// Waits until each of these has ended.
    ///
    /// # Panics
    /// When they do not within the limit.
    pub async fn ended(&self, ids: &[String], limit: Duration) {
        let give_up = Instant::now() + limit;
        for id in ids {
            while matches!(self.status(id).await.state, SendState::Booked | SendState::Claimed) {
                let status = self.status(id).await;
                assert!(Instant::now() < give_up, "{id}: {status:?}; {:?}", self.source.last_log_lines());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Takes `n` dead letters.
    ///
    /// # Panics
    /// When they do not show up within a minute and a second for each.
    pub async fn dead_letters(&self, n: usize) -> Vec<DeadLetter> {
        let give_up = Instant::now() + Duration::from_secs(60 + n as u64);
        let (mut letters, mut seen) = (vec![], HashSet::new());
        while letters.len() < n {
            if Instant::now() >= give_up {
                let told: Vec<_> = letters.iter().map(|l: &DeadLetter| (&l.id, &l.reason, &l.error)).collect();
                panic!("{} of {n}: {told:?}; {:?}", told.len(), self.source.last_log_lines());
            }
            let request = self.sqs.receive_message().queue_url(&self.queues.dlq_url).max_number_of_messages(10);
            let request = request.message_attribute_names("All").wait_time_seconds(2);
            for message in request.send().await.expect("SQS answers").messages.unwrap_or_default() {
                // what is not deleted comes again
                if !seen.insert(message.message_id.clone()) {
                    continue;
                }
                let attributes = message.message_attributes.unwrap_or_default();
                let text = |name: &str| attributes.get(name).and_then(|a| a.string_value.clone()).unwrap_or_default();
                letters.push(DeadLetter {
                    id: text("send_id"),
                    reason: text("reason"),
                    attempts: text("attempts"),
                    error: text("last_error"),
                    body: message.body.unwrap_or_default(),
                });
            }
        }
        letters
    }

    /// Waits until no copy is left, whether it waits or is being worked on.
    ///
    /// # Panics
    /// When one is left after the limit.
    pub async fn drained(&self, limit: Duration) {
        let give_up = Instant::now() + limit;
        while self.copies(&self.queues.queue_url).await > 0 {
            assert!(Instant::now() < give_up, "{}: {:?}", self.budget, self.source.last_log_lines());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How many messages a queue holds.
    async fn copies(&self, url: &str) -> usize {
        let names =
            [ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed, ApproximateNumberOfMessagesNotVisible];
        let request = self.sqs.get_queue_attributes().queue_url(url).set_attribute_names(Some(names.to_vec()));
        let attributes = request.send().await.expect("SQS answers").attributes.unwrap_or_default();
        names.iter().map(|name| attributes[name].parse::<usize>().expect("a number")).sum()
    }

    /// How many dead letters wait.
    pub async fn dead_letter_count(&self) -> usize {
        self.copies(&self.queues.dlq_url).await
    }

    /// Sends all workers a signal by its name, and says how many there were.
    pub fn signal_workers(&self, signal: &str) -> usize {
        // anchored: the shell that watches over a worker names it further behind
        let path = format!("^{}", self.worker.display());
        let found = Command::new("pgrep").arg("-f").arg(path).output().expect("pgrep runs").stdout;
        let text = String::from_utf8_lossy(&found);
        let ids: Vec<&str> = text.split_whitespace().collect();
        if !ids.is_empty() {
            // one that has just ended is no error
            let _ = Command::new("kill").arg(format!("-{signal}")).args(&ids).status().expect("kill runs");
        }
        ids.len()
    }

    /// Stops the workers and gives the provider's account.
    pub async fn stop(self) -> Vec<Arrival> {
        self.source.stop(Duration::from_secs(5)).await;
        self.provider.stop()
    }
}

async fn event_source(
    stack: &Stack,
    queues: &Queues,
    worker: &Path,
    provider: &StrictProvider,
    setup: &Setup,
) -> EventSource {
    let mut options = EventSourceOptions::new(stack.sqs(), &queues.queue_url, worker);
    options.environment = stack.environment();
    for (name, value) in [
        ("SENDSLOT_QUEUE_URL", queues.queue_url.clone()),
        ("SENDSLOT_DLQ_URL", queues.dlq_url.clone()),
        ("SENDSLOT_HTTP_URL", provider.url()),
        ("SENDSLOT_HTTP_HEADERS", r#"{"x-units":"{cost}","x-attempt":"{attempt}"}"#.to_owned()),
        ("SENDSLOT_HTTP_TIMEOUT_MS", setup.http_timeout.as_millis().to_string()),
    ] {
        options.environment.push((name.to_owned(), value));
    }
    if let Some(url) = &setup.redis_url {
        options.environment.push(("REDIS_URL".to_owned(), url.clone()));
    }
    options.environment.push(("SENDSLOT_REDIS_POLICY".to_owned(), setup.redis_policies.to_owned()));
    options.environment.extend(setup.environment.clone());
    options.batch_size = setup.batch_size;
    options.window = setup.batch_window;
    options.max_environments = setup.max_environments;
    options.log = setup.log.clone();
    options.function_timeout = setup.function_timeout;
    EventSource::start(options).await.expect("the event source starts")
}
