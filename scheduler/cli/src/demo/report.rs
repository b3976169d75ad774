//! The account of a run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use sendslot_localstack::event_source::EventSourceStats;
use sendslot_localstack::provider::{Arrival, ProviderStats, max_units_in_rolling_window};
use sendslot_scheduler::{Counters, SendState};
use serde::Serialize;

use super::watch::Accepted;
use crate::output;

/// What was seen during a run.
pub(crate) struct Seen {
    pub(crate) offered: usize,
    pub(crate) refused: BTreeMap<String, u64>,
    pub(crate) sends: Vec<Accepted>,
    /// IDs with their reasons.
    pub(crate) dead_letters: Vec<(String, String)>,
    /// Nothing when the provider is somebody else's.
    pub(crate) provider: Option<(Vec<Arrival>, ProviderStats)>,
    pub(crate) source: EventSourceStats,
    pub(crate) counters: Counters,
    pub(crate) enqueue: Duration,
    pub(crate) limit: u32,
    pub(crate) headroom: f64,
}

/// As `--json` prints it. Times in seconds unless they say otherwise.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    offered: usize,
    accepted: usize,
    refused: BTreeMap<String, u64>,
    sent: usize,
    duplicates: u64,
    /// Accepted, but neither sent nor dead-lettered.
    pub(crate) lost: usize,
    dead_letters: BTreeMap<String, u64>,
    provider_429: Option<u64>,
    provider_5xx: Option<u64>,
    /// Of all calls, the refused ones too.
    max_units_in_rolling_second: Option<u64>,
    limit: u32,
    headroom: f64,
    /// In calls of the booking script, added up.
    booking_s: f64,
    /// From the first message given to the last one on SQS; bookings and SendMessageBatch calls run side by side.
    enqueue_s: f64,
    /// From the first to the last send at the provider.
    drain_s: f64,
    /// Units / (limit x headroom).
    ideal_drain_s: f64,
    utilisation: f64,
    /// Sends that left in another slot than the first one they were given.
    rebooked: usize,
    hops: u64,
    environments_peak: usize,
    invocations: u64,
    /// From the slot to the arrival at the provider.
    lateness_ms: Option<Lateness>,
}

#[derive(Debug, Serialize)]
struct Lateness {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Seen {
    pub(crate) fn report(self) -> Report {
        let sent = self.sent();
        let dead: BTreeSet<&str> = self.dead_letters.iter().map(|(id, _)| id.as_str()).collect();
        let lost = self.sends.iter().filter(|s| !sent.contains(s.id.as_str()) && !dead.contains(s.id.as_str())).count();
        let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
        for (_, reason) in &self.dead_letters {
            *reasons.entry(reason.clone()).or_default() += 1;
        }
        let units: u64 = self.sends.iter().filter_map(|s| s.last.as_ref()).map(|s| u64::from(s.cost)).sum();
        let drain_s = self.drain_s();
        let stats = self.provider.as_ref().map(|(_, stats)| *stats);
        let calls = self.provider.as_ref().map(|(arrivals, _)| {
            let units: Vec<(u64, u32)> = arrivals.iter().map(|a| (a.at_us, a.units)).collect();
            max_units_in_rolling_window(&units, Duration::from_secs(1))
        });
        let last = || self.sends.iter().filter_map(|s| s.last.as_ref().map(|last| (s, last)));
        Report {
            offered: self.offered,
            accepted: self.sends.len(),
            sent: sent.len(),
            duplicates: stats.map_or(0, |s| s.duplicates),
            lost,
            dead_letters: reasons,
            provider_429: stats.map(|s| s.throttled),
            provider_5xx: stats.map(|s| s.server_errors),
            max_units_in_rolling_second: calls,
            limit: self.limit,
            headroom: self.headroom,
            booking_s: self.counters.reserve_time.as_secs_f64(),
            enqueue_s: self.enqueue.as_secs_f64(),
            drain_s,
            ideal_drain_s: units as f64 / (f64::from(self.limit) * self.headroom),
            utilisation: if drain_s > 0.0 { self.sent_units(&sent) / (f64::from(self.limit) * drain_s) } else { 0.0 },
            rebooked: last().filter(|(s, last)| Some(last.slot) != s.first_slot).count(),
            hops: last().map(|(_, last)| u64::from(last.hops)).sum(),
            environments_peak: self.source.environments_peak,
            invocations: self.source.invocations,
            lateness_ms: self.lateness(),
            refused: self.refused,
        }
    }

