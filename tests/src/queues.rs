//! One LocalStack for all tests of a binary; each test gets queues of its own on it.

use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName::{
    self, ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed, ApproximateNumberOfMessagesNotVisible,
};
use sendslot_localstack::{QueueOptions, Servers, Stack, StackOptions};
use sendslot_shared::envelope::Envelope;
use tokio::sync::OnceCell;

/// Started by the first test that asks; it ends with the process.
static STACK: OnceCell<Stack> = OnceCell::const_new();

/// The LocalStack of this binary. Its Redis is nobody's: tests that need one start their own.
pub async fn localstack() -> &'static Stack {
    let options = StackOptions { servers: Servers::Own, ..StackOptions::default() };
    STACK.get_or_init(async || Stack::start(options).await.expect("LocalStack starts")).await
}

/// A queue that no other test uses.
#[derive(Debug, Clone)]
pub struct TestQueue {
    /// A client for its SQS.
    pub sqs: Client,
    /// Its URL.
    pub url: String,
    /// The URL of its dead-letter queue.
    pub dlq_url: String,
}

impl TestQueue {
    /// Makes it. No two tests may give the same name.
    pub async fn create(name: &str) -> Self {
        Self::create_with(name, QueueOptions::default()).await
    }

    /// With these options.
    pub async fn create_with(name: &str, options: QueueOptions) -> Self {
        let stack = localstack().await;
        let queues = stack.create_queues(name, options).await.expect("the queues are made");
        Self { sqs: stack.sqs(), url: queues.queue_url, dlq_url: queues.dlq_url }
    }

    /// How many messages are on it: those that can be received now, and those that are delayed.
    pub async fn depth(&self) -> (usize, usize) {
        let [visible, delayed] = self.numbers([ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed]).await;
        (visible, delayed)
    }

    async fn numbers<const N: usize>(&self, names: [QueueAttributeName; N]) -> [usize; N] {
        let request = self.sqs.get_queue_attributes().queue_url(&self.url).set_attribute_names(Some(names.to_vec()));
        let attributes = request.send().await.expect("SQS answers").attributes.unwrap_or_default();
        names.map(|name| attributes[&name].parse().expect("a number"))
    }

    /// All messages on it, whenever they show up.
    pub async fn len(&self) -> usize {
        let (visible, delayed) = self.depth().await;
        visible + delayed
    }

    /// Nothing is on it, nor in anybody's hand.
    pub async fn is_empty(&self) -> bool {
        let [hidden] = self.numbers([ApproximateNumberOfMessagesNotVisible]).await;
        self.len().await + hidden == 0
    }

    /// Receives `n` copies, sorted by their send IDs.
    ///
    /// # Panics
    /// When they do not show up within 30 s.
    pub async fn receive(&self, n: usize) -> Vec<Envelope> {
        let limit = Instant::now() + Duration::from_secs(30);
        let mut copies = vec![];
        while copies.len() < n {
            assert!(Instant::now() < limit, "{} of {n} within 30 s", copies.len());
            let request = self.sqs.receive_message().queue_url(&self.url).max_number_of_messages(10);
            let received = request.wait_time_seconds(5).send().await.expect("SQS answers");
            let bodies = received.messages.unwrap_or_default().into_iter().filter_map(|message| message.body);
            copies.extend(bodies.map(|body| Envelope::from_body(&body).expect("an envelope")));
        }
        copies.sort_by(|a, b| a.draft.id.cmp(&b.draft.id));
        copies
    }
}
