//! `sendslot plan --cost`: what it costs, and what batch size, lead and hops do to that.

use std::time::Duration;

use sendslot_scheduler::plan::{Cost, Plan, PlanInput, Policy, Prices};
use serde::Serialize;

use super::{dollars, for_people, number, seconds};

#[derive(Debug, Serialize)]
pub(super) struct Shown {
    dollars: Dollars,
    dollars_per_million_sends: Dollars,
    memory_mb: u32,
    invocation_s: f64,
    prices: PricesShown,
    compared: Vec<Compared>,
}

#[derive(Debug, Serialize)]
struct Dollars {
    sqs: f64,
    lambda_time: f64,
    lambda_requests: f64,
    redis: f64,
    total: f64,
}

#[derive(Debug, Serialize)]
struct PricesShown {
    known_on: &'static str,
    sqs_million_requests: f64,
    lambda_gb_second: f64,
    lambda_million_requests: f64,
    redis_hour: f64,
}

/// The same rate in another way.
#[derive(Debug, Serialize)]
struct Compared {
    batch_size: u32,
    batch_window_ms: u128,
    lead_ms: u128,
    longest_wait_s: f64,
    hops_per_send: f64,
    environments: u64,
    dollars_per_million_sends: Dollars,
}

impl From<Cost> for Dollars {
    fn from(cost: Cost) -> Self {
        let Cost { sqs, lambda_time, lambda_requests, redis } = cost;
        Self { sqs, lambda_time, lambda_requests, redis, total: cost.total() }
    }
}

pub(super) fn shown(input: &PlanInput, plan: &Plan) -> Shown {
    let cost = plan.cost(input);
    let Prices { sqs_million_requests, lambda_gb_second, lambda_million_requests, redis_hour } = input.prices;
    Shown {
        dollars: cost.into(),
        dollars_per_million_sends: cost.per_million(input.burst).into(),
        memory_mb: input.memory_mb,
        invocation_s: plan.invocation_s(input),
        prices: PricesShown {
            known_on: Prices::DATE,
            sqs_million_requests,
            lambda_gb_second,
            lambda_million_requests,
            redis_hour,
        },
        compared: compared(input),
    }
}

pub(super) fn rows(input: &PlanInput, plan: &Plan) -> Vec<(&'static str, String)> {
    let cost = plan.cost(input);
    let of = |cost: Cost| {
        format!(
            "{} = {} SQS + {} Lambda time + {} Lambda requests + {} Redis",
            short(cost.total()),
            short(cost.sqs),
            short(cost.lambda_time),
            short(cost.lambda_requests),
            short(cost.redis)
        )
    };
    let Prices { sqs_million_requests, lambda_gb_second, lambda_million_requests, redis_hour } = input.prices;
    vec![
        ("cost", of(cost)),
        ("cost per million sends", of(cost.per_million(input.burst))),
        (
            "an invocation",
            format!(
                "{:.2} s at {} MB, {} sends in it",
                plan.invocation_s(input),
                input.memory_mb,
                plan.messages_per_batch
            ),
        ),
        (
            "prices",
            format!(
                "SQS {} and Lambda {} a million requests, ${lambda_gb_second} a GB-s, Redis ${redis_hour} an hour",
                dollars(sqs_million_requests),
                dollars(lambda_million_requests)
            ),
        ),
    ]
}

/// The plan's own way first; then other batches, leads and waits at the same rate.
pub(super) fn table(input: &PlanInput) -> Vec<String> {
    let head = [
        "batch",
        "window",
        "lead",
        "longest wait",
        "hops a send",
        "environments",
        "SQS",
        "Lambda",
        "Redis",
        "per million sends",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for row in compared(input) {
        let cost = &row.dollars_per_million_sends;
        rows.push([
            row.batch_size.to_string(),
            seconds(Duration::from_millis(row.batch_window_ms as u64)),
            seconds(Duration::from_millis(row.lead_ms as u64)),
            for_people(Duration::from_secs(row.longest_wait_s as u64)),
            format!("{:.2}", row.hops_per_send),
            row.environments.to_string(),
            short(cost.sqs),
            short(cost.lambda_time + cost.lambda_requests),
            short(cost.redis),
            short(cost.total),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String; 10]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect()
}

/// What cannot be planned (a wait behind the furthest slot) is left out.
fn compared(input: &PlanInput) -> Vec<Compared> {
    let batches = [(1, 0), (10, 0), (100, 1), (1000, 5)].map(|(size, window_s)| batch(input, size, window_s));
    let leads = [3, 10].map(|more| {
        let lead = input.policy.lead + Duration::from_secs(more);
        PlanInput { policy: Policy { lead, ..input.policy.clone() }, ..input.clone() }
    });
    let rate = input.policy.scheduled_rate() / f64::from(input.cost);
    let waits = [900, 3600, 6 * 3600, 24 * 3600].map(|wait_s| {
        let burst = (rate * f64::from(wait_s)) as u64;
        PlanInput { burst: burst.max(1), ..input.clone() }
    });
    let all = [input.clone()].into_iter().chain(batches).chain(leads).chain(waits);
    all.filter_map(|input| one(&input)).collect()
}

/// Messages may gather in the window before they are sent, so lead and transit change with it.
fn batch(input: &PlanInput, batch_size: u32, window_s: u64) -> PlanInput {
    let batch_window = Duration::from_secs(window_s);
    let other = |time: Duration| time.saturating_sub(input.batch_window) + batch_window;
    let policy = &input.policy;
    let policy = Policy { lead: other(policy.lead), transit: other(policy.transit), ..policy.clone() };
    PlanInput { policy, batch_size, batch_window, ..input.clone() }
}

fn one(input: &PlanInput) -> Option<Compared> {
    let plan = Plan::new(input).ok()?;
    Some(Compared {
        batch_size: input.batch_size,
        batch_window_ms: input.batch_window.as_millis(),
        lead_ms: input.policy.lead.as_millis(),
        longest_wait_s: plan.last_wait.as_secs_f64(),
        hops_per_send: plan.hops as f64 / input.burst as f64,
        environments: plan.environments,
        dollars_per_million_sends: plan.cost(input).per_million(input.burst).into(),
    })
}

/// To the cent, from a dollar on.
fn short(x: f64) -> String {
    if x >= 1.0 { format!("${x:.2}") } else { dollars(number(x).parse().unwrap_or(x)) }
}
