//! Takes calls from the receipts' queue and records what they say.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use sendslot_shared::aws_sdk_sqs::Client;
use sendslot_shared::aws_sdk_sqs::error::DisplayErrorContext;
use sendslot_shared::aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use sendslot_shared::metrics::{self, UNKNOWN};
use sendslot_shared::receipt::{self, Delivery, Recorded};
use sendslot_shared::store::{Store, StoreError};

use crate::config::Providers;
use crate::mapping::{Mapped, Named, Unreadable};
use crate::raw::RawReceipt;
use crate::sns;

/// When a call comes again that cannot be recorded yet, by how often it came; then the queue's redrive policy ends it.
const BACK_AFTER_S: [i32; 6] = [5, 30, 120, 600, 1800, 3600];
/// When a call comes again that cannot be read: soon, until the redrive policy ends it.
const UNREADABLE_BACK_AFTER_S: i32 = 5;
/// How long a call stays hidden while it is looked at.
const HIDDEN_S: i32 = 60;
/// How long is waited after SQS or Redis could not be asked.
const REST: Duration = Duration::from_secs(2);

/// Reads the receipts' queue. Cheap to clone; any number may run.
#[derive(Debug, Clone)]
pub struct Mapper {
    store: Store,
    sqs: Client,
    queue_url: String,
    providers: Arc<Providers>,
}

/// What becomes of a call.
enum Fate {
    Done,
    /// It comes again after so many seconds.
    Back(i32),
}

impl Fate {
    /// It comes again, later each time.
    fn later(receives: usize) -> Self {
        Self::Back(BACK_AFTER_S[receives.saturating_sub(1).min(BACK_AFTER_S.len() - 1)])
    }
}

/// Why a round ended early.
#[derive(Debug, thiserror::Error)]
pub enum MapperError {
    /// SQS could not be asked.
    #[error("the receipts' queue could not be read: {reason}")]
    Queue {
        /// What the SDK says.
        reason: String,
    },
    /// Redis could not be asked; the calls come again.
    #[error(transparent)]
    Redis(#[from] StoreError),
}

impl Mapper {
    /// A mapper for this queue.
    #[must_use]
    pub fn new(store: Store, sqs: Client, queue_url: impl Into<String>, providers: Arc<Providers>) -> Self {
        Self { store, sqs, queue_url: queue_url.into(), providers }
    }

