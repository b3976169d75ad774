//! `sendslot budget set|get|list`.

use std::time::Duration;

use sendslot_shared::budget::{self, BudgetError};
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::{Compiled, Headroom, OnUnknown, Policy};
use sendslot_shared::store::Store;
use serde::Serialize;

use crate::args::{BudgetCommand, BudgetSetArgs, OnUnknownArg};
use crate::exit::{Exit, Failure};
use crate::output;

/// A budget as `--json` shows it.
#[derive(Debug, Serialize)]
struct Shown {
    budget: String,
    version: u64,
    limit: u32,
    per_ms: u128,
    headroom: f64,
    transit_ms: u128,
    lead_ms: u128,
    horizon_s: u64,
    dedup_ttl_s: u64,
    max_cost: u32,
    max_attempts: u8,
    on_unknown: OnUnknown,
    scheduled_per_s: f64,
    grace_ms: f64,
    largest_cost_beside_others: u32,
}

pub(crate) async fn run(command: BudgetCommand) -> Result<Exit, Failure> {
    let store = connect().await?;
    match command {
        BudgetCommand::Set(args) => set(&store, args).await,
        BudgetCommand::Get { name, json } => get(&store, &name, json).await,
        BudgetCommand::List { json } => list(&store, json).await,
    }
}

/// The store that `REDIS_URL` names.
pub(crate) async fn connect() -> Result<Store, Failure> {
    let url = std::env::var("REDIS_URL").map_err(|_| {
        Failure::usage(anyhow::anyhow!(
            "REDIS_URL is not set: give redis://host:port, or run `sendslot local up` first"
        ))
    })?;
    let store = Store::new(&url).map_err(Failure::usage)?;
    store.check().await?;
    Ok(store)
}

