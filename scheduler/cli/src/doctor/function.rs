//! The worker as a Lambda function, and its mapping to the queue.

use std::time::Duration;

use sendslot_shared::deployment::{BATCH_WITHOUT_WINDOW, HTTP_TIMEOUT, LEAD, RESPONSE_TYPE, TRANSIT, function_timeout};
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::Policy;

use super::finding::Findings;
use super::lambda::{Lambda, Mapping};
use super::queues::{Known, Urls};

/// Whom to ask about, and what is known so far.
pub(super) struct Asked<'a> {
    pub(super) name: &'a str,
    pub(super) queue: Option<&'a Known>,
    pub(super) urls: &'a Urls,
    pub(super) longest_lead: Option<Duration>,
}

pub(super) fn not_given(findings: &mut Findings, timeout: Option<Duration>) -> Option<String> {
    if timeout.is_none() {
        findings.info("function", "the function and its mapping are not known", "not checked: give --function NAME");
    }
    None
}

/// The function's timeout, if it could be read.
pub(super) async fn check(
    findings: &mut Findings,
    asked: Asked<'_>,
    budgets: &[(BudgetName, Policy)],
) -> Option<Duration> {
    let lambda = match Lambda::from_env().await {
        Ok(lambda) => lambda,
        Err(error) => {
            findings.error(
                "function.exists",
                &format!("Lambda cannot be asked: {error}"),
                "see what the machine lacks",
            );
            return None;
        }
    };
    let timeout = function(findings, &lambda, &asked).await;
    if timeout.is_some()
        && let Some(queue) = asked.queue
    {
        mapping(findings, &lambda, asked.name, queue, budgets).await;
    }
    timeout
}

async fn function(findings: &mut Findings, lambda: &Lambda, asked: &Asked<'_>) -> Option<Duration> {
    let (exists, check) = ("function.exists", "function.timeout");
    let name = asked.name;
    let function = match lambda.function(name).await {
        Ok(function) => function,
        Err(error) => {
            let found = format!("the function {name} cannot be read: {error:#}");
            let remedy =
                "mend --function, AWS_REGION and the credentials (lambda:GetFunctionConfiguration), or deploy it";
            findings.error(exists, &found, remedy);
            return None;
        }
    };
    let state = function.state.as_deref().unwrap_or("Active");
    if state == "Failed" {
        let reason = function.state_reason.as_deref().unwrap_or("no reason is given");
        findings.error(exists, &format!("the function {name} is in the state Failed: {reason}"), "deploy it again");
    } else {
        findings.ok(exists, &format!("{name} is there ({state})"));
    }
    let variable = |name: &str| function.variable(name);
    addresses(findings, &variable, asked.urls);
    let given = Duration::from_secs(function.timeout);
    let call =
        variable("SENDSLOT_HTTP_TIMEOUT_MS").and_then(|ms| ms.parse().ok()).map_or(HTTP_TIMEOUT, Duration::from_millis);
    let lead = asked.longest_lead.unwrap_or(LEAD);
    let needed = function_timeout(lead, call);
    let found = format!(
        "the function's timeout is {given:?}; the longest lead of a budget is {lead:?}, a call takes up to {call:?}"
    );
    if given < needed {
        let remedy =
            format!("raise it to {} s or more: else calls are not begun, or cut off", needed.as_secs_f64().ceil());
        findings.error(check, &found, &remedy);
    } else {
        findings.ok(check, &found);
    }
    Some(given)
}

/// The function works with what this command was given. Its values are not shown: one holds a password.
fn addresses<'a>(findings: &mut Findings, variable: &impl Fn(&str) -> Option<&'a str>, urls: &Urls) {
    let check = "function.variables";
    let own = [("SENDSLOT_QUEUE_URL", urls.queue.as_deref()), ("SENDSLOT_DLQ_URL", urls.dead_letters.as_deref())];
    let mut all = true;
    for (name, own) in own.into_iter().chain([("REDIS_URL", None)]) {
        match (variable(name), own) {
            (None, _) => {
                findings.error(
                    check,
                    &format!("the function has no {name}"),
                    "set it: the worker does not start without it",
                );
                all = false;
            }
            (Some(its), Some(own)) if its != own => {
                findings.warning(
                    check,
                    &format!("the function's {name} is another one than here"),
                    "give both the same",
                );
                all = false;
            }
            _ => {}
        }
    }
    if all {
        findings.ok(check, "the function has the queues that were checked here, and a REDIS_URL");
    }
}

async fn mapping(
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
    concurrency(findings, mapping);
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

fn concurrency(findings: &mut Findings, mapping: &Mapping) {
    let check = "mapping.concurrency";
    match mapping.maximum_concurrency() {
        Some(most) => {
            findings.ok(check, &format!("at most {most} environments; `sendslot plan` says how many are needed"))
        }
        None => {
            let remedy = "set MaximumConcurrency to what `sendslot plan` says and a half more: batches that Lambda throttles use up receives";
            findings.info(check, "the mapping has no maximum concurrency: the account's is its limit", remedy);
        }
    }
}
