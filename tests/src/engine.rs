//! What a store of Sendslot does, as a trait: the suite in [`crate::conformance`] holds every implementation to it.

#![expect(async_fn_in_trait, reason = "tests run on one thread")]

use std::collections::BTreeMap;
use std::time::Duration;

use sendslot_shared::cancel::{self, Cancelled};
use sendslot_shared::claim::{self, Answer, Claim, Verdict};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::message::Draft;
use sendslot_shared::policy::Policy;
use sendslot_shared::quote::{self, Quote, QuoteError, QuoteRequest};
use sendslot_shared::reserve::{self, Booking, MAX_BATCH, Refusal};
use sendslot_shared::settle::{self, Action, Ending, Report};
use sendslot_shared::status::{self, BudgetStatus, SendStatus};
use sendslot_shared::{budget, policy};

use crate::{Bench, LEASE};

/// A store with one budget `b` and a clock that tests set.
pub trait Engine {
    /// Sets the clock, microseconds since 1970.
    async fn set_clock(&self, now: u64);
    /// Sets the budget's policy.
    ///
    /// # Errors
    /// Why it was refused.
    async fn try_policy(&self, policy: &Policy) -> Result<(), policy::InvalidPolicy>;
    /// Books drafts in their order; at most [`MAX_BATCH`].
    async fn reserve_batch(&self, drafts: &[Draft]) -> Vec<Result<Booking, Refusal>>;
    /// Books anew what had ended.
    ///
    /// # Errors
    /// Why it was refused.
    async fn redrive(&self, draft: &Draft) -> Result<Booking, Refusal>;
    /// Asks for a copy.
    async fn claim(&self, copy: &Envelope, nonce: u32) -> Answer;
    /// Reports how a call ended.
    async fn report(&self, report: Report<'_>) -> Action;
    /// Cancels a send.
    async fn cancel(&self, draft: &Draft) -> Cancelled;
    /// Pauses the budget, or (`None`) lets it go on.
    async fn pause(&self, rest: Option<Duration>);
    /// Asks when sends would leave.
    ///
    /// # Errors
    /// Why there is no quote.
    async fn quote(&self, question: &QuoteRequest) -> Result<Quote, QuoteError>;
    /// What is known of a send.
    async fn send(&self, draft: &Draft) -> Option<SendStatus>;
    /// What is known of the budget.
    async fn state(&self) -> BudgetStatus;

    /// All that is stored for the budget, by part.
    async fn dump(&self) -> BTreeMap<String, Vec<u8>>;
    /// The names of the parts of what is stored.
    async fn parts(&self) -> Vec<String>;
    /// Loses one part of what is stored.
    async fn lose(&self, part: &str);
    /// How many elementary operations were made so far: the measure of work that does not depend on the machine.
    async fn operations(&self) -> u64;

    /// Sets a policy that is a good one.
    async fn set_policy(&self, policy: &Policy) {
        self.try_policy(policy).await.expect("a good policy");
    }

    /// Books one draft.
    ///
    /// # Errors
    /// Why it was refused.
    async fn reserve(&self, draft: &Draft) -> Result<Booking, Refusal> {
        self.reserve_batch(std::slice::from_ref(draft)).await.remove(0)
    }

    /// Books drafts that all find a slot, in full batches.
    async fn book(&self, drafts: &[Draft]) -> Vec<Booking> {
        let mut all = vec![];
        for batch in drafts.chunks(MAX_BATCH) {
            all.extend(self.reserve_batch(batch).await.into_iter().map(|b| b.expect("it is booked")));
        }
        all
    }

    /// Books one draft and gives its first copy.
    async fn copy(&self, draft: &Draft) -> Envelope {
        let booking = self.reserve(draft).await.expect("it is booked");
        Envelope::first(draft.clone(), booking.seq, booking.at)
    }

    /// Books drafts and gives their first copies.
    async fn copies(&self, drafts: &[Draft]) -> Vec<Envelope> {
        let bookings = self.book(drafts).await;
        drafts.iter().zip(bookings).map(|(d, b)| Envelope::first(d.clone(), b.seq, b.at)).collect()
    }

    /// Asks for a copy; the verdict alone.
    async fn verdict(&self, copy: &Envelope, nonce: u32) -> Verdict {
        self.claim(copy, nonce).await.verdict
    }

    /// Reports an ending without delay or cooldown.
    async fn settle(&self, copy: &Envelope, nonce: u32, ending: Ending) -> Action {
        let (delay, elapsed) = (Duration::ZERO, Duration::ZERO);
        self.report(Report { envelope: copy, nonce, ending, delay, cooldown: None, elapsed, held_up: Duration::ZERO })
            .await
    }
}

/// The Redis scripts.
impl Engine for Bench {
    async fn set_clock(&self, now: u64) {
        self.set_clock(now).await;
    }

