//! The mapping of the queue to the function.

use std::time::Duration;

use sendslot_scheduler::plan::{Headroom, Plan, PlanInput};
use sendslot_shared::deployment::{BATCH_WITHOUT_WINDOW, LEAD, RESPONSE_TYPE, TRANSIT};
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::Policy;

use super::finding::Findings;
use super::lambda::{Lambda, Mapping};
use super::queues::Known;

/// How long a call is taken to last where environments are counted: as `sendslot plan` does.
const LATENCY: Duration = Duration::from_millis(50);

/// What maps the queue to the function.
pub(super) async fn check(
    findings: &mut Findings,
    lambda: &Lambda,
    name: &str,
    queue: &Known,
    budgets: &[(BudgetName, Policy)],
) {
    let check = "mapping.exists";
    let mappings = match lambda.mappings(name, &queue.arn).await {
        Ok(mappings) => mappings,
        Err(error) => {
            let found = format!("the mappings of {name} cannot be read: {error:#}");
            return findings.error(check, &found, "allow lambda:ListEventSourceMappings");
        }
    };
    let Some(mapping) = mappings.first() else {
        return findings.error(
            check,
            &format!("{name} is not mapped to the queue: nothing is sent"),
            "make an event source mapping",
        );
    };
    match mapping.state.as_str() {
        state @ ("Disabled" | "Disabling") => {
            findings.error(check, &format!("the mapping is {state}: nothing is sent"), "enable it");
        }
        state => findings.ok(check, &format!("the queue is mapped to {name} ({state})")),
    }
    responses(findings, mapping);
    batches(findings, mapping, budgets);
    concurrency(findings, mapping, budgets);
}

fn responses(findings: &mut Findings, mapping: &Mapping) {
    let check = "mapping.responses";
    if mapping.function_response_types.iter().any(|kind| kind == RESPONSE_TYPE) {
        findings.ok(check, RESPONSE_TYPE);
    } else {
        let found = format!(
            "{RESPONSE_TYPE} is off: one message that fails brings its whole batch back, and what failed counts as done"
        );
        findings.error(check, &found, &format!("set FunctionResponseTypes to {RESPONSE_TYPE}"));
    }
}

fn batches(findings: &mut Findings, mapping: &Mapping, budgets: &[(BudgetName, Policy)]) {
    let check = "mapping.batch";
    let (size, window_s) = (mapping.batch_size, mapping.maximum_batching_window_in_seconds);
    let window = Duration::from_secs(window_s.into());
    let short = |(_, policy): &&(BudgetName, Policy)| policy.lead < LEAD + window || policy.transit < TRANSIT + window;
    let late: Vec<&str> = budgets.iter().filter(short).map(|(name, _)| name.as_str()).collect();
    let found = format!("batches of up to {size}, gathered for {window_s} s");
    if size > BATCH_WITHOUT_WINDOW && window_s == 0 {
        findings.error(check, &found, "give batches of more than 10 a window of 1 s or more");
    } else if !late.is_empty() {
        let (lead, transit) = ((LEAD + window).as_millis(), (TRANSIT + window).as_millis());
        let remedy = format!("sendslot budget set NAME --lead {lead}ms --transit {transit}ms, or a shorter window");
        findings.warning(check, &format!("{found}: too late for the slots of {}", late.join(", ")), &remedy);
    } else {
        findings.ok(check, &found);
    }
}

/// Enough for all budgets at their rates, as if all of them came through this queue.
fn concurrency(findings: &mut Findings, mapping: &Mapping, budgets: &[(BudgetName, Policy)]) {
    let check = "mapping.concurrency";
    let Some(most) = mapping.maximum_concurrency() else {
        let remedy =
            "set MaximumConcurrency to twice what `sendslot plan` says: batches that Lambda throttles use up receives";
        return findings.info(check, "the mapping has no maximum concurrency: the account's is its limit", remedy);
    };
    let Some(needed) = environments(mapping, budgets) else {
        return findings.ok(check, &format!("at most {most} environments; `sendslot plan` says how many are needed"));
    };
    let ms = LATENCY.as_millis();
    let found = format!("at most {most} environments; all budgets at their rates need {needed}, with calls of {ms} ms");
    if u64::from(most) < needed {
        let more = match needed {
            ..=1000 => format!(
                "set MaximumConcurrency to {}, for copies that hop or are put back too, or ",
                (2 * needed).min(1000)
            ),
            _ => String::new(),
        };
        let remedy = format!(
            "{more}give batches a window and a larger size, unless only a part of the sends comes through this queue: see `sendslot plan`"
        );
        findings.warning(check, &found, &remedy);
    } else {
        findings.ok(check, &found);
    }
}

/// What `sendslot plan` says for the rates of all budgets together, a minute of them. None without budgets, and for batches that
/// [`batches`] refuses.
fn environments(mapping: &Mapping, budgets: &[(BudgetName, Policy)]) -> Option<u64> {
    let rate: f64 = budgets.iter().map(|(_, policy)| policy.scheduled_rate()).sum();
    let minute = Duration::from_secs(60);
    let a_minute = rate * minute.as_secs_f64();
    let policy = Policy {
        // of a minute, since rates may be below one a second
        limit: (a_minute / Headroom::DEFAULT.get() - 1e-6).ceil() as u32,
        per: minute,
        lead: budgets.iter().map(|(_, policy)| policy.lead).max()?,
        ..Policy::per_second(1)
    };
    let input = PlanInput {
        latency: LATENCY,
        batch_size: mapping.batch_size,
        batch_window: Duration::from_secs(mapping.maximum_batching_window_in_seconds.into()),
        ..PlanInput::new(policy, (a_minute as u64).max(1))
    };
    Plan::new(&input).ok().map(|plan| plan.environments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(mapping: serde_json::Value, policies: &[Policy]) -> Option<u64> {
        let mapping: Mapping = serde_json::from_value(mapping).unwrap();
        let named = |(i, policy): (usize, &Policy)| (BudgetName::new(format!("b{i}")).unwrap(), policy.clone());
        environments(&mapping, &policies.iter().enumerate().map(named).collect::<Vec<_>>())
    }

    #[test]
    fn environments_are_those_of_all_rates_with_the_longest_lead() {
        let (ten, hundred) = (serde_json::json!({ "BatchSize": 10 }), Policy::per_second(100));
        // 97/s x (1.5 + 1 + 0.05) s / 10
        assert_eq!(needed(ten.clone(), std::slice::from_ref(&hundred)), Some(25));
        // (97 + 97)/s x (2.5 + 1 + 0.05) s / 10 = 68.9
        let slow = Policy { lead: Duration::from_millis(2500), ..hundred.clone() };
        assert_eq!(needed(ten.clone(), &[hundred.clone(), slow.clone()]), Some(69));
        // 97/s x 3.55 s / 97
        let window = serde_json::json!({ "BatchSize": 100, "MaximumBatchingWindowInSeconds": 1 });
        assert_eq!(needed(window, std::slice::from_ref(&slow)), Some(4));
        // three a minute
        let rare = Policy { per: Duration::from_secs(60), ..Policy::per_second(3) };
        assert_eq!(needed(ten.clone(), &[rare]), Some(1));
        assert_eq!(needed(ten, &[]), None);
        assert_eq!(needed(serde_json::json!({ "BatchSize": 100 }), &[hundred]), None);
    }
}
