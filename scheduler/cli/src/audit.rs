//! `sendslot audit BUDGET`: whether the limit held, by the calls that workers reported.

mod plot;
mod windows;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::Policy;
use sendslot_shared::store::Store;
use sendslot_shared::time::Instant;
use sendslot_shared::{audit, budget, status};
use serde::Serialize;

use crate::args::AuditArgs;
use crate::exit::{Exit, Failure};
use crate::instant::show;
use crate::output;
use crate::plan::for_people;
use crate::policy_text::write_duration;
use crate::settings::Settings;

use plot::Frame;
use windows::{Above, Largest, Limits, Windows};

/// What the calls prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// No window can have held more.
    Held,
    /// A window held more, or not, by the millisecond to which calls are known.
    Undecided,
    /// A window held more.
    Exceeded,
    /// There is nothing to judge.
    NoCalls,
}

/// An audit as `--json` shows it; instants are RFC 3339 in UTC.
#[derive(Debug, Serialize)]
struct Shown {
    budget: String,
    from: String,
    to: String,
    verdict: Verdict,
    /// The policy's as they are now.
    limit: u32,
    per_ms: u64,
    scheduled_per_s: f64,
    calls: u64,
    units: u64,
    first_call: Option<String>,
    last_call: Option<String>,
    /// The most units in any rolling `per`: surely that many, by the millisecond to which calls are known.
    largest: LargestShown,
    /// The same for windows of `per` + 1 ms with both ends: the truth is not above it.
    largest_at_most: LargestShown,
    /// Units by what the limit would have let through from the first call to the last; null for fewer than two instants.
    utilisation: Option<f64>,
    above_limit: Vec<AboveShown>,
    /// Stretches above the limit beyond those that are listed.
    above_limit_not_listed: u64,
    /// Calls that did not end as sent, by outcome, in whole minutes.
    endings: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct LargestShown {
    units: u64,
    /// The window.
    from: Option<String>,
    to: Option<String>,
}

#[derive(Debug, Serialize)]
struct AboveShown {
    from: String,
    to: String,
    most: u64,
    allowed: u64,
}

pub(crate) async fn run(args: AuditArgs, settings: &Settings) -> Result<Exit, Failure> {
    let name = BudgetName::new(&args.budget).map_err(Failure::usage)?;
    let store = settings.store().await?;
    let Some((_, policy)) = budget::get(&store, &name).await? else { return Err(crate::budget::unknown(&name)) };
    let now = status::budget_status(&store, &name).await?.now;
    let to = args.to.unwrap_or_else(|| now.plus(std::time::Duration::from_millis(1)));
    let before = |wait: std::time::Duration| {
        Instant::from_micros(to.as_micros().saturating_sub(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)))
    };
    let from = args.from.unwrap_or_else(|| before(args.since));
    if from >= to {
        return Err(Failure::usage(anyhow::anyhow!("--from {} is not before --to {}", show(from), show(to))));
    }
    // keys live for a day at most: minutes before that hold nothing
    let kept = Instant::from_micros(now.as_micros().saturating_sub(2 * 86_400_000_000));
    let limits = Limits::of(&policy);
    let windows = read(&store, &name, limits.clone(), from.max(kept), to).await?;
    let endings = audit::endings(&store, &name, from.max(kept), to).await?;
    let shown = shown(&name, (from, to), &policy, &windows, endings);
    let told = lines(&shown, &windows, &policy);
    if let Some(file) = &args.plot {
        let frame = Frame {
            budget: name.as_str(),
            limits: &limits,
            headroom: policy.headroom.get(),
            summary: &summary(&shown),
        };
        write(file, &plot::svg(&frame, &windows))?;
    }
    if args.json {
        output::json(&shown)?;
    } else {
        told.iter().for_each(|line| output::line(line));
    }
    Ok(if shown.verdict == Verdict::Exceeded { Exit::Partial } else { Exit::Success })
}

async fn read(
    store: &Store,
    budget: &BudgetName,
    limits: Limits,
    from: Instant,
    to: Instant,
) -> Result<Windows, Failure> {
    let mut windows = Windows::new(limits);
    let mut calls = audit::calls(store, budget, from, to);
    while let Some(minute) = calls.next().await? {
        minute.into_iter().for_each(|call| windows.push(call));
    }
    windows.finish();
    Ok(windows)
}

fn write(file: &Path, svg: &str) -> Result<(), Failure> {
    std::fs::write(file, svg).with_context(|| format!("the plot could not be written to {}", file.display()))?;
    output::note(&format!("plot: {}", file.display()));
    Ok(())
}

fn at(ms: u64) -> String {
    show(Instant::from_micros(ms * 1000))
}

