//! One batch: the first questions of each budget in one round trip, then each message in a task of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use sendslot_shared::claim::{self, Answer, Claim};
use sendslot_shared::envelope::{Envelope, MAX_BODY_BYTES};
use sendslot_shared::id::BudgetName;
use sendslot_shared::metrics::{self, Place, UNKNOWN};
use sendslot_shared::queue::Entry;
use sendslot_shared::store::StoreError;
use sendslot_shared::time::DelaySeconds;
use tokio::task::JoinSet;

use crate::config::WorkerConfig;
use crate::message::{Asked, Delivery, Disposition, disposition, fresh_nonce, lease};
use crate::provider::Provider;
use crate::put_backs::PutBacks;
use crate::round_trip::RoundTrip;
use crate::without_redis::{Counters, WithoutRedis};

/// Why a whole batch was not touched.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A record has no message ID, so its failure could not be reported.
    #[error("record {index} of the event has no messageId: is this function mapped to an SQS queue?")]
    NoMessageId {
        /// Its place in the event.
        index: usize,
    },
    /// The function's timeout is too short for a wait and a call: it would put every message back for ever.
    #[error(
        "this invocation ends in {left:?}, a wait and a provider call take {needed:?}: raise the function's timeout"
    )]
    TooShort {
        /// What was left when the invocation began.
        left: Duration,
        /// What is needed.
        needed: Duration,
    },
}

/// A worker: a provider and what it needs. Cheap to clone.
#[derive(Debug)]
pub struct Worker<P> {
    pub(crate) config: WorkerConfig,
    pub(crate) provider: Arc<P>,
    pub(crate) without_redis: Arc<WithoutRedis>,
    pub(crate) put_backs: Arc<PutBacks>,
    pub(crate) round_trip: Arc<RoundTrip>,
}

impl<P> Clone for Worker<P> {
    fn clone(&self) -> Self {
        let (config, provider) = (self.config.clone(), self.provider.clone());
        let (without_redis, put_backs) = (self.without_redis.clone(), self.put_backs.clone());
        Self { config, provider, without_redis, put_backs, round_trip: self.round_trip.clone() }
    }
}

/// A message of the batch whose body was read.
struct Ready {
    message_id: String,
    envelope: Envelope,
    nonce: u32,
}

impl<P: Provider> Worker<P> {
    /// A worker for one provider account.
    pub fn new(config: WorkerConfig, provider: P) -> Self {
        let without_redis = Arc::new(WithoutRedis::new(&config.redis_policies));
        Self {
            config,
            provider: Arc::new(provider),
            without_redis,
            put_backs: Arc::default(),
            round_trip: Arc::default(),
        }
    }

