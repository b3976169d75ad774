//! A backlog, and no worker for a while: what it costs.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::clerk::Clerk;
use super::faults::Kind;
use super::inject::{Injected, rest};
use super::journal::now_us;
use super::judge::{Class, Judgement};
use super::load::{Budget, LANES, Load, policy};
use super::report::{Report, Window};
use super::rig::{Programs, Rig, VISIBILITY};
use super::run::{collect, drain};

/// An invocation ends before this.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is run.
#[derive(Debug, Clone)]
pub struct Outage {
    /// Units a second.
    pub limit: u32,
    /// Sends that are offered at once.
    pub backlog: usize,
    /// Workers run for so long before the outage.
    pub before: Duration,
    /// How long there is no worker.
    pub length: Duration,
    /// The programs.
    pub programs: Programs,
}

/// What it cost.
#[derive(Debug, Clone, Serialize)]
pub struct OutageReport {
    /// Sends that were accepted.
    pub accepted: u64,
    /// Sends that the provider took.
    pub sent: u64,
    /// How long there was no worker, in seconds.
    pub outage_s: f64,
    /// From the first call to the last, in seconds.
    pub drained_in_s: f64,
    /// The same without an outage: the backlog at the scheduled rate.
    pub ideal_s: f64,
    /// What is longer than the ideal.
    pub lost_s: f64,
    /// From the workers' return until the provider took a send, in seconds.
    pub recovery_s: f64,
    /// Sends that the provider did not take at their first slot, by their records.
    pub moved: u64,
    /// How often they were booked again, all together.
    pub moves: u64,
    /// The most units in any rolling second.
    pub window: Window,
    /// The judgement, as of any run.
    pub report: Report,
}

impl Outage {
    /// Runs it.
    ///
    /// # Errors
    /// When something cannot be started or asked.
    pub async fn run(&self) -> Result<OutageReport> {
        let policy = policy(self.limit, 0.9);
        let rate = policy.scheduled_rate();
        let ideal_s = self.backlog as f64 / rate;
        let mut rig = Rig::start(&self.programs, vec![Budget { name: LANES, policy }], 1).await?;
        let clerk = Clerk::start(rig.scheduler(), Load::new(1, 0.0), rig.journal.clone())?;
        let began_us = now_us();
        clerk.backlog(LANES, self.backlog);
        rest(&mut rig, self.before).await;
        // what they have in hand they finish, so that no outcome is unknown
        rig.stop_workers(PATIENCE).await;
        let began_outage_us = now_us();
        rest(&mut rig, self.length).await;
        let ended_us = now_us();
        rig.start_workers().await?;
        let kind = Kind::WorkerOutage;
        let fault = Injected { kind, began_us: began_outage_us, ended_us, loss: None, forward: Duration::ZERO };
        // much more than it should take: what it took is a figure, not a verdict
        let limit = 3 * (Duration::from_secs_f64(ideal_s) + VISIBILITY) + Duration::from_secs(60);
        let began = Instant::now();
        let drain = drain(&rig, &clerk, limit).await?;
        let log = rig.last_log_lines();
        let left = rig.stop_and_count().await?;
        let evidence = collect(&rig, &clerk, vec![fault]).await?;
        let mut judgement = Judgement::of(&evidence, &rig.budgets);
        if let Err(depth) = &drain {
            judgement.wrong(Class::Lost, None, now_us(), format!("not drained within {limit:?}: {depth}; {log:?}"));
        }
        if left > 0 {
            judgement.wrong(Class::Other, None, now_us(), format!("{left} workers are left running"));
        }
        let report = Report::new(&evidence, &judgement, &rig.journal, began_us);
        let mut taken: Vec<u64> = evidence.arrivals.iter().filter(|a| a.accepted).map(|a| a.unix_us).collect();
        taken.sort_unstable();
        let s = |us: u64| us as f64 / 1e6;
        let drained_in_s = s(taken.last().zip(taken.first()).map_or(0, |(last, first)| last - first));
        let next = taken.iter().find(|at| **at >= fault.ended_us).map_or(0, |at| at - fault.ended_us);
        let (moved, moves) = rig.monitor.moves();
        let most = judgement.most.get(LANES).copied().unwrap_or_default();
        Ok(OutageReport {
            accepted: report.accepted,
            sent: taken.len() as u64,
            outage_s: s(fault.ended_us - fault.began_us),
            drained_in_s,
            ideal_s,
            lost_s: drained_in_s - ideal_s,
            recovery_s: s(next),
            moved,
            moves,
            window: Window { limit: most.limit, at_claim: most.claimed, at_provider: most.arrived },
            report: Report { drain_s: began.elapsed().as_secs_f64(), ..report },
        })
    }
}

impl fmt::Display for OutageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window { limit, at_claim, at_provider } = self.window;
        for (name, value) in [
            ("sent", format!("{} of {} accepted", self.sent, self.accepted)),
            ("ended", format!("{:?}", self.report.ends)),
            ("booked again", format!("{} of them, {} times in all", self.moved, self.moves)),
            ("no worker for", format!("{:.1} s", self.outage_s)),
            ("first send after", format!("{:.1} s", self.recovery_s)),
            ("drained in", format!("{:.1} s, {:.1} s without the outage", self.drained_in_s, self.ideal_s)),
            ("time lost", format!("{:.1} s", self.lost_s)),
            (
                "most in any rolling second",
                format!("{at_claim} of {limit} at the claim, {at_provider} at the provider"),
            ),
        ] {
            writeln!(f, "  {name:<28}{value}")?;
        }
        for detail in &self.report.details {
            writeln!(f, "VIOLATION at {:.3} s: {} {:?}", detail.at_s, detail.what, detail.id)?;
            detail.trace.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        writeln!(f, "{} violations", self.report.violations)
    }
}
