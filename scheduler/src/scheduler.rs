use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant as Monotonic};

use futures_util::Stream;
use sendslot_shared::cancel::{self, Cancelled};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::{BudgetName, SendId};
use sendslot_shared::message::{Draft, InvalidMessage, Message};
use sendslot_shared::metrics::{self, Place};
use sendslot_shared::outage::{Ask, Outages};
use sendslot_shared::policy_file::PolicyFile;
use sendslot_shared::queue::{Entry, Queue, QueueError};
use sendslot_shared::quote::{self, Quote, QuoteError, QuoteRequest};
use sendslot_shared::redis_policy::RedisPolicies;
use sendslot_shared::reserve::{self, Booking, Refusal};
use sendslot_shared::status::{self, SendStatus};
use sendslot_shared::store::{Store, StoreError};
use sendslot_shared::time::{DelaySeconds, Instant, Timer};
use tokio::sync::Semaphore;

use crate::builder::{ConfigError, SchedulerBuilder};
use crate::count::Offer;
use crate::{Booked, ScheduleError, Scheduled, schedule_all};

/// Books slots and puts sends on SQS. Cheap to clone; clones share the connections.
#[derive(Debug, Clone)]
pub struct Scheduler(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) queue: Queue,
    pub(crate) timer: Timer,
    pub(crate) in_flight: Semaphore,
    pub(crate) redis_policies: RedisPolicies,
    pub(crate) policy_file: PolicyFile,
    pub(crate) outages: Outages,
    pub(crate) counters: Mutex<Counters>,
}

/// What a scheduler has done so far, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sends that got a booking, or the one that stood.
    pub booked: u64,
    /// Calls of the booking script.
    pub reserve_calls: u64,
    /// Time spent in those calls, added up.
    pub reserve_time: Duration,
    /// Messages that SQS took.
    pub enqueued: u64,
    /// SendMessage and SendMessageBatch calls.
    pub enqueue_calls: u64,
    /// Time spent in those calls, added up (they run side by side).
    pub enqueue_time: Duration,
    /// Sends that were accepted unbooked.
    pub unbooked: u64,
    /// Questions that Redis could not be asked or refused.
    pub redis_unavailable: u64,
}

impl Scheduler {
    /// A scheduler from `REDIS_URL`, `SENDSLOT_QUEUE_URL` and the usual AWS variables (`AWS_ENDPOINT_URL` included).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), sendslot_scheduler::ConfigError> {
    /// let scheduler = sendslot_scheduler::Scheduler::from_env().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`]: what is missing or wrong, and what to do.
    pub async fn from_env() -> Result<Self, ConfigError> {
        Self::builder().build().await
    }

    /// A scheduler with settings of its own.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), sendslot_scheduler::ConfigError> {
    /// let scheduler = sendslot_scheduler::Scheduler::builder()
    ///     .redis_url("rediss://cache.internal:6379")
    ///     .queue_url("https://sqs.eu-west-1.amazonaws.com/123456789012/sendslot")
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> SchedulerBuilder {
        SchedulerBuilder::default()
    }

