//! The scheduler as a process of its own: it is asked on standard input, answers on standard output, and ends with its input.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use futures_util::{StreamExt as _, stream};
use sendslot_scheduler::Scheduler;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;

use super::asks::{Answer, Ask, Offer, Said};

/// Serves until its input ends, configured from the environment as every scheduler.
///
/// # Errors
/// When its input is not what a run says.
pub async fn load() -> Result<()> {
    let scheduler = connect().await;
    let (together, offers) = mpsc::unbounded_channel();
    tokio::spawn(schedule_all(scheduler.clone(), offers));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match serde_json::from_str(&line)? {
            Ask::Send(offer) if offer.together => together.send(offer)?,
            Ask::Send(offer) => {
                let scheduler = scheduler.clone();
                tokio::spawn(async move { answer(offer.id.clone(), scheduler.schedule(offer.message()).await.into()) });
            }
            Ask::Cancel { budget, id } => {
                let scheduler = scheduler.clone();
                tokio::spawn(async move {
                    let said = scheduler.cancel(&budget, &id).await.into();
                    answer(id, said);
                });
            }
        }
    }
    // whoever asked is gone: what is under way is never answered, as after a kill
    std::process::exit(0)
}

/// A scheduler checks at its start that the queue is there.
async fn connect() -> Scheduler {
    loop {
        match Scheduler::builder().start_without_redis().build().await {
            Ok(scheduler) => return scheduler,
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn schedule_all(scheduler: Scheduler, offers: mpsc::UnboundedReceiver<Offer>) {
    let (ids, mut origins) = mpsc::unbounded_channel();
    let offers = stream::unfold((offers, ids), |(mut offers, ids)| async move {
        let offer = offers.recv().await?;
        ids.send(offer.id.clone()).ok()?;
        Some((offer.message(), (offers, ids)))
    });
    let mut results = std::pin::pin!(scheduler.schedule_all(offers));
    while let Some(result) = results.next().await {
        // results come in the order of the offers
        let Some(id) = origins.recv().await else { return };
        answer(id, result.into());
    }
}

fn answer(id: String, said: Said) {
    let Ok(line) = serde_json::to_string(&Answer { id, said }) else { return };
    let mut out = std::io::stdout().lock();
    // whoever asked is gone: the next line of input is the end
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
