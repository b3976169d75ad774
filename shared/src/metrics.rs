//! What can be measured of Sendslot: one table, recorded through the `metrics` facade, so that each process sees it in the
//! recorder that it has installed. Without one nothing is kept.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, PoisonError, RwLock};

use metrics::{Key, Label, Level, Metadata, SharedString, with_recorder};

use crate::message::Draft;

/// What kind of number a metric is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Stands for a moment.
    Gauge,
    /// Many numbers; the bounds are for Prometheus' buckets.
    Histogram(&'static [f64]),
}

/// Who records a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Processes that schedule.
    Scheduler,
    /// Workers.
    Worker,
    /// Both.
    Both,
    /// Processes that read receipts.
    Receipts,
    /// `sendslot_scheduler::Gauges`, when it is refreshed: the front door does so at each scrape.
    Scrape,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Names of its labels; each has few values, never a send's ID.
    pub labels: &'static [&'static str],
    /// Who records it.
    pub origin: Origin,
    /// What it counts.
    pub meaning: &'static str,
}

/// Waits in seconds, from a hundredth to a day.
const WAITS: &[f64] = &[0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];
/// How late a claim is or its call, in seconds. The default jitter (18.6 ms) and the patience (250 ms) are among them.
const LATE: &[f64] = &[0.001, 0.002, 0.005, 0.01, 0.0186, 0.032, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0, 5.0];
/// Parts of a deadline.
const PARTS: &[f64] = &[0.1, 0.25, 0.5, 0.75, 0.9, 1.0];

macro_rules! table {
    ($($constant:ident = $name:literal, $kind:expr, $labels:expr, $origin:ident: $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub static $constant: Metric = Metric {
                name: $name,
                kind: $kind,
                labels: &$labels,
                origin: Origin::$origin,
                meaning: $meaning,
            };
        )*
        /// All metrics.
        pub const TABLE: &[&Metric] = &[$(&$constant),*];
    };
}

