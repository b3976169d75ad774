//! A policy in JSON.

use std::time::Duration;

use sendslot_shared::id::LaneName;
use sendslot_shared::limits::{Adaptive, Lane, Quota, RampStep, Share};
use sendslot_shared::policy::{Headroom, InvalidPolicy, OnUnknown, Policy};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::instant;

/// A budget's policy. What is not given takes its default; what is asked for shows all of it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Policy)]
pub(crate) struct PolicyView {
    /// Units that the provider takes in any `per_ms`.
    #[schema(minimum = 1, maximum = 16_777_215)]
    limit: u32,
    /// The window of the limit; 1,000 by default.
    #[schema(minimum = 1, maximum = 2_592_000_000_u64)]
    per_ms: Option<u64>,
    /// The part of the limit that is scheduled, to four decimals; 0.97 by default.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    headroom: Option<f64>,
    /// What may vary between the verdict and the call's arrival at the provider. Null: 0.6 of what the headroom buys,
    /// (1 - headroom) / headroom x per, 50 at most.
    #[schema(minimum = 0, maximum = 2_592_000_000_u64)]
    jitter_ms: Option<u64>,
    /// The earliest slot offered is this far ahead; 250 by default.
    #[schema(minimum = 0, maximum = 60_000)]
    transit_ms: Option<u64>,
    /// Messages show up 0 to 1 s more than this before their slot; 1,500 by default.
    #[schema(minimum = 100, maximum = 60_000)]
    lead_ms: Option<u64>,
    /// The furthest slot offered; a day by default.
    #[schema(minimum = 1, maximum = 1_209_600)]
    horizon_s: Option<u64>,
    /// How long a send's end is remembered past its slot; a day by default.
    #[schema(minimum = 3600, maximum = 2_592_000)]
    dedup_ttl_s: Option<u64>,
    /// The largest cost of one send; above the limit it says that the provider takes that. Null: it follows the limits.
    #[schema(minimum = 1, maximum = 16_777_215)]
    max_cost: Option<u32>,
    /// Provider calls for one send before it is dead-lettered; 5 by default.
    #[schema(minimum = 1, maximum = 255)]
    max_attempts: Option<u8>,
    /// What an outcome that nobody knows leads to: `park` (default) or `resend`.
    #[schema(value_type = Option<OnUnknownView>)]
    on_unknown: Option<OnUnknown>,
    /// Priority classes.
    #[serde(default)]
    #[schema(max_items = 16)]
    lanes: Vec<LaneView>,
    /// Further limits in fixed windows.
    #[serde(default)]
    #[schema(max_items = 8)]
    quotas: Vec<QuotaView>,
    /// The least time between two sends to one recipient.
    #[schema(minimum = 1, maximum = 86_400_000)]
    spacing_ms: Option<u64>,
    /// Other limits from instants on, ascending.
    #[serde(default)]
    #[schema(max_items = 64)]
    ramp: Vec<StepView>,
    /// The rate follows what the provider takes.
    adaptive: Option<AdaptiveView>,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case", as = OnUnknown)]
#[allow(dead_code, reason = "for the schema alone")]
enum OnUnknownView {
    Park,
    Resend,
}

/// A priority class.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Lane)]
struct LaneView {
    #[schema(pattern = "^[a-z0-9._-]{1,64}$")]
    lane: String,
    /// The share of each second that other lanes cannot take, to four decimals.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1)]
    reserved: f64,
    /// A slot further ahead is refused as full.
    #[schema(minimum = 1, maximum = 1_209_600)]
    max_wait_s: Option<u64>,
    /// It may take the place of waiting sends of other lanes.
    #[serde(default)]
    preempts: bool,
}

/// A limit in fixed windows.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Quota)]
struct QuotaView {
    #[schema(minimum = 1, maximum = 16_777_215)]
    units: u32,
    #[schema(minimum = 1, maximum = 2_678_400)]
    window_s: u64,
    /// How far local time is ahead of UTC: the windows begin on it.
    #[serde(default)]
    #[schema(minimum = -86_400, maximum = 86_400)]
    offset_s: i32,
}

/// Another limit from an instant on.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RampStep)]
struct StepView {
    /// RFC 3339.
    #[schema(format = "date-time")]
    from: String,
    #[schema(minimum = 1, maximum = 16_777_215)]
    limit: u32,
}

/// A rate that follows what the provider takes, in the limit's units.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Adaptive)]
struct AdaptiveView {
    #[schema(minimum = 1, maximum = 16_777_215)]
    floor_units: u32,
    /// Null: the limit.
    #[schema(minimum = 1, maximum = 16_777_215)]
    ceiling_units: Option<u32>,
}

impl PolicyView {
    /// The policy; what it holds together is checked when it is compiled.
    pub(crate) fn policy(self) -> Result<Policy, String> {
        let invalid = |error: InvalidPolicy| error.to_string();
        let base = Policy::per_second(self.limit);
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let headroom = self.headroom.map_or(Ok(base.headroom), Headroom::new).map_err(invalid)?;
        let step = |step: StepView| {
            let from = instant::redis_time(&step.from).map_err(|error| format!("ramp: {error}"))?;
            Ok::<_, String>(RampStep { from, limit: step.limit })
        };
        Ok(Policy {
            per: self.per_ms.map_or(base.per, ms),
            headroom,
            jitter: self.jitter_ms.map(ms),
            transit: self.transit_ms.map_or(base.transit, ms),
            lead: self.lead_ms.map_or(base.lead, ms),
            horizon: self.horizon_s.map_or(base.horizon, s),
            dedup_ttl: self.dedup_ttl_s.map_or(base.dedup_ttl, s),
            max_cost: self.max_cost,
            max_attempts: self.max_attempts.unwrap_or(base.max_attempts),
            on_unknown: self.on_unknown.unwrap_or_default(),
            lanes: self.lanes.into_iter().map(LaneView::lane).collect::<Result<_, _>>()?,
            quotas: self.quotas.into_iter().map(QuotaView::quota).collect(),
            spacing: self.spacing_ms.map(ms),
            ramp: self.ramp.into_iter().map(step).collect::<Result<_, _>>()?,
            adaptive: self.adaptive.map(|a| Adaptive { floor: a.floor_units, ceiling: a.ceiling_units }),
            ..base
        })
    }
}

impl LaneView {
    fn lane(self) -> Result<Lane, String> {
        let name = LaneName::new(self.lane).map_err(|error| error.to_string())?;
        let reserved = Share::new(self.reserved).map_err(|error| error.to_string())?;
        Ok(Lane { name, reserved, preempts: self.preempts, max_wait: self.max_wait_s.map(Duration::from_secs) })
    }
}

impl QuotaView {
    fn quota(self) -> Quota {
        Quota { units: self.units, window: Duration::from_secs(self.window_s), offset_s: self.offset_s }
    }
}

impl From<&Policy> for PolicyView {
    fn from(policy: &Policy) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let lane = |lane: &Lane| LaneView {
            lane: lane.name.to_string(),
            reserved: lane.reserved.get(),
            max_wait_s: lane.max_wait.map(|wait| wait.as_secs()),
            preempts: lane.preempts,
        };
        let quota = |quota: &Quota| QuotaView {
            units: quota.units,
            window_s: quota.window.as_secs(),
            offset_s: quota.offset_s,
        };
        let step = |step: &RampStep| StepView { from: instant::show(step.from), limit: step.limit };
        Self {
            limit: policy.limit,
            per_ms: Some(ms(policy.per)),
            headroom: Some(policy.headroom.get()),
            jitter_ms: policy.jitter.map(ms),
            transit_ms: Some(ms(policy.transit)),
            lead_ms: Some(ms(policy.lead)),
            horizon_s: Some(policy.horizon.as_secs()),
            dedup_ttl_s: Some(policy.dedup_ttl.as_secs()),
            max_cost: policy.max_cost,
            max_attempts: Some(policy.max_attempts),
            on_unknown: Some(policy.on_unknown),
            lanes: policy.lanes.iter().map(lane).collect(),
            quotas: policy.quotas.iter().map(quota).collect(),
            spacing_ms: policy.spacing.map(ms),
            ramp: policy.ramp.iter().map(step).collect(),
            adaptive: policy.adaptive.map(|a| AdaptiveView { floor_units: a.floor, ceiling_units: a.ceiling }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_set() {
        let json = r#"{"limit":80,"per_ms":2000,"headroom":0.9,"max_cost":100,"on_unknown":"resend","spacing_ms":6000,
            "lanes":[{"lane":"otp","reserved":0.2,"max_wait_s":30,"preempts":true},{"lane":"news"}],
            "quotas":[{"units":50000,"window_s":86400,"offset_s":3600}],
            "ramp":[{"from":"2027-01-01T00:00:00Z","limit":90}],"adaptive":{"floor_units":10,"ceiling_units":50}}"#;
        let given: PolicyView = serde_json::from_str(json).unwrap();
        let policy = given.policy().unwrap();
        assert_eq!((policy.limit, policy.per, policy.lanes.len()), (80, Duration::from_secs(2), 2));
        let shown = serde_json::to_string(&PolicyView::from(&policy)).unwrap();
        assert_eq!(serde_json::from_str::<PolicyView>(&shown).unwrap().policy().unwrap(), policy);
        let plain: PolicyView = serde_json::from_str(r#"{"limit":7}"#).unwrap();
        assert_eq!(plain.policy().unwrap(), Policy::per_second(7));
    }
}
