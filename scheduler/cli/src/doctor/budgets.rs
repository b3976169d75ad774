//! Budgets: whether their policies can be read, whether their sends miss their slots, and whether their calls are held up.

use std::time::Duration;

use sendslot_scheduler::{Event, MoveReason, SendStatus};
use sendslot_shared::budget::{self, BudgetError};
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::{Headroom, PATIENCE, Policy};
use sendslot_shared::status;
use sendslot_shared::store::Store;

use super::finding::Findings;
use crate::policy_text::write_duration;

/// Budgets with the policies that can be read.
pub(super) type Budgets = Vec<(BudgetName, Policy)>;

/// Sends of each budget that are looked at, and budgets.
const SENDS: usize = 500;
const MOST_BUDGETS: usize = 100;
/// Fewer sends say nothing about the next ones.
const FEW: usize = 20;
/// The part of sends that may miss their slots: each leaves a unit unused.
const MISSED: f64 = 0.01;
/// A lower headroom gives away too much for the jitter that it buys.
const LOWEST: f64 = 0.9;
/// Those that people choose from.
const HEADROOMS: [f64; 5] = [0.99, 0.98, 0.97, 0.95, 0.9];
const MORE_CPU: &str = "give the workers more CPU (of Lambda: memory), or fewer messages at once";

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
            Ok(sends) => {
                slots(findings, name, &sends);
                headroom(findings, name, policy, &sends);
            }
            Err(error) => {
                findings.info("budgets.headroom", &format!("{name}: lateness could not be read: {error}"), "try again")
            }
        }
    }
    Some(budgets)
}

/// Whether sends miss their slots, as the records of some recent ones say; also of a budget that has sent none.
fn slots(findings: &mut Findings, name: &BudgetName, sends: &[SendStatus]) {
    let check = "budgets.slots";
    if sends.is_empty() {
        return;
    }
    let missed = sends.iter().filter(|send| send.history.iter().any(is_miss)).count();
    let (sent, late) = p99(sends.iter().filter_map(lateness));
    let mut found = format!("{name}: {missed} of {} sends missed their slots", sends.len());
    if sent > 0 {
        let patience = PATIENCE.as_millis();
        found += &format!(
            "; p99 of the {sent} that were sent is {:.0} ms late, up to {patience} ms are no offence",
            ms(late)
        );
    }
    if missed as f64 / sends.len() as f64 <= MISSED && (sent < FEW || late <= PATIENCE) {
        return findings.ok(check, &found);
    }
    let remedy = format!(
        "are there workers, and enough of them? {MORE_CPU}, or a larger lead: sendslot budget set {name} --lead"
    );
    findings.warning(check, &found, &remedy);
}

/// Whether calls are held up for longer than the budget's jitter, as the records of some recent sends say.
fn headroom(findings: &mut Findings, name: &BudgetName, policy: &Policy, sends: &[SendStatus]) {
    let check = "budgets.headroom";
    let Ok(compiled) = policy.compile() else { return };
    let (sent, held_up) = p99(sends.iter().filter_map(|send| send.held_up));
    if sent < FEW {
        let found = format!(
            "{name}: {sent} of the sends that were looked at were sent: too few to know how long calls are held up"
        );
        return findings.info(check, &found, "look again when it has sent");
    }
    let found = format!(
        "{name}: p99 of {sent} calls was held up for {:.0} ms between verdict and call; the jitter is {:.1} ms, headroom {} buys {:.1} ms at most",
        ms(held_up),
        ms(compiled.jitter),
        policy.headroom.get(),
        ms(policy.most_jitter())
    );
    if held_up <= compiled.jitter {
        return findings.ok(check, &found);
    }
    findings.warning(check, &found, &remedy(name, policy, held_up));
}

/// What makes room for calls that are held up for so long.
fn remedy(name: &BudgetName, policy: &Policy, held_up: Duration) -> String {
    // records keep whole milliseconds, rounded down
    let needed = Duration::from_millis(held_up.as_millis() as u64 + 1);
    let jitter = write_duration(needed);
    if needed <= policy.most_jitter() {
        return format!("sendslot budget set {name} --jitter {jitter}, which the headroom buys; or {MORE_CPU}");
    }
    let fits = policy.headroom_for(needed);
    let with = |headroom| Policy { headroom, jitter: Some(needed), ..policy.clone() };
    let works = Headroom::new(fits).is_ok_and(|headroom| with(headroom).compile().is_ok());
    let buys = HEADROOMS.iter().filter_map(|headroom| {
        let buys = Policy { headroom: Headroom::new(*headroom).ok()?, ..policy.clone() }.most_jitter();
        Some(format!("{headroom} buys {:.1} ms", ms(buys)))
    });
    let buys = buys.collect::<Vec<_>>().join(", ");
    if works && fits >= LOWEST {
        return format!("{MORE_CPU}; or sendslot budget set {name} --headroom {fits} --jitter {jitter} ({buys})");
    }
    format!("{MORE_CPU}: no headroom is worth {jitter} of jitter ({buys})")
}

/// How many there are, and the 99th percentile; zero of none.
fn p99(of: impl Iterator<Item = Duration>) -> (usize, Duration) {
    let mut all: Vec<Duration> = of.collect();
    all.sort_unstable();
    (all.len(), all.get(all.len() * 99 / 100).copied().unwrap_or_default())
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
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
