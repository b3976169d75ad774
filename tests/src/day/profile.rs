//! The budgets of the day: policies, and what is offered to them.

use std::time::Duration;

use sendslot_shared::id::LaneName;
use sendslot_shared::limits::{Adaptive, Lane, Quota, Share};
use sendslot_shared::policy::{Headroom, OnUnknown, Policy};

/// Things to draw from, with their weights.
pub(super) type Weighted<T> = &'static [(T, u32)];

/// One budget of the day.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    /// The budget's name.
    pub(super) name: &'static str,
    /// Its policy when the day begins.
    pub(super) policy: Policy,
    /// Its part of all sends.
    pub(super) part: f64,
    /// Lanes of single sends.
    pub(super) lanes: Weighted<&'static str>,
    /// The lane of campaigns.
    pub(super) bulk: &'static str,
    /// Costs.
    pub(super) costs: Weighted<u32>,
    /// How many recipients there are; 0: sends name none.
    pub(super) recipients: usize,
    /// How often a call is throttled.
    pub(super) throttled: f64,
    /// How often the limit changes, or the budget is paused, on average; seconds, 0: never.
    pub(super) change_every_s: u64,
    /// The least part of the capacity that is used while there is a backlog, with 4% of the workers late by more than the patience;
    /// 0: not judged.
    pub(super) least_use: f64,
}

fn share(part: f64) -> Share {
    Share::new(part).unwrap_or(Share::NONE)
}

fn lane(name: &str) -> Lane {
    Lane::new(LaneName::new(name).unwrap_or_else(|_| unreachable!("{name} is a lane's name")))
}

fn seconds(s: u64) -> Option<Duration> {
    Some(Duration::from_secs(s))
}

fn per(limit: u32, per_s: u64, headroom: f64) -> Policy {
    let headroom = Headroom::new(headroom).unwrap_or(Headroom::DEFAULT);
    Policy { per: Duration::from_secs(per_s), headroom, ..Policy::per_second(limit) }
}

/// All budgets, the longest first.
pub(super) fn all() -> Vec<Profile> {
    vec![lanes(), plain(), adaptive(), quotas(), windowed(), hourly()]
}

fn plain() -> Profile {
    Profile {
        name: "plain",
        policy: Policy { max_cost: Some(150), ..per(100, 1, 0.95) },
        part: 0.3,
        lanes: &[("default", 1)],
        bulk: "default",
        costs: &[(1, 9600), (2, 200), (3, 100), (7, 50), (40, 10), (150, 4)],
        recipients: 0,
        throttled: 0.000_5,
        change_every_s: 2500,
        least_use: 0.6,
    }
}

fn lanes() -> Profile {
    let alerts = Lane { reserved: share(0.2), max_wait: seconds(20), ..lane("alerts") };
    let bills = Lane { reserved: share(0.1), ..lane("bills") };
    let codes = Lane { preempts: true, max_wait: seconds(10), ..lane("codes") };
    let news = Lane { max_wait: seconds(120), ..lane("news") };
    Profile {
        name: "lanes",
        policy: Policy { lanes: vec![alerts, bills, codes, news], max_cost: Some(150), ..per(100, 1, 0.8) },
        part: 0.28,
        lanes: &[("default", 4), ("alerts", 3), ("bills", 2), ("codes", 3), ("news", 2)],
        bulk: "news",
        costs: &[(1, 9000), (2, 500), (5, 200), (13, 60), (70, 6), (120, 3)],
        recipients: 0,
        throttled: 0.000_5,
        change_every_s: 3000,
        least_use: 0.45,
    }
}

fn adaptive() -> Profile {
    Profile {
        name: "adaptive",
        policy: Policy {
            adaptive: Some(Adaptive { floor: 10, ceiling: None }),
            on_unknown: OnUnknown::Resend,
            ..per(50, 1, 0.9)
        },
        part: 0.17,
        lanes: &[("default", 1)],
        bulk: "default",
        costs: &[(1, 97), (2, 2), (9, 1)],
        recipients: 0,
        throttled: 0.002,
        change_every_s: 9000,
        least_use: 0.0,
    }
}

fn quotas() -> Profile {
    let quotas = vec![
        Quota::new(900, Duration::from_secs(60)),
        Quota { offset_s: 1800, ..Quota::new(40_000, Duration::from_secs(3600)) },
    ];
    Profile {
        name: "quotas",
        policy: Policy {
            quotas,
            spacing: seconds(6),
            on_unknown: OnUnknown::Resend,
            max_cost: Some(20),
            ..per(40, 1, 0.5)
        },
        part: 0.15,
        lanes: &[("default", 1)],
        bulk: "default",
        costs: &[(1, 95), (2, 4), (6, 1)],
        recipients: 3000,
        throttled: 0.002,
        change_every_s: 9000,
        least_use: 0.0,
    }
}

fn windowed() -> Profile {
    let vip = Lane { preempts: true, ..lane("vip") };
    Profile {
        name: "windowed",
        policy: Policy { lanes: vec![vip], on_unknown: OnUnknown::Resend, ..per(1000, 300, 0.95) },
        part: 0.0996,
        lanes: &[("default", 9), ("vip", 1)],
        bulk: "default",
        costs: &[(1, 90), (5, 6), (30, 3), (200, 1)],
        recipients: 200,
        throttled: 0.000_5,
        change_every_s: 7000,
        least_use: 0.45,
    }
}

fn hourly() -> Profile {
    Profile {
        name: "hourly",
        policy: Policy { horizon: Duration::from_secs(14 * 86_400), ..per(20, 3600, 0.9) },
        part: 0.000_4,
        lanes: &[("default", 1)],
        bulk: "default",
        costs: &[(1, 8), (2, 1), (4, 1)],
        recipients: 0,
        throttled: 0.005,
        change_every_s: 40_000,
        least_use: 0.5,
    }
}
