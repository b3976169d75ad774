//! A copy of a send, as it travels on SQS.

use std::time::{Duration, SystemTime};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::id::{BudgetName, LaneName, SendId};
use crate::message::{Digest, Draft, Recipient};
use crate::settle::Ending;
use crate::time::Instant;

/// The largest body that SQS takes: 1 MiB, SendMessage, which is also the most for one SendMessageBatch.
pub const MAX_BODY_BYTES: usize = 1_048_576;

/// The highest seq that a record holds; a send that was put back so often has failed.
const MAX_SEQ: u32 = 65_535;

/// A copy of a send. Its own slot is never used, only the record's in Redis; it says since when the copy is overdue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The send.
    pub draft: Draft,
    /// Its booking: rises exactly when a verdict puts a copy back. 0: never booked.
    pub seq: u32,
    /// Drawn anew for each copy that is put back, except after `busy`. Never 0.
    pub tag: u32,
    /// The slot of the booking.
    pub at: Option<Instant>,
    /// When the send was accepted, if Redis was asked then: for metrics.
    pub accepted: Option<Instant>,
    /// What Redis could not be told of an earlier delivery: settled before anything else.
    pub report: Option<PendingReport>,
}

/// The end of a delivery, which travels with the copy until Redis hears of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingReport {
    /// The delivery.
    pub nonce: u32,
    /// How its call ended; `not_started` when even its claim may not have been heard.
    pub ending: Ending,
    /// The call was made without a claim, since Redis could not be asked (policy `local`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unclaimed: bool,
    /// When the call began, by the clock of the worker that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_at_us: Option<Instant>,
}

impl PendingReport {
    /// How long ago the call began; zero when that is not known.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let called_at = self.called_at_us.map(Instant::to_system_time);
        called_at.and_then(|at| SystemTime::now().duration_since(at).ok()).unwrap_or_default()
    }
}

/// Why a body is not an envelope.
#[derive(Debug, thiserror::Error)]
pub enum InvalidEnvelope {
    /// Not the JSON of an envelope; what is wrong with it, without anything it says.
    #[error("the body is not a Sendslot envelope: {0}")]
    Json(String),
    /// A newer or older version of the format.
    #[error("the body is a Sendslot envelope of version {0}, this worker reads version 1")]
    Version(u32),
    /// The payload or the digest cannot be read.
    #[error("the envelope's {0} cannot be read or does not fit the rest")]
    Field(&'static str),
}

/// A body that SQS would refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the message has {bytes} bytes on the queue, {MAX_BODY_BYTES} is the most (SQS): put the payload elsewhere and send a reference"
)]
pub struct BodyTooLarge {
    /// The size of the body in bytes.
    pub bytes: usize,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: u32,
    budget: BudgetName,
    id: SendId,
    lane: LaneName,
    cost: u32,
    seq: u32,
    tag: u32,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_us: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_us: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before_us: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_us: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recipient: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<PendingReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// A tag for a new copy.
#[must_use]
pub fn fresh_tag() -> u32 {
    fastrand::u32(1..)
}

impl Envelope {
    /// The first copy of a send that has no booking, since Redis could not be asked: the claim books it.
    #[must_use]
    pub fn unbooked(draft: Draft) -> Self {
        Self { draft, seq: 0, tag: fresh_tag(), at: None, accepted: None, report: None }
    }

    /// The first copy of a booking, with a fresh tag.
    #[must_use]
    pub fn first(draft: Draft, seq: u32, at: Instant) -> Self {
        Self { draft, seq, tag: fresh_tag(), at: Some(at), accepted: None, report: None }
    }

    /// The body: JSON in ASCII, since SQS rejects some code points that JSON allows.
    ///
    /// # Errors
    /// [`BodyTooLarge`], with the size.
    pub fn to_body(&self) -> Result<String, BodyTooLarge> {
        let draft = &self.draft;
        let (text, base64) = match std::str::from_utf8(&draft.payload) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(&draft.payload))),
        };
        let wire = Wire {
            v: 1,
            budget: draft.budget.clone(),
            id: draft.id.clone(),
            lane: draft.lane.clone(),
            cost: draft.cost,
            seq: self.seq,
            tag: self.tag,
            digest: hex(draft.digest.0),
            at_us: self.at,
            accepted_us: self.accepted,
            not_before_us: draft.not_before,
            deadline_us: draft.deadline,
            recipient: draft.recipient.map(|Recipient(key)| hex(key)),
            report: self.report,
            text,
            base64,
        };
        let body = ascii_json(&wire);
        if body.len() > MAX_BODY_BYTES { Err(BodyTooLarge { bytes: body.len() }) } else { Ok(body) }
    }

    /// Reads a body. Fields that are not known are passed over.
    ///
    /// # Errors
    /// [`InvalidEnvelope`].
    pub fn from_body(body: &str) -> Result<Self, InvalidEnvelope> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        let Version { v } = parse(body)?;
        if v != 1 {
            return Err(InvalidEnvelope::Version(v));
        }
        let wire: Wire = parse(body)?;
        let payload = match (wire.text, wire.base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => STANDARD.decode(text).map_err(|_| InvalidEnvelope::Field("base64"))?,
            _ => return Err(InvalidEnvelope::Field("payload")),
        };
        let digest = Digest(unhex(&wire.digest).ok_or(InvalidEnvelope::Field("digest"))?);
        let recipient = match &wire.recipient {
            Some(text) => Some(Recipient(unhex(text).ok_or(InvalidEnvelope::Field("recipient"))?)),
            None => None,
        };
        if wire.cost == 0 || wire.cost >= 1 << 24 {
            return Err(InvalidEnvelope::Field("cost"));
        }
        if wire.seq > MAX_SEQ || wire.tag == 0 {
            return Err(InvalidEnvelope::Field("seq or tag"));
        }
        let draft = Draft {
            budget: wire.budget,
            id: wire.id,
            lane: wire.lane,
            payload,
            cost: wire.cost,
            not_before: wire.not_before_us,
            deadline: wire.deadline_us,
            recipient,
            digest,
        };
        // edited by hand: other content needs another ID
        if draft.own_digest() != digest {
            return Err(InvalidEnvelope::Field("digest"));
        }
        Ok(Self {
            draft,
            seq: wire.seq,
            tag: wire.tag,
            at: wire.at_us,
            accepted: wire.accepted_us,
            report: wire.report,
        })
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, InvalidEnvelope> {
    serde_json::from_str(body).map_err(|e| InvalidEnvelope::Json(json_error(&e)))
}