async fn set(store: &Store, args: BudgetSetArgs) -> Result<Exit, Failure> {
    let name = BudgetName::new(&args.name).map_err(Failure::usage)?;
    let before = match budget::get(store, &name).await {
        Ok(known) => known.map(|(_, policy)| policy),
        // set anew
        Err(BudgetError::Unreadable(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let json = args.json;
    let policy = changed(before, args)?;
    policy.compile().map_err(Failure::usage)?;
    let (version, compiled) = budget::set(store, &name, &policy).await?;
    show(&name, version, &policy, &compiled, json)?;
    Ok(Exit::Success)
}

fn changed(before: Option<Policy>, args: BudgetSetArgs) -> Result<Policy, Failure> {
    let mut policy = match (before, args.limit) {
        (Some(policy), None) => policy,
        (Some(policy), Some(limit)) => Policy { limit, ..policy },
        (None, Some(limit)) => Policy::per_second(limit),
        (None, None) => {
            return Err(Failure::usage(anyhow::anyhow!(
                "a new budget needs a limit: add --limit UNITS (per second, or --per)"
            )));
        }
    };
    if let Some(headroom) = args.headroom {
        policy.headroom = Headroom::new(headroom).map_err(Failure::usage)?;
    }
    policy.per = args.per.unwrap_or(policy.per);
    policy.transit = args.transit.unwrap_or(policy.transit);
    policy.lead = args.lead.unwrap_or(policy.lead);
    policy.horizon = args.horizon.unwrap_or(policy.horizon);
    policy.dedup_ttl = args.dedup_ttl.unwrap_or(policy.dedup_ttl);
    policy.max_cost = args.max_cost.or(policy.max_cost);
    policy.max_attempts = args.max_attempts.unwrap_or(policy.max_attempts);
    policy.on_unknown = match args.on_unknown {
        Some(OnUnknownArg::Park) => OnUnknown::Park,
        Some(OnUnknownArg::Resend) => OnUnknown::Resend,
        None => policy.on_unknown,
    };
    Ok(policy)
}

async fn get(store: &Store, name: &str, json: bool) -> Result<Exit, Failure> {
    let name = BudgetName::new(name).map_err(Failure::usage)?;
    let Some((version, policy)) = budget::get(store, &name).await? else {
        return Err(Failure::unknown(anyhow::anyhow!(
            "the budget {name} has no policy: set one with `sendslot budget set {name} --limit UNITS`"
        )));
    };
    let compiled = policy.compile()?;
    show(&name, version, &policy, &compiled, json)?;
    Ok(Exit::Success)
}

async fn list(store: &Store, json: bool) -> Result<Exit, Failure> {
    let mut all = vec![];
    for name in budget::list(store).await? {
        let known = match budget::get(store, &name).await {
            Ok(known) => known,
            Err(BudgetError::Unreadable(error)) => {
                output::note(&format!("{name}: {error}"));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if let Some((version, policy)) = known {
            let compiled = policy.compile()?;
            if !json {
                output::line(&pasted(&name, &policy));
            }
            all.push(shown(&name, version, &policy, &compiled));
        }
    }
    if json {
        output::json(&all)?;
    } else if all.is_empty() {
        output::note("no budget has a policy: set one with `sendslot budget set NAME --limit UNITS`");
    }
    Ok(Exit::Success)
}

fn show(name: &BudgetName, version: u64, policy: &Policy, compiled: &Compiled, json: bool) -> Result<(), Failure> {
    if json {
        output::json(&shown(name, version, policy, compiled))?;
        return Ok(());
    }
    output::line(&pasted(name, policy));
    output::line(&format!(
        "# version {version}: schedules {:.3} units/s; a send may be {:.1} ms late; costs up to {} fit beside others, up to {} at all",
        policy.scheduled_rate(),
        compiled.grace.as_secs_f64() * 1000.0,
        compiled.u0,
        compiled.max_cost
    ));
    Ok(())
}

fn shown(name: &BudgetName, version: u64, policy: &Policy, compiled: &Compiled) -> Shown {
    Shown {
        budget: name.to_string(),
        version,
        limit: policy.limit,
        per_ms: policy.per.as_millis(),
        headroom: policy.headroom.get(),
        transit_ms: policy.transit.as_millis(),
        lead_ms: policy.lead.as_millis(),
        horizon_s: policy.horizon.as_secs(),
        dedup_ttl_s: policy.dedup_ttl.as_secs(),
        max_cost: compiled.max_cost,
        max_attempts: policy.max_attempts,
        on_unknown: policy.on_unknown,
        scheduled_per_s: policy.scheduled_rate(),
        grace_ms: compiled.grace.as_secs_f64() * 1000.0,
        largest_cost_beside_others: compiled.u0,
    }
}

/// The command that sets this policy.
fn pasted(name: &BudgetName, policy: &Policy) -> String {
    let on_unknown = if policy.on_unknown == OnUnknown::Park { "park" } else { "resend" };
    let mut text = format!(
        "sendslot budget set {name} --limit {} --per {} --headroom {} --transit {} --lead {} --horizon {} --dedup-ttl {} --max-attempts {} --on-unknown {on_unknown}",
        policy.limit,
        short(policy.per),
        policy.headroom.get(),
        short(policy.transit),
        short(policy.lead),
        short(policy.horizon),
        short(policy.dedup_ttl),
        policy.max_attempts,
    );
    if let Some(cost) = policy.max_cost {
        text.push_str(&format!(" --max-cost {cost}"));
    }
    text
}

/// `24h`, `90s`, `1500ms`: the largest unit that says it in whole numbers.
fn short(duration: Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0 => "0s".to_owned(),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{ms}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;

    #[test]
    fn what_get_prints_sets_the_same_policy() {
        let name = BudgetName::new("sms").unwrap();
        let policy = Policy {
            limit: 20,
            per: Duration::from_secs(3600),
            transit: Duration::from_millis(300),
            max_cost: Some(55),
            max_attempts: 9,
            on_unknown: OnUnknown::Resend,
            headroom: Headroom::new(0.8125).unwrap(),
            ..Policy::per_second(1)
        };
        let line = pasted(&name, &policy);
        let args = Args::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Budget(BudgetCommand::Set(args)) = args.command else { panic!("{line}") };
        assert_eq!(changed(None, args).unwrap(), policy);
    }
}
