//! `sendslot budget set|get|list|pause|resume`.

use std::time::Duration;

use sendslot_shared::budget::{self, BudgetError};
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::{Compiled, Headroom, OnUnknown, Policy};
use sendslot_shared::status;
use sendslot_shared::store::Store;

use crate::args::{BudgetCommand, BudgetSetArgs, OnUnknownArg};
use crate::exit::{Exit, Failure};
use crate::policy_json::shown;
use crate::policy_text::{self, Given};
use crate::settings::Settings;
use crate::{instant, output, words};

pub(crate) async fn run(command: BudgetCommand, settings: &Settings) -> Result<Exit, Failure> {
    let store = settings.store().await?;
    match command {
        BudgetCommand::Set(args) => set(&store, *args).await,
        BudgetCommand::Get { name, json } => get(&store, &name, json).await,
        BudgetCommand::List { json } => list(&store, json).await,
        BudgetCommand::Pause { name, rest, json } => pause(&store, &name, rest, json).await,
        BudgetCommand::Resume { name, json } => resume(&store, &name, json).await,
    }
}

/// A budget without a policy.
pub(crate) fn unknown(budget: &BudgetName) -> Failure {
    Failure::unknown(anyhow::anyhow!(
        "the budget {budget} has no policy: set one with `sendslot budget set {budget} --limit UNITS`"
    ))
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

/// The policy with what is given put in; `before` is what the budget has.
fn changed(before: Option<Policy>, args: BudgetSetArgs) -> Result<Policy, Failure> {
    let before = before.filter(|_| !args.replace);
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
    put(&mut policy.per, args.per);
    put(&mut policy.jitter, args.jitter.map(Given::into_option));
    put(&mut policy.transit, args.transit);
    put(&mut policy.lead, args.lead);
    put(&mut policy.horizon, args.horizon);
    put(&mut policy.dedup_ttl, args.dedup_ttl);
    put(&mut policy.max_attempts, args.max_attempts);
    put(&mut policy.on_unknown, args.on_unknown.map(OnUnknown::from));
    put(&mut policy.max_cost, args.max_cost.map(Given::into_option));
    put(&mut policy.spacing, args.spacing.map(Given::into_option));
    put(&mut policy.adaptive, args.adaptive.map(Given::into_option));
    put(&mut policy.lanes, whole_list("--lane", args.lane)?);
    put(&mut policy.quotas, whole_list("--quota", args.quota)?);
    put(&mut policy.ramp, whole_list("--ramp", args.ramp)?);
    Ok(policy)
}

impl From<OnUnknownArg> for OnUnknown {
    fn from(arg: OnUnknownArg) -> Self {
        match arg {
            OnUnknownArg::Park => OnUnknown::Park,
            OnUnknownArg::Resend => OnUnknown::Resend,
        }
    }
}

fn put<T>(setting: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *setting = value;
    }
}

/// The list that an option gives in all; `None` when it is not given.
fn whole_list<T>(option: &str, given: Vec<Given<T>>) -> Result<Option<Vec<T>>, Failure> {
    let (n, list) = (given.len(), given.into_iter().filter_map(Given::into_option).collect::<Vec<T>>());
    match (n, list.len()) {
        (0, _) => Ok(None),
        (1, 0) => Ok(Some(list)),
        (n, kept) if n == kept => Ok(Some(list)),
        _ => Err(Failure::usage(anyhow::anyhow!("{option} none clears the list: give it alone"))),
    }
}

