//! Script calls as the typed callers of `sendslot-shared` pack them, with the features of a budget.

use std::time::Duration;

use anyhow::Result;
use redis::Cmd;
use sendslot_shared::id::LaneName;
use sendslot_shared::limits::{Lane, Quota, Share};
use sendslot_shared::policy::{Headroom, Policy};

/// What a budget has besides its rate, and what its sends say besides the fixed fields.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Features {
    pub(crate) name: &'static str,
    pub(crate) lanes: bool,
    pub(crate) preempting: bool,
    pub(crate) quotas: bool,
    pub(crate) spacing: bool,
}

/// One lane and nothing else.
pub(crate) const PLAIN: Features =
    Features { name: "one lane (plain)", lanes: false, preempting: false, quotas: false, spacing: false };
/// Two reserved lanes, a plain one and the default; sends take turns.
pub(crate) const LANES: Features = Features { name: "four lanes", lanes: true, ..PLAIN };
/// A day's and an hour's quota that do not bind.
pub(crate) const QUOTAS: Features = Features { name: "two quotas", quotas: true, ..PLAIN };
/// 6 s between sends to one recipient; each send has its own.
pub(crate) const SPACING: Features = Features { name: "spacing", spacing: true, ..PLAIN };
pub(crate) const LANES_QUOTAS: Features = Features { name: "lanes + quotas", lanes: true, ..QUOTAS };
pub(crate) const EVERYTHING: Features = Features { name: "everything", spacing: true, ..LANES_QUOTAS };
/// A lane that preempts, which one send in a hundred takes.
pub(crate) const PREEMPTING: Features = Features { name: "preempting lane", preempting: true, ..PLAIN };

const LANE_NAMES: [&str; 4] = [LaneName::DEFAULT, "otp", "tx", "news"];

impl Features {
    /// The policy with these features.
    pub(crate) fn on(self, mut policy: Policy) -> Result<Policy> {
        let lane = |name: &str| Ok::<_, anyhow::Error>(Lane::new(LaneName::new(name)?));
        if self.lanes {
            let (otp, tx) = (lane("otp")?, lane("tx")?);
            policy.lanes = vec![
                Lane { reserved: Share::new(0.2)?, ..otp },
                Lane { reserved: Share::new(0.1)?, ..tx },
                lane("news")?,
            ];
        }
        if self.preempting {
            policy.lanes = vec![Lane { preempts: true, ..lane("otp")? }];
        }
        if self.quotas {
            let (day, hour) = (Duration::from_secs(86_400), Duration::from_secs(3600));
            let hourly = policy.limit.max(1000) * 3600;
            policy.quotas = vec![Quota::new(50_000_000, day), Quota::new(hourly, hour)];
        }
        policy.spacing = self.spacing.then_some(Duration::from_secs(6));
        Ok(policy)
    }

