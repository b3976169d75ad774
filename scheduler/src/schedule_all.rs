use std::collections::BTreeMap;

use futures_util::future::join_all;
use futures_util::{Stream, StreamExt as _, stream};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::BudgetName;
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::queue;
use sendslot_shared::reserve::Booking;

use crate::{Booked, ScheduleError, Scheduler};

/// Messages that are booked in one call, and calls in flight: at most CHUNK x CHUNKS messages are in memory.
const CHUNK: usize = 100;
const CHUNKS: usize = 6;

type Outcome = Result<Booked, ScheduleError>;

pub(crate) fn schedule_all<S>(scheduler: Scheduler, messages: S) -> impl Stream<Item = Outcome> + use<S>
where
    S: Stream<Item = Message>,
{
    messages
        .ready_chunks(CHUNK)
        .map(move |chunk| schedule_chunk(scheduler.clone(), chunk))
        .buffered(CHUNKS)
        .flat_map(stream::iter)
}

/// One chunk: checked, booked per budget, enqueued in batches side by side. Results stand at their messages' places.
async fn schedule_chunk(scheduler: Scheduler, chunk: Vec<Message>) -> Vec<Outcome> {
    let mut results: Vec<Option<Outcome>> = chunk.iter().map(|_| None).collect();
    let mut budgets: BTreeMap<BudgetName, Vec<(usize, Draft)>> = BTreeMap::new();
    for (i, message) in chunk.into_iter().enumerate() {
        match crate::scheduler::prepare(message) {
            Ok(draft) => budgets.entry(draft.budget.clone()).or_default().push((i, draft)),
            Err(e) => results[i] = Some(Err(e)),
        }
    }
    let parts = join_all(budgets.into_iter().map(|(budget, drafts)| schedule_budget(&scheduler, budget, drafts))).await;
    for (i, result) in parts.into_iter().flatten() {
        results[i] = Some(result);
    }
    // every message is in exactly one budget or was refused above
    results.into_iter().flatten().collect()
}

async fn schedule_budget(
    scheduler: &Scheduler,
    budget: BudgetName,
    drafts: Vec<(usize, Draft)>,
) -> Vec<(usize, Outcome)> {
    let refs: Vec<&Draft> = drafts.iter().map(|(_, draft)| draft).collect();
    let answers = match scheduler.book_all(&budget, &refs).await {
        Ok(answers) => answers,
        Err(e) => return drafts.into_iter().map(|(i, _)| (i, Err(e.clone().into()))).collect(),
    };
    let mut results = vec![];
    let mut copies: Vec<(usize, String, Booking)> = vec![];
    for ((i, draft), answer) in drafts.into_iter().zip(answers) {
        match answer {
            Err(refusal) => results.push((i, Err(refusal.into()))),
            Ok(booking) => match Envelope::first(draft, booking.seq, booking.at).to_body() {
                Ok(body) => copies.push((i, body, booking)),
                Err(e) => results.push((i, Err(e.into()))),
            },
        }
    }
    results.extend(enqueue(scheduler, copies).await);
    results
}

async fn enqueue(scheduler: &Scheduler, copies: Vec<(usize, String, Booking)>) -> Vec<(usize, Outcome)> {
    let sizes: Vec<usize> = copies.iter().map(|(_, body, _)| body.len()).collect();
    let mut copies = copies.into_iter();
    let batches: Vec<Vec<_>> =
        queue::pack(&sizes).into_iter().map(|range| copies.by_ref().take(range.len()).collect()).collect();
    let sent = batches.into_iter().map(|batch| async move {
        let places: Vec<(usize, Booking)> = batch.iter().map(|(i, _, booking)| (*i, *booking)).collect();
        let bodies = batch.into_iter().map(|(_, body, booking)| (body, booking)).collect();
        let results = scheduler.enqueue(bodies).await;
        places
            .into_iter()
            .zip(results)
            .map(|((i, booking), result)| (i, result.map(|()| Booked { booking }).map_err(ScheduleError::from)))
    });
    join_all(sent).await.into_iter().flatten().collect()
}