    /// Works until it is told to stop; then it finishes what it has in hand. Nothing that it cannot do is lost: it comes again.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            // receiving may be given up at any time: what came meanwhile comes again
            let received = tokio::select! {
                received = self.receive(Duration::from_secs(10)) => received,
                () = &mut stop => return,
            };
            let ended = match received {
                Ok(messages) => self.handle_all(messages).await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::warn!(%error, "receipts_rest");
                let rest = std::pin::pin!(self.rest());
                if let Either::Right(_) = select(rest, &mut stop).await {
                    return;
                }
            }
        }
    }

    /// No call is taken, and none grows older, while nothing could be done with it.
    async fn rest(&self) {
        loop {
            tokio::time::sleep(REST).await;
            if self.store.probe().await.is_ok() {
                return;
            }
        }
    }

    /// One receive of up to ten calls, waiting so long for them (10 s at most, whole seconds). Answers how many came.
    ///
    /// # Errors
    /// [`MapperError`].
    pub async fn once(&self, wait: Duration) -> Result<usize, MapperError> {
        let messages = self.receive(wait).await?;
        self.handle_all(messages).await
    }

    async fn receive(&self, wait: Duration) -> Result<Vec<Message>, MapperError> {
        let request = self.sqs.receive_message().queue_url(&self.queue_url).max_number_of_messages(10);
        let request =
            request.wait_time_seconds(i32::try_from(wait.as_secs().min(10)).unwrap_or(10)).visibility_timeout(HIDDEN_S);
        let count = MessageSystemAttributeName::ApproximateReceiveCount;
        let received = request.message_system_attribute_names(count).send().await;
        let received = received.map_err(|e| MapperError::Queue { reason: DisplayErrorContext(&e).to_string() })?;
        Ok(received.messages.unwrap_or_default())
    }

    async fn handle_all(&self, messages: Vec<Message>) -> Result<usize, MapperError> {
        let n = messages.len();
        let ended = join_all(messages.iter().map(|message| self.handle(message))).await;
        ended.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(n)
    }

    async fn handle(&self, message: &Message) -> Result<(), StoreError> {
        let attributes = message.attributes.as_ref();
        let receives = attributes
            .and_then(|all| all.get(&MessageSystemAttributeName::ApproximateReceiveCount)?.parse().ok())
            .unwrap_or(1_usize);
        let (fate, error) = match self.record(message.body.as_deref().unwrap_or_default(), receives).await {
            Ok(fate) => (fate, None),
            Err(error) => (Fate::later(receives), Some(error)),
        };
        let Some(handle) = &message.receipt_handle else { return Ok(()) };
        // what is not told to SQS comes again when it is visible
        match fate {
            Fate::Done => {
                let _ = self.sqs.delete_message().queue_url(&self.queue_url).receipt_handle(handle).send().await;
            }
            Fate::Back(seconds) => {
                let request = self.sqs.change_message_visibility().queue_url(&self.queue_url).receipt_handle(handle);
                let _ = request.visibility_timeout(seconds).send().await;
            }
        }
        error.map_or(Ok(()), Err)
    }

    async fn record(&self, body: &str, receives: usize) -> Result<Fate, StoreError> {
        let tell = |provider: &str, reason: &str| {
            if receives == 1 {
                let known = self.providers.get(provider).map_or(UNKNOWN, |_| provider);
                count(known, "unreadable");
                tracing::warn!(provider, reason, "receipt_unreadable");
            }
        };
        let unreadable = |provider: &str, reason: &str| {
            tell(provider, reason);
            Ok(Fate::Back(UNREADABLE_BACK_AFTER_S))
        };
        let raw = match RawReceipt::from_message(body) {
            Ok(raw) => raw,
            Err(error) => return unreadable("", &error.to_string()),
        };
        let Some(provider) = self.providers.get(&raw.provider) else {
            // a newer instance, or a later start of this one, may know it
            tell(&raw.provider, "the provider is not configured here");
            return Ok(Fate::later(receives));
        };
        let mapped = match provider.mapping.read(&raw) {
            Ok(mapped) => mapped,
            Err(error) => {
                let asked = (error == Unreadable::Subscription).then(|| sns::subscribe_url(&raw.body)).flatten();
                let Some((subscribe_url, remedy)) = asked else { return unreadable(&raw.provider, &error.to_string()) };
                count(&raw.provider, "subscription");
                tracing::warn!(provider = raw.provider, subscribe_url, remedy, "sns_subscription");
                return Ok(Fate::Done);
            }
        };
        let mut unknown = 0;
        for event in &mapped {
            unknown += usize::from(!self.record_one(&raw.provider, event).await?);
        }
        if unknown == 0 {
            return Ok(Fate::Done);
        }
        count(&raw.provider, "unknown_send");
        tracing::info!(provider = raw.provider, unknown, events = mapped.len(), receives, "receipt_of_unknown_send");
        Ok(Fate::later(receives))
    }

    /// Whether its send is known.
    async fn record_one(&self, provider: &str, event: &Mapped) -> Result<bool, StoreError> {
        let Mapped { budget, send, receipt } = event;
        let found;
        let id = match send {
            Named::Ours(id) => id,
            Named::Theirs(theirs) => match receipt::find(&self.store, budget, theirs).await? {
                Some(id) => {
                    found = id;
                    &found
                }
                None => return Ok(false),
            },
        };
        let outcome = match (receipt::record(&self.store, budget, id, receipt).await?, receipt.delivery) {
            (Recorded::Recorded, Delivery::Delivered) => "delivered",
            (Recorded::Recorded, Delivery::Undelivered) => "undelivered",
            (Recorded::Older, _) => "older",
            (Recorded::UnknownSend, _) => return Ok(false),
        };
        count(provider, outcome);
        tracing::debug!(%id, %budget, delivery = ?receipt.delivery, "receipt");
        Ok(true)
    }
}

fn count(provider: &str, outcome: &str) {
    metrics::add(&metrics::RECEIPTS, &[provider, outcome], 1);
}