    /// The lane that send `n` takes.
    fn lane(self, n: usize) -> &'static str {
        match self {
            Features { lanes: true, .. } => LANE_NAMES[n % 4],
            Features { preempting: true, .. } if n.is_multiple_of(100) => "otp",
            _ => LaneName::DEFAULT,
        }
    }

    /// Whether send `n` says more than the fixed fields, and what: 'c8B' recipient, flags, and the lane's name.
    fn details(self, n: usize) -> (u8, Vec<u8>) {
        let lane = self.lane(n);
        if lane == LaneName::DEFAULT && !self.spacing {
            return (0, vec![]);
        }
        // spread over all bytes, and never zero
        let recipient = if self.spacing { (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { 0 };
        (1, [recipient.to_be_bytes().as_slice(), &[0], lane.as_bytes()].concat())
    }
}

/// What the sends of one call have in common.
#[derive(Clone, Copy)]
pub(crate) struct Sends {
    pub(crate) features: Features,
    pub(crate) cost: u32,
    /// The earliest instant, us since 1970; 0: none.
    pub(crate) not_before: u64,
    /// A lane for all of them, instead of the features' own.
    pub(crate) lane: Option<&'static str>,
}

impl Sends {
    pub(crate) fn with(features: Features) -> Self {
        Self { features, cost: 1, not_before: 0, lane: None }
    }

    pub(crate) fn costing(cost: u32) -> Self {
        Self { cost, ..Self::with(PLAIN) }
    }

    fn details(self, n: usize) -> (u8, Vec<u8>) {
        match self.lane {
            Some(lane) => (1, [[0; 9].as_slice(), lane.as_bytes()].concat()),
            None => self.features.details(n),
        }
    }

    /// '<c8BI4dd' digest, extended, cost, not_before, deadline
    fn pack(self, n: usize) -> Vec<u8> {
        let (extended, details) = self.details(n);
        let mut send = [b"digest00".as_slice(), &[extended], &self.cost.to_le_bytes()].concat();
        send.extend((self.not_before as f64).to_le_bytes());
        send.extend([0; 8]);
        send.extend(details);
        send
    }
}

/// 80 units a second.
pub(crate) fn even() -> Policy {
    Policy {
        headroom: Headroom::new(0.8).unwrap_or(Headroom::DEFAULT),
        horizon: Duration::from_secs(14 * 86_400),
        ..Policy::per_second(100)
    }
}

/// 50,000 units a second, the first of them `transit` ahead. With a lead of 60 s and so much headroom that even a slow
/// machine asks for all sends of a round while they wait, or while the guard passes them.
pub(crate) fn fast(transit: Duration) -> Policy {
    let lead = Duration::from_secs(60);
    Policy {
        headroom: Headroom::new(0.05).unwrap_or(Headroom::DEFAULT),
        transit,
        lead,
        ..Policy::per_second(1_000_000)
    }
}

/// Transit of sends that are asked for while they wait.
pub(crate) const FAR: Duration = Duration::from_secs(30);
/// Behind the last slot of a round without transit.
pub(crate) const SLOTS_ARE_OVER: Duration = Duration::from_millis(200);

pub(crate) fn record_key(n: usize) -> String {
    format!("s{{sendgrid}}r:order-{n:010}-mail-1")
}

pub(crate) fn evalsha(sha: &str, keys: &[String], args: &[Vec<u8>]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(sha).arg(keys.len()).arg(keys).arg(args);
    command
}

fn budget_keys() -> Vec<String> {
    vec!["s{sendgrid}cal".to_owned(), "s{sendgrid}policy".to_owned()]
}

/// Books the sends `first` to `first + batch - 1` in one call.
pub(crate) fn reserve_cmd(sha: &str, sends: Sends, first: usize, batch: usize) -> Cmd {
    let mut keys = budget_keys();
    keys.extend((first..first + batch).map(record_key));
    let args: Vec<Vec<u8>> = (first..first + batch).map(|n| sends.pack(n)).collect();
    evalsha(sha, &keys, &args)
}

fn record_keys(id: usize) -> Vec<String> {
    let mut keys = budget_keys();
    keys.push(record_key(id));
    keys
}

/// '<I4I4I4c8BI4dddI4' seq, tag, nonce, digest, extended, cost, slot, not_before, deadline, lease
pub(crate) fn claim_cmd(sha: &str, features: Features, id: usize) -> Cmd {
    let (extended, details) = features.details(id);
    let mut copy = [1_u32.to_le_bytes(), 7_u32.to_le_bytes(), 9_u32.to_le_bytes()].concat();
    copy.extend(b"digest00");
    copy.extend([extended, 1, 0, 0, 0]);
    copy.extend([0; 24]);
    copy.extend(15_000_u32.to_le_bytes());
    copy.extend(details);
    evalsha(sha, &record_keys(id), &[copy])
}

/// '<BI4I4I4c8BI4dddI4d' outcome, seq, tag, nonce, digest, extended, cost, delay, cooldown, elapsed, held up, deadline
pub(crate) fn settle_cmd(sha: &str, features: Features, id: usize) -> Cmd {
    let (extended, details) = features.details(id);
    let mut report = vec![0];
    report.extend([1_u32.to_le_bytes(), 7_u32.to_le_bytes(), 9_u32.to_le_bytes()].concat());
    report.extend(b"digest00");
    report.extend([extended, 1, 0, 0, 0]);
    report.extend([0; 36]);
    report.extend(details);
    evalsha(sha, &record_keys(id), &[report])
}

pub(crate) fn cancel_cmd(sha: &str, id: usize) -> Cmd {
    evalsha(sha, &record_keys(id), &[])
}
