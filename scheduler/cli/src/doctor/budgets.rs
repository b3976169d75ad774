//! Budgets: whether their policies can be read, and whether their sends are late.

use std::time::Duration;

use sendslot_scheduler::{Event, MoveReason, SendState, SendStatus};
use sendslot_shared::budget::{self, BudgetError};
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::{PATIENCE, Policy};
use sendslot_shared::status;
use sendslot_shared::store::Store;

use super::finding::Findings;

/// Budgets with the policies that can be read.
pub(super) type Budgets = Vec<(BudgetName, Policy)>;

/// Sends of each budget that are looked at, and budgets.
const SENDS: usize = 500;
const MOST_BUDGETS: usize = 100;
/// Fewer sends say nothing about the next ones.
const FEW: usize = 20;
/// The part of sends that may miss their slots: each leaves a unit unused.
const MISSED: f64 = 0.01;

pub(super) async fn check(findings: &mut Findings, store: &Store) -> Option<Budgets> {
    let check = "budgets.policies";
    let names = match budget::list(store).await {
        Ok(names) => names,
        Err(error) => {
            findings.error(check, &format!("the budgets could not be listed: {error}"), "see what Redis refuses");
            return None;
        }
    };
    if names.is_empty() {
        findings.info(check, "no budget has a policy", "sendslot budget set NAME --limit UNITS");
    }
    let (mut budgets, listed) = (vec![], names.len());
    for name in names {
        match budget::get(store, &name).await {
            Ok(Some((_, policy))) => budgets.push((name, policy)),
            Ok(None) => findings.warning(
                check,
                &format!("{name} is known, and has no policy: its sends are held"),
                &format!("sendslot budget set {name} --limit UNITS; SENDSLOT_POLICY_FILE brings it back after a loss"),
            ),
            Err(BudgetError::Store(error)) => {
                findings.error(check, &format!("{name}: {error}"), "see what Redis refuses")
            }
            Err(error) => findings.error(
                check,
                &format!("{name}: {error}"),
                &format!("set it anew: sendslot budget set {name} --replace --limit UNITS"),
            ),
        }
    }
    if budgets.len() == listed && listed > 0 {
        findings.ok(check, &format!("{listed} budgets, all policies can be read"));
    }
    for (name, policy) in budgets.iter().take(MOST_BUDGETS) {
        match status::some(store, name, SENDS).await {
            Ok(sends) => headroom(findings, name, policy, &sends),
            Err(error) => {
                findings.info("budgets.headroom", &format!("{name}: lateness could not be read: {error}"), "try again")
            }
        }
    }
    Some(budgets)
}

/// What the records of some recent sends say of lateness, against the patience: a send that is later may miss its slot.
fn headroom(findings: &mut Findings, name: &BudgetName, policy: &Policy, sends: &[SendStatus]) {
    let check = "budgets.headroom";
    let Ok(compiled) = policy.compile() else { return };
    let sent = sends.iter().filter(|send| send.state == SendState::Sent).count();
    let mut late: Vec<Duration> = sends.iter().filter_map(lateness).collect();
    late.sort_unstable();
    let missed = sends.iter().filter(|send| send.history.iter().any(is_miss)).count();
    let part = missed as f64 / sends.len().max(1) as f64;
    if missed == 0 && (sent < FEW || late.is_empty()) {
        let found =
            format!("{name}: {sent} of the sends that were looked at were sent: too few to know how late they are");
        return findings.info(check, &found, "look again when it has sent");
    }
    let p99 = late.get((late.len() * 99 / 100).min(late.len().saturating_sub(1))).copied().unwrap_or_default();
    let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let found = format!(
        "{name}: p99 of {} sends is {:.0} ms late, {missed} of {} missed their slots; headroom {} buys {:.1} ms of jitter",
        late.len(),
        ms(p99),
        sends.len(),
        policy.headroom.get(),
        ms(compiled.jitter)
    );
    if part <= MISSED && p99 <= PATIENCE {
        return findings.ok(check, &found);
    }
    let remedy =
        format!("give workers more room (memory, concurrency, batch size), or a larger --lead to the budget {name}");
    findings.warning(check, &found, &remedy);
}

/// How long after its slot a send's call began; to a few milliseconds, as records keep it.
fn lateness(send: &SendStatus) -> Option<Duration> {
    let called = send.history.iter().rev().find_map(|event| match event {
        Event::Called { at } => Some(*at),
        _ => None,
    })?;
    Some(Duration::from_micros(called.as_micros().saturating_sub(send.at?.as_micros())))
}

fn is_miss(event: &Event) -> bool {
    matches!(event, Event::Moved { why: MoveReason::Missed, .. })
}
