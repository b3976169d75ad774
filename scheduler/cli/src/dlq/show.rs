//! `sendslot dlq show ID`.

use anyhow::anyhow;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;

use super::args::{Filters, ShowArgs};
use super::letter::{Letter, Shown, age, plain};
use super::shelf;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings::Settings;

/// A dead letter as `--json` shows it, with its payload if that was asked for: as text, or else in base64.
#[derive(Debug, Serialize)]
struct Whole {
    #[serde(flatten)]
    shown: Shown,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

pub(crate) async fn run(args: ShowArgs, settings: &Settings) -> Result<Exit, Failure> {
    let filters = Filters { id: Some(args.id.clone()), budget: args.budget.clone(), ..Filters::default() };
    let letters = shelf::with(settings, args.reading.visibility, async |shelf| {
        let (mut letters, mut left) = (vec![], u64::MAX);
        loop {
            let some = shelf.next(&filters, &mut left).await?;
            if some.is_empty() {
                return Ok(letters);
            }
            letters.extend(some.iter().map(|letter| whole(letter, args.payload)));
        }
    });
    let letters = letters.await?;
    if letters.is_empty() {
        return Err(Failure::unknown(anyhow!("no dead letter has the ID {}", plain(&args.id))));
    }
    if args.reading.json {
        output::json(&letters)?;
    } else {
        letters.iter().for_each(lines);
    }
    Ok(Exit::Success)
}

fn whole(letter: &Letter, with_payload: bool) -> Whole {
    let bytes = match &letter.envelope {
        Ok(envelope) => envelope.draft.payload.as_slice(),
        Err(_) => letter.body.as_bytes(),
    };
    let text = std::str::from_utf8(bytes);
    Whole {
        shown: letter.shown(),
        payload: text.ok().filter(|_| with_payload).map(str::to_owned),
        payload_base64: text.err().filter(|_| with_payload).map(|_| STANDARD.encode(bytes)),
    }
}

fn lines(whole: &Whole) {
    let shown = &whole.shown;
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let age = age(shown);
    output::line(&plain(&shown.id));
    let row = |name: &str, value: &str| output::line(&format!("{name:>12}  {}", plain(value)));
    match (&shown.budget, &shown.lane) {
        (Some(budget), Some(lane)) => row("budget", &format!("{budget}, lane {lane}")),
        (budget, _) => row("budget", &or_none(budget)),
    }
    row("reason", &shown.reason);
    row("error", if shown.error.is_empty() { "none" } else { &shown.error });
    row("attempts", &shown.attempts.map_or_else(|| "not known".to_owned(), |n| n.to_string()));
    row("dead since", &format!("{}, for {age}", shown.dead_since));
    if shown.readable {
        row("slot", &or_none(&shown.slot));
        row("not before", &or_none(&shown.not_before));
        row("deadline", &or_none(&shown.deadline));
        row("cost", &shown.cost.unwrap_or(0).to_string());
        row("payload", &format!("{} bytes", shown.bytes));
    } else {
        row("body", &format!("{} bytes, unreadable: it can be purged, not redriven", shown.bytes));
    }
    // as it is: to be piped on
    if let Some(payload) = whole.payload.as_ref().or(whole.payload_base64.as_ref()) {
        output::line(payload);
    }
}
