//! `sendslot send`: a JSONL file becomes scheduled sends.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::{Stream, StreamExt as _, stream};
use indicatif::{ProgressBar, ProgressStyle};
use sendslot_scheduler::{ConfigError, Message, QueueError, Refusal, ScheduleError, Scheduled};
use sendslot_shared::budget;
use sendslot_shared::id::BudgetName;
use serde::Serialize;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use crate::args::SendArgs;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::{jsonl, output};

/// What became of a file, as `--json` shows it.
#[derive(Debug, Default, Serialize)]
struct Report {
    budget: String,
    lines: u64,
    accepted: u64,
    /// Those of the accepted that have no slot yet, since Redis could not be asked.
    unbooked: u64,
    /// Of the accepted ones: their budget is paused without an end.
    paused: u64,
    already_sent: u64,
    in_progress: u64,
    refused: u64,
    /// The refused ones by reason.
    refused_by: BTreeMap<&'static str, u64>,
    /// Of those that were refused as full: when the first of them may be offered again.
    retry_after_s: Option<u64>,
    invalid: u64,
    failed: u64,
    last_slot_in_s: f64,
    elapsed_s: f64,
    errors: Vec<LineError>,
}

#[derive(Debug, Clone, Serialize)]
struct LineError {
    line: u64,
    id: Option<String>,
    error: String,
}

/// The most errors that are listed in the JSON document; all are counted and named on standard error.
const LISTED: usize = 1000;

/// No message is that long: SQS takes 1 MiB.
const MAX_LINE: u64 = 16 << 20;

type Lines = Pin<Box<dyn AsyncBufRead + Send>>;

/// What was read, shared between the stream of messages and the loop over their results.
#[derive(Debug, Default)]
struct Reading {
    /// Line and ID of each message in flight, in order.
    origins: VecDeque<(u64, String)>,
    lines: u64,
    invalid: u64,
    errors: Vec<LineError>,
    broken: Option<std::io::Error>,
}

type Shared = Arc<Mutex<Reading>>;

/// A scheduler that could not be made: what its environment says is wrong, or a server would not.
pub(crate) fn unusable(error: ConfigError) -> Failure {
    match error {
        ConfigError::Missing { .. }
        | ConfigError::Queue(QueueError::Fifo { .. })
        | ConfigError::RedisPolicy(_)
        | ConfigError::PolicyFile(_) => Failure::usage(error),
        error => Failure::from(error),
    }
}

fn lock(reading: &Shared) -> std::sync::MutexGuard<'_, Reading> {
    reading.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) async fn run(args: SendArgs, settings: &Settings) -> Result<Exit, Failure> {
    let name = BudgetName::new(&args.budget).map_err(Failure::usage)?;
    let (lines, size) = open(&args.file).await.map_err(Failure::usage)?;
    let known = budget::get(&settings.store().await?, &name).await?;
    if known.is_none() {
        return Err(crate::budget::unknown(&name));
    }
    let scheduler = settings.scheduler()?.build().await.map_err(unusable)?;
    let began = Instant::now();
    let (reading, bar) = (Shared::default(), progress(size));
    let messages = messages(lines, &args, reading.clone(), bar.clone());
    let mut results = std::pin::pin!(scheduler.schedule_all(messages));
    let mut report = Report { budget: name.to_string(), ..Report::default() };
    while let Some(result) = results.next().await {
        let origin = lock(&reading).origins.pop_front().unwrap_or_default();
        report.count(result, origin, &bar);
    }
    bar.finish_and_clear();
    let read = std::mem::take(&mut *lock(&reading));
    report.lines = read.lines;
    report.invalid += read.invalid;
    report.errors.extend(read.errors);
    report.errors.sort_by_key(|error| error.line);
    report.errors.truncate(LISTED);
    report.elapsed_s = began.elapsed().as_secs_f64();
    report.show(args.json)?;
    if let Some(error) = read.broken {
        return Err(anyhow::Error::from(error).context(format!("reading stopped after line {}", read.lines)).into());
    }
    Ok(report.exit())
}

/// The file's lines and its size in bytes; standard input has none.
async fn open(file: &Path) -> Result<(Lines, Option<u64>), anyhow::Error> {
    if file == Path::new("-") {
        return Ok((Box::pin(BufReader::new(tokio::io::stdin())), None));
    }
    let named = |e: std::io::Error| anyhow::anyhow!("{} cannot be read: {e}", file.display());
    let opened = tokio::fs::File::open(file).await.map_err(named)?;
    let size = opened.metadata().await.map_err(named)?.len();
    Ok((Box::pin(BufReader::with_capacity(1 << 16, opened)), Some(size)))
}

