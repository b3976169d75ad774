//! `sendslot dlq redrive`: new slots for what could not be sent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use futures_util::future::join_all;
use sendslot_scheduler::{Refusal, ScheduleError, Scheduler, SendState};
use sendslot_shared::claim::DeadReason;
use sendslot_shared::envelope::Envelope;
use sendslot_shared::settle::Ending;
use serde::Serialize;

use super::args::RedriveArgs;
use super::letter::{Letter, RECEIVED_TOO_OFTEN, plain};
use super::shelf::{self, Shelf};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings::Settings;

/// What became of the dead letters, as `--json` shows it.
#[derive(Debug, Default, Serialize)]
struct Report {
    matched: u64,
    /// They have new slots and are on the queue.
    redriven: u64,
    /// They are on the queue as they were: nobody had told them to end, and a worker decides.
    requeued: u64,
    /// An earlier run had redriven them, and they were sent.
    already_sent: u64,
    /// They are still dead letters.
    kept: u64,
    /// Those by reason.
    kept_by: BTreeMap<&'static str, u64>,
    /// They are on the queue, and still dead letters: to redrive them again is safe.
    not_deleted: u64,
    /// The last of the new slots.
    last_slot_in_s: f64,
    seen: usize,
    /// Whether all dead letters were looked at.
    complete: bool,
    elapsed_s: f64,
    errors: Vec<Kept>,
}

#[derive(Debug, Serialize)]
struct Kept {
    id: String,
    budget: Option<String>,
    error: String,
}

/// The most errors that are listed in the JSON document; all are counted and named on standard error.
const LISTED: usize = 1000;

/// What becomes of one dead letter.
enum Fate {
    Redriven {
        wait: Duration,
    },
    Requeued,
    AlreadySent,
    Kept {
        why: &'static str,
        error: String,
    },
    /// Redis or SQS would not.
    Broken(ScheduleError),
}

pub(crate) async fn run(args: RedriveArgs, settings: &Settings) -> Result<Exit, Failure> {
    let scheduler = settings.scheduler()?.build().await.map_err(crate::send::unusable)?;
    let began = Instant::now();
    let mut report = Report::default();
    let worked = shelf::with(settings, args.reading.visibility, async |shelf| {
        let mut left = args.filters.limit.unwrap_or(u64::MAX);
        let worked = loop {
            let letters = match shelf.next(&args.filters, &mut left).await {
                Ok(letters) => letters,
                Err(error) => break Err(error),
            };
            if letters.is_empty() {
                break Ok(());
            }
            if let Err(error) = report.redrive(shelf, &scheduler, letters, args.resend_unknown).await {
                break Err(error.into());
            }
        };
        if let Some(why) = shelf.incomplete {
            shelf.tell(&format!("not all were looked at: {why}"));
        }
        report.seen = shelf.seen();
        report.complete = worked.is_ok() && shelf.incomplete.is_none();
        worked
    });
    let worked = worked.await;
    report.complete &= worked.is_ok();
    report.elapsed_s = began.elapsed().as_secs_f64();
    report.show(args.reading.json)?;
    worked?;
    if report.not_deleted > 0 {
        let what = "dead letters were redriven and could not be deleted: run it again, none is sent twice";
        return Err(anyhow!("{} {what}", report.not_deleted).into());
    }
    Ok(if report.kept > 0 { Exit::Partial } else { Exit::Success })
}

impl Report {
    /// Some dead letters, side by side; those whose copies are on the queue are deleted.
    async fn redrive(
        &mut self,
        shelf: &mut Shelf,
        scheduler: &Scheduler,
        letters: Vec<Letter>,
        resend_unknown: bool,
    ) -> Result<(), anyhow::Error> {
        self.matched += letters.len() as u64;
        let fates = join_all(letters.iter().map(|letter| fate(scheduler, letter, resend_unknown))).await;
        let (mut done, mut broken) = (vec![], None);
        for (letter, fate) in letters.into_iter().zip(fates) {
            match fate {
                Fate::Redriven { wait } => {
                    self.redriven += 1;
                    self.last_slot_in_s = self.last_slot_in_s.max(wait.as_secs_f64());
                }
                Fate::Requeued => self.requeued += 1,
                Fate::AlreadySent => self.already_sent += 1,
                Fate::Kept { why, error } => {
                    self.keep(shelf, &letter, why, error);
                    continue;
                }
                Fate::Broken(error) => {
                    self.keep(shelf, &letter, "failed", error.to_string());
                    broken = Some(error);
                    continue;
                }
            }
            done.push(letter.handle);
        }
        match shelf.delete(&done).await {
            Ok(kept) => self.not_deleted += kept as u64,
            Err(error) => {
                self.not_deleted += done.len() as u64;
                return Err(error);
            }
        }
        shelf.progress(format!("{} redriven, {} kept", self.redriven + self.requeued, self.kept));
        broken.map_or(Ok(()), |error| Err(anyhow::Error::from(error).context("stopped; run it again")))
    }

