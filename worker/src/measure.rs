//! What a worker measures.

use std::time::Duration;

use sendslot_shared::claim::{Answer, PutBack, Verdict};
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

/// A claim at its slot or after it: by Redis' clock, with the slot that the last answer knew.
pub(crate) fn claimed(place: Place<'_>, slot: Option<Instant>, answer: &Answer) {
    let verdict = match answer.verdict {
        Verdict::Send { delay, .. } if delay.is_zero() => "send",
        Verdict::Send { .. } => "delayed",
        Verdict::Wait { moved: Some(_), .. } | Verdict::PutBack { why: PutBack::Rebooked(_), .. } => "rebooked",
        Verdict::PutBack { why: PutBack::Paused, .. } => "paused",
        Verdict::Dead { .. } => "dead",
        // before the slot, or a copy that has nothing to do
        _ => return,
    };
    if let Some(slot) = slot.filter(|slot| *slot <= answer.now) {
        place.record(&metrics::LATENESS, verdict, seconds(slot, answer.now));
    }
}

/// A call that is made now, `held_up` after the instant `planned` of Redis' clock that was claimed for it.
pub(crate) fn called(envelope: &Envelope, planned: Instant, held_up: Duration) {
    let place = Place::of(&envelope.draft);
    place.record(&metrics::CALL_DELAY, None, held_up.as_secs_f64());
    let Some(accepted) = envelope.accepted else { return };
    place.record(&metrics::WAIT, None, seconds(accepted, planned));
    if let Some(deadline) = envelope.draft.deadline {
        place.record(&metrics::DEADLINE_USED, None, seconds(accepted, planned) / seconds(accepted, deadline).max(1e-6));
    }
}

/// A claim that is given back, since its call was held up for so long.
pub(crate) fn given_back(place: Place<'_>, held_up: Duration) {
    place.record(&metrics::CALL_DELAY, None, held_up.as_secs_f64());
    ended(place, Ending::NotStarted);
}

/// 0 when it is the other way round.
fn seconds(from: Instant, to: Instant) -> f64 {
    Duration::from_micros(to.as_micros().saturating_sub(from.as_micros())).as_secs_f64()
}

/// How a call ended, or that it was not started.
pub(crate) fn ended(place: Place<'_>, ending: Ending) {
    place.add(&metrics::SENDS, ending.as_str(), 1);
}