fn shown(
    budget: &BudgetName,
    (from, to): (Instant, Instant),
    policy: &Policy,
    windows: &Windows,
    endings: BTreeMap<String, u64>,
) -> Shown {
    let per_ms = u64::try_from(policy.per.as_millis()).unwrap_or(u64::MAX);
    let largest = |Largest { units, end_ms }: Largest| LargestShown {
        units,
        from: (units > 0).then(|| at(end_ms.saturating_sub(per_ms))),
        to: (units > 0).then(|| at(end_ms)),
    };
    let verdict = match windows {
        Windows { calls: 0, .. } => Verdict::NoCalls,
        Windows { above, .. } if !above.is_empty() => Verdict::Exceeded,
        Windows { doubtful: true, .. } => Verdict::Undecided,
        _ => Verdict::Held,
    };
    let above = |a: &Above| AboveShown { from: at(a.from_ms), to: at(a.to_ms), most: a.most, allowed: a.allowed };
    let span_ms = windows.first_ms.map_or(0, |first| windows.last_ms - first);
    let let_through = f64::from(policy.limit) * span_ms as f64 / per_ms as f64;
    Shown {
        budget: budget.to_string(),
        from: show(from),
        to: show(to),
        verdict,
        limit: policy.limit,
        per_ms,
        scheduled_per_s: policy.scheduled_rate(),
        calls: windows.calls,
        units: windows.units,
        first_call: windows.first_ms.map(at),
        last_call: windows.first_ms.map(|_| at(windows.last_ms)),
        largest: largest(windows.surely),
        largest_at_most: largest(windows.at_most),
        utilisation: (span_ms > 0).then(|| windows.units as f64 / let_through),
        above_limit: windows.above.iter().map(above).collect(),
        above_limit_not_listed: windows.more_above,
        endings,
    }
}

fn summary(shown: &Shown) -> String {
    let Some((first, last)) = shown.first_call.as_ref().zip(shown.last_call.as_ref()) else {
        return format!("no calls are recorded from {} to {}", shown.from, shown.to);
    };
    let verdict = match shown.verdict {
        Verdict::Exceeded => "the limit was exceeded",
        _ => "the limit held",
    };
    let Shown { calls, units, largest, limit, .. } = shown;
    format!("{calls} calls, {units} units, {first} to {last}; largest window {} of {limit}: {verdict}", largest.units)
}

const LISTED: usize = 20;

fn lines(shown: &Shown, windows: &Windows, policy: &Policy) -> Vec<String> {
    let per = write_duration(policy.per);
    let Shown { budget, limit, largest, largest_at_most: most, .. } = shown;
    let mut lines = vec![format!("{budget}: {} to {}", shown.from, shown.to)];
    let mut row = |name: &str, value: String| lines.push(format!("{name:>16}  {value}"));
    let (Some(first), Some(last), Some(first_ms)) = (&shown.first_call, &shown.last_call, windows.first_ms) else {
        row("calls", "none are recorded".to_owned());
        return lines;
    };
    row("calls", format!("{}, {} units", shown.calls, shown.units));
    let lasted = std::time::Duration::from_millis(windows.last_ms - first_ms);
    row("from", format!("{first} to {last}: {}", for_people(lasted)));
    row(&format!("largest {per}"), format!("{} units, up to {}", largest.units, largest.to.as_deref().unwrap_or("")));
    if most.units > largest.units {
        let to = most.to.as_deref().unwrap_or("");
        row("at most", format!("{}, in {per} + 1 ms up to {to}, since instants are whole milliseconds", most.units));
    } else {
        row("at most", format!("{}, since instants are whole milliseconds", most.units));
    }
    row("limit", verdict(shown, &per));
    for above in shown.above_limit.iter().take(LISTED) {
        row(
            "above it",
            format!("{} units in {per} where {} may be, {} to {}", above.most, above.allowed, above.from, above.to),
        );
    }
    let hidden = shown.above_limit.len().saturating_sub(LISTED) as u64 + shown.above_limit_not_listed;
    if hidden > 0 {
        row("", format!("and {hidden} more such stretches"));
    }
    if let Some(part) = shown.utilisation {
        let scheduled = (policy.headroom.get() * 1e4).round() / 1e2;
        row("utilisation", format!("{:.2}% of the limit ({scheduled}% is scheduled)", part * 100.0));
    }
    let endings: Vec<String> = shown.endings.iter().map(|(outcome, calls)| format!("{calls} {outcome}")).collect();
    row("not sent", if endings.is_empty() { "none".to_owned() } else { endings.join(", ") });
    if !policy.ramp.is_empty() {
        row("note", format!("the limit follows the ramp; {limit} before its first step"));
    }
    lines
}

fn verdict(shown: &Shown, per: &str) -> String {
    let limit = shown.limit;
    match shown.verdict {
        Verdict::Held => format!("{limit} in any {per}: held"),
        Verdict::Undecided => format!(
            "{limit} in any {per}: no window surely held more; one may have, by the millisecond to which calls are known"
        ),
        Verdict::Exceeded => format!("{limit} in any {per}: EXCEEDED"),
        Verdict::NoCalls => format!("{limit} in any {per}"),
    }
}