    fn keep(&mut self, shelf: &Shelf, letter: &Letter, why: &'static str, error: String) {
        self.kept += 1;
        *self.kept_by.entry(why).or_default() += 1;
        let (id, budget) = (letter.id().to_owned(), letter.budget().map(str::to_owned));
        shelf.tell(&format!("{}: {error}", plain(&id)));
        if self.errors.len() < LISTED {
            self.errors.push(Kept { id, budget, error });
        }
    }

    fn show(&self, json: bool) -> Result<(), Failure> {
        if json {
            output::json(self)?;
            return Ok(());
        }
        output::line(&format!("{} dead letters in {:.1} s", self.matched, self.elapsed_s));
        let counts = [
            ("redriven", self.redriven),
            ("back on the queue as they were: a worker decides", self.requeued),
            ("sent since an earlier run", self.already_sent),
            ("kept", self.kept),
        ];
        for (what, n) in counts.iter().filter(|(what, n)| *n > 0 || *what == "redriven") {
            let reasons: Vec<String> =
                self.kept_by.iter().map(|(why, n)| format!("{n} {}", why.replace('_', " "))).collect();
            let why = if *what == "kept" { format!(": {}", reasons.join(", ")) } else { String::new() };
            output::line(&format!("  {n} {what}{why}"));
        }
        if self.redriven > 0 {
            output::line(&format!("  the last one leaves in {:.1} s", self.last_slot_in_s));
        }
        Ok(())
    }
}

async fn fate(scheduler: &Scheduler, letter: &Letter, resend_unknown: bool) -> Fate {
    let envelope = match &letter.envelope {
        Ok(envelope) => envelope,
        Err(error) => {
            let error = format!("{error}; it can be shown and purged");
            return Fate::Kept { why: "unreadable", error };
        }
    };
    if !resend_unknown && may_be_sent(letter, envelope) {
        let error = "nobody knows whether it was sent: see with the provider, then purge it, or give --resend-unknown";
        return Fate::Kept { why: "unknown_outcome", error: error.to_owned() };
    }
    match told_to_end(scheduler, letter, envelope).await {
        Ok(true) => {}
        Ok(false) => return requeue(scheduler, letter).await,
        Err(error) => return Fate::Broken(error),
    }
    match scheduler.redrive(&letter.body).await {
        Ok(booked) => Fate::Redriven { wait: booked.wait() },
        Err(ScheduleError::Refused(Refusal::AlreadySent)) => Fate::AlreadySent,
        // its worker may be dead
        Err(ScheduleError::Refused(Refusal::InProgress)) => requeue(scheduler, letter).await,
        Err(ScheduleError::Refused(refusal)) => {
            let deadline = envelope.draft.deadline.map(crate::instant::show);
            let error = match (&refusal, deadline) {
                (Refusal::PastDeadline { .. }, Some(deadline)) => format!("{refusal}, {deadline}"),
                _ => refusal.to_string(),
            };
            Fate::Kept { why: refusal.as_str(), error }
        }
        Err(error @ (ScheduleError::Redis(_) | ScheduleError::Queue(_) | ScheduleError::Nowhere { .. })) => {
            Fate::Broken(error)
        }
        Err(error @ (ScheduleError::Invalid(_) | ScheduleError::TooLarge(_) | ScheduleError::DeadLetter(_))) => {
            Fate::Kept { why: "unreadable", error: error.to_string() }
        }
    }
}

/// Whether the provider may have taken it, for all that is known.
fn may_be_sent(letter: &Letter, envelope: &Envelope) -> bool {
    let unknown = [DeadReason::UnknownOutcome, DeadReason::UnknownHistory].map(DeadReason::as_str);
    let called = envelope.report.is_some_and(|report| report.ending == Ending::Unknown);
    letter.reason != RECEIVED_TOO_OFTEN && (unknown.contains(&letter.reason.as_str()) || called)
}

/// Of what SQS moved by itself only a send that Redis knows to wait, or to have ended, is booked here. Any other may have been
/// called, or has something to report: the claim knows what to do with such a copy.
async fn told_to_end(scheduler: &Scheduler, letter: &Letter, envelope: &Envelope) -> Result<bool, ScheduleError> {
    if letter.reason != RECEIVED_TOO_OFTEN {
        return Ok(true);
    }
    if envelope.report.is_some() {
        return Ok(false);
    }
    let draft = &envelope.draft;
    match scheduler.status(draft.budget.as_str(), draft.id.as_str()).await {
        Ok(Some(send)) => Ok(!matches!(send.state, SendState::Claimed | SendState::Unknown)),
        Ok(None) => Ok(false),
        // the redrive says so
        Err(ScheduleError::Refused(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

async fn requeue(scheduler: &Scheduler, letter: &Letter) -> Fate {
    match scheduler.requeue(&letter.body).await {
        Ok(()) => Fate::Requeued,
        Err(error) => Fate::Broken(error),
    }
}
