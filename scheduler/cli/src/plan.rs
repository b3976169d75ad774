//! `sendslot plan`: what a burst will take.

mod price;

use std::time::Duration;

use jiff::SignedDuration;
use sendslot_scheduler::plan::{Headroom, Plan, PlanInput, Policy, Prices};
use sendslot_shared::deployment;
use serde::Serialize;

use crate::args::PlanArgs;
use crate::exit::{Exit, Failure};
use crate::output;

/// A plan as `--json` shows it.
#[derive(Debug, Serialize)]
struct Shown {
    burst: u64,
    units: u32,
    limit: u32,
    per_ms: u128,
    headroom: f64,
    lead_ms: u128,
    transit_ms: u128,
    horizon_s: u64,
    latency_ms: u128,
    scheduled_per_s: f64,
    sends_per_s: f64,
    drain_s: f64,
    last_send_after_s: f64,
    past_horizon: u64,
    largest_burst_without_hop: u64,
    hops: u64,
    hops_of_last_send: u64,
    calls_in_flight: f64,
    messages_held: f64,
    batch_size: u32,
    batch_window_ms: u128,
    messages_per_batch: u64,
    environments: u64,
    payload_bytes: usize,
    sqs_requests: RequestsShown,
    jitter_ms: f64,
    largest_cost_beside_others: u32,
    max_cost: u32,
    cost: Option<price::Shown>,
}

#[derive(Debug, Serialize)]
struct RequestsShown {
    send: u64,
    hop: u64,
    receive: u64,
    delete: u64,
    total: u64,
}

pub(crate) fn run(args: &PlanArgs) -> Result<Exit, Failure> {
    let input = input(args)?;
    let plan = Plan::new(&input).map_err(Failure::usage)?;
    if args.json {
        let cost = args.cost.then(|| price::shown(&input, &plan));
        output::json(&shown(&input, &plan, cost))?;
    } else if args.parameters {
        parameters(&input, &plan)?.iter().for_each(|(name, value)| output::line(&format!("{name}={value}")));
    } else {
        let mut rows = rows(&input, &plan);
        let cost = if args.cost { price::rows(&input, &plan) } else { vec![] };
        rows.extend(cost);
        rows.iter().for_each(|(name, value)| output::line(&format!("{name:>27}  {value}")));
        if args.cost {
            output::line("");
            price::table(&input).iter().for_each(|line| output::line(line));
        }
    }
    for note in notes(&input, &plan) {
        output::note(&format!("note: {note}"));
    }
    Ok(Exit::Success)
}

fn input(args: &PlanArgs) -> Result<PlanInput, Failure> {
    let policy = Policy::per_second(args.limit);
    // a message may wait for its batch, at the start and shortly before its slot
    let policy = Policy {
        per: args.per,
        headroom: Headroom::new(args.headroom).map_err(Failure::usage)?,
        transit: args.transit.unwrap_or(policy.transit.saturating_add(args.batch_window)),
        lead: args.lead.unwrap_or(policy.lead.saturating_add(args.batch_window)),
        horizon: args.horizon,
        max_cost: args.max_cost,
        ..policy
    };
    Ok(PlanInput {
        policy,
        burst: args.burst,
        cost: args.units,
        latency: Duration::from_millis(args.latency_ms),
        batch_size: args.batch_size,
        batch_window: args.batch_window,
        payload_bytes: args.payload_bytes,
        memory_mb: args.memory_mb,
        prices: Prices {
            sqs_million_requests: args.sqs_price,
            lambda_gb_second: args.lambda_price,
            lambda_million_requests: args.lambda_request_price,
            redis_hour: args.redis_price,
        },
    })
}

/// The longest window that the template takes: its visibility timeouts leave room for it.
const TEMPLATE_WINDOW_S: u64 = 60;

/// What `FunctionTimeout` takes, with the longest window that the template's rules allow it; seconds.
const TEMPLATE_TIMEOUTS: [(u64, u64); 4] = [(30, 3), (60, 20), (120, 60), (300, 60)];

