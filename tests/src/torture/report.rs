//! What a run found, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::evidence::{Evidence, View};
use super::faults::Kind;
use super::inject::Injected;
use super::journal::Journal;
use super::judge::{Class, Judgement, blamed};

/// So many violations of one kind are told in detail.
const DETAILED: usize = 3;
const TRACE_LINES: usize = 80;

/// A run's report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// What everything was drawn from.
    pub seed: u64,
    /// How long faults happened, in seconds.
    pub seconds: u64,
    /// From the last fault's end until the queue was empty, in seconds.
    pub drain_s: f64,
    /// Sends that were offered.
    pub offered: u64,
    /// Sends that were accepted.
    pub accepted: u64,
    /// Of those, sends that were accepted without a slot, since Redis could not be asked.
    pub unbooked: u64,
    /// Sends that were refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// How accepted sends ended.
    pub ends: BTreeMap<&'static str, u64>,
    /// Of those, ends that Redis lost with its data.
    pub ends_forgotten: u64,
    /// Sends that the provider took a second time since Redis had lost what it knew of them.
    pub duplicates_by_data_loss: u64,
    /// Sends that were made again after an unknown outcome, as the policy says, and were taken both times.
    pub duplicates_by_policy: u64,
    /// Sends that the provider took twice without an explanation.
    pub duplicates_unexplained: u64,
    /// Cancelled sends that were sent since Redis had lost the cancel, or what it knew of the send.
    pub cancelled_and_sent_by_data_loss: u64,
    /// By budget.
    pub windows: BTreeMap<&'static str, Window>,
    /// Claims that no call was made for, since the worker was held up: they were given back, or decided anew.
    pub claims_given_back: u64,
    /// From the instant that a claim is for to the provider.
    pub call_delay_ms: Spread,
    /// From the answer to the slot in the reserved lane, while nothing went wrong.
    pub reserved_wait_ms: Spread,
    /// Calls to Redis and to SQS that proxies lost or falsified.
    pub proxied: u64,
    /// By kind of fault.
    pub faults: Vec<Row>,
    /// How many violations there are.
    pub violations: u64,
    /// By kind.
    pub violations_by: BTreeMap<String, u64>,
    /// The first of each kind.
    pub details: Vec<Detail>,
}

/// The most units in any rolling window of a budget.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Window {
    /// The budget's limit.
    pub limit: u64,
    /// Of claims, by Redis' clock: the law.
    pub at_claim: u64,
    /// Of calls at the provider, each later than its claim by its own delay.
    pub at_provider: u64,
}

/// How figures are spread.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Spread {
    /// How many there are.
    pub n: usize,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// One kind of fault.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its name.
    pub kind: &'static str,
    /// What it is.
    pub what: &'static str,
    /// How often it was injected.
    pub injected: u64,
    /// Accepted sends that had not ended when it began, all times together.
    pub in_flight: u64,
    /// Sends without an end that are put down to it.
    pub lost: u64,
    /// Sends that were taken twice: lost data explains it, or the policy does not.
    pub duplicated_by_data_loss: u64,
    /// Sends that were taken twice without an explanation.
    pub duplicated: u64,
    /// Stretches above the limit.
    pub over_limit: u64,
    /// From its end until the provider took a send.
    pub recovery_ms: Spread,
}

/// A violation.
#[derive(Debug, Clone, Serialize)]
pub struct Detail {
    /// What it is.
    pub what: String,
    /// The send.
    pub id: Option<String>,
    /// When, in seconds since the run began.
    pub at_s: f64,
    /// The last fault before it.
    pub after: Option<&'static str>,
    /// All that was seen of the send.
    pub trace: Vec<String>,
}

