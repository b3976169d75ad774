//! A budget's calendar around now, in JSON.

use std::collections::BTreeMap;

use sendslot_shared::id::BudgetName;
use sendslot_shared::time::Instant;
use sendslot_shared::view::View;
use serde::Serialize;
use utoipa::ToSchema;

use crate::instant::show;

/// A budget's calendar from a minute before now to two minutes ahead, second by second, and what else tells how it does.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CalendarView {
    budget: String,
    /// Redis' clock.
    #[schema(format = "date-time")]
    now: String,
    /// Units that the provider takes in any `per_ms` now: the policy's limit, or the ramp's.
    limit: f64,
    /// The window of the limit.
    per_ms: u64,
    /// Units per second that are booked now.
    scheduled_per_s: f64,
    /// What the adaptive rate leaves of the limit at present, 0 to 1; null without one.
    adaptive_level: Option<f64>,
    /// The end of the pause in force.
    #[schema(format = "date-time")]
    paused_until: Option<String>,
    /// The end of the cooldown that the provider asked for.
    #[schema(format = "date-time")]
    cooldown_until: Option<String>,
    /// The end of the last second with a booking.
    #[schema(format = "date-time")]
    booked_until: Option<String>,
    /// How far that is ahead.
    backlog_s: f64,
    /// Units booked from the running second on; null when they reach further than 15 minutes ahead.
    waiting_units: Option<u64>,
    /// The age of the oldest second of the last hour that has bookings and after which no call was begun; null when there is none.
    overdue_s: Option<f64>,
    /// Calls that the provider refused for the rate in this minute.
    throttled_this_minute: u64,
    /// The same in the minute before.
    throttled_last_minute: u64,
    /// Calls of these two minutes that did not end as sent, by outcome.
    endings: BTreeMap<String, u64>,
    /// The first second of the lists: a minute before the running one.
    #[schema(format = "date-time")]
    from: String,
    /// Units that the rate gives each of 180 seconds.
    capacity: Vec<u32>,
    /// Units taken of each of these seconds.
    booked: Vec<u32>,
    /// The same by who holds them.
    lanes: Vec<LaneView>,
    /// Units of the calls begun in each of the first 60 of these seconds, and in the running one.
    called: Vec<u32>,
}

/// What is booked by whom.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LaneView {
    /// A lane with a reservation; `urgent`: those without one that preempt; `others`: all other lanes.
    name: String,
    /// Units of each of 180 seconds.
    booked: Vec<u32>,
}

impl CalendarView {
    /// In JSON.
    #[must_use]
    pub fn new(budget: &BudgetName, view: View) -> Self {
        let [throttled_last_minute, throttled_this_minute] = view.throttled;
        let lane =
            |band: &sendslot_shared::view::Band| LaneView { name: band.name().to_owned(), booked: band.units.clone() };
        Self {
            budget: budget.to_string(),
            now: show(view.now),
            limit: view.limit,
            per_ms: u64::try_from(view.per.as_millis()).unwrap_or(u64::MAX),
            scheduled_per_s: view.scheduled_per_s,
            adaptive_level: view.adaptive_level,
            paused_until: view.paused_until.map(show),
            cooldown_until: view.cooldown_until.map(show),
            booked_until: view.booked_until.map(show),
            backlog_s: view.backlog().as_secs_f64(),
            waiting_units: view.waiting_units,
            overdue_s: view.overdue().map(|age| age.as_secs_f64()),
            throttled_this_minute,
            throttled_last_minute,
            from: show(Instant::from_micros(view.from_s * 1_000_000)),
            lanes: view.bands.iter().map(lane).collect(),
            endings: view.endings,
            capacity: view.capacity,
            booked: view.booked,
            called: view.called,
        }
    }
}
