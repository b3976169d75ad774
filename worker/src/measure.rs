//! What a worker measures.

use std::time::Duration;

use sendslot_shared::envelope::Envelope;
use sendslot_shared::metrics::{self, Place};
use sendslot_shared::settle::Ending;
use sendslot_shared::time::Instant;

use crate::message::Delivery;

impl<P> Delivery<'_, P> {
    pub(crate) fn place(&self) -> Place<'_> {
        Place::of(&self.envelope.draft)
    }
}

/// A claim that may send: by Redis' clock, with the slot that its last answer knew.
pub(crate) fn claimed(envelope: &Envelope, slot: Option<Instant>, now: Instant) {
    let place = Place::of(&envelope.draft);
    let since = |at: Instant| Duration::from_micros(now.as_micros().saturating_sub(at.as_micros())).as_secs_f64();
    if let Some(slot) = slot {
        place.record(&metrics::LATENESS, since(slot));
    }
    let Some(accepted) = envelope.accepted else { return };
    place.record(&metrics::WAIT, since(accepted));
    if let Some(deadline) = envelope.draft.deadline {
        let whole = deadline.as_micros().saturating_sub(accepted.as_micros()).max(1) as f64 / 1e6;
        place.record(&metrics::DEADLINE_USED, since(accepted) / whole);
    }
}

/// How a call ended, or that it was not started.
pub(crate) fn ended(place: Place<'_>, ending: Ending) {
    place.add(&metrics::SENDS, ending.as_str(), 1);
}