async fn get(store: &Store, name: &str, json: bool) -> Result<Exit, Failure> {
    let name = BudgetName::new(name).map_err(Failure::usage)?;
    let Some((version, policy)) = budget::get(store, &name).await? else {
        return Err(unknown(&name));
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
                output::line(&policy_text::command(&name, &policy));
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

async fn pause(store: &Store, name: &str, rest: Option<Duration>, json: bool) -> Result<Exit, Failure> {
    let name = BudgetName::new(name).map_err(Failure::usage)?;
    if rest == Some(Duration::ZERO) {
        return Err(Failure::usage(anyhow::anyhow!(
            "a pause of 0 s is none: `sendslot budget resume {name}` ends one"
        )));
    }
    let until = rest.map_or(budget::UNTIL_RESUMED, |rest| rest.min(budget::UNTIL_RESUMED));
    if !budget::pause(store, &name, Some(until)).await? {
        return Err(unknown(&name));
    }
    show_pause(store, &name, json).await
}

async fn resume(store: &Store, name: &str, json: bool) -> Result<Exit, Failure> {
    let name = BudgetName::new(name).map_err(Failure::usage)?;
    if !budget::pause(store, &name, None).await? {
        return Err(unknown(&name));
    }
    show_pause(store, &name, json).await
}

/// The pause that is in force now, or that none is.
async fn show_pause(store: &Store, name: &BudgetName, json: bool) -> Result<Exit, Failure> {
    let known = status::budget_status(store, name).await?;
    if json {
        let until = known.paused_until.map(instant::show);
        output::json(&serde_json::json!({ "budget": name, "paused": until.is_some(), "paused_until": until }))?;
        return Ok(Exit::Success);
    }
    output::line(&match known.paused_until {
        Some(until) => format!("{name}: {}", words::paused(name, known.now, until)),
        None => format!("{name}: goes on"),
    });
    Ok(Exit::Success)
}

fn show(name: &BudgetName, version: u64, policy: &Policy, compiled: &Compiled, json: bool) -> Result<(), Failure> {
    if json {
        output::json(&shown(name, version, policy, compiled))?;
        return Ok(());
    }
    output::line(&policy_text::command(name, policy));
    output::line(&format!(
        "# version {version}: schedules {:.3} units/s; the headroom buys {:.1} ms of jitter; costs up to {} fit beside others, up to {} at all",
        policy.scheduled_rate(),
        compiled.jitter.as_micros() as f64 / 1000.0,
        compiled.u0,
        compiled.max_cost
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;
    use proptest::prelude::*;
    use sendslot_shared::id::LaneName;
    use sendslot_shared::limits::{Adaptive, Lane, Quota, RampStep, Share};
    use sendslot_shared::time::Instant;

    /// What the command for the budget `sms` or `-` makes of one that has `before`.
    fn pasted(before: Option<Policy>, line: &str) -> Policy {
        let args = Args::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{line}: {e}"));
        let Command::Budget(BudgetCommand::Set(args)) = args.command else { panic!("{line}") };
        assert!(["sms", "-"].contains(&args.name.as_str()), "{line}");
        changed(before, *args).unwrap()
    }

    fn lanes() -> impl Strategy<Value = Vec<Lane>> {
        let name = prop_oneof![4 => "[a-z0-9._-]{1,64}", 1 => Just("none".to_owned()), 1 => Just("default".to_owned())];
        let max_wait = prop::option::of(1_u64..1_209_600).prop_map(|s| s.map(Duration::from_secs));
        let lane = (name, 0_u16..=10_000, max_wait, any::<bool>()).prop_map(|(name, share, max_wait, preempts)| Lane {
            name: LaneName::new(name).unwrap(),
            reserved: Share::new(f64::from(share) / 10_000.0).unwrap(),
            max_wait,
            preempts,
        });
        prop::collection::vec(lane, 0..4)
    }

    fn quotas() -> impl Strategy<Value = Vec<Quota>> {
        let quota = (1_u32..1 << 24, 1_u64..2_678_400, prop_oneof![Just(0), -86_400..=86_400]);
        let quota = quota.prop_map(|(units, window_s, offset_s)| Quota {
            offset_s,
            ..Quota::new(units, Duration::from_secs(window_s))
        });
        prop::collection::vec(quota, 0..4)
    }

    fn ramps() -> impl Strategy<Value = Vec<RampStep>> {
        let from = prop_oneof![(1_u64..9_000_000_000).prop_map(|s| s * 1_000_000), 1_u64..1 << 53];
        let step =
            (from, 1_u32..1 << 24).prop_map(|(from, limit)| RampStep { from: Instant::from_micros(from), limit });
        prop::collection::vec(step, 0..4)
    }

    fn adaptives() -> impl Strategy<Value = Option<Adaptive>> {
        let adaptive = (any::<u32>(), prop::option::of(any::<u32>()));
        prop::option::of(adaptive.prop_map(|(floor, ceiling)| Adaptive { floor, ceiling }))
    }

    fn ms(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
        range.prop_map(Duration::from_millis)
    }

    fn s(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
        range.prop_map(Duration::from_secs)
    }

    /// Any settings that can be kept, also those that make no policy together.
    fn policies() -> impl Strategy<Value = Policy> {
        let numbers = (1_u32..1 << 24, 1_u16..=10_000, any::<u8>(), any::<bool>(), prop::option::of(1_u32..1 << 24));
        let times = (ms(1..2_592_000_000), ms(0..60_000), ms(100..60_000), s(1..1_209_600), s(3600..2_592_000));
        let spacing = (prop::option::of(ms(1..86_400_000)), prop::option::of(ms(0..60_000)));
        let limits = (lanes(), quotas(), spacing, ramps(), adaptives());
        (numbers, times, limits).prop_map(|(numbers, times, limits)| Policy {
            limit: numbers.0,
            headroom: Headroom::new(f64::from(numbers.1) / 10_000.0).unwrap(),
            max_attempts: numbers.2,
            on_unknown: if numbers.3 { OnUnknown::Resend } else { OnUnknown::Park },
            max_cost: numbers.4,
            per: times.0,
            transit: times.1,
            lead: times.2,
            horizon: times.3,
            dedup_ttl: times.4,
            lanes: limits.0,
            quotas: limits.1,
            spacing: limits.2.0,
            jitter: limits.2.1,
            ramp: limits.3,
            adaptive: limits.4,
        })
    }

    proptest! {
        #[test]
        fn what_get_prints_sets_the_same_policy_whatever_was_there(policy in policies(), before in policies(), odd: bool) {
            let name = BudgetName::new(if odd { "-" } else { "sms" }).unwrap();
            let line = policy_text::command(&name, &policy);
            prop_assert_eq!(pasted(None, &line), policy.clone());
            prop_assert_eq!(pasted(Some(before), &line), policy);
            let plain = |c: char| c.is_ascii_alphanumeric() || " -_.:,=/@+%".contains(c);
            prop_assert!(line.chars().all(plain), "a shell would read {line:?} in its own way");
        }
    }

    #[test]
    fn names_that_start_as_options_do_are_pasted_too() {
        let lane = Lane { preempts: true, ..Lane::new(LaneName::new("-otp").unwrap()) };
        let policy = Policy { lanes: vec![lane], ..Policy::per_second(5) };
        let line = policy_text::command(&BudgetName::new("-").unwrap(), &policy);
        assert!(line.ends_with(" --lane=-otp:preempts -- -"), "{line}");
        assert_eq!(pasted(None, &line), policy);
    }

    #[test]
    fn an_option_replaces_the_whole_list_and_none_clears_it() {
        let set = |before: &Policy, options: &str| {
            pasted(Some(before.clone()), &format!("sendslot budget set sms {options}"))
        };
        let quotas = |policy: &Policy| policy.quotas.iter().map(|q| q.units).collect::<Vec<_>>();
        let two = set(&Policy::per_second(10), "--quota 900/1h --quota 50000/24h --spacing 6s --max-cost 5");
        assert_eq!((quotas(&two), two.max_cost), (vec![900, 50_000], Some(5)));
        assert_eq!(set(&two, "--limit 10"), two);
        assert_eq!(quotas(&set(&two, "--quota 70/1h")), [70]);
        let cleared = set(&two, "--quota none --spacing none --max-cost none --adaptive none --ramp none --lane none");
        assert_eq!(cleared, Policy::per_second(10));
        let mixed = whole_list("--quota", vec![Given::Nothing, Given::This(1)]);
        assert!(mixed.is_err());
    }
}