    /// The Redis that it asks, for what it has no call of its own.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// The queue that it puts sends on.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.0.queue
    }

    /// What this scheduler and its clones have done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *self.0.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.0.counters.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Books the next free slot for one message and puts it on SQS until then. While Redis cannot be asked, the message is put
    /// on SQS all the same, and the answer says so. Errors that need people (a script error, out of memory) are never such an
    /// outage.
    ///
    /// ```no_run
    /// # use sendslot_scheduler::{Message, Refusal, ScheduleError, Scheduled, Scheduler};
    /// # async fn example(scheduler: Scheduler) -> Result<(), ScheduleError> {
    /// match scheduler.schedule(Message::new("sendgrid", "order-17", "hello")).await {
    ///     Ok(Scheduled::Booked(booked)) => println!("leaves in {:?}", booked.wait()),
    ///     Ok(Scheduled::Unbooked { .. }) => println!("leaves when Redis can be asked again"),
    ///     Err(ScheduleError::Refused(Refusal::AlreadySent)) => println!("was sent before"),
    ///     Err(other) => return Err(other),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ScheduleError`]; after any of them the same ID can be scheduled again.
    #[tracing::instrument(name = "schedule", skip_all, fields(budget = message.budget(), id = message.id()))]
    pub async fn schedule(&self, message: Message) -> Result<Scheduled, ScheduleError> {
        let (draft, offer) = offered(message)?;
        let result = self.schedule_draft(draft).await;
        offer.ended(&result.as_ref().map(|scheduled| matches!(scheduled, Scheduled::Booked(_))));
        result
    }

    async fn schedule_draft(&self, draft: Draft) -> Result<Scheduled, ScheduleError> {
        match self.book_all(&draft.budget, &[&draft]).await {
            Ok(mut answers) => {
                let booking = answers.pop().unwrap_or(Err(Refusal::UnknownBudget))?;
                self.enqueue_first(draft, booking).await.map(Scheduled::Booked)
            }
            Err(error) => {
                let (copy, scheduled) = self.unbooked(draft, &error)?;
                let results = self.enqueue(vec![(copy, scheduled.clone())]).await;
                let taken = results.into_iter().collect::<Result<(), _>>();
                taken.map_err(|queue| ScheduleError::Nowhere { redis: error, queue })?;
                Ok(scheduled)
            }
        }
    }

    /// Schedules a stream of messages: per-send results in the order given, bounded memory, bookings and
    /// SendMessageBatch calls in flight side by side. One message that is refused holds up no other.
    ///
    /// ```no_run
    /// # use sendslot_scheduler::{Message, Scheduler};
    /// use futures_util::{StreamExt, stream};
    ///
    /// # async fn example(scheduler: Scheduler) {
    /// let messages = stream::iter((0..10_000).map(|n| Message::new("sendgrid", format!("news-{n}"), "…")));
    /// let mut results = std::pin::pin!(scheduler.schedule_all(messages));
    /// while let Some(result) = results.next().await {
    ///     if let Err(error) = result {
    ///         eprintln!("{error}");
    ///     }
    /// }
    /// # }
    /// ```
    pub fn schedule_all<S>(&self, messages: S) -> impl Stream<Item = Result<Scheduled, ScheduleError>> + use<S>
    where
        S: Stream<Item = Message>,
    {
        schedule_all::schedule_all(self.clone(), messages)
    }

    /// Books a slot and no more, for services that enqueue on a queue of their own.
    ///
    /// ```no_run
    /// # use sendslot_scheduler::{Message, ScheduleError, Scheduler};
    /// # async fn example(scheduler: Scheduler) -> Result<(), ScheduleError> {
    /// let booked = scheduler.reserve(Message::new("sendgrid", "order-17", "hello")).await?;
    /// tokio::time::sleep(booked.wait()).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ScheduleError`], but for [`ScheduleError::Queue`].
    pub async fn reserve(&self, message: Message) -> Result<Booked, ScheduleError> {
        let (draft, offer) = offered(message)?;
        let answers = self.book_all(&draft.budget, &[&draft]).await;
        let booked = answers
            .map_err(ScheduleError::from)
            .and_then(|mut answers| Ok(Booked { booking: answers.pop().unwrap_or(Err(Refusal::UnknownBudget))? }));
        offer.ended(&booked.as_ref().map(|_| true));
        booked
    }

    /// What Redis knows of a send; `None` when it knows nothing (never scheduled, or ended longer ago than the policy's
    /// `dedup_ttl`).
    ///
    /// ```no_run
    /// # use sendslot_scheduler::{ScheduleError, Scheduler, SendState};
    /// # async fn example(scheduler: Scheduler) -> Result<(), ScheduleError> {
    /// let known = scheduler.status("sendgrid", "order-17").await?;
    /// if known.is_some_and(|send| send.state == SendState::Sent) {
    ///     println!("sent");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ScheduleError::Invalid`] for names that are none, [`Refusal::UnknownBudget`], [`ScheduleError::Redis`].
    pub async fn status(&self, budget: &str, id: &str) -> Result<Option<SendStatus>, ScheduleError> {
        let (budget, id) = names(budget, id)?;
        let (known, send) = self.ask(&budget, status::status(&self.0.store, &budget, &id)).await?;
        if send.is_none() && !known.has_policy {
            return Err(Refusal::UnknownBudget.into());
        }
        Ok(send)
    }

    /// Cancels a send that no worker has claimed: it is never sent, and its slot is used by the next one.
    ///
    /// ```no_run
    /// # use sendslot_scheduler::{Cancelled, ScheduleError, Scheduler};
    /// # async fn example(scheduler: Scheduler) -> Result<(), ScheduleError> {
    /// if scheduler.cancel("sendgrid", "order-17").await? == Cancelled::TooLate {
    ///     println!("it is being sent");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ScheduleError::Invalid`] for names that are none, [`ScheduleError::Redis`]; asking again is safe.
    pub async fn cancel(&self, budget: &str, id: &str) -> Result<Cancelled, ScheduleError> {
        let (budget, id) = names(budget, id)?;
        Ok(self.ask(&budget, cancel::cancel(&self.0.store, &budget, &id)).await?)
    }

    /// When a number of sends would leave if they were offered now. Nothing is booked: what others book in the meantime comes
    /// first.
    ///
    /// ```no_run
    /// # use sendslot_scheduler::{QuoteError, QuoteRequest, Scheduler};
    /// # async fn example(scheduler: Scheduler) -> Result<(), QuoteError> {
    /// let quote = scheduler.quote("sendgrid", QuoteRequest { sends: 50_000, ..QuoteRequest::default() }).await?;
    /// println!("{} of them, the last in {:?}", quote.placed, quote.lasts());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QuoteError`].
    pub async fn quote(&self, budget: &str, request: QuoteRequest) -> Result<Quote, QuoteError> {
        let budget = BudgetName::new(budget).map_err(|_| QuoteError::UnknownBudget)?;
        let question = async {
            match quote::quote(&self.0.store, &budget, &request).await {
                Err(QuoteError::Store(error)) => Err(error),
                answer => Ok(answer),
            }
        };
        self.ask(&budget, question).await?
    }

    /// Books a dead letter anew and puts it on SQS: a new slot, never a burst. `body` is the dead letter's, unchanged. A send that
    /// ended as unknown may be sent a second time by this.
    ///
    /// # Errors
    /// [`ScheduleError::DeadLetter`] for a body that is none, [`Refusal::PastDeadline`] when its deadline has passed, and what
    /// [`Scheduler::schedule`] answers.
    pub async fn redrive(&self, body: &str) -> Result<Booked, ScheduleError> {
        let envelope = Envelope::from_body(body).map_err(ScheduleError::DeadLetter);
        let draft = envelope.inspect_err(|error| Offer::INVALID.ended(&Err(error)))?.draft;
        let offer = Offer::of(&draft);
        let booked = async {
            let booking = self.ask(&draft.budget, reserve::redrive(&self.0.store, &draft)).await??;
            self.enqueue_first(draft, booking).await
        };
        let booked = booked.await;
        offer.ended(&booked.as_ref().map(|_| true));
        booked
    }

    /// Puts a dead letter back on SQS as it is: for one that nobody told to end, since SQS moved it after too many receives, or its
    /// worker died. What becomes of it, its next claim decides, as for any copy that is delivered again.
    ///
    /// # Errors
    /// [`ScheduleError::DeadLetter`] for a body that is none, [`ScheduleError::Queue`].
    pub async fn requeue(&self, body: &str) -> Result<(), ScheduleError> {
        Envelope::from_body(body).map_err(ScheduleError::DeadLetter)?;
        let entry = Entry { body: body.to_owned(), delay: DelaySeconds::ZERO };
        Ok(self.0.queue.send(&entry, &[]).await?)
    }

    async fn enqueue_first(&self, draft: Draft, booking: Booking) -> Result<Booked, ScheduleError> {
        let body = first_copy(draft, &booking).to_body()?;
        let booked = Booked { booking };
        let results = self.enqueue(vec![(body, Scheduled::Booked(booked.clone()))]).await;
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(booked)
    }

    /// The copy of a send that Redis could not be asked for.
    ///
    /// # Errors
    /// The error itself, when it is no outage.
    pub(crate) fn unbooked(&self, draft: Draft, error: &StoreError) -> Result<(String, Scheduled), ScheduleError> {
        if !error.is_temporary() {
            return Err(error.clone().into());
        }
        let policy = self.0.redis_policies.of(&draft.budget, &draft.lane);
        self.0.outages.concerns(&draft.budget, &draft.lane, policy, error);
        Ok((Envelope::unbooked(draft).to_body()?, Scheduled::Unbooked { policy }))
    }

    /// Asks Redis, or fails at once while it is known to be away.
    async fn ask<T>(
        &self,
        budget: &BudgetName,
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let outages = &self.0.outages;
        let answer = match outages.may_ask(budget) {
            Ask::Yes => {
                let answer = question.await;
                outages.asked(budget, &answer);
                answer
            }
            Ask::No(error) => Err(error),
            Ask::Probe(error) => {
                tokio::spawn(probe(self.clone(), budget.clone()));
                Err(error)
            }
        };
        if answer.is_err() {
            self.count(|c| c.redis_unavailable += 1);
            Place::budget(budget.as_str()).add(&metrics::REDIS_UNAVAILABLE, None, 1);
        }
        answer
    }

    /// Books up to 500 drafts of one budget in one call.
    pub(crate) async fn book_all(
        &self,
        budget: &BudgetName,
        drafts: &[&Draft],
    ) -> Result<Vec<Result<Booking, Refusal>>, StoreError> {
        let began = Monotonic::now();
        let Inner { store, policy_file, .. } = &*self.0;
        let mut answers = self.ask(budget, reserve::reserve(store, budget, drafts)).await;
        // Redis may have lost the policy
        let unknown = matches!(answers.as_deref(), Ok([Err(Refusal::UnknownBudget), ..]));
        if unknown && policy_file.seed(store, budget).await.is_ok_and(|seeded| seeded) {
            answers = self.ask(budget, reserve::reserve(store, budget, drafts)).await;
        }
        self.count(|c| {
            c.reserve_calls += 1;
            c.reserve_time += began.elapsed();
            c.booked += answers.iter().flatten().filter(|a| a.is_ok()).count() as u64;
        });
        answers
    }

    /// Sends bodies; their delays are computed now, at the moment of sending.
    pub(crate) async fn enqueue(&self, copies: Vec<(String, Scheduled)>) -> Vec<Result<(), QueueError>> {
        let _permit = self.0.in_flight.acquire().await;
        let booked: Vec<bool> = copies.iter().map(|(_, scheduled)| matches!(scheduled, Scheduled::Booked(_))).collect();
        let entries: Vec<Entry> =
            copies.into_iter().map(|(body, scheduled)| Entry { body, delay: scheduled.delay(self.0.timer) }).collect();
        let began = Monotonic::now();
        let results = self.0.queue.send_batch(&entries).await;
        self.count(|c| {
            c.enqueue_calls += 1;
            c.enqueue_time += began.elapsed();
            c.enqueued += results.iter().filter(|r| r.is_ok()).count() as u64;
            c.unbooked += results.iter().zip(booked).filter(|(r, booked)| r.is_ok() && !booked).count() as u64;
        });
        results
    }
}