/// On standard error, and only where that is a terminal.
fn progress(size: Option<u64>) -> ProgressBar {
    let bar = size.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = "{bar:30} {bytes}/{total_bytes} {msg} {elapsed} (eta {eta})";
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The file's messages; a line that is none is named and passed over.
fn messages(lines: Lines, args: &SendArgs, reading: Shared, bar: ProgressBar) -> impl Stream<Item = Message> + use<> {
    let (budget, lane) = (args.budget.clone(), args.lane.clone());
    stream::unfold((lines, Vec::new()), move |(mut lines, mut bytes)| {
        let (reading, bar, budget, lane) = (reading.clone(), bar.clone(), budget.clone(), lane.clone());
        async move {
            loop {
                bytes.clear();
                match (&mut lines).take(MAX_LINE).read_until(b'\n', &mut bytes).await {
                    Ok(0) => return None,
                    Ok(read) if read as u64 == MAX_LINE && !bytes.ends_with(b"\n") => {
                        lock(&reading).broken = Some(std::io::Error::other("a line is longer than 16 MiB"));
                        return None;
                    }
                    Ok(read) => bar.inc(read as u64),
                    Err(error) => {
                        lock(&reading).broken = Some(error);
                        return None;
                    }
                }
                let message = lock(&reading).take(&bytes, &budget, lane.as_deref(), &bar);
                if let Some(message) = message {
                    return Some((message, (lines, bytes)));
                }
            }
        }
    })
}

impl Reading {
    /// One line: a message, or nothing for an empty line and for one that is named as invalid.
    fn take(&mut self, bytes: &[u8], budget: &str, lane: Option<&str>, bar: &ProgressBar) -> Option<Message> {
        self.lines += 1;
        let text = std::str::from_utf8(bytes).map(str::trim);
        if text == Ok("") {
            return None;
        }
        let parsed = text.map_err(|e| format!("not UTF-8: {e}")).and_then(|text| jsonl::message(text, budget, lane));
        match parsed {
            Ok(message) => {
                self.origins.push_back((self.lines, message.id().to_owned()));
                Some(message)
            }
            Err(error) => {
                self.invalid += 1;
                let error = LineError { line: self.lines, id: None, error };
                error.tell(bar);
                if self.errors.len() < LISTED {
                    self.errors.push(error);
                }
                None
            }
        }
    }
}

impl LineError {
    fn tell(&self, bar: &ProgressBar) {
        let id = self.id.as_deref().map(|id| format!(" ({id})")).unwrap_or_default();
        bar.suspend(|| output::note(&format!("line {}{id}: {}", self.line, self.error)));
    }
}

impl Report {
    fn count(&mut self, result: Result<Scheduled, ScheduleError>, (line, id): (u64, String), bar: &ProgressBar) {
        let error = match result {
            Ok(scheduled) => {
                self.accepted += 1;
                match scheduled.wait() {
                    Some(wait) => self.last_slot_in_s = self.last_slot_in_s.max(wait.as_secs_f64()),
                    None if scheduled.booked().is_some() => self.paused += 1,
                    None => self.unbooked += 1,
                }
                bar.set_message(format!("{} accepted", self.accepted));
                return;
            }
            Err(ScheduleError::Refused(Refusal::AlreadySent)) => {
                self.already_sent += 1;
                return;
            }
            Err(ScheduleError::Refused(Refusal::InProgress)) => {
                self.in_progress += 1;
                return;
            }
            Err(error) => error,
        };
        match error {
            ScheduleError::Redis(_) | ScheduleError::Queue(_) | ScheduleError::Nowhere { .. } => self.failed += 1,
            ScheduleError::Refused(ref refusal) => self.refuse(refusal),
            ScheduleError::Invalid(_) | ScheduleError::TooLarge(_) | ScheduleError::DeadLetter(_) => self.invalid += 1,
        }
        let error = LineError { line, id: Some(id), error: error.to_string() };
        error.tell(bar);
        if self.errors.len() < LISTED {
            self.errors.push(error);
        }
    }

    fn refuse(&mut self, refusal: &Refusal) {
        self.refused += 1;
        *self.refused_by.entry(refusal.as_str()).or_default() += 1;
        if let Refusal::Full { retry_after } = refusal {
            let seconds = retry_after.as_secs();
            self.retry_after_s = Some(self.retry_after_s.map_or(seconds, |s| s.min(seconds)));
        }
    }

    /// `2 full (send the file again in 30 s), 1 past deadline`.
    fn refusals(&self) -> String {
        let retry = self.retry_after_s.map(|s| format!(" (send the file again in {s} s)")).unwrap_or_default();
        let reason = |(name, n): (&&str, &u64)| {
            let retry = if *name == "full" { retry.as_str() } else { "" };
            format!("{n} {}{retry}", name.replace('_', " "))
        };
        self.refused_by.iter().map(reason).collect::<Vec<_>>().join(", ")
    }

    fn show(&self, json: bool) -> Result<(), Failure> {
        if json {
            output::json(self)?;
            return Ok(());
        }
        output::line(&format!("{}: {} lines in {:.1} s", self.budget, self.lines, self.elapsed_s));
        let counts = [
            ("accepted", self.accepted),
            ("of them without a slot until Redis can be asked again", self.unbooked),
            ("of them until the budget is resumed: it is paused", self.paused),
            ("sent before", self.already_sent),
            ("being sent", self.in_progress),
            ("refused", self.refused),
            ("invalid", self.invalid),
            ("failed, send the file again", self.failed),
        ];
        for (what, n) in counts.iter().filter(|(what, n)| *n > 0 || *what == "accepted") {
            let why = if *what == "refused" { format!(": {}", self.refusals()) } else { String::new() };
            output::line(&format!("  {n} {what}{why}"));
        }
        output::line(&format!("  the last one leaves in {:.1} s", self.last_slot_in_s));
        Ok(())
    }

    fn exit(&self) -> Exit {
        match (self.failed, self.refused + self.invalid) {
            (0, 0) => Exit::Success,
            (0, _) => Exit::Partial,
            _ => Exit::Failed,
        }
    }
}