table! {
    OFFERED = "sendslot_offered_total", Kind::Counter, ["budget", "lane"], Scheduler:
        "sends offered: admitted, unbooked, refused and failed ones";
    ADMITTED = "sendslot_admitted_total", Kind::Counter, ["budget", "lane"], Scheduler:
        "sends that got a slot, or had one";
    UNBOOKED = "sendslot_unbooked_total", Kind::Counter, ["budget", "lane"], Scheduler:
        "sends accepted without a slot, since Redis could not be asked";
    REFUSED = "sendslot_refused_total", Kind::Counter, ["budget", "lane", "reason"], Scheduler:
        "sends refused, by reason";
    FAILED = "sendslot_failed_total", Kind::Counter, ["budget", "lane", "server"], Scheduler:
        "sends not accepted, since `redis` or `sqs` would not";
    HORIZON = "sendslot_booked_horizon_seconds", Kind::Gauge, ["budget", "lane"], Scrape:
        "booked horizon: the wait of a send of cost 1 that would be offered now";
    OVERDUE = "sendslot_overdue_seconds", Kind::Gauge, ["budget"], Scrape:
        "age of the oldest second with bookings behind the last call; 0: none";
    UTILISATION = "sendslot_utilisation_ratio", Kind::Gauge, ["budget"], Scrape:
        "units called in the last minute, of the limit";
    UNUSED = "sendslot_unused_ratio", Kind::Gauge, ["budget"], Scrape:
        "unused capacity: units that passed without a call while sends waited for the rate, of all such units of the last minute";
    PAUSED = "sendslot_paused", Kind::Gauge, ["budget"], Scrape:
        "1 while the budget is paused";
    JITTER = "sendslot_jitter_seconds", Kind::Gauge, ["budget"], Scrape:
        "how long the policy lets a call be held up after the instant that was claimed for it";
    REDIS_UP = "sendslot_redis_up", Kind::Gauge, [], Scrape:
        "1 when Redis answered the last refresh; else the other gauges are old";
    WAIT = "sendslot_wait_seconds", Kind::Histogram(WAITS), ["budget", "lane"], Worker:
        "wait from acceptance to the call, by Redis' clock; not of sends accepted while Redis was away";
    DEADLINE_USED = "sendslot_deadline_used_ratio", Kind::Histogram(PARTS), ["budget", "lane"], Worker:
        "the part of the time between acceptance and deadline that was over at the call";
    LATENESS = "sendslot_lateness_seconds", Kind::Histogram(LATE), ["budget", "lane", "verdict"], Worker:
        "how late after its slot a claim was, with its verdict: `send`, `delayed` (sends in at most 250 ms), `rebooked`, `paused`, or `dead`; not of copies that have nothing to do";
    CALL_DELAY = "sendslot_call_delay_seconds", Kind::Histogram(LATE), ["budget", "lane"], Worker:
        "how long a call was held up after the instant that was claimed for it, and how long those whose claim was given back for it";
    REBOOKED = "sendslot_rebooked_total", Kind::Counter, ["budget", "lane", "reason"], Worker:
        "bookings moved to another slot, by reason";
    HOPS = "sendslot_hops_total", Kind::Counter, ["budget", "lane", "reason"], Worker:
        "copies put back before their slot, since a `timer` ends at 900 s or the budget is `paused`";
    SENDS = "sendslot_sends_total", Kind::Counter, ["budget", "lane", "outcome"], Worker:
        "provider calls by outcome, and claims whose call was `not_started` in time";
    DEAD_LETTERS = "sendslot_dead_letters_total", Kind::Counter, ["budget", "lane", "reason"], Worker:
        "sends that were dead-lettered, by reason";
    REDIS_UNAVAILABLE = "sendslot_redis_unavailable_total", Kind::Counter, ["budget"], Both:
        "questions that Redis could not be asked or refused";
    POLICY_STATE = "sendslot_redis_policy_state", Kind::Gauge, ["budget", "lane"], Both:
        "what an outage makes of the lane's sends in this process: 0 none, 1 held, 2 sent at a local limit";
    HELD = "sendslot_held_total", Kind::Counter, ["budget", "lane", "reason"], Worker:
        "copies put back since `redis` could not be asked, or the budget has `no_policy`";
    SENT_LOCALLY = "sendslot_sent_locally_total", Kind::Counter, ["budget", "lane"], Worker:
        "calls made without a claim at a local limit";
    RECEIPTS = "sendslot_receipts_total", Kind::Counter, ["provider", "outcome"], Receipts:
        "receipts recorded as `delivered` or `undelivered`, or `older` than the one that stands; webhook calls put back for an `unknown_send`, `unreadable`, or an SNS `subscription`";
}

/// Budgets and lanes that have labels of their own; all others are `other`.
const MOST_BUDGETS: usize = 500;
const MOST_LANES: usize = 32;
/// The label of what has no name, or a name that nothing has.
pub const UNKNOWN: &str = "unknown";
const OTHER: &str = "other";

static METADATA: Metadata<'static> = Metadata::new("sendslot", Level::INFO, Some("sendslot"));
static NAMES: LazyLock<RwLock<HashMap<String, HashSet<String>>>> = LazyLock::new(RwLock::default);

/// Where something happened: a budget, mostly with a lane. The labels of a process are bounded: what comes late is `other`.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The budget.
    pub budget: &'a str,
    /// The lane.
    pub lane: Option<&'a str>,
}

impl<'a> Place<'a> {
    /// A budget as a whole.
    #[must_use]
    pub fn budget(budget: &'a str) -> Self {
        Self { budget, lane: None }
    }

    /// A lane of a budget.
    #[must_use]
    pub fn lane(budget: &'a str, lane: &'a str) -> Self {
        Self { budget, lane: Some(lane) }
    }

    /// The lane that a send is charged to.
    #[must_use]
    pub fn of(draft: &'a Draft) -> Self {
        Self::lane(draft.budget.as_str(), draft.lane.as_str())
    }

    /// Adds to a counter. `by` is the value of its label behind budget and lane.
    pub fn add(self, counter: &'static Metric, by: impl Into<Option<&'static str>>, n: u64) {
        let key = self.key(counter, by.into());
        with_recorder(|recorder| recorder.register_counter(&key, &METADATA).increment(n));
    }

    /// Sets a gauge.
    pub fn set(self, gauge: &'static Metric, value: f64) {
        let key = self.key(gauge, None);
        with_recorder(|recorder| recorder.register_gauge(&key, &METADATA).set(value));
    }

