//! `sendslot dlq list`.

use serde::Serialize;

use super::args::ListArgs;
use super::letter::{Shown, age, plain};
use super::shelf;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings::Settings;

/// The list as `--json` shows it.
#[derive(Debug, Serialize)]
struct List {
    letters: Vec<Shown>,
    /// Dead letters that were looked at.
    seen: usize,
    /// Whether that was all of them.
    complete: bool,
}

pub(crate) async fn run(args: ListArgs, settings: &Settings) -> Result<Exit, Failure> {
    let json = args.reading.json;
    let list = shelf::with(settings, args.reading.visibility, async |shelf| {
        let mut left = args.filters.limit.unwrap_or(u64::MAX);
        let (mut letters, mut listed) = (vec![], 0_usize);
        loop {
            let some = shelf.next(&args.filters, &mut left).await?;
            if some.is_empty() {
                break;
            }
            for letter in some {
                if listed == 0 && !json {
                    output::line(&row(["ID", "BUDGET/LANE", "REASON", "ATTEMPTS", "AGE", "DEADLINE", "ERROR"]));
                }
                listed += 1;
                if json { letters.push(letter.shown()) } else { output::line(&line(&letter.shown())) }
            }
        }
        if !json {
            let why = shelf.incomplete.map(|why| format!(", not all: {why}")).unwrap_or_default();
            shelf.tell(&format!("{listed} dead letters, of {} looked at{why}", shelf.seen()));
        }
        Ok(List { letters, seen: shelf.seen(), complete: shelf.incomplete.is_none() })
    });
    let list = list.await?;
    if json {
        output::json(&list)?;
    }
    Ok(Exit::Success)
}

fn line(shown: &Shown) -> String {
    let place = match (&shown.budget, &shown.lane) {
        (Some(budget), Some(lane)) => format!("{budget}/{lane}"),
        (Some(budget), None) => budget.clone(),
        _ => "unreadable".to_owned(),
    };
    let attempts = shown.attempts.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let age = age(shown);
    let deadline = shown.deadline.as_deref().unwrap_or("-");
    row([&plain(&shown.id), &plain(&place), &plain(&shown.reason), &attempts, &age, deadline, &plain(&shown.error)])
}

fn row([id, place, reason, attempts, age, deadline, error]: [&str; 7]) -> String {
    let row = format!("{id:<36}  {place:<20}  {reason:<18}  {attempts:>8}  {age:>12}  {deadline:<27}  {error}");
    row.trim_end().to_owned()
}
