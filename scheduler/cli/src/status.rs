//! `sendslot status BUDGET [ID]`.

use sendslot_shared::budget::{self, BudgetError};
use sendslot_shared::id::{BudgetName, SendId};
use sendslot_shared::policy::Policy;
use sendslot_shared::status::{self, BudgetStatus, SendStatus};
use sendslot_shared::store::Store;
use sendslot_shared::time::Instant;
use serde::Serialize;

use crate::args::StatusArgs;
use crate::exit::{Exit, Failure};
use crate::instant::show;
use crate::settings::Settings;
use crate::{history, output, words};

#[derive(Debug, Serialize)]
struct BudgetShown {
    budget: String,
    now: String,
    paused_until: Option<String>,
    cooldown_until: Option<String>,
    booked_until: Option<String>,
    backlog_s: f64,
    /// Units per second that are booked now.
    rate_per_s: Option<f64>,
    /// Units per second that follow from limit and headroom; null when the policy cannot be read.
    scheduled_per_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct SendShown {
    budget: String,
    id: String,
    /// `booked`, `waiting`, `sending`, `sent`, `delivered`, `undelivered`, `failed`, `expired`, `cancelled` or `unknown`.
    state: &'static str,
    /// Since when; null while a worker sends it whose booking is void.
    since: Option<String>,
    /// The provider's own word, of the receipt that stands.
    receipt: Option<String>,
    lane: Option<String>,
    /// When it leaves; null when its booking is void, or the budget is paused without an end.
    at: Option<String>,
    /// `booked`: its slot is there; `estimated`: it will move at its claim, to about there.
    at_is: &'static str,
    wait_ms: u128,
    seq: u32,
    attempts: u32,
    throttles: u32,
    hops: u32,
    cost: u32,
    history: Vec<history::Shown>,
}

pub(crate) async fn run(args: StatusArgs, settings: &Settings) -> Result<Exit, Failure> {
    let budget = BudgetName::new(&args.budget).map_err(Failure::usage)?;
    let id = args.id.map(SendId::new).transpose().map_err(Failure::usage)?;
    let store = settings.store().await?;
    match id {
        None => show_budget(&store, &budget, args.json).await,
        Some(id) => match status::status(&store, &budget, &id).await? {
            (_, Some(send)) => show_send(&budget, &id, send, args.json),
            (_, None) => Err(Failure::unknown(anyhow::anyhow!("nothing is known of {id} in the budget {budget}"))),
        },
    }
}

async fn show_budget(store: &Store, budget: &BudgetName, json: bool) -> Result<Exit, Failure> {
    let known = status::budget_status(store, budget).await?;
    if !known.has_policy {
        return Err(crate::budget::unknown(budget));
    }
    let policy = match budget::get(store, budget).await {
        Ok(policy) => policy.map(|(_, policy)| policy),
        Err(BudgetError::Unreadable(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let shown = budget_shown(budget, &known, policy.as_ref());
    if json {
        output::json(&shown)?;
    } else {
        budget_lines(budget, &known, policy.as_ref(), &shown).iter().for_each(|line| output::line(line));
    }
    Ok(Exit::Success)
}

fn budget_shown(budget: &BudgetName, known: &BudgetStatus, policy: Option<&Policy>) -> BudgetShown {
    let ahead = |at: Option<Instant>| at.map_or(0, |at| at.as_micros().saturating_sub(known.now.as_micros()));
    BudgetShown {
        budget: budget.to_string(),
        now: show(known.now),
        paused_until: known.paused_until.map(show),
        cooldown_until: known.cooldown_until.map(show),
        booked_until: known.booked_until.map(show),
        backlog_s: ahead(known.booked_until) as f64 / 1e6,
        rate_per_s: known.rate.or_else(|| policy.map(|policy| policy.scheduled_rate_at(known.now))),
        scheduled_per_s: policy.map(Policy::scheduled_rate),
    }
}

fn budget_lines(
    budget: &BudgetName,
    known: &BudgetStatus,
    policy: Option<&Policy>,
    shown: &BudgetShown,
) -> Vec<String> {
    let booked = match &shown.booked_until {
        Some(until) => format!("{budget}: booked until {until}, {:.1} s ahead", shown.backlog_s),
        None => format!("{budget}: nothing is booked ahead"),
    };
    let paused = known.paused_until.map(|until| words::paused(budget, known.now, until));
    let cooldown =
        shown.cooldown_until.as_ref().map(|until| format!("cooldown until {until}: the provider asked for it"));
    let rate = shown.rate_per_s.zip(policy).and_then(|(rate, policy)| other_rate(rate, policy));
    [Some(booked), paused, cooldown, rate].into_iter().flatten().collect()
}

/// The rate in force, when it is not the policy's.
fn other_rate(rate: f64, policy: &Policy) -> Option<String> {
    let scheduled = policy.scheduled_rate();
    if (rate - scheduled).abs() <= 1e-6 * scheduled {
        return None;
    }
    let cause = match (policy.ramp.is_empty(), policy.adaptive) {
        (false, Some(_)) => " (ramp, adaptive)",
        (false, None) => " (ramp)",
        (true, Some(_)) => " (adaptive)",
        (true, None) => "",
    };
    Some(format!("rate {rate:.3} units/s now{cause}, the policy's is {scheduled:.3}"))
}

fn show_send(budget: &BudgetName, id: &SendId, send: SendStatus, json: bool) -> Result<Exit, Failure> {
    let shown = SendShown {
        budget: budget.to_string(),
        id: id.to_string(),
        state: send.status.as_str(),
        since: send.since.map(show),
        receipt: send.receipt.as_ref().map(|standing| standing.receipt.word.clone()),
        lane: send.lane.as_ref().map(ToString::to_string),
        at: send.at.map(show),
        at_is: if send.stands { "booked" } else { "estimated" },
        wait_ms: send.wait.as_millis(),
        seq: send.seq,
        attempts: send.attempts,
        throttles: send.throttles,
        hops: send.hops,
        cost: send.cost,
        history: send.history.iter().map(history::Shown::from).collect(),
    };
    if json {
        output::json(&shown)?;
        return Ok(Exit::Success);
    }
    let at = shown.at.as_deref().unwrap_or("none");
    let lane = shown.lane.as_deref().unwrap_or("no longer one of the policy's");
    let since = shown.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
    let word = shown.receipt.as_ref().map(|word| format!(" (the provider says {word:?})")).unwrap_or_default();
    let about = if send.stands || send.at.is_none() { "" } else { "about " };
    output::line(&format!("{id}: {}{since}{word}, slot {about}{at} (in {} ms)", shown.state, shown.wait_ms));
    output::line(&format!(
        "booking {}, {} attempts, {} throttles, {} hops, cost {}, lane {lane}",
        shown.seq, shown.attempts, shown.throttles, shown.hops, shown.cost
    ));
    send.history.iter().for_each(|event| output::line(&format!("  {}", history::line(event))));
    Ok(Exit::Success)
}
