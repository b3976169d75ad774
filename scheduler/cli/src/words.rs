//! What the engine's reasons are called when people read them.

use sendslot_scheduler::{BoundBy, MoveReason, SendState};
use sendslot_shared::budget::UNTIL_RESUMED;
use sendslot_shared::id::BudgetName;
use sendslot_shared::time::Instant;

use crate::instant;

/// Why a slot is not earlier: `rate: earlier slots are taken`.
pub(crate) fn bound_by(rule: BoundBy) -> &'static str {
    match rule {
        BoundBy::Pause => "pause: the budget is paused",
        BoundBy::Transit => "transit: it is the first slot that SQS and a worker can meet",
        BoundBy::Rate => "rate: earlier slots are taken",
        BoundBy::NotBefore => "not_before: it was not wanted earlier",
        BoundBy::Cooldown => "cooldown: the provider asked for a rest",
        BoundBy::Quota => "quota: earlier windows are used up",
        BoundBy::Spacing => "spacing: the recipient got another send shortly before",
        BoundBy::Lanes => "lanes: earlier slots are reserved for other lanes",
        BoundBy::TakeOver => "take-over: it takes the place of a send of another lane",
    }
}

/// Why a send moved to another slot, after "because".
pub(crate) fn moved(why: MoveReason) -> &'static str {
    match why {
        MoveReason::Lost => "its booking was lost with Redis' data",
        MoveReason::Cooldown => "its slot lay in a cooldown",
        MoveReason::Missed => "it was too late for its slot",
        MoveReason::Capacity => "the rate was lowered",
        MoveReason::LeaseEnded => "its worker's lease had ended",
        MoveReason::Displaced => "another send took its place",
        MoveReason::Raised => "the rate was raised, and an earlier place was free",
        MoveReason::Quota => "a quota was used up",
        MoveReason::Spacing => "another send to its recipient stands too near",
        MoveReason::Throttled => "the provider refused it for the rate",
        MoveReason::Unavailable => "the provider could not be reached",
        MoveReason::Unknown => "nobody knows how its call ended",
        MoveReason::NotStarted => "its call was not started in time",
        MoveReason::ScheduledAgain => "it was scheduled again after its slot",
        MoveReason::Redrive => "it was taken back from the dead letters",
    }
}

/// How a send ended.
pub(crate) fn ended(state: SendState) -> &'static str {
    match state {
        SendState::Failed => "failed, and dead-lettered",
        SendState::Expired => "expired: it could not leave before its deadline",
        SendState::Unknown => "unknown: nobody knows whether it was sent",
        state => state.as_str(),
    }
}

/// A pause in force: `paused until …`.
pub(crate) fn paused(budget: &BudgetName, now: Instant, until: Instant) -> String {
    // no pause with an end is that long
    if until >= now.plus(UNTIL_RESUMED / 2) {
        return format!("paused until `sendslot budget resume {budget}`");
    }
    format!("paused until {}", instant::show(until))
}