    /// Records one number of a histogram. `by` is as in [`Place::add`].
    pub fn record(self, histogram: &'static Metric, by: impl Into<Option<&'static str>>, value: f64) {
        let key = self.key(histogram, by.into());
        with_recorder(|recorder| recorder.register_histogram(&key, &METADATA).record(value));
    }

    fn key(self, metric: &'static Metric, by: Option<&'static str>) -> Key {
        let (budget, lane) = self.bounded();
        let own = |text: &str| SharedString::from_owned(text.to_owned());
        let mut labels = vec![Label::new("budget", own(budget))];
        labels.extend(lane.map(|lane| Label::new("lane", own(lane))));
        labels.extend(metric.labels.get(labels.len()).zip(by).map(|(name, value)| Label::new(*name, value)));
        Key::from_parts(metric.name, labels)
    }

    /// Its labels: its own names, as long as there is room for them.
    fn bounded(self) -> (&'a str, Option<&'a str>) {
        let Self { budget, lane } = self;
        let lane_or_none = lane.unwrap_or_default();
        if NAMES.read().unwrap_or_else(PoisonError::into_inner).get(budget).is_some_and(|l| l.contains(lane_or_none)) {
            return (budget, lane);
        }
        let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MOST_BUDGETS && !names.contains_key(budget) {
            return (OTHER, lane.map(|_| OTHER));
        }
        let lanes = names.entry(budget.to_owned()).or_default();
        if lanes.len() >= MOST_LANES {
            return (budget, lane.map(|_| OTHER));
        }
        lanes.insert(lane_or_none.to_owned());
        (budget, lane)
    }
}

/// Adds to a counter that belongs to no budget. The labels have few values: names of a configuration, words of the code.
pub fn add(counter: &'static Metric, values: &[&str], n: u64) {
    let labels = counter.labels.iter().zip(values);
    let labels: Vec<_> = labels.map(|(name, value)| Label::new(*name, (*value).to_owned())).collect();
    let key = Key::from_parts(counter.name, labels);
    with_recorder(|recorder| recorder.register_counter(&key, &METADATA).increment(n));
}

/// Sets a gauge of the process.
pub fn set(gauge: &'static Metric, value: f64) {
    with_recorder(|recorder| recorder.register_gauge(&Key::from_static_name(gauge.name), &METADATA).set(value));
}

/// Tells the recorder in force what each metric means.
pub fn describe() {
    with_recorder(|recorder| {
        for metric in TABLE {
            let (name, meaning) = (metric.name.into(), SharedString::const_str(metric.meaning));
            match metric.kind {
                Kind::Counter => recorder.describe_counter(name, None, meaning),
                Kind::Gauge => recorder.describe_gauge(name, None, meaning),
                Kind::Histogram(_) => recorder.describe_histogram(name, None, meaning),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_and_are_one_each() {
        let mut names = HashSet::new();
        for metric in TABLE {
            assert!(names.insert(metric.name), "{}", metric.name);
            assert!(metric.name.starts_with("sendslot_"), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
            let of_budget = metric.labels.contains(&"budget") || metric.labels.contains(&"lane");
            let ordered = !of_budget || ["budget", "lane"].iter().zip(metric.labels).all(|(a, b)| a == b);
            assert!(ordered && metric.labels.len() <= 3, "{}", metric.name);
        }
    }

    #[test]
    fn labels_are_bounded() {
        let lanes: Vec<String> = (0..MOST_LANES + 2).map(|i| format!("lane{i}")).collect();
        let labels: HashSet<_> = lanes.iter().map(|lane| Place::lane("bounded", lane).bounded()).collect();
        assert_eq!(labels.len(), MOST_LANES + 1);
        assert!(labels.contains(&("bounded", Some(OTHER))));
        let budgets: Vec<String> = (0..2 * MOST_BUDGETS).map(|i| format!("budget{i}")).collect();
        let labels: HashSet<_> = budgets.iter().map(|budget| Place::budget(budget).bounded()).collect();
        assert!(labels.len() <= MOST_BUDGETS + 1 && labels.contains(&(OTHER, None)));
        assert_eq!(Place::lane("bounded", "lane0").bounded(), ("bounded", Some("lane0")), "what was there stays");
    }
}