    /// IDs that the provider took, by its own account where it gives one.
    fn sent(&self) -> BTreeSet<String> {
        match &self.provider {
            Some((arrivals, _)) => arrivals.iter().filter(|a| a.accepted).map(|a| a.send_id.to_string()).collect(),
            None => {
                let sent = |s: &&Accepted| s.last.as_ref().is_some_and(|last| last.state == SendState::Sent);
                self.sends.iter().filter(sent).map(|s| s.id.to_string()).collect()
            }
        }
    }

    fn sent_units(&self, sent: &BTreeSet<String>) -> f64 {
        let units = self.sends.iter().filter(|s| sent.contains(s.id.as_str())).filter_map(|s| s.last.as_ref());
        units.map(|last| f64::from(last.cost)).sum()
    }

    /// From the first to the last accepted call; without the provider's account, from slot to slot.
    fn drain_s(&self) -> f64 {
        let times: Vec<u64> = match &self.provider {
            Some((arrivals, _)) => arrivals.iter().filter(|a| a.accepted).map(|a| a.at_us).collect(),
            None => self.sends.iter().filter_map(|s| Some(s.last.as_ref()?.at?.as_micros())).collect(),
        };
        match (times.iter().min(), times.iter().max()) {
            (Some(first), Some(last)) => (last - first) as f64 / 1e6,
            _ => 0.0,
        }
    }

    fn lateness(&self) -> Option<Lateness> {
        let (arrivals, _) = self.provider.as_ref()?;
        let slots: HashMap<&str, u64> =
            self.sends.iter().filter_map(|s| Some((s.id.as_str(), s.last.as_ref()?.at?.as_micros()))).collect();
        let mut late: Vec<f64> = arrivals
            .iter()
            .filter(|a| a.accepted)
            .filter_map(|a| Some((a.unix_us as f64 - *slots.get(&*a.send_id)? as f64) / 1000.0))
            .collect();
        late.sort_by(f64::total_cmp);
        let at = |part: f64| late.get(((late.len() as f64 - 1.0) * part).round() as usize).copied();
        Some(Lateness { p50: at(0.5)?, p99: at(0.99)?, max: at(1.0)? })
    }
}

impl Report {
    /// Nothing lost, nothing twice.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost == 0 && self.duplicates == 0
    }

    pub(crate) fn print(&self) {
        let or_dash = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let mut rows = vec![
            ("accepted", format!("{} of {}", self.accepted, self.offered)),
            ("sent", self.sent.to_string()),
            ("duplicates", self.duplicates.to_string()),
            ("lost", self.lost.to_string()),
            ("429s from the provider", or_dash(self.provider_429)),
            ("most in any rolling second", format!("{} of {}", or_dash(self.max_units_in_rolling_second), self.limit)),
            ("booking", format!("{:.2} s in Redis calls", self.booking_s)),
            ("on SQS after", format!("{:.2} s", self.enqueue_s)),
            ("drained in", format!("{:.2} s, ideal {:.2} s", self.drain_s, self.ideal_drain_s)),
            ("utilisation", format!("{:.2}% of the limit (headroom {})", self.utilisation * 100.0, self.headroom)),
            ("re-booked", self.rebooked.to_string()),
            ("hops", self.hops.to_string()),
            ("environments at most", self.environments_peak.to_string()),
        ];
        if let Some(late) = &self.lateness_ms {
            rows.push(("lateness", format!("p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", late.p50, late.p99, late.max)));
        }
        for (reason, n) in &self.dead_letters {
            rows.push(("dead-lettered", format!("{n} {reason}")));
        }
        for (reason, n) in &self.refused {
            rows.push(("refused", format!("{n}: {reason}")));
        }
        rows.iter().for_each(|(name, value)| output::line(&format!("{name:>27}  {value}")));
    }
}
