//! The dead-letter queue: received in tens, and given back.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, anyhow};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, MessageSystemAttributeName,
    QueueAttributeName,
};
use indicatif::{ProgressBar, ProgressStyle};
use sendslot_shared::queue::{self, MAX_ENTRIES, Queue};

use super::args::Filters;
use super::letter::Letter;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings::Settings;

/// Nothing came for this long: the queue has no more.
const EMPTY_AFTER_S: i32 = 2;
/// Left of the visibility timeout when receiving ends, for giving back what was received first.
const MARGIN: f64 = 0.2;

/// The dead-letter queue while one command works with it. It keeps the handles of what has to be given back; SQS lets at most
/// 120,000 be received at a time.
pub(super) struct Shelf {
    client: Client,
    url: String,
    visibility: Duration,
    opened: Instant,
    held: Vec<String>,
    seen: HashSet<String>,
    /// Why receiving ended before the queue was empty.
    pub(super) incomplete: Option<&'static str>,
    interrupted: Arc<AtomicBool>,
    bar: ProgressBar,
}

/// Runs a command's work on the queue, and gives back what is left of it, whatever came of the work.
pub(super) async fn with<T>(
    settings: &Settings,
    visibility: Duration,
    work: impl AsyncFnOnce(&mut Shelf) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut shelf = Shelf::open(settings, visibility).await?;
    let done = work(&mut shelf).await;
    shelf.bar.finish_and_clear();
    if let Err(error) = shelf.give_back().await {
        output::note(&format!(
            "note: some dead letters could not be given back ({error}); they show up again within {visibility:?}"
        ));
    }
    let done = done?;
    if shelf.interrupted.load(Relaxed) {
        return Err(anyhow!("interrupted; what was not done is still in the dead-letter queue").into());
    }
    Ok(done)
}

