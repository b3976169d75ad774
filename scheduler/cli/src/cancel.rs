//! `sendslot cancel BUDGET ID`.

use sendslot_scheduler::{Cancelled, SendState};
use sendslot_shared::cancel;
use sendslot_shared::id::{BudgetName, SendId};
use serde::Serialize;

use crate::args::CancelArgs;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::{output, words};

/// What became of a cancellation, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Shown {
    budget: String,
    id: String,
    /// `cancelled`, `too_late`, `already_sent`, `ended` or `unknown_id`.
    result: &'static str,
    /// How it had ended.
    ended_as: Option<&'static str>,
}

pub(crate) async fn run(args: CancelArgs, settings: &Settings) -> Result<Exit, Failure> {
    let budget = BudgetName::new(&args.budget).map_err(Failure::usage)?;
    let id = SendId::new(&args.id).map_err(Failure::usage)?;
    let store = settings.store().await?;
    let answer = cancel::cancel(&store, &budget, &id).await?;
    if args.json {
        let (result, ended_as) = (name(answer), state(answer).map(SendState::as_str));
        output::json(&Shown { budget: args.budget, id: args.id, result, ended_as })?;
    } else {
        output::line(&format!("{id}: {}", sentence(answer)));
    }
    Ok(exit(answer))
}

fn name(answer: Cancelled) -> &'static str {
    match answer {
        Cancelled::Cancelled => "cancelled",
        Cancelled::TooLate => "too_late",
        Cancelled::AlreadySent => "already_sent",
        Cancelled::Ended(_) => "ended",
        Cancelled::Unknown => "unknown_id",
    }
}

fn state(answer: Cancelled) -> Option<SendState> {
    if let Cancelled::Ended(state) = answer { Some(state) } else { None }
}

fn sentence(answer: Cancelled) -> String {
    match answer {
        Cancelled::Cancelled => "cancelled".to_owned(),
        Cancelled::TooLate => "too late: a worker is sending it just now".to_owned(),
        Cancelled::AlreadySent => "already sent".to_owned(),
        Cancelled::Ended(state) => format!("ended as {}", words::ended(state)),
        Cancelled::Unknown => "unknown ID: it is remembered as cancelled and will not be sent".to_owned(),
    }
}

fn exit(answer: Cancelled) -> Exit {
    match answer {
        Cancelled::Cancelled => Exit::Success,
        Cancelled::TooLate | Cancelled::AlreadySent | Cancelled::Ended(_) => Exit::Partial,
        Cancelled::Unknown => Exit::Unknown,
    }
}
