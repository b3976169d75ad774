//! `sendslot quote`: when sends would leave if they were offered now.

use sendslot_scheduler::{LaneName, Quote, QuoteError, QuoteRequest, Stopped};
use sendslot_shared::id::BudgetName;
use sendslot_shared::quote;
use sendslot_shared::reserve::Paused;
use sendslot_shared::status;
use sendslot_shared::store::Store;
use sendslot_shared::time::Instant;
use serde::Serialize;

use crate::args::QuoteArgs;
use crate::exit::{Exit, Failure};
use crate::instant::show;
use crate::plan::for_people;
use crate::settings::Settings;
use crate::{output, words};

/// A quote as `--json` shows it; instants are RFC 3339 in UTC.
#[derive(Debug, Serialize)]
struct Shown {
    budget: String,
    lane: String,
    sends: u32,
    cost: u32,
    now: String,
    placed: u32,
    first: Option<String>,
    last: Option<String>,
    /// The budget is paused. Without an end there are no instants.
    paused: bool,
    /// From now to the last; in a pause without an end from when it goes on.
    lasts_s: f64,
    /// What bounds the last; null when there is none.
    bound_by: Option<&'static str>,
    hours: Vec<HourShown>,
    not_placed: u32,
    /// Why not all get a slot: `too_far` or `full`.
    stopped: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct HourShown {
    /// Its start.
    hour: String,
    sends: u32,
}

pub(crate) async fn run(args: QuoteArgs, settings: &Settings) -> Result<Exit, Failure> {
    let budget = BudgetName::new(&args.budget).map_err(Failure::usage)?;
    let lane = args.lane.map_or_else(|| Ok(LaneName::default()), LaneName::new).map_err(Failure::usage)?;
    let request = QuoteRequest { sends: args.sends, lane, cost: args.cost, not_before: args.not_before };
    let store = settings.store().await?;
    let quote = quote::quote(&store, &budget, &request).await.map_err(|error| match error {
        QuoteError::UnknownBudget => crate::budget::unknown(&budget),
        QuoteError::Store(error) => error.into(),
        error => Failure::usage(error),
    })?;
    if args.json {
        output::json(&shown(&budget, &request, &quote))?;
    } else {
        lines(&budget, &request, &quote).iter().for_each(|line| output::line(line));
    }
    note_pause(&store, &budget).await?;
    Ok(Exit::Success)
}

/// A pause with an end is counted; behind one without an end nobody knows.
async fn note_pause(store: &Store, budget: &BudgetName) -> Result<(), Failure> {
    let known = status::budget_status(store, budget).await?;
    if let Some(until) = known.paused_until {
        let paused = words::paused(budget, known.now, until);
        output::note(&format!("note: the budget is {paused}"));
    }
    Ok(())
}

fn shown(budget: &BudgetName, request: &QuoteRequest, quote: &Quote) -> Shown {
    let hour = |&(hour, sends): &(Instant, u32)| HourShown { hour: show(hour), sends };
    let known = quote.paused != Some(Paused::Open);
    Shown {
        budget: budget.to_string(),
        lane: request.lane.to_string(),
        sends: request.sends,
        cost: request.cost,
        now: show(quote.now),
        placed: quote.placed,
        first: quote.first.filter(|_| known).map(show),
        last: quote.last.filter(|_| known).map(show),
        paused: quote.paused.is_some(),
        lasts_s: quote.lasts().as_secs_f64(),
        bound_by: quote.last.map(|_| quote.bound_by.as_str()),
        hours: quote.hours.iter().filter(|_| known).map(hour).collect(),
        not_placed: request.sends - quote.placed,
        stopped: quote.stopped.map(|why| match why {
            Stopped::TooFar => "too_far",
            Stopped::Full => "full",
        }),
    }
}

fn lines(budget: &BudgetName, request: &QuoteRequest, quote: &Quote) -> Vec<String> {
    let QuoteRequest { sends, cost, lane, .. } = request;
    let mut lines = vec![format!("{budget}: {sends} sends of cost {cost} in the lane {lane}")];
    let mut row = |name: &str, value: String| lines.push(format!("{name:>12}  {value}"));
    let known = quote.paused != Some(Paused::Open);
    if !known {
        row("last", format!("{} after the budget is resumed", for_people(quote.lasts())));
    }
    if let Some((first, last)) = quote.first.zip(quote.last).filter(|_| known) {
        row("first", show(first));
        row("last", format!("{}, in {}", show(last), for_people(quote.lasts())));
        row("bound by", words::bound_by(quote.bound_by).to_owned());
    }
    for (i, (hour, sends)) in quote.hours.iter().filter(|_| known).enumerate() {
        row(if i == 0 { "by hour" } else { "" }, format!("{}  {sends}", show(*hour)));
    }
    if let Some(why) = quote.stopped {
        row("does not fit", format!("{}: {}", sends - quote.placed, stopped(why)));
    }
    lines
}

fn stopped(why: Stopped) -> &'static str {
    match why {
        Stopped::TooFar => "behind the budget's horizon. Offer them later, or raise the horizon",
        Stopped::Full => "they would wait longer than the lane's max-wait. Offer them later, or raise it",
    }
}
