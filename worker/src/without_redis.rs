//! A delivery while Redis cannot be asked: it is held, or its send is made without a claim.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use sendslot_shared::envelope::{Envelope, PendingReport};
use sendslot_shared::metrics::{self, Place};
use sendslot_shared::outage::Outages;
use sendslot_shared::redis_policy::{RedisPolicies, RedisPolicy};
use sendslot_shared::settle::Ending;
use sendslot_shared::store::StoreError;

use crate::local::LocalLimit;
use crate::message::{Delivery, Disposition, SETTLE_MARGIN};
use crate::provider::Provider;

/// What a process keeps of Redis' outages.
#[derive(Debug)]
pub(crate) struct WithoutRedis {
    pub(crate) outages: Outages,
    /// One for each policy of the configuration that is `local`.
    limits: Vec<Option<LocalLimit>>,
    held: AtomicU64,
    sent_locally: AtomicU64,
}

/// What a worker has done while Redis could not be asked, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Copies that were put back, those of budgets without a policy too.
    pub held: u64,
    /// Calls that were made without a claim.
    pub sent_locally: u64,
}

impl WithoutRedis {
    pub(crate) fn new(policies: &RedisPolicies) -> Self {
        let limit = |policy| match policy {
            RedisPolicy::Local { units_per_s } => LocalLimit::new(units_per_s),
            RedisPolicy::Hold => None,
        };
        let limits = policies.iter().map(limit).collect();
        Self { outages: Outages::default(), limits, held: AtomicU64::new(0), sent_locally: AtomicU64::new(0) }
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters { held: self.held.load(Relaxed), sent_locally: self.sent_locally.load(Relaxed) }
    }
}

/// The longest that a send waits in a worker for its turn at the local limit.
const LONGEST_TURN: Duration = Duration::from_secs(10);
/// A copy shows up at most this long before its slot, and is waited for.
const NEAR: Duration = Duration::from_secs(3);

impl<P: Provider> Delivery<'_, P> {
    /// Redis cannot be asked, or refuses: what the lane's policy says. A call that was made already is never made again, and an
    /// error that needs people is never an outage.
    pub(crate) async fn without_redis(&self, error: &StoreError) -> Disposition {
        let draft = &self.envelope.draft;
        let WithoutRedis { outages, limits, .. } = &*self.worker.without_redis;
        let policies = &self.worker.config.redis_policies;
        let limit = policies.place(&draft.budget, &draft.lane).and_then(|place| limits[place].as_ref());
        let limit = limit.filter(|_| error.is_temporary() && self.called().is_none());
        let policy = if limit.is_some() { policies.of(&draft.budget, &draft.lane) } else { RedisPolicy::Hold };
        outages.concerns(&draft.budget, &draft.lane, policy, error);
        Place::budget(draft.budget.as_str()).add(&metrics::REDIS_UNAVAILABLE, None, 1);
        match limit {
            Some(limit) => self.send_locally(limit).await,
            None => self.hold().await,
        }
    }

    /// Nothing is sent, nothing is lost, no receive count climbs. The claim may have been heard all the same: the copy says that
    /// nothing was started.
    async fn hold(&self) -> Disposition {
        self.count_held("redis");
        self.put_back_reporting(self.pending(), self.hold_delay()).await
    }

    /// The budget has no policy: as if Redis were away, alarm included.
    pub(crate) async fn without_policy(&self) -> Disposition {
        let draft = &self.envelope.draft;
        self.worker.without_redis.outages.no_policy(&draft.budget, &draft.lane);
        self.count_held("no_policy");
        self.put_back_unchanged(self.hold_delay()).await
    }

    fn count_held(&self, why: &'static str) {
        self.worker.without_redis.held.fetch_add(1, Relaxed);
        self.place().add(&metrics::HELD, why, 1);
    }

    /// What the copy has to report so far.
    fn pending(&self) -> PendingReport {
        let not_started =
            PendingReport { nonce: self.nonce, ending: Ending::NotStarted, unclaimed: false, called_at_us: None };
        self.envelope.report.unwrap_or(not_started)
    }

    /// The call is made without a claim. Its outcome travels on in the copy, until Redis can be told. Redis' clock cannot be
    /// asked: here alone this process's own is compared with the send's instants.
    async fn send_locally(&self, limit: &LocalLimit) -> Disposition {
        let draft = &self.envelope.draft;
        let now = SystemTime::now();
        if draft.deadline.is_some_and(|at| at.to_system_time() < now) {
            return self.hold().await;
        }
        let due = self.envelope.at.max(draft.not_before).map(|at| at.to_system_time());
        let wait = due.and_then(|due| due.duration_since(now).ok()).unwrap_or_default();
        if wait > NEAR {
            return self.put_back_reporting(self.pending(), wait - NEAR / 2).await;
        }
        if !self.has_time_for(wait) {
            return self.hold().await;
        }
        tokio::time::sleep(wait).await;
        let longest = self.time_left().map_or(LONGEST_TURN, |left| left.min(LONGEST_TURN));
        if !limit.take(draft.cost, longest).await {
            return self.hold().await;
        }
        self.worker.without_redis.sent_locally.fetch_add(1, Relaxed);
        self.place().add(&metrics::SENT_LOCALLY, None, 1);
        let called_at_us = Some(SystemTime::now().into());
        let (decision, _) = self.call(1, 1).await;
        tracing::warn!(id = %draft.id, ending = ?decision.ending, error = decision.error, "sent without Redis");
        let report = match decision.ending {
            ending @ (Ending::Sent | Ending::Rejected | Ending::Unknown) => {
                PendingReport { ending, unclaimed: true, called_at_us, ..self.pending() }
            }
            Ending::Throttled | Ending::Unavailable | Ending::NotStarted => self.pending(),
        };
        if let Some(cooldown) = decision.cooldown {
            limit.rest(cooldown.rest);
        }
        self.put_back_reporting(report, decision.delay.max(self.hold_delay())).await
    }

    /// How an earlier delivery's call ended that was made without a claim.
    pub(crate) fn called(&self) -> Option<Ending> {
        self.envelope.report.filter(|report| report.ending != Ending::NotStarted).map(|report| report.ending)
    }

    /// What the invocation leaves before a call must begin; `None` when it has no end.
    fn time_left(&self) -> Option<Duration> {
        let needed = self.worker.provider.call_timeout() + SETTLE_MARGIN;
        let left = self.invocation_end?.saturating_duration_since(std::time::Instant::now());
        Some(left.saturating_sub(needed))
    }

    /// The same copy, with what Redis has to hear first.
    pub(crate) async fn put_back_reporting(&self, report: PendingReport, wait: Duration) -> Disposition {
        self.put(Envelope { report: Some(report), ..self.envelope.clone() }, wait).await
    }
}