    async fn try_policy(&self, policy: &Policy) -> Result<(), policy::InvalidPolicy> {
        match budget::set(&self.store, &self.budget, policy).await {
            Ok(_) => Ok(()),
            Err(budget::BudgetError::Invalid(why)) => Err(why),
            Err(other) => panic!("{other}"),
        }
    }

    async fn reserve_batch(&self, drafts: &[Draft]) -> Vec<Result<Booking, Refusal>> {
        self.reserve_all(drafts).await
    }

    async fn redrive(&self, draft: &Draft) -> Result<Booking, Refusal> {
        reserve::redrive(&self.store, draft).await.expect("Redis answers")
    }

    async fn claim(&self, copy: &Envelope, nonce: u32) -> Answer {
        claim::claim(&self.store, Claim { envelope: copy, nonce, lease: LEASE }).await.expect("Redis answers")
    }

    async fn report(&self, report: Report<'_>) -> Action {
        settle::settle(&self.store, report).await.expect("Redis answers")
    }

    async fn cancel(&self, draft: &Draft) -> Cancelled {
        cancel::cancel(&self.store, &self.budget, &draft.id).await.expect("Redis answers")
    }

    async fn pause(&self, rest: Option<Duration>) {
        assert!(budget::pause(&self.store, &self.budget, rest).await.expect("Redis answers"), "a policy");
    }

    async fn quote(&self, question: &QuoteRequest) -> Result<Quote, QuoteError> {
        quote::quote(&self.store, &self.budget, question).await
    }

    async fn send(&self, draft: &Draft) -> Option<SendStatus> {
        self.status(draft).await
    }

    async fn state(&self) -> BudgetStatus {
        status::budget_status(&self.store, &self.budget).await.expect("Redis answers")
    }

    async fn dump(&self) -> BTreeMap<String, Vec<u8>> {
        let parts = self.parts().await;
        let (mut types, mut reads) = (redis::pipe(), redis::pipe());
        parts.iter().for_each(|part| _ = types.cmd("TYPE").arg(key(part)));
        let types: Vec<String> = types.query_async(&mut self.redis.clone()).await.expect("Redis answers");
        for (part, kind) in parts.iter().zip(&types) {
            match kind.as_str() {
                "hash" => reads.cmd("HGETALL").arg(key(part)),
                "set" => reads.cmd("SMEMBERS").arg(key(part)),
                "zset" => reads.cmd("ZRANGE").arg(key(part)).arg(0).arg(-1),
                "list" => reads.cmd("LRANGE").arg(key(part)).arg(0).arg(-1),
                _ => reads.cmd("GET").arg(key(part)),
            };
        }
        let values: Vec<redis::Value> = reads.query_async(&mut self.redis.clone()).await.expect("Redis answers");
        parts.into_iter().zip(values.iter().map(in_order)).collect()
    }

    async fn parts(&self) -> Vec<String> {
        let keys: Vec<Vec<u8>> = self.command(redis::cmd("KEYS").arg("s{b}*")).await;
        let mut names: Vec<String> =
            keys.iter().map(|key| key.iter().map(|byte| char::from(*byte)).collect()).collect();
        names.sort();
        names
    }

    async fn lose(&self, part: &str) {
        let _: i64 = self.command(redis::cmd("DEL").arg(key(part))).await;
    }

    async fn operations(&self) -> u64 {
        let info: String = self.command(redis::cmd("INFO").arg("commandstats")).await;
        let of = |line: &str| line.split_once("calls=")?.1.split_once(',')?.0.parse::<u64>().ok();
        info.lines().filter(|line| !line.starts_with("cmdstat_info") && !line.contains("evalsha")).filter_map(of).sum()
    }
}

/// A part's name is its key, each byte as one character: some keys hold bytes that are no text.
fn key(part: &str) -> Vec<u8> {
    part.chars().map(|c| u8::try_from(c).expect("a name of a part")).collect()
}

/// A value as bytes, whatever the order in which Redis happens to give what has none.
fn in_order(value: &redis::Value) -> Vec<u8> {
    match value {
        redis::Value::BulkString(bytes) => bytes.clone(),
        redis::Value::Map(pairs) => sorted(pairs.iter().map(|(k, v)| [in_order(k), in_order(v)].concat())),
        redis::Value::Array(items) if items.len() % 2 == 0 => {
            sorted(items.chunks(2).map(|pair| [in_order(&pair[0]), in_order(&pair[1])].concat()))
        }
        redis::Value::Array(items) | redis::Value::Set(items) => sorted(items.iter().map(in_order)),
        other => format!("{other:?}").into_bytes(),
    }
}

fn sorted(items: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut items: Vec<_> = items.collect();
    items.sort();
    items.concat()
}