    /// What this worker and its clones have done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.without_redis.counters()
    }

    /// Handles one event. Each message succeeds or fails alone: what failed is named in the answer and comes back after
    /// the visibility timeout.
    ///
    /// `invocation_end` is when Lambda would stop this invocation, by the process's own clock.
    ///
    /// # Errors
    /// [`BatchError`]: nothing was done.
    pub async fn handle(
        &self,
        event: SqsEvent,
        invocation_end: Option<Instant>,
    ) -> Result<SqsBatchResponse, BatchError> {
        if let Some(index) = event.records.iter().position(|r| r.message_id.as_deref().unwrap_or("").is_empty()) {
            return Err(BatchError::NoMessageId { index });
        }
        if let Some(left) = invocation_end.map(|end| end.saturating_duration_since(Instant::now())) {
            let needed = lease(self.provider.call_timeout());
            if left < needed {
                return Err(BatchError::TooShort { left, needed });
            }
        }
        let mut tasks: JoinSet<Disposition> = JoinSet::new();
        let mut running: Vec<(tokio::task::Id, String)> = vec![];
        let mut ready = vec![];
        for record in event.records {
            match read(record) {
                Ok(message) => ready.push(message),
                Err((message_id, body, error)) => {
                    let worker = self.clone();
                    let task = tasks.spawn(async move { worker.malformed(body, &error).await });
                    running.push((task.id(), message_id));
                }
            }
        }
        let asked = Instant::now();
        // A cluster's nodes hang one by one: no budget waits for another's answers.
        let ask = |group: Vec<Ready>| async move { (self.first_questions(&group).await, group) };
        let mut questions: FuturesUnordered<_> = by_budget(ready).into_values().map(ask).collect();
        while let Some((answers, group)) = questions.next().await {
            let answered = Instant::now();
            for (message, answer) in group.into_iter().zip(answers) {
                let Ready { message_id, envelope, nonce } = message;
                let worker = self.clone();
                let task = tasks.spawn(async move {
                    let delivery = Delivery { worker: &worker, envelope, nonce, invocation_end };
                    delivery.process(answer.map(|verdict| Asked { asked, answered, verdict })).await
                });
                running.push((task.id(), message_id));
            }
        }
        Ok(collect(tasks, running).await)
    }

    /// In one round trip. A copy that brings a report does not ask before that is told.
    async fn first_questions(&self, ready: &[Ready]) -> Vec<Option<Result<Answer, StoreError>>> {
        let lease = lease(self.provider.call_timeout());
        let asking = || ready.iter().filter(|r| r.envelope.report.is_none());
        let claims: Vec<Claim<'_>> = asking().map(|r| Claim { envelope: &r.envelope, nonce: r.nonce, lease }).collect();
        let answers = claim::claim_all(&self.config.store, &claims).await;
        for (claim, answer) in claims.iter().zip(&answers) {
            self.without_redis.outages.asked(&claim.envelope.draft.budget, answer);
        }
        let mut answers = answers.into_iter();
        ready.iter().map(|r| if r.envelope.report.is_none() { answers.next() } else { None }).collect()
    }

    async fn malformed(&self, body: String, error: &str) -> Disposition {
        tracing::warn!(error, "body is no envelope, dead-lettered");
        self.dead_letter(body, "malformed", 0, error, None).await
    }

    /// Puts a body on the dead-letter queue, with the reason, the attempts and the last error as attributes.
    pub(crate) async fn dead_letter(
        &self,
        body: String,
        reason: &'static str,
        attempts: u32,
        error: &str,
        envelope: Option<&Envelope>,
    ) -> Disposition {
        let place = envelope.map_or(Place::lane(UNKNOWN, UNKNOWN), |envelope| Place::of(&envelope.draft));
        let attempts = attempts.to_string();
        let mut attributes = vec![("reason", reason), ("attempts", &attempts), ("last_error", error)];
        if let Some(envelope) = envelope {
            attributes.push(("send_id", envelope.draft.id.as_str()));
            attributes.push(("budget", envelope.draft.budget.as_str()));
        }
        // SQS counts them with the body; only a body that no scheduler made leaves no room
        let bytes = attributes.iter().map(|(name, value)| name.len() + value.len().min(1000) + "String".len());
        if body.len() + bytes.sum::<usize>() > MAX_BODY_BYTES {
            tracing::error!(reason, "dead letter without its attributes, for which its body leaves no room");
            attributes.clear();
        }
        let entry = Entry { body, delay: DelaySeconds::ZERO };
        let taken = self.config.dead_letters.send(&entry, &attributes).await;
        if taken.is_ok() {
            place.add(&metrics::DEAD_LETTERS, reason, 1);
        }
        disposition(taken)
    }
}

fn by_budget(ready: Vec<Ready>) -> HashMap<BudgetName, Vec<Ready>> {
    let mut groups: HashMap<BudgetName, Vec<Ready>> = HashMap::new();
    for message in ready {
        groups.entry(message.envelope.draft.budget.clone()).or_default().push(message);
    }
    groups
}

/// A record's message ID with its envelope, or with its body and what is wrong with it.
fn read(record: SqsMessage) -> Result<Ready, (String, String, String)> {
    let message_id = record.message_id.unwrap_or_default();
    let body = record.body.unwrap_or_default();
    match Envelope::from_body(&body) {
        Ok(envelope) => {
            let receives = record.attributes.get("ApproximateReceiveCount").map(String::as_str);
            tracing::debug!(id = %envelope.draft.id, seq = envelope.seq, receives, "received");
            Ok(Ready { message_id, envelope, nonce: fresh_nonce() })
        }
        Err(error) => Err((message_id, body, error.to_string())),
    }
}

/// Waits for all; a task that panicked is a failure of its own message.
async fn collect(mut tasks: JoinSet<Disposition>, running: Vec<(tokio::task::Id, String)>) -> SqsBatchResponse {
    let mut failed = vec![];
    while let Some(ended) = tasks.join_next_with_id().await {
        match ended {
            Ok((_, Disposition::Acknowledge)) => {}
            Ok((id, Disposition::Return)) => failed.push(id),
            Err(error) => {
                // what a provider's code says when it panics is its own
                tracing::error!("message handler panicked, leaving the message for redelivery");
                failed.push(error.id());
            }
        }
    }
    let mut response = SqsBatchResponse::default();
    for (id, message_id) in running {
        if failed.contains(&id) {
            response.add_failure(message_id);
        }
    }
    response
}
