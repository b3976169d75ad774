//! A policy as `--json` shows it.

use sendslot_shared::id::BudgetName;
use sendslot_shared::limits::{Adaptive, Lane, Quota, RampStep};
use sendslot_shared::policy::{Compiled, OnUnknown, Policy};
use serde::Serialize;

use crate::instant;

/// A budget with everything that is set, and what follows from it.
#[derive(Debug, Serialize)]
pub(crate) struct BudgetShown {
    budget: String,
    version: u64,
    limit: u32,
    per_ms: u128,
    headroom: f64,
    /// What may vary between verdict and call.
    jitter_ms: f64,
    /// Null: it follows the headroom.
    jitter_ms_set: Option<u128>,
    transit_ms: u128,
    lead_ms: u128,
    horizon_s: u64,
    dedup_ttl_s: u64,
    max_cost: u32,
    /// Null: it follows the limits.
    max_cost_set: Option<u32>,
    max_attempts: u8,
    on_unknown: OnUnknown,
    lanes: Vec<LaneShown>,
    quotas: Vec<QuotaShown>,
    spacing_ms: Option<u128>,
    ramp: Vec<StepShown>,
    adaptive: Option<AdaptiveShown>,
    scheduled_per_s: f64,
    largest_cost_beside_others: u32,
}

#[derive(Debug, Serialize)]
struct LaneShown {
    lane: String,
    /// 0 to 1.
    reserved: f64,
    max_wait_s: Option<u64>,
    preempts: bool,
}

#[derive(Debug, Serialize)]
struct QuotaShown {
    units: u32,
    window_s: u64,
    /// Local time ahead of UTC.
    offset_s: i32,
}

#[derive(Debug, Serialize)]
struct StepShown {
    from: String,
    limit: u32,
}

#[derive(Debug, Serialize)]
struct AdaptiveShown {
    floor_units: u32,
    ceiling_units: Option<u32>,
}

impl From<&Lane> for LaneShown {
    fn from(lane: &Lane) -> Self {
        Self {
            lane: lane.name.to_string(),
            reserved: lane.reserved.get(),
            max_wait_s: lane.max_wait.map(|wait| wait.as_secs()),
            preempts: lane.preempts,
        }
    }
}

impl From<&Quota> for QuotaShown {
    fn from(quota: &Quota) -> Self {
        Self { units: quota.units, window_s: quota.window.as_secs(), offset_s: quota.offset_s }
    }
}

impl From<&RampStep> for StepShown {
    fn from(step: &RampStep) -> Self {
        Self { from: instant::show(step.from), limit: step.limit }
    }
}

impl From<Adaptive> for AdaptiveShown {
    fn from(adaptive: Adaptive) -> Self {
        Self { floor_units: adaptive.floor, ceiling_units: adaptive.ceiling }
    }
}

pub(crate) fn shown(name: &BudgetName, version: u64, policy: &Policy, compiled: &Compiled) -> BudgetShown {
    BudgetShown {
        budget: name.to_string(),
        version,
        limit: policy.limit,
        per_ms: policy.per.as_millis(),
        headroom: policy.headroom.get(),
        jitter_ms: compiled.jitter.as_micros() as f64 / 1000.0,
        jitter_ms_set: policy.jitter.map(|jitter| jitter.as_millis()),
        transit_ms: policy.transit.as_millis(),
        lead_ms: policy.lead.as_millis(),
        horizon_s: policy.horizon.as_secs(),
        dedup_ttl_s: policy.dedup_ttl.as_secs(),
        max_cost: compiled.max_cost,
        max_cost_set: policy.max_cost,
        max_attempts: policy.max_attempts,
        on_unknown: policy.on_unknown,
        lanes: policy.lanes.iter().map(LaneShown::from).collect(),
        quotas: policy.quotas.iter().map(QuotaShown::from).collect(),
        spacing_ms: policy.spacing.map(|spacing| spacing.as_millis()),
        ramp: policy.ramp.iter().map(StepShown::from).collect(),
        adaptive: policy.adaptive.map(AdaptiveShown::from),
        scheduled_per_s: policy.scheduled_rate(),
        largest_cost_beside_others: compiled.u0,
    }
}