impl Spread {
    /// Of sorted figures.
    pub(super) fn of(sorted: &[f64]) -> Self {
        let at = |part: f64| sorted.get(((sorted.len() as f64 - 1.0) * part).round() as usize).copied().unwrap_or(0.0);
        Self { n: sorted.len(), p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

impl Report {
    pub(super) fn new(evidence: &Evidence, judgement: &Judgement, journal: &Journal, began_us: u64) -> Self {
        let sends = evidence.ledger.sends.values();
        let mut refused = BTreeMap::new();
        for why in sends.clone().filter(|send| send.accepted_us.is_none()).filter_map(|send| send.refused.clone()) {
            *refused.entry(why).or_default() += 1;
        }
        let twice = |violation: &&super::judge::Violation| violation.class == Class::Twice;
        let window =
            |most: &super::judge::Most| Window { limit: most.limit, at_claim: most.claimed, at_provider: most.arrived };
        let detail = |violation: &super::judge::Violation| Detail {
            what: violation.what.clone(),
            id: violation.id.clone(),
            at_s: violation.at_us.saturating_sub(began_us) as f64 / 1e6,
            after: blamed(evidence, violation).map(Kind::as_str),
            trace: violation.id.as_ref().map(|id| journal.trace(id, began_us)).unwrap_or_default(),
        };
        let (mut violations_by, mut shown) = (BTreeMap::new(), vec![]);
        for violation in &judgement.violations {
            let so_far = violations_by.entry(violation.kind()).or_insert(0u64);
            *so_far += 1;
            if *so_far <= DETAILED as u64 {
                shown.push(violation);
            }
        }
        let reserved: Vec<f64> = judgement.reserved_ms.iter().map(|ms| *ms as f64).collect();
        Self {
            offered: sends.len() as u64,
            unbooked: sends.clone().filter(|send| send.unbooked).count() as u64,
            accepted: sends.filter(|send| send.accepted_us.is_some()).count() as u64,
            refused,
            ends: judgement.ends.clone(),
            ends_forgotten: judgement.forgotten,
            duplicates_by_data_loss: judgement.by_loss.values().sum(),
            duplicates_by_policy: judgement.by_policy,
            duplicates_unexplained: judgement.violations.iter().filter(twice).count() as u64,
            cancelled_and_sent_by_data_loss: judgement.cancelled_by_loss,
            windows: judgement.most.iter().map(|(name, most)| (*name, window(most))).collect(),
            claims_given_back: evidence.given_back,
            call_delay_ms: Spread::of(&judgement.delays_ms),
            reserved_wait_ms: Spread::of(&reserved),
            faults: rows(evidence, judgement),
            violations: judgement.violations.len() as u64,
            violations_by,
            details: shown.into_iter().map(detail).collect(),
            ..Self::default()
        }
    }

    /// How often a kind was injected.
    #[must_use]
    pub fn injected(&self, kind: Kind) -> u64 {
        self.faults.iter().find(|row| row.kind == kind.as_str()).map_or(0, |row| row.injected)
    }

    /// The table of faults, as Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let mut lines = vec![
            "| fault | injected | sends in flight | lost | duplicated | over the limit | time to recover, p50 / max |"
                .to_owned(),
            "|---|---|---|---|---|---|---|".to_owned(),
        ];
        for row in &self.faults {
            let explained = match row.duplicated_by_data_loss {
                0 => String::new(),
                n => format!(" (+ {n} by lost data)"),
            };
            lines.push(format!(
                "| {} | {} | {} | {} | {}{explained} | {} | {:.2} s / {:.2} s |",
                row.what,
                row.injected,
                row.in_flight,
                row.lost,
                row.duplicated,
                row.over_limit,
                row.recovery_ms.p50 / 1000.0,
                row.recovery_ms.max / 1000.0
            ));
        }
        lines.join("\n")
    }
}

fn rows(evidence: &Evidence, judgement: &Judgement) -> Vec<Row> {
    let views = evidence.views();
    let mut taken: Vec<u64> = evidence.arrivals.iter().filter(|a| a.accepted).map(|a| a.unix_us).collect();
    taken.sort_unstable();
    let row = |kind: Kind| {
        let faults: Vec<&Injected> = evidence.faults.iter().filter(|fault| fault.kind == kind).collect();
        let count = |class: Class| {
            let of_class = judgement.violations.iter().filter(|violation| violation.class == class);
            of_class.filter(|violation| blamed(evidence, violation) == Some(kind)).count() as u64
        };
        let recovered = |fault: &&Injected| {
            let next = taken.get(taken.partition_point(|at| *at < fault.ended_us))?;
            Some((next - fault.ended_us) as f64 / 1000.0)
        };
        let mut recovery: Vec<f64> = faults.iter().filter_map(recovered).collect();
        recovery.sort_by(f64::total_cmp);
        (!faults.is_empty()).then(|| Row {
            kind: kind.as_str(),
            what: kind.words(),
            injected: faults.len() as u64,
            in_flight: faults.iter().map(|fault| in_flight(&views, fault.began_us)).sum(),
            lost: count(Class::Lost),
            duplicated_by_data_loss: judgement.by_loss.get(&kind).copied().unwrap_or(0),
            duplicated: count(Class::Twice),
            over_limit: count(Class::OverLimit),
            recovery_ms: Spread::of(&recovery),
        })
    };
    Kind::ALL.into_iter().filter_map(row).collect()
}

fn in_flight(views: &[View<'_>], at_us: u64) -> u64 {
    views.iter().filter_map(View::under_way).filter(|(from, to)| (*from..*to).contains(&at_us)).count() as u64
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = |counts: Vec<(String, u64)>| {
            counts.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
        };
        let spread = |s: &Spread| format!("p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms ({})", s.p50, s.p99, s.max, s.n);
        writeln!(f, "seed {}, {} s of faults, drained in {:.1} s", self.seed, self.seconds, self.drain_s)?;
        let refused: u64 = self.refused.values().sum();
        let Self { accepted, unbooked, offered, .. } = self;
        writeln!(f, "  {:<34}{accepted} of {offered}, {unbooked} of them unbooked; {refused} refused", "accepted")?;
        let ends = self.ends.iter().map(|(end, n)| ((*end).to_owned(), *n)).collect();
        writeln!(f, "  {:<34}{}; {} of them forgotten by Redis", "ended", counts(ends), self.ends_forgotten)?;
        writeln!(
            f,
            "  {:<34}{} by lost data, {} by the policy for unknown outcomes, {} unexplained",
            "taken twice", self.duplicates_by_data_loss, self.duplicates_by_policy, self.duplicates_unexplained
        )?;
        writeln!(f, "  {:<34}{} by lost data", "cancelled and sent", self.cancelled_and_sent_by_data_loss)?;
        for (budget, window) in &self.windows {
            let Window { limit, at_claim, at_provider } = window;
            let name = format!("most in any second, {budget}");
            writeln!(f, "  {name:<34}{at_claim} of {limit} at the claim, {at_provider} at the provider")?;
        }
        writeln!(f, "  {:<34}{}", "claims given back", self.claims_given_back)?;
        writeln!(f, "  {:<34}{}", "from the claim to the provider", spread(&self.call_delay_ms))?;
        writeln!(f, "  {:<34}{}", "wait in the reserved lane", spread(&self.reserved_wait_ms))?;
        writeln!(f, "  {:<34}{}", "calls that proxies spoiled", self.proxied)?;
        writeln!(f, "\n{}\n", self.table())?;
        for detail in &self.details {
            let after = detail.after.map(|kind| format!(" (after {kind})")).unwrap_or_default();
            let id = detail.id.as_deref().unwrap_or_default();
            writeln!(f, "VIOLATION at {:.3} s{after}: {id} {}", detail.at_s, detail.what)?;
            detail.trace.iter().take(TRACE_LINES).try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        self.violations_by.iter().try_for_each(|(kind, n)| writeln!(f, "VIOLATIONS {n} x {kind}"))?;
        writeln!(f, "seed {}: {} violations", self.seed, self.violations)
    }
}
