//! Budgets: whether their policies can be read, and whether their sends are late.

use std::time::Duration;

use sendslot_scheduler::{Event, MoveReason, SendState, SendStatus};
use sendslot_shared::budget::{self, BudgetError};
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::Policy;
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

/// What the records of some recent sends say of lateness, against the grace that the headroom buys.
fn headroom(findings: &mut Findings, name: &BudgetName, policy: &Policy, sends: &[SendStatus]) {
    let check = "budgets.headroom";
    let Ok(compiled) = policy.compile() else { return };
    let (grace, sent) = (compiled.grace, sends.iter().filter(|send| send.state == SendState::Sent).count());
    let mut late: Vec<Duration> = sends.iter().filter_map(lateness).collect();
    late.sort_unstable();
    if sent < FEW || late.is_empty() {
        let found =
            format!("{name}: {sent} of the sends that were looked at were sent: too few to know how late they are");
        return findings.info(check, &found, "look again when it has sent");
    }
    let p99 = late[(late.len() * 99 / 100).min(late.len() - 1)];
    let missed = sends.iter().filter(|send| send.history.iter().any(is_miss)).count() as f64 / sends.len() as f64;
    let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let found = format!(
        "{name}: p99 of {} sends is {:.0} ms late, {:.1}% missed their slots; headroom {} leaves a grace of {:.0} ms",
        late.len(),
        ms(p99),
        missed * 100.0,
        policy.headroom.get(),
        ms(grace)
    );
    if missed <= MISSED && p99 <= grace {
        return findings.ok(check, &found);
    }
    let fits = headroom_for(p99.max(grace * 2), policy.per);
    let remedy = format!(
        "give workers more room (memory, concurrency, batch size), or sendslot budget set {name} --headroom {fits:.2} for twice the grace"
    );
    findings.warning(check, &found, &remedy);
}

/// The largest headroom, to a hundredth, that leaves this grace: `grace` in ARCHITECTURE.md, solved for it.
fn headroom_for(grace: Duration, per: Duration) -> f64 {
    let needed = (grace + Duration::from_millis(1)).as_secs_f64() / per.as_secs_f64();
    (100.0 / (1.0 + 2.0 * needed)).floor() / 100.0
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

#[cfg(test)]
mod tests {
    use super::*;
    use sendslot_shared::policy::Headroom;

    #[test]
    fn the_headroom_that_is_named_leaves_the_grace_that_was_asked_for() {
        for ms in [5, 14, 28, 60, 200] {
            let grace = Duration::from_millis(ms);
            let headroom = Headroom::new(headroom_for(grace, Duration::from_secs(1))).unwrap();
            let compiled = Policy { headroom, ..Policy::per_second(100) }.compile().unwrap();
            assert!(compiled.grace >= grace, "{ms}: {:?} at {}", compiled.grace, headroom.get());
            assert!(compiled.grace < grace + Duration::from_millis(15), "{ms}: {:?}", compiled.grace);
        }
    }
}
