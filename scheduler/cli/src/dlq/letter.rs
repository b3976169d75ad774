//! One dead letter.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use sendslot_shared::claim::DeadReason;
use sendslot_shared::envelope::Envelope;
use serde::Serialize;

use super::args::Filters;
use crate::instant;

/// The worker could not read the body.
pub(super) const MALFORMED: &str = "malformed";
/// No worker gave a reason: SQS moved it by itself.
pub(super) const RECEIVED_TOO_OFTEN: &str = "received_too_often";

/// A reason that a dead letter can have.
///
/// # Errors
/// Those that there are.
pub(super) fn reason(text: &str) -> Result<String, String> {
    let known: Vec<&str> =
        DeadReason::ALL.into_iter().map(DeadReason::as_str).chain([MALFORMED, RECEIVED_TOO_OFTEN]).collect();
    if known.contains(&text) { Ok(text.to_owned()) } else { Err(format!("give one of {}", known.join(", "))) }
}

/// A dead letter as it was received.
pub(super) struct Letter {
    /// With which it is deleted or given back.
    pub(super) handle: String,
    pub(super) message_id: String,
    pub(super) body: String,
    /// The copy, or why it is none.
    pub(super) envelope: Result<Envelope, String>,
    pub(super) reason: String,
    attempts: Option<u32>,
    error: String,
    /// As its attributes say: all that is known of a body that cannot be read.
    send_id: Option<String>,
    budget: Option<String>,
    age: Duration,
    sent: SystemTime,
}

impl Letter {
    /// `now` is this machine's clock, and the age is for people.
    pub(super) fn new(message: Message, now: SystemTime) -> Self {
        let body = message.body.unwrap_or_default();
        let envelope = Envelope::from_body(&body).map_err(|error| error.to_string());
        let mut attributes = message.message_attributes.unwrap_or_default();
        let mut text = |name: &str| attributes.remove(name).and_then(|value| value.string_value);
        let system = message.attributes.unwrap_or_default();
        let sent_ms = system.get(&MessageSystemAttributeName::SentTimestamp).and_then(|ms| ms.parse().ok());
        let sent = UNIX_EPOCH + Duration::from_millis(sent_ms.unwrap_or(0));
        Self {
            handle: message.receipt_handle.unwrap_or_default(),
            message_id: message.message_id.unwrap_or_default(),
            reason: text("reason").unwrap_or_else(|| RECEIVED_TOO_OFTEN.to_owned()),
            attempts: text("attempts").and_then(|n| n.parse().ok()),
            error: text("last_error").unwrap_or_default(),
            send_id: text("send_id"),
            budget: text("budget"),
            age: now.duration_since(sent).unwrap_or_default(),
            sent,
            body,
            envelope,
        }
    }

    /// The send's ID, or what SQS calls the message.
    pub(super) fn id(&self) -> &str {
        let known = self.envelope.as_ref().ok().map(|envelope| envelope.draft.id.as_str());
        known.or(self.send_id.as_deref()).unwrap_or(&self.message_id)
    }

    pub(super) fn budget(&self) -> Option<&str> {
        self.envelope.as_ref().ok().map(|envelope| envelope.draft.budget.as_str()).or(self.budget.as_deref())
    }

    fn lane(&self) -> Option<&str> {
        self.envelope.as_ref().ok().map(|envelope| envelope.draft.lane.as_str())
    }

    /// Whether the filters let it through, but for their limit.
    pub(super) fn matches(&self, filters: &Filters) -> bool {
        let Filters { budget, lane, id, reason, older_than, newer_than, limit: _ } = filters;
        budget.as_deref().is_none_or(|budget| self.budget() == Some(budget))
            && lane.as_deref().is_none_or(|lane| self.lane() == Some(lane))
            && id.as_deref().is_none_or(|id| self.id() == id || self.message_id == id)
            && (reason.is_empty() || reason.contains(&self.reason))
            && older_than.is_none_or(|age| self.age > age)
            && newer_than.is_none_or(|age| self.age < age)
    }

    pub(super) fn shown(&self) -> Shown {
        let envelope = self.envelope.as_ref().ok();
        let draft = envelope.map(|envelope| &envelope.draft);
        Shown {
            id: self.id().to_owned(),
            message_id: self.message_id.clone(),
            readable: envelope.is_some(),
            budget: self.budget().map(str::to_owned),
            lane: self.lane().map(str::to_owned),
            reason: self.reason.clone(),
            attempts: self.attempts,
            age_s: self.age.as_secs_f64(),
            dead_since: instant::show(self.sent.into()),
            deadline: draft.and_then(|draft| draft.deadline).map(instant::show),
            not_before: draft.and_then(|draft| draft.not_before).map(instant::show),
            slot: envelope.and_then(|envelope| envelope.at).map(instant::show),
            cost: draft.map(|draft| draft.cost),
            bytes: draft.map_or(self.body.len(), |draft| draft.payload.len()),
            error: match &self.envelope {
                Err(unreadable) if self.error.is_empty() => unreadable.clone(),
                _ => self.error.clone(),
            },
        }
    }
}

/// A dead letter as `--json` shows it; instants are RFC 3339 in UTC.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    /// The send's, or SQS' for a body that cannot be read.
    pub(super) id: String,
    message_id: String,
    pub(super) readable: bool,
    pub(super) budget: Option<String>,
    pub(super) lane: Option<String>,
    pub(super) reason: String,
    pub(super) attempts: Option<u32>,
    pub(super) age_s: f64,
    /// Of one that SQS moved by itself: since when it was on the queue.
    pub(super) dead_since: String,
    pub(super) deadline: Option<String>,
    pub(super) not_before: Option<String>,
    /// The last slot that its copy had.
    pub(super) slot: Option<String>,
    pub(super) cost: Option<u32>,
    /// Of the payload, or of the body that cannot be read.
    pub(super) bytes: usize,
    pub(super) error: String,
}

/// How long it is dead, for people: `3h 28m 20s`.
pub(super) fn age(shown: &Shown) -> String {
    format!("{:#}", jiff::SignedDuration::from_secs(shown.age_s as i64))
}

/// What others wrote, on one line of a terminal.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_counted_since_sqs_took_the_letter_and_edges_are_outside() {
        let message = Message::builder().body("no envelope").message_id("m1");
        let message = message.attributes(MessageSystemAttributeName::SentTimestamp, "1000000").build();
        let letter = Letter::new(message, UNIX_EPOCH + Duration::from_secs(1060));
        let s = Duration::from_secs;
        let older = |than| letter.matches(&Filters { older_than: Some(s(than)), ..Filters::default() });
        let newer = |than| letter.matches(&Filters { newer_than: Some(s(than)), ..Filters::default() });
        assert_eq!([59, 60, 61].map(older), [true, false, false]);
        assert_eq!([59, 60, 61].map(newer), [false, false, true]);
        assert_eq!(age(&letter.shown()), "1m");
        assert_eq!((letter.id(), letter.budget()), ("m1", None));
        let message = Message::builder().body("").attributes(MessageSystemAttributeName::SentTimestamp, "2000").build();
        let letter = Letter::new(message, UNIX_EPOCH);
        assert!(letter.matches(&Filters { newer_than: Some(s(1)), ..Filters::default() }), "a clock that is behind");
    }

    #[test]
    fn what_others_wrote_cannot_steer_a_terminal() {
        assert_eq!(plain("a\nb\u{1b}[2Jé"), "a\\nb\\u{1b}[2Jé");
    }
}
