//! The worker as a Lambda function.

use std::time::Duration;

use sendslot_shared::deployment::{HTTP_TIMEOUT, LEAD, function_timeout};
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::Policy;

use super::finding::Findings;
use super::lambda::{Function, Lambda};
use super::mapping;
use super::queues::{Known, Urls};

/// Whom to ask about, and what is known so far.
pub(super) struct Asked<'a> {
    pub(super) name: &'a str,
    pub(super) queue: Option<&'a Known>,
    pub(super) urls: &'a Urls,
    pub(super) longest_lead: Option<Duration>,
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
        mapping::check(findings, &lambda, asked.name, queue, budgets).await;
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
    log_level(findings, &function);
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

/// Lambda takes the worker's metrics, lines of JSON without a level, for INFO.
fn log_level(findings: &mut Findings, function: &Function) {
    let check = "function.log";
    match function.drops_below() {
        Some(level @ ("WARN" | "ERROR" | "FATAL")) => {
            let found = format!(
                "the function's ApplicationLogLevel is {level}: Lambda drops the worker's metrics with what is below"
            );
            findings.warning(check, &found, "set it to INFO: alarms on metrics hear nothing");
        }
        _ => findings.ok(check, "Lambda's log level lets the worker's metrics through"),
    }
}
