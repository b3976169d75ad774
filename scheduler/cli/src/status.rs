//! `sendslot status BUDGET [ID]`.

use sendslot_shared::id::{BudgetName, SendId};
use sendslot_shared::status::{self, BudgetStatus, SendStatus};
use sendslot_shared::time::Instant;
use serde::Serialize;

use crate::args::StatusArgs;
use crate::exit::{Exit, Failure};
use crate::output;

#[derive(Debug, Serialize)]
struct BudgetShown {
    budget: String,
    now: String,
    cooldown_until: Option<String>,
    booked_until: Option<String>,
    backlog_s: f64,
}

#[derive(Debug, Serialize)]
struct SendShown {
    budget: String,
    id: String,
    state: &'static str,
    at: Option<String>,
    wait_ms: u128,
    seq: u32,
    attempts: u32,
    throttles: u32,
    hops: u32,
    cost: u32,
}

pub(crate) async fn run(args: StatusArgs) -> Result<Exit, Failure> {
    let budget = BudgetName::new(&args.budget).map_err(Failure::usage)?;
    let id = args.id.map(SendId::new).transpose().map_err(Failure::usage)?;
    let store = crate::budget::connect().await?;
    match id {
        None => show_budget(&budget, status::budget_status(&store, &budget).await?, args.json),
        Some(id) => match status::status(&store, &budget, &id).await? {
            (_, Some(send)) => show_send(&budget, &id, send, args.json),
            (_, None) => Err(Failure::unknown(anyhow::anyhow!("nothing is known of {id} in the budget {budget}"))),
        },
    }
}

fn show_budget(budget: &BudgetName, known: BudgetStatus, json: bool) -> Result<Exit, Failure> {
    if !known.has_policy {
        return Err(crate::budget::unknown(budget));
    }
    let ahead = |at: Option<Instant>| at.map_or(0, |at| at.as_micros().saturating_sub(known.now.as_micros()));
    let shown = BudgetShown {
        budget: budget.to_string(),
        now: time(known.now),
        cooldown_until: known.cooldown_until.map(time),
        booked_until: known.booked_until.map(time),
        backlog_s: ahead(known.booked_until) as f64 / 1e6,
    };
    if json {
        output::json(&shown)?;
    } else {
        output::line(&match &shown.booked_until {
            Some(until) => format!("{budget}: booked until {until}, {:.1} s ahead", shown.backlog_s),
            None => format!("{budget}: nothing is booked ahead"),
        });
        if let Some(until) = shown.cooldown_until {
            output::line(&format!("cooldown until {until}: the provider asked for it"));
        }
    }
    Ok(Exit::Success)
}

fn show_send(budget: &BudgetName, id: &SendId, send: SendStatus, json: bool) -> Result<Exit, Failure> {
    let shown = SendShown {
        budget: budget.to_string(),
        id: id.to_string(),
        state: send.state.as_str(),
        at: send.at.map(time),
        wait_ms: send.wait.as_millis(),
        seq: send.seq,
        attempts: send.attempts,
        throttles: send.throttles,
        hops: send.hops,
        cost: send.cost,
    };
    if json {
        output::json(&shown)?;
        return Ok(Exit::Success);
    }
    let at = shown.at.as_deref().unwrap_or("none");
    output::line(&format!("{id}: {}, slot {at} (in {} ms)", shown.state, shown.wait_ms));
    output::line(&format!(
        "booking {}, {} attempts, {} throttles, {} hops, cost {}",
        shown.seq, shown.attempts, shown.throttles, shown.hops, shown.cost
    ));
    Ok(Exit::Success)
}

/// An instant as RFC 3339 in UTC.
fn time(at: Instant) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| micros.to_string(), |t| t.to_string())
}
