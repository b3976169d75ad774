//! One run from its start to its report.

use std::time::{Duration, Instant};

use anyhow::Result;
use sendslot_scheduler::SendState;
use sendslot_shared::id::{BudgetName, SendId};
use sendslot_shared::status::status_all;

use super::clerk::Clerk;
use super::evidence::Evidence;
use super::faults::{Kind, Plan, Planned};
use super::inject::{Injected, inject, rest};
use super::journal::now_us;
use super::judge::{Class, Judgement};
use super::load::{Load, budgets};
use super::report::Report;
use super::rig::{Programs, Rig};

/// A fault-free end in which everything must come to its own.
const DRAIN_LIMIT: Duration = Duration::from_secs(180);
/// Load before the first fault and behind the last one.
const WARM_UP: Duration = Duration::from_secs(3);
/// A run of so long has an outage of all workers for a minute; a shorter one a shorter outage.
const LONG: Duration = Duration::from_secs(300);

/// What is run.
#[derive(Debug, Clone)]
pub struct Torture {
    /// How long faults happen.
    pub length: Duration,
    /// So many faults at least, however long they take.
    pub least: usize,
    /// Quiet between two faults, on average; now and then it is much longer.
    pub gap: Duration,
    /// Load, faults and their order are drawn from this.
    pub seed: u64,
    /// Part of the full load, which is 41 sends a second in two budgets that may send 48 and 16.
    pub load: f64,
    /// Only faults of these kinds; `None`: all.
    pub only: Option<Vec<Kind>>,
    /// The programs.
    pub programs: Programs,
}

impl Torture {
    /// Runs it: starts everything, makes faults happen for its length, lets everything come to its end, judges, and leaves nothing
    /// running.
    ///
    /// # Errors
    /// When something cannot be started or asked; what is wrong with the sends stands in the report.
    pub async fn run(&self) -> Result<Report> {
        let mut rig = Rig::start(&self.programs, budgets(), self.seed).await?;
        let clerk = Clerk::start(rig.scheduler(), Load::new(self.seed, self.load), rig.journal.clone())?;
        let began_us = now_us();
        clerk.draw(true);
        rest(&mut rig, WARM_UP).await;
        let faults = self.faults(&mut rig, &clerk).await?;
        rest(&mut rig, WARM_UP).await;
        clerk.draw(false);
        let drain = drain(&rig, &clerk, DRAIN_LIMIT).await?;
        let drained = drain.is_ok();
        let proxied = rig.redis_proxy.broken() + rig.sqs_proxy.hit();
        let log = rig.last_log_lines();
        let left = rig.stop_and_count().await?;
        let evidence = collect(&rig, &clerk, faults).await?;
        let mut judgement = Judgement::of(&evidence, &rig.budgets);
        if let Err(depth) = &drain {
            let what = format!("not drained within {DRAIN_LIMIT:?}: {depth}; {log:?}");
            judgement.wrong(Class::Lost, None, now_us(), what);
        }
        if left > 0 {
            judgement.wrong(Class::Other, None, now_us(), format!("{left} workers are left running"));
        }
        let drain_s = drain.unwrap_or(DRAIN_LIMIT).as_secs_f64();
        tracing::info!(drained, drain_s, "judged");
        let report = Report::new(&evidence, &judgement, &rig.journal, began_us);
        Ok(Report { seed: self.seed, seconds: self.length.as_secs(), drain_s, proxied, ..report })
    }

    /// Injects until the time is over.
    async fn faults(&self, rig: &mut Rig, clerk: &Clerk) -> Result<Vec<Injected>> {
        let began = Instant::now();
        let mut faults = vec![];
        let mut outage = self.outage();
        for planned in Plan::new(self.seed, self.gap, self.only.as_deref()) {
            // half-way, once
            let due = outage.take_if(|_| began.elapsed() >= self.length / 2);
            let planned = due.unwrap_or(planned);
            if faults.len() >= self.least && began.elapsed() + planned.gap + planned.lasts > self.length {
                break;
            }
            rest(rig, planned.gap).await;
            tracing::info!(kind = planned.kind.as_str(), lasts_ms = planned.lasts.as_millis(), "fault");
            faults.push(inject(rig, clerk, &planned).await?);
        }
        Ok(faults)
    }

    fn outage(&self) -> Option<Planned> {
        let wanted = self.only.as_deref().is_none_or(|only| only.contains(&Kind::WorkerOutage));
        let lasts = if self.length >= LONG { Duration::from_secs(60) } else { self.length / 8 };
        let gap = Duration::from_secs(3);
        (wanted && !lasts.is_zero()).then_some(Planned { kind: Kind::WorkerOutage, gap, lasts, seed: self.seed })
    }
}

/// Waits until nothing is on the queue and nothing is under way. `Err`: it did not come to that.
pub(super) async fn drain(rig: &Rig, clerk: &Clerk, limit: Duration) -> Result<Result<Duration, String>> {
    let began = Instant::now();
    let mut empty = 0;
    loop {
        let depth = rig.depth().await?;
        let (offers, cancels) = clerk.ledger().unanswered();
        let in_hand = rig.in_hand();
        let nothing = depth == [0; 3] && offers.is_empty() && cancels.is_empty() && in_hand == 0;
        // a message may be between two places while one is looked at
        empty = if nothing { empty + 1 } else { 0 };
        if empty == 3 {
            return Ok(Ok(began.elapsed()));
        }
        if began.elapsed() > limit {
            let [visible, delayed, taken] = depth;
            let open = format!("{} offers and {} cancels unanswered", offers.len(), cancels.len());
            return Ok(Err(format!(
                "{visible} messages to be received, {delayed} delayed, {taken} taken, {in_hand} batches in hand, {open}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// What Redis, the dead-letter queue, the provider and the monitor say in the end.
pub(super) async fn collect(rig: &Rig, clerk: &Clerk, faults: Vec<Injected>) -> Result<Evidence> {
    let letters = rig.dead_letters().await?;
    let ledger = std::mem::take(&mut *clerk.ledger());
    let mut states = std::collections::BTreeMap::new();
    for budget in &rig.budgets {
        let name = BudgetName::new(budget.name)?;
        let of_budget = ledger.sends.keys().filter(|id| id.starts_with(budget.name));
        let ids = of_budget.map(SendId::new).collect::<Result<Vec<_>, _>>()?;
        for ids in ids.chunks(50) {
            let known = status_all(&rig.store, &name, &ids.iter().collect::<Vec<_>>()).await?;
            let state = |status: Option<sendslot_scheduler::SendStatus>| -> Option<SendState> { Some(status?.state) };
            states.extend(ids.iter().map(|id| id.as_str().to_owned()).zip(known.into_iter().map(state)));
        }
    }
    let (arrivals, claims, sent) = (rig.provider.arrivals(), rig.monitor.claims(), rig.monitor.sent());
    let given_back = rig.monitor.given_back();
    Ok(Evidence { ledger, faults, arrivals, claims, given_back, sent, states, letters })
}

impl Rig {
    /// Stops the workers; how many are left.
    pub(super) async fn stop_and_count(&mut self) -> Result<usize> {
        self.stop_workers(Duration::from_secs(5)).await;
        Ok(self.workers()?.len())
    }
}
