//! Policies that processes carry, for a Redis that lost them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::budget::{self, BudgetError};
use crate::id::{BudgetName, LaneName};
use crate::limits::{Adaptive, Lane, Quota, Share};
use crate::policy::{Headroom, InvalidPolicy, OnUnknown, Policy};
use crate::store::Store;

/// Policies by budget. One that is missing in Redis is set from here; one that is there is never overwritten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyFile(BTreeMap<BudgetName, Policy>);

/// Why a file of policies cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// It cannot be read.
    #[error("SENDSLOT_POLICY_FILE: {} cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what `sendslot budget get --json` or `budget list --json` prints.
    #[error("SENDSLOT_POLICY_FILE: {0}. Write it with `sendslot budget get NAME --json`")]
    Json(#[from] serde_json::Error),
    /// A ramp's instants are set once, not again after a loss.
    #[error(
        "SENDSLOT_POLICY_FILE: the policy of {budget} has a ramp: give the limit that shall hold after a loss instead"
    )]
    Ramp {
        /// Whose.
        budget: BudgetName,
    },
    /// A policy that Redis would not be given either.
    #[error("SENDSLOT_POLICY_FILE: the policy of {budget}: {source}")]
    Policy {
        /// Whose.
        budget: BudgetName,
        /// Why.
        source: InvalidPolicy,
    },
}

/// As the command line prints it; what follows from the settings is passed over.
#[derive(Deserialize)]
struct Shown {
    budget: BudgetName,
    limit: u32,
    per_ms: u64,
    headroom: f64,
    jitter_ms_set: Option<u64>,
    transit_ms: u64,
    lead_ms: u64,
    horizon_s: u64,
    dedup_ttl_s: u64,
    max_cost_set: Option<u32>,
    max_attempts: u8,
    on_unknown: OnUnknown,
    lanes: Vec<LaneShown>,
    quotas: Vec<QuotaShown>,
    spacing_ms: Option<u64>,
    ramp: Vec<serde::de::IgnoredAny>,
    adaptive: Option<AdaptiveShown>,
}

#[derive(Deserialize)]
struct LaneShown {
    lane: LaneName,
    reserved: f64,
    max_wait_s: Option<u64>,
    preempts: bool,
}

#[derive(Deserialize)]
struct QuotaShown {
    units: u32,
    window_s: u64,
    offset_s: i32,
}

#[derive(Deserialize)]
struct AdaptiveShown {
    floor_units: u32,
    ceiling_units: Option<u32>,
}

impl PolicyFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`PolicyFileError`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self, PolicyFileError> {
        let path = path.as_ref();
        let text =
            std::fs::read_to_string(path).map_err(|source| PolicyFileError::Io { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    /// Reads one policy, or a list of them.
    ///
    /// # Errors
    /// [`PolicyFileError`].
    pub fn parse(text: &str) -> Result<Self, PolicyFileError> {
        let list: Vec<Shown> = match text.trim_start().starts_with('[') {
            true => serde_json::from_str(text)?,
            false => vec![serde_json::from_str(text)?],
        };
        let mut policies = BTreeMap::new();
        for shown in list {
            let budget = shown.budget.clone();
            if !shown.ramp.is_empty() {
                return Err(PolicyFileError::Ramp { budget });
            }
            let policy = shown.policy().and_then(|policy| policy.compile().map(|_| policy));
            let policy = policy.map_err(|source| PolicyFileError::Policy { budget: budget.clone(), source })?;
            policies.insert(budget, policy);
        }
        Ok(Self(policies))
    }

    /// Sets the budget's policy from here if Redis has none; whether there is one for it here.
    ///
    /// # Errors
    /// [`BudgetError`].
    pub async fn seed(&self, store: &Store, budget: &BudgetName) -> Result<bool, BudgetError> {
        let Some(policy) = self.0.get(budget) else { return Ok(false) };
        if budget::seed(store, budget, policy).await? {
            tracing::warn!(target: "sendslot::redis", %budget, "policy_seeded");
        }
        Ok(true)
    }
}

impl Shown {
    fn policy(self) -> Result<Policy, InvalidPolicy> {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let lane = |lane: LaneShown| {
            let (name, preempts, max_wait) = (lane.lane, lane.preempts, lane.max_wait_s.map(s));
            Ok(Lane { name, reserved: Share::new(lane.reserved)?, preempts, max_wait })
        };
        let quota = |q: QuotaShown| Quota { units: q.units, window: s(q.window_s), offset_s: q.offset_s };
        Ok(Policy {
            limit: self.limit,
            per: ms(self.per_ms),
            headroom: Headroom::new(self.headroom)?,
            jitter: self.jitter_ms_set.map(ms),
            transit: ms(self.transit_ms),
            lead: ms(self.lead_ms),
            horizon: s(self.horizon_s),
            dedup_ttl: s(self.dedup_ttl_s),
            max_cost: self.max_cost_set,
            max_attempts: self.max_attempts,
            on_unknown: self.on_unknown,
            lanes: self.lanes.into_iter().map(lane).collect::<Result<_, _>>()?,
            quotas: self.quotas.into_iter().map(quota).collect(),
            spacing: self.spacing_ms.map(ms),
            ramp: vec![],
            adaptive: self.adaptive.map(|a| Adaptive { floor: a.floor_units, ceiling: a.ceiling_units }),
        })
    }
}