/// What a JSON error says, without the values that it repeats: they may be a payload or a recipient.
#[must_use]
pub fn json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let words = text.strip_suffix(&place).unwrap_or(&text);
    if !error.is_data() || words.starts_with("missing field") || words.starts_with("unknown field") {
        return text;
    }
    // `invalid type: string "…", expected u32`: what was expected is the program's own
    match (words.find(['`', '"']), words.rsplit_once(", expected ")) {
        (Some(value), Some((_, expected))) if words.starts_with("invalid ") && value > 0 => {
            format!("{}, expected {expected}{place}", words[..value].trim_end())
        }
        (None, Some(_)) => text,
        _ => format!("a value that cannot be{place}"),
    }
}

fn hex(bytes: [u8; 8]) -> String {
    format!("{:016x}", u64::from_be_bytes(bytes))
}

fn unhex(text: &str) -> Option<[u8; 8]> {
    u64::from_str_radix(text, 16).ok().map(u64::to_be_bytes)
}

/// Compact JSON with everything outside ASCII escaped.
fn ascii_json(wire: &Wire) -> String {
    struct Ascii;
    impl serde_json::ser::Formatter for Ascii {
        fn write_string_fragment<W: ?Sized + std::io::Write>(
            &mut self,
            writer: &mut W,
            fragment: &str,
        ) -> std::io::Result<()> {
            let mut rest = fragment;
            while let Some(start) = rest.find(|c: char| !c.is_ascii()) {
                writer.write_all(&rest.as_bytes()[..start])?;
                let plain = rest[start..].find(|c: char| c.is_ascii()).map_or(rest.len(), |n| start + n);
                for unit in rest[start..plain].encode_utf16() {
                    write!(writer, "\\u{unit:04x}")?;
                }
                rest = &rest[plain..];
            }
            writer.write_all(rest.as_bytes())
        }
    }
    let mut out = Vec::with_capacity(512);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Ascii);
    // A struct of strings and numbers always serializes, and what was written is ASCII.
    wire.serialize(&mut serializer).map_or_else(|e| e.to_string(), |()| String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use proptest::prelude::*;

    fn envelope(payload: impl Into<Vec<u8>>) -> Envelope {
        let draft = Message::new("b", "order/42:a", payload).cost(3).lane("bulk").recipient("r").check().unwrap();
        Envelope::first(draft, 1, Instant::from_micros(1_796_009_220_822_123))
    }

    #[test]
    fn code_points_that_sqs_refuses_travel_escaped() {
        // Q8, aistudio#1525
        let text = "\u{0} \u{c} \u{fffe} \u{ffff} \u{1F60E} \\ud800 é";
        let given = envelope(text);
        let body = given.to_body().unwrap();
        assert!(body.bytes().all(|b| (0x20..0x7f).contains(&b)), "{body}");
        assert_eq!(Envelope::from_body(&body).unwrap(), given);
    }

    #[test]
    fn a_body_over_one_mebibyte_is_refused_with_its_size() {
        let fits = envelope("x".repeat(MAX_BODY_BYTES - 1000)).to_body().unwrap();
        assert!(fits.len() <= MAX_BODY_BYTES);
        let escaped = envelope("\u{1}".repeat(MAX_BODY_BYTES / 6)).to_body();
        assert!(matches!(escaped, Err(BodyTooLarge { bytes }) if bytes > MAX_BODY_BYTES));
    }

    #[test]
    fn strange_bodies_are_refused_and_unknown_fields_passed_over() {
        // W7
        for bad in ["", "{}", "[]", "null", "{\"v\":1}", "hello", "{\"Records\":[]}"] {
            assert!(Envelope::from_body(bad).is_err(), "{bad}");
        }
        let body = envelope("x").to_body().unwrap();
        assert!(Envelope::from_body(&body.replacen('{', "{\"new_field\":[1],", 1)).is_ok());
        let next = body.replacen("\"v\":1", "\"v\":2", 1);
        assert!(matches!(Envelope::from_body(&next), Err(InvalidEnvelope::Version(2))));
    }

    proptest! {
        #[test]
        fn any_payload_round_trips(payload in prop::collection::vec(any::<u8>(), 0..200), text in any::<String>()) {
            for given in [envelope(payload.clone()), envelope(text.clone())] {
                let body = given.to_body().unwrap();
                prop_assert!(body.is_ascii());
                prop_assert_eq!(Envelope::from_body(&body).unwrap(), given);
            }
        }
    }
}
