//! `sendslot doctor`: checks a deployment against what the code relies on (`sendslot_shared::deployment`).

mod budgets;
mod finding;
mod function;
mod lambda;
mod mapping;
mod queues;
mod redis;

use std::time::Duration;

use sendslot_shared::queue;
use sendslot_shared::store::{Store, StoreError};

use crate::exit::{Exit, Failure};
use crate::policy_text::whole_s;
use crate::settings::Settings;
use finding::{Findings, Severity};

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// The worker's timeout, where it cannot be asked: of `sendslot-worker poll` SENDSLOT_POLL_BATCH_MS.
    #[arg(long, value_name = "TIME", value_parser = whole_s)]
    pub(crate) function_timeout: Option<Duration>,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(args: DoctorArgs, settings: &Settings) -> Result<Exit, Failure> {
    let setting = |name: &str| settings.get(name).map(str::to_owned);
    let mut findings = Findings::default();
    let budgets = match settings.get("redis_url") {
        None => {
            findings.error(
                "redis.answers",
                "REDIS_URL is not set",
                "give redis://host:port; see the README for all forms",
            );
            None
        }
        Some(url) => match Store::new(url) {
            Ok(store) => check_redis(&mut findings, &store, url).await,
            Err(error) => {
                findings.error("redis.answers", &error.to_string(), "mend the URL");
                None
            }
        },
    };
    let longest_lead = budgets.as_deref().unwrap_or_default().iter().map(|(_, policy)| policy.lead).max();
    let function = settings.get("function");
    if function.is_none() && args.function_timeout.is_none() {
        findings.info("function", "the function and its mapping are not known", "not checked: give --function NAME");
    }
    let sqs = queue::client_from_env().await;
    let urls = queues::Urls { queue: setting("queue_url"), dead_letters: setting("dlq_url") };
    let known = queues::check(&mut findings, &sqs, &urls).await;
    let mut timeout = args.function_timeout;
    if let Some(name) = function {
        let asked = function::Asked { name, queue: known.as_ref(), urls: &urls, longest_lead };
        timeout = function::check(&mut findings, asked, budgets.as_deref().unwrap_or_default()).await;
    }
    queues::check_visibility(&mut findings, known.as_ref(), timeout);
    findings.show(args.json)?;
    Ok(match findings.worst() {
        Severity::Error => Exit::Failed,
        Severity::Warning => Exit::Partial,
        Severity::Info | Severity::Ok => Exit::Success,
    })
}

async fn check_redis(findings: &mut Findings, store: &Store, url: &str) -> Option<budgets::Budgets> {
    let answers = match store.inspect().await {
        Ok(answers) => answers,
        Err(error) => {
            not_asked(findings, &error, url);
            return None;
        }
    };
    let (nodes, mut servers) = (answers.len(), vec![]);
    for answer in answers {
        match answer {
            Ok(server) => servers.push(server),
            Err(error) => not_asked(findings, &error, url),
        }
    }
    if servers.is_empty() {
        return None;
    }
    findings.ok("redis.answers", &format!("{}: {} of {nodes} servers answer", store.address(), servers.len()));
    // what follows is not known of old servers
    if !redis::versions(findings, &servers) {
        return None;
    }
    redis::check(findings, &servers, nodes, url);
    budgets::check(findings, store).await
}

fn not_asked(findings: &mut Findings, error: &StoreError, url: &str) {
    let remedy = match error {
        StoreError::Login { .. } => "give the right user and password in REDIS_URL: redis://user:password@host:port",
        StoreError::Refused { .. } if url.contains("cluster") => {
            "if this is one server and no cluster, give redis:// instead of redis+cluster://"
        }
        _ => "start it, or mend REDIS_URL and what is between here and there",
    };
    findings.error("redis.answers", &error.to_string(), remedy);
}