/// Parameters of infra/template.yaml. Twice the environments, for copies that hop or are put back; and an alarm when a backlog waits
/// and less than four fifths of the rate is sent.
fn parameters(input: &PlanInput, plan: &Plan) -> Result<[(&'static str, u64); 5], Failure> {
    let window = input.batch_window;
    let least = deployment::function_timeout(input.policy.lead, deployment::HTTP_TIMEOUT);
    let fits =
        |(timeout, longest): &&(u64, u64)| window.as_secs() <= *longest && least <= Duration::from_secs(*timeout);
    if window.subsec_nanos() > 0 || window.as_secs() > TEMPLATE_WINDOW_S {
        let problem = format!(
            "a batch window of {window:?} is none of the template's: give whole seconds, 0 to {TEMPLATE_WINDOW_S}"
        );
        return Err(Failure::usage(anyhow::anyhow!(problem)));
    }
    // a policy's lead of at most 60 s fits into 120 s
    let timeout = TEMPLATE_TIMEOUTS.iter().find(fits).map_or(300, |(timeout, _)| *timeout);
    Ok([
        ("BulkBatchSize", input.batch_size.into()),
        ("BulkBatchWindow", window.as_secs()),
        ("FunctionTimeout", timeout),
        ("BulkMaximumConcurrency", (2 * plan.environments).clamp(2, 1000)),
        ("ExpectedCallsPerMinute", (plan.sends_per_s * 60.0 * 0.8) as u64),
    ])
}

/// What the numbers alone do not say.
fn notes(input: &PlanInput, plan: &Plan) -> Vec<String> {
    let (lead, window, horizon) = (input.policy.lead, input.batch_window, input.policy.horizon);
    let mut notes = vec![];
    if plan.past_horizon > 0 {
        let (past, horizon) = (plan.past_horizon, seconds(horizon));
        notes.push(format!(
            "{past} of the sends are refused for now: their slots lie behind the horizon of {horizon}. Raise --horizon, or offer them later"
        ));
    }
    if window >= lead {
        let (window, lead) = (seconds(window), seconds(lead));
        notes.push(format!(
            "a batch gathered for {window} may come after its slots: messages show up {lead} before them. Raise --lead, or gather for less"
        ));
    }
    notes
}

fn rows(input: &PlanInput, plan: &Plan) -> Vec<(&'static str, String)> {
    let policy = &input.policy;
    let per = if policy.per == Duration::from_secs(1) { "s".to_owned() } else { seconds(policy.per) };
    let (lead, latency, rate) = (seconds(policy.lead), seconds(input.latency), number(plan.sends_per_s));
    let requests = plan.requests;
    vec![
        ("slots", format!("{} units/s, {} of {}/{per}", number(plan.units_per_s), policy.headroom.get(), policy.limit)),
        ("sends", format!("{rate}/s of {} units", input.cost)),
        ("drained in", for_people(plan.drain)),
        ("last send after", for_people(plan.last_wait)),
        (
            "largest burst without a hop",
            match plan.largest_without_hop {
                1 => "1 send".to_owned(),
                n => format!("{n} sends"),
            },
        ),
        ("hops", format!("{} in all, {} of the last send", plan.hops, plan.hops_of_last)),
        ("calls in flight", format!("{} = {rate}/s x {latency}", number(plan.calls_in_flight))),
        ("messages held", format!("{} = {rate}/s x ({lead} lead + 0.5 s + {latency})", number(plan.messages_held))),
        (
            "environments",
            format!(
                "{}, each up to {lead} lead + 1 s + {latency} with a batch of {}",
                plan.environments, plan.messages_per_batch
            ),
        ),
        (
            "SQS requests",
            format!(
                "{} = {} send + {} hop + {} receive + {} delete",
                requests.total(),
                requests.send,
                requests.hop,
                requests.receive,
                requests.delete
            ),
        ),
        ("jitter", format!("{:.1} ms that may vary between verdict and call", plan.jitter.as_micros() as f64 / 1000.0)),
        (
            "costs",
            format!(
                "up to {} units fit beside others, up to {} at all",
                plan.largest_cost_beside_others, plan.max_cost
            ),
        ),
    ]
}

fn shown(input: &PlanInput, plan: &Plan, cost: Option<price::Shown>) -> Shown {
    let policy = &input.policy;
    let requests = plan.requests;
    Shown {
        burst: input.burst,
        units: input.cost,
        limit: policy.limit,
        per_ms: policy.per.as_millis(),
        headroom: policy.headroom.get(),
        lead_ms: policy.lead.as_millis(),
        transit_ms: policy.transit.as_millis(),
        horizon_s: policy.horizon.as_secs(),
        latency_ms: input.latency.as_millis(),
        scheduled_per_s: plan.units_per_s,
        sends_per_s: plan.sends_per_s,
        drain_s: plan.drain.as_secs_f64(),
        last_send_after_s: plan.last_wait.as_secs_f64(),
        past_horizon: plan.past_horizon,
        largest_burst_without_hop: plan.largest_without_hop,
        hops: plan.hops,
        hops_of_last_send: plan.hops_of_last,
        calls_in_flight: plan.calls_in_flight,
        messages_held: plan.messages_held,
        batch_size: input.batch_size,
        batch_window_ms: input.batch_window.as_millis(),
        messages_per_batch: plan.messages_per_batch,
        environments: plan.environments,
        payload_bytes: input.payload_bytes,
        sqs_requests: RequestsShown {
            send: requests.send,
            hop: requests.hop,
            receive: requests.receive,
            delete: requests.delete,
            total: requests.total(),
        },
        jitter_ms: plan.jitter.as_micros() as f64 / 1000.0,
        largest_cost_beside_others: plan.largest_cost_beside_others,
        max_cost: plan.max_cost,
        cost,
    }
}

/// Three decimals at most, and no more than it has; small numbers keep three digits.
pub(crate) fn number(x: f64) -> String {
    let decimals = if x > 0.0 && x < 1.0 { 2 - x.log10().floor() as i32 } else { 3 };
    let text = format!("{x:.*}", usize::try_from(decimals).unwrap_or(3));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Cents at least.
fn dollars(x: f64) -> String {
    let text = number(x);
    let tenths = text.split_once('.').is_some_and(|(_, decimals)| decimals.len() == 1);
    format!("${text}{}", if tenths { "0" } else { "" })
}

fn seconds(duration: Duration) -> String {
    format!("{} s", number(duration.as_secs_f64()))
}

/// `125 s`; from an hour on `12500 s (3h 28m 20s)`.
pub(crate) fn for_people(duration: Duration) -> String {
    match SignedDuration::try_from(duration) {
        Ok(long) if duration.as_secs() >= 3600 => {
            format!("{} ({:#})", seconds(duration), SignedDuration::from_secs(long.as_secs()))
        }
        _ => seconds(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_show_what_they_have() {
        for (x, text) in [(80.0, "80"), (97.5, "97.5"), (0.0, "0"), (26.123_45, "26.123"), (0.005_388_9, "0.00539")] {
            assert_eq!(number(x), text);
        }
        assert_eq!([0.4, 0.0012, 3.0].map(dollars), ["$0.40", "$0.0012", "$3"]);
    }

    #[test]
    fn long_times_are_told_in_hours_too() {
        assert_eq!(for_people(Duration::from_millis(125_250)), "125.25 s");
        assert_eq!(for_people(Duration::from_millis(12_500_500)), "12500.5 s (3h 28m 20s)");
    }
}
