//! A send's history, in words and as JSON.

use sendslot_scheduler::{BoundBy, Event, SendState};
use serde::Serialize;

use crate::instant::show;
use crate::words;

/// An event as `--json` shows it; instants are RFC 3339 in UTC.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Shown {
    Booked { at: String, bound_by: &'static str },
    Moved { at: String, why: &'static str, from: Option<String>, to: String, bound_by: &'static str },
    NoPlace { at: String, why: &'static str, from: Option<String> },
    Claimed { lease_ends: String },
    Called { at: String },
    Settled { at: String, state: &'static str },
    Receipt { at: String, state: &'static str },
}

impl From<&Event> for Shown {
    fn from(event: &Event) -> Self {
        let rule = BoundBy::as_str;
        match *event {
            Event::Booked { at, bound_by } => Self::Booked { at: show(at), bound_by: rule(bound_by) },
            Event::Moved { at, why, from, to, bound_by } => Self::Moved {
                at: show(at),
                why: why.as_str(),
                from: from.map(show),
                to: show(to),
                bound_by: rule(bound_by),
            },
            Event::NoPlace { at, why, from } => Self::NoPlace { at: show(at), why: why.as_str(), from: from.map(show) },
            Event::Claimed { lease_ends } => Self::Claimed { lease_ends: show(lease_ends) },
            Event::Called { at } => Self::Called { at: show(at) },
            Event::Settled { at, state } => Self::Settled { at: show(at), state: state.as_str() },
            Event::Receipt { at, delivery } => Self::Receipt { at: show(at), state: delivery.as_str() },
        }
    }
}

/// One event as a line.
pub(crate) fn line(event: &Event) -> String {
    match *event {
        Event::Booked { at, bound_by } => format!("booked {} because of {}", show(at), words::bound_by(bound_by)),
        Event::Moved { at, why, from, to, bound_by } => {
            let from = from.map_or_else(|| "a void booking".to_owned(), show);
            let (at, to, rule) = (show(at), show(to), words::bound_by(bound_by));
            format!("moved {at} because {}, from {from} to {to} because of {rule}", words::moved(why))
        }
        Event::NoPlace { at, why, .. } => {
            format!("had to move {} because {}: there was no place before its deadline", show(at), words::moved(why))
        }
        Event::Claimed { lease_ends } => format!("claimed, lease ends {}", show(lease_ends)),
        Event::Called { at } => format!("called {}", show(at)),
        Event::Settled { at, state: state @ (SendState::Sent | SendState::Cancelled) } => {
            format!("{} {}", state.as_str(), show(at))
        }
        Event::Receipt { at, delivery } => format!("{} {} by the provider's receipt", delivery.as_str(), show(at)),
        Event::Settled { at, state } => format!("ended {} as {}", show(at), words::ended(state)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendslot_scheduler::{Delivery, MoveReason};
    use sendslot_shared::time::Instant;

    #[test]
    fn each_event_is_one_line() {
        let at = |s: u64| Instant::from_micros((1_796_083_200 + s) * 1_000_000);
        let moved =
            |from| Event::Moved { at: at(3), why: MoveReason::Missed, from, to: at(9), bound_by: BoundBy::Quota };
        for (event, line) in [
            (
                Event::Booked { at: at(0), bound_by: BoundBy::Rate },
                "booked 2026-12-01T00:00:00Z because of rate: earlier slots are taken",
            ),
            (
                moved(Some(at(2))),
                "moved 2026-12-01T00:00:03Z because it was too late for its slot, from 2026-12-01T00:00:02Z to \
                 2026-12-01T00:00:09Z because of quota: earlier windows are used up",
            ),
            (
                moved(None),
                "moved 2026-12-01T00:00:03Z because it was too late for its slot, from a void booking to \
                 2026-12-01T00:00:09Z because of quota: earlier windows are used up",
            ),
            (
                Event::NoPlace { at: at(3), why: MoveReason::Displaced, from: Some(at(2)) },
                "had to move 2026-12-01T00:00:03Z because another send took its place: there was no place before its deadline",
            ),
            (Event::Claimed { lease_ends: at(5) }, "claimed, lease ends 2026-12-01T00:00:05Z"),
            (Event::Called { at: at(5) }, "called 2026-12-01T00:00:05Z"),
            (Event::Settled { at: at(6), state: SendState::Sent }, "sent 2026-12-01T00:00:06Z"),
            (Event::Settled { at: at(6), state: SendState::Cancelled }, "cancelled 2026-12-01T00:00:06Z"),
            (
                Event::Settled { at: at(6), state: SendState::Failed },
                "ended 2026-12-01T00:00:06Z as failed, and dead-lettered",
            ),
            (
                Event::Receipt { at: at(8), delivery: Delivery::Undelivered },
                "undelivered 2026-12-01T00:00:08Z by the provider's receipt",
            ),
        ] {
            assert_eq!(super::line(&event), line);
        }
    }

    #[test]
    fn events_are_json_objects_with_their_name() {
        let event = Event::Claimed { lease_ends: Instant::from_micros(1_796_083_200_000_000) };
        let json = serde_json::to_value(Shown::from(&event)).unwrap();
        assert_eq!(json, serde_json::json!({ "event": "claimed", "lease_ends": "2026-12-01T00:00:00Z" }));
    }
}
