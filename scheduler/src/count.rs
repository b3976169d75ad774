//! What becomes of offers, for metrics.

use sendslot_shared::id::{BudgetName, LaneName};
use sendslot_shared::message::Draft;
use sendslot_shared::metrics::{self, Place, UNKNOWN};
use sendslot_shared::reserve::Refusal;

use crate::ScheduleError;

/// A send that is offered. `None`: one that is no message.
#[derive(Debug, Clone)]
pub(crate) struct Offer(Option<(BudgetName, LaneName)>);

impl Offer {
    pub(crate) const INVALID: Self = Self(None);

    pub(crate) fn of(draft: &Draft) -> Self {
        Self(Some((draft.budget.clone(), draft.lane.clone())))
    }

    /// `Ok(false)`: accepted without a booking.
    pub(crate) fn ended(&self, result: &Result<bool, &ScheduleError>) {
        let place = self.place(result);
        place.add(&metrics::OFFERED, None, 1);
        match result {
            Ok(true) => place.add(&metrics::ADMITTED, None, 1),
            Ok(false) => place.add(&metrics::UNBOOKED, None, 1),
            Err(error) => match error {
                ScheduleError::Refused(refusal) => place.add(&metrics::REFUSED, refusal.as_str(), 1),
                ScheduleError::Invalid(_) => place.add(&metrics::REFUSED, "invalid", 1),
                ScheduleError::TooLarge(_) => place.add(&metrics::REFUSED, "too_large", 1),
                ScheduleError::DeadLetter(_) => place.add(&metrics::REFUSED, "unreadable", 1),
                ScheduleError::Redis(_) => place.add(&metrics::FAILED, "redis", 1),
                ScheduleError::Queue(_) | ScheduleError::Nowhere { .. } => place.add(&metrics::FAILED, "sqs", 1),
            },
        }
    }

    /// Names that nothing has are no labels.
    fn place(&self, result: &Result<bool, &ScheduleError>) -> Place<'_> {
        let Some((budget, lane)) = &self.0 else { return Place::lane(UNKNOWN, UNKNOWN) };
        match result {
            Err(ScheduleError::Refused(Refusal::UnknownBudget)) => Place::lane(UNKNOWN, UNKNOWN),
            Err(ScheduleError::Refused(Refusal::UnknownLane)) => Place::lane(budget.as_str(), UNKNOWN),
            _ => Place::lane(budget.as_str(), lane.as_str()),
        }
    }
}