/// Sees whether Redis is back, for all callers.
async fn probe(scheduler: Scheduler, budget: BudgetName) {
    let answer = scheduler.0.store.probe_budget(&budget).await;
    scheduler.0.outages.asked(&budget, &answer);
}

fn names(budget: &str, id: &str) -> Result<(BudgetName, SendId), InvalidMessage> {
    Ok((BudgetName::new(budget)?, SendId::new(id)?))
}

/// The first copy of a booking.
pub(crate) fn first_copy(draft: Draft, booking: &Booking) -> Envelope {
    Envelope { accepted: Some(booking.booked), ..Envelope::first(draft, booking.seq, booking.at) }
}

/// A checked message that is offered; one that is none is counted.
pub(crate) fn offered(message: Message) -> Result<(Draft, Offer), ScheduleError> {
    let draft = prepare(message).inspect_err(|error| Offer::INVALID.ended(&Err(error)))?;
    let offer = Offer::of(&draft);
    Ok((draft, offer))
}

/// Checks a message, its size on the queue included: the largest numbers that its envelope can carry are tried, so that
/// nothing is booked that could not be enqueued.
pub(crate) fn prepare(message: Message) -> Result<Draft, ScheduleError> {
    let draft = message.check()?;
    // A worker may have to add its report, and attributes to a dead letter.
    const ROOM: usize = 8 * 1024;
    // A smaller payload fits, even if each of its characters and of the ID's is escaped.
    const SMALL: usize = 64 * 1024;
    if draft.payload.len() > SMALL {
        let largest = Envelope {
            seq: u32::MAX,
            tag: u32::MAX,
            accepted: Some(Instant::MAX),
            ..Envelope::first(draft.clone(), 1, Instant::MAX)
        };
        let bytes = largest.to_body()?.len() + ROOM;
        if bytes > sendslot_shared::envelope::MAX_BODY_BYTES {
            return Err(sendslot_shared::envelope::BodyTooLarge { bytes }.into());
        }
    }
    Ok(draft)
}
