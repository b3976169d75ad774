use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use futures_util::future::join_all;
use futures_util::{Stream, StreamExt as _, stream};
use sendslot_shared::id::BudgetName;
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::queue;
use sendslot_shared::reserve::{Booking, Refusal};
use sendslot_shared::store::StoreError;
use tokio::sync::Mutex;

use crate::count::Offer;
use crate::{Booked, ScheduleError, Scheduled, Scheduler};

/// Messages that go together, and how many times so many at once: at most CHUNK x CHUNKS messages are in memory.
const CHUNK: usize = 100;
const CHUNKS: usize = 6;

/// Messages that are booked in one call. Redis runs what a connection has written before it serves others: one such call at a time keeps
/// it 1 ms, also with lanes, quotas and spacing, while six of 100 kept it 16 ms.
const BOOKED_AT_ONCE: usize = 50;

type Outcome = Result<Scheduled, ScheduleError>;

/// By budget, so that a node of a cluster that hangs holds up no other budgets.
type Turns = Arc<std::sync::Mutex<BTreeMap<BudgetName, Arc<Mutex<()>>>>>;

pub(crate) fn schedule_all<S>(scheduler: Scheduler, messages: S) -> impl Stream<Item = Outcome> + use<S>
where
    S: Stream<Item = Message>,
{
    let turns = Turns::default();
    messages
        .ready_chunks(CHUNK)
        .map(move |chunk| schedule_chunk(scheduler.clone(), chunk, turns.clone()))
        .buffered(CHUNKS)
        .flat_map(stream::iter)
}

/// One chunk: checked, booked per budget, enqueued in batches side by side. Results stand at their messages' places.
async fn schedule_chunk(scheduler: Scheduler, chunk: Vec<Message>, turns: Turns) -> Vec<Outcome> {
    let mut results: Vec<Option<Outcome>> = chunk.iter().map(|_| None).collect();
    let mut budgets: BTreeMap<BudgetName, Vec<(usize, Draft)>> = BTreeMap::new();
    let mut offers: BTreeMap<usize, Offer> = BTreeMap::new();
    for (i, message) in chunk.into_iter().enumerate() {
        match crate::scheduler::offered(message) {
            Ok((draft, offer)) => {
                offers.insert(i, offer);
                budgets.entry(draft.budget.clone()).or_default().push((i, draft));
            }
            Err(e) => results[i] = Some(Err(e)),
        }
    }
    let booked = budgets.into_iter().map(|(budget, drafts)| schedule_budget(&scheduler, budget, drafts, &turns));
    let parts = join_all(booked).await;
    for (i, result) in parts.into_iter().flatten() {
        if let Some(offer) = offers.get(&i) {
            offer.ended(&result.as_ref().map(|scheduled| matches!(scheduled, Scheduled::Booked(_))));
        }
        results[i] = Some(result);
    }
    // every message is in exactly one budget or was refused above
    results.into_iter().flatten().collect()
}

async fn schedule_budget(
    scheduler: &Scheduler,
    budget: BudgetName,
    mut drafts: Vec<(usize, Draft)>,
    turns: &Turns,
) -> Vec<(usize, Outcome)> {
    let turn = {
        let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.entry(budget.clone()).or_default().clone()
    };
    let mut parts = vec![];
    while !drafts.is_empty() {
        let rest = drafts.split_off(drafts.len().min(BOOKED_AT_ONCE));
        parts.push(std::mem::replace(&mut drafts, rest));
    }
    let parts = parts.into_iter().map(|part| schedule_part(scheduler, &budget, part, &turn));
    join_all(parts).await.into_iter().flatten().collect()
}

async fn schedule_part(
    scheduler: &Scheduler,
    budget: &BudgetName,
    drafts: Vec<(usize, Draft)>,
    turn: &Mutex<()>,
) -> Vec<(usize, Outcome)> {
    let refs: Vec<&Draft> = drafts.iter().map(|(_, draft)| draft).collect();
    let answers = {
        let _turn = turn.lock().await;
        scheduler.book_all(budget, &refs).await
    };
    let mut results = vec![];
    let mut copies: Vec<(usize, String, Scheduled)> = vec![];
    let mut take = |i: usize, copy: Result<(String, Scheduled), ScheduleError>| match copy {
        Ok((body, scheduled)) => copies.push((i, body, scheduled)),
        Err(error) => results.push((i, Err(error))),
    };
    let error = match answers {
        Ok(answers) => {
            for ((i, draft), answer) in drafts.into_iter().zip(answers) {
                take(i, booked(draft, answer));
            }
            None
        }
        Err(error) => {
            for (i, draft) in drafts {
                take(i, scheduler.unbooked(draft, &error));
            }
            Some(error)
        }
    };
    results.extend(enqueue(scheduler, copies, error).await);
    results
}

fn booked(draft: Draft, answer: Result<Booking, Refusal>) -> Result<(String, Scheduled), ScheduleError> {
    let booking = answer?;
    let body = crate::scheduler::first_copy(draft, &booking).to_body()?;
    Ok((body, Scheduled::Booked(Booked { booking })))
}

/// `redis`: why they are not booked, if they are not.
async fn enqueue(
    scheduler: &Scheduler,
    copies: Vec<(usize, String, Scheduled)>,
    redis: Option<StoreError>,
) -> Vec<(usize, Outcome)> {
    let sizes: Vec<usize> = copies.iter().map(|(_, body, _)| body.len()).collect();
    let mut copies = copies.into_iter();
    let batches: Vec<Vec<_>> =
        queue::pack(&sizes).into_iter().map(|range| copies.by_ref().take(range.len()).collect()).collect();
    let failed = |queue| match &redis {
        Some(redis) => ScheduleError::Nowhere { redis: redis.clone(), queue },
        None => queue.into(),
    };
    let sent = batches.into_iter().map(async |batch| {
        let places: Vec<(usize, Scheduled)> = batch.iter().map(|(i, _, scheduled)| (*i, scheduled.clone())).collect();
        let bodies = batch.into_iter().map(|(_, body, scheduled)| (body, scheduled)).collect();
        let results = scheduler.enqueue(bodies).await;
        let outcome = |((i, scheduled), result): (_, Result<(), _>)| (i, result.map(|()| scheduled).map_err(failed));
        places.into_iter().zip(results).map(outcome).collect::<Vec<_>>()
    });
    join_all(sent).await.into_iter().flatten().collect()
}