impl Shelf {
    async fn open(settings: &Settings, visibility: Duration) -> Result<Self, Failure> {
        let url = settings.need("dlq_url")?.to_owned();
        if settings.get("queue_url") == Some(url.as_str()) {
            let what = "SENDSLOT_DLQ_URL is the same as SENDSLOT_QUEUE_URL: give the URL of the dead-letter queue";
            return Err(Failure::usage(anyhow!(what)));
        }
        let client = queue::client_from_env().await;
        Queue::new(client.clone(), &url).map_err(Failure::usage)?.check().await?;
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed}");
        let bar = ProgressBar::new(count(&client, &url).await);
        Ok(Self {
            client,
            url,
            visibility,
            opened: Instant::now(),
            held: vec![],
            seen: HashSet::new(),
            incomplete: None,
            interrupted: interrupts(),
            bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
        })
    }

    /// The next dead letters that the filters let through, at least one and at most ten; none: that was all, or `incomplete` says
    /// why not. All others are given back at the end. `left` is what the filters' limit leaves.
    pub(super) async fn next(&mut self, filters: &Filters, left: &mut u64) -> Result<Vec<Letter>, Failure> {
        loop {
            if self.interrupted.load(Relaxed) || self.incomplete.is_some() {
                return Ok(vec![]);
            }
            if *left == 0 {
                self.incomplete = Some("the limit was reached");
                return Ok(vec![]);
            }
            if self.opened.elapsed() > self.visibility.mul_f64(1.0 - MARGIN) {
                self.incomplete = Some("the visibility timeout was nearly over: raise --visibility");
                return Ok(vec![]);
            }
            let Some(received) = self.receive().await? else { return Ok(vec![]) };
            let mut taken = vec![];
            for letter in received {
                self.held.push(letter.handle.clone());
                let first = self.seen.insert(letter.message_id.clone());
                if first && *left > 0 && letter.matches(filters) {
                    *left -= 1;
                    taken.push(letter);
                }
            }
            if !taken.is_empty() {
                return Ok(taken);
            }
        }
    }

    async fn receive(&mut self) -> Result<Option<Vec<Letter>>, Failure> {
        let request = self.client.receive_message().queue_url(&self.url).max_number_of_messages(10);
        let request = request.visibility_timeout(i32::try_from(self.visibility.as_secs()).unwrap_or(i32::MAX));
        let request = request.wait_time_seconds(EMPTY_AFTER_S).message_attribute_names("All");
        let answer = request.message_system_attribute_names(MessageSystemAttributeName::All).send().await;
        let messages = match answer {
            Ok(answer) => answer.messages.unwrap_or_default(),
            Err(error) if error.as_service_error().is_some_and(|e| e.is_over_limit()) => {
                self.incomplete = Some("SQS hands out no more at a time: use filters with redrive or purge first");
                return Ok(None);
            }
            Err(error) => {
                let error = anyhow!("{}", DisplayErrorContext(&error));
                return Err(error.context("the dead letters could not be received").into());
            }
        };
        if messages.is_empty() {
            return Ok(None);
        }
        self.bar.inc(messages.len() as u64);
        let now = SystemTime::now();
        Ok(Some(messages.into_iter().map(|message| Letter::new(message, now)).collect()))
    }

    /// How many dead letters were looked at.
    pub(super) fn seen(&self) -> usize {
        self.seen.len()
    }

    /// Deletes these; the ones that SQS did not delete are counted, and given back.
    pub(super) async fn delete(&mut self, handles: &[String]) -> Result<usize, anyhow::Error> {
        let mut kept = 0;
        for some in handles.chunks(MAX_ENTRIES) {
            let entry = |(i, handle): (usize, &String)| {
                DeleteMessageBatchRequestEntry::builder().id(i.to_string()).receipt_handle(handle).build()
            };
            let entries: Vec<_> = some.iter().enumerate().map(entry).collect::<Result<_, _>>()?;
            let answer = self.client.delete_message_batch().queue_url(&self.url).set_entries(Some(entries)).send();
            let answer = answer.await.map_err(|e| anyhow!("{}", DisplayErrorContext(&e)));
            let answer = answer.context("they could not be deleted")?;
            let gone: HashSet<&String> =
                answer.successful.iter().filter_map(|entry| some.get(entry.id.parse::<usize>().ok()?)).collect();
            kept += some.len() - gone.len();
            // they are the ones that were received last
            self.held.retain(|handle| !gone.contains(handle));
        }
        Ok(kept)
    }

    async fn give_back(&mut self) -> Result<(), anyhow::Error> {
        let mut first = Ok(());
        for some in std::mem::take(&mut self.held).chunks(MAX_ENTRIES) {
            let entry = |(i, handle): (usize, &String)| {
                let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(i.to_string());
                entry.receipt_handle(handle).visibility_timeout(0).build()
            };
            let entries: Vec<_> = some.iter().enumerate().map(entry).collect::<Result<_, _>>()?;
            let request = self.client.change_message_visibility_batch().queue_url(&self.url);
            let answer = request.set_entries(Some(entries)).send().await;
            match answer.map_err(|e| anyhow!("{}", DisplayErrorContext(&e))) {
                Ok(answer) if answer.failed.is_empty() => {}
                Ok(answer) => first = first.and(Err(anyhow!("{} were refused", answer.failed.len()))),
                // nobody answered: the others would wait for as long
                Err(error) => return Err(error),
            }
        }
        first
    }

    /// A line for standard error, above the bar.
    pub(super) fn tell(&self, text: &str) {
        self.bar.suspend(|| output::note(text));
    }

    /// What the bar says behind its numbers.
    pub(super) fn progress(&self, text: String) {
        self.bar.set_message(text);
    }
}

async fn count(client: &Client, url: &str) -> u64 {
    let name = QueueAttributeName::ApproximateNumberOfMessages;
    let answer = client.get_queue_attributes().queue_url(url).attribute_names(name.clone()).send().await;
    let attributes = answer.ok().and_then(|answer| answer.attributes).unwrap_or_default();
    attributes.get(&name).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Becomes true at the first Ctrl-C or SIGTERM: what is under way is finished and the rest given back. A second one ends the
/// process at once.
fn interrupts() -> Arc<AtomicBool> {
    use tokio::signal::unix::{SignalKind, signal};
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    if let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        tokio::spawn(async move {
            loop {
                tokio::select! { _ = int.recv() => {} _ = term.recv() => {} }
                if flag.swap(true, Relaxed) {
                    std::process::exit(Exit::Failed as i32);
                }
            }
        });
    }
    interrupted
}
