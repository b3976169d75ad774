//! A send as callers give it in JSON: over HTTP, and on the lines of a file.

use std::borrow::Cow;
use std::time::SystemTime;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sendslot_scheduler::Message;
use sendslot_shared::envelope::json_error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AllOfBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::canonical;
use crate::instant;

/// One send.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Content(Fields);

/// One send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Fields {
    /// The caller's own ID, 1 to 256 bytes of UTF-8: the same ID is sent once, however often it is given.
    #[schema(min_length = 1, max_length = 256, example = "order-17-confirmation")]
    id: String,
    /// What the provider gets: a string as its text, anything else as its JSON, with the keys of objects sorted and without
    /// white space between, so that the same content is the same payload. Needed unless `payload_base64` is given.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = serde_json::Value, required = false)]
    payload: Option<Box<RawValue>>,
    /// The payload as bytes in base64, instead of `payload`.
    #[schema(format = "byte", nullable, required = false)]
    payload_base64: Option<String>,
    /// What the send weighs in the limit's units; 1 by default.
    #[schema(minimum = 1, maximum = 16_777_215)]
    cost: Option<u32>,
    /// The lane inside the budget; `default` by default.
    #[schema(pattern = "^[a-z0-9._-]{1,64}$")]
    lane: Option<String>,
    /// Who gets it, as a key of the caller's own; needed in budgets with a spacing. It is kept as a digest.
    #[schema(min_length = 1)]
    recipient: Option<String>,
    /// The earliest instant, RFC 3339.
    #[schema(format = "date-time")]
    not_before: Option<String>,
    /// The latest instant, RFC 3339: a send that cannot be made by then is refused, or ends as expired.
    #[schema(format = "date-time")]
    deadline: Option<String>,
}

impl ToSchema for Content {
    fn name() -> Cow<'static, str> {
        "Send".into()
    }
}

impl PartialSchema for Content {
    /// The fields, and what none of them says alone: one of the two payloads is there. A `null` is a payload, and no base64.
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let json = ObjectBuilder::new().required("payload");
        let bytes = ObjectBuilder::new().required("payload_base64").property("payload_base64", text);
        let one = OneOfBuilder::new().item(json).item(bytes);
        AllOfBuilder::new().item(Fields::schema()).item(one).into()
    }
}

/// A field that is there, be it null.
fn given<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(input).map(Some)
}

/// How a payload of JSON is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonPayload {
    /// Byte for byte.
    AsIs,
    /// Keys sorted, no white space: the order of keys makes no other content.
    Canonical,
}

/// Why some JSON is not a send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidContent {
    /// Not JSON.
    #[error("{0}")]
    Malformed(String),
    /// JSON, but not a send.
    #[error("{0}")]
    Invalid(String),
}

/// Reads JSON that must be an object; an array is not taken for one. Errors repeat no values.
///
/// # Errors
/// [`InvalidContent`].
pub fn object<'a, T: Deserialize<'a>>(json: &'a [u8], what: &str) -> Result<T, InvalidContent> {
    let read = serde_json::from_slice::<T>(json).map_err(|error| match error.is_data() {
        true => InvalidContent::Invalid(json_error(&error)),
        false => InvalidContent::Malformed(json_error(&error)),
    });
    if json.trim_ascii_start().starts_with(b"{") || matches!(read, Err(InvalidContent::Malformed(_))) {
        return read;
    }
    Err(InvalidContent::Invalid(format!("not a JSON object: give {what}")))
}

impl Content {
    /// Its ID, unchecked.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The message of a budget; `lane` is for one that names none.
    ///
    /// # Errors
    /// What is wrong with it, and what would work.
    pub fn into_message(self, budget: &str, lane: Option<&str>, json: JsonPayload) -> Result<Message, String> {
        let Self(fields) = self;
        let payload = payload(fields.payload.as_deref(), fields.payload_base64.as_deref(), json)?;
        let mut message = Message::new(budget, fields.id, payload);
        if let Some(units) = fields.cost {
            message = message.cost(units);
        }
        if let Some(lane) = fields.lane.as_deref().or(lane) {
            message = message.lane(lane);
        }
        if let Some(key) = fields.recipient {
            message = message.recipient(key);
        }
        if let Some(text) = fields.not_before {
            message = message.not_before(time("not_before", &text)?);
        }
        if let Some(text) = fields.deadline {
            message = message.deadline(time("deadline", &text)?);
        }
        Ok(message)
    }
}

fn payload(value: Option<&RawValue>, base64: Option<&str>, json: JsonPayload) -> Result<Vec<u8>, String> {
    match (value.map(RawValue::get), base64) {
        (Some(_), Some(_)) => Err("payload and payload_base64: give one of them".to_owned()),
        (None, None) => Err("missing field `payload` (or `payload_base64` for bytes)".to_owned()),
        (None, Some(text)) => STANDARD
            .decode(text)
            .map_err(|_| "payload_base64 is no base64: give the standard alphabet with padding".to_owned()),
        (Some(text), None) if text.starts_with('"') => serde_json::from_str::<String>(text)
            .map(String::into_bytes)
            .map_err(|e| format!("payload: {}", json_error(&e))),
        (Some(text), None) if json == JsonPayload::Canonical => {
            let deep = "payload: it nests deeper than 128 levels: give it as a string, or as payload_base64";
            canonical::canonical(text).map(String::into_bytes).ok_or_else(|| deep.to_owned())
        }
        (Some(text), None) => Ok(text.as_bytes().to_vec()),
    }
}

fn time(field: &str, text: &str) -> Result<SystemTime, String> {
    instant::system_time(text).map_err(|e| format!("{field} {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Message, InvalidContent> {
        let content: Content = object(json.as_bytes(), "a send")?;
        content.into_message("b", None, JsonPayload::Canonical).map_err(InvalidContent::Invalid)
    }

    #[test]
    fn the_order_of_keys_makes_no_other_content() {
        // F1, novu#4531
        let one = read(r#"{"id":"a","payload":{"b":{"y":1.0,"x":[2,1]},"a":"\u00e9 "}}"#).unwrap();
        let other = read(r#"{"payload": { "a" : "\u00e9 ", "b": {"x": [2, 1], "y": 1.0}}, "id": "a"}"#).unwrap();
        assert_eq!(one, other);
        assert_eq!(one, Message::new("b", "a", r#"{"a":"\u00e9 ","b":{"x":[2,1],"y":1.0}}"#));
        assert_ne!(one, read(r#"{"id":"a","payload":{"b":{"y":1.0,"x":[1,2]},"a":"\u00e9 "}}"#).unwrap());
    }

    #[test]
    fn text_json_and_bytes_are_payloads() {
        let expected = |payload: &[u8]| Ok(Message::new("b", "a", payload));
        assert_eq!(read(r#"{"id":"a","payload":"{\"b\":1, \"a\":2}"}"#), expected(b"{\"b\":1, \"a\":2}"));
        assert_eq!(read(r#"{"id":"a","payload":null}"#), expected(b"null"));
        assert_eq!(read(r#"{"id":"a","payload":12345678901234567890.50}"#), expected(b"12345678901234567890.50"));
        assert_eq!(read(r#"{"id":"a","payload_base64":"AP8="}"#), expected(&[0, 255]));
        assert_eq!(read(r#"{"id":"a","payload":"x","cost":null}"#), expected(b"x"));
    }

    #[test]
    fn what_is_not_a_send_says_so() {
        let deep = format!(r#"{{"id":"a","payload":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        for (json, malformed, word) in [
            ("", true, "EOF"),
            ("{", true, "EOF"),
            (r#"{"id":"a","payload":1} x"#, true, "trailing"),
            ("[\"a\",1,null,1,null,null,null,null]", false, "object"),
            ("null", false, "object"),
            (r#"{"id":"a"}"#, false, "payload_base64"),
            (r#"{"payload":1}"#, false, "`id`"),
            (r#"{"id":7,"payload":1}"#, false, "string"),
            (r#"{"id":"a","payload":1,"payload_base64":"AA=="}"#, false, "one of them"),
            (r#"{"id":"a","payload_base64":"secret!"}"#, false, "base64"),
            (r#"{"id":"a","payload":1,"not_befor":"x"}"#, false, "not_befor"),
            (r#"{"id":"a","payload":1,"deadline":"tomorrow"}"#, false, "2026-12-01T09:00:00Z"),
            (r#"{"id":"a","payload":1,"cost":-1}"#, false, "u32"),
            (deep.as_str(), false, "128"),
        ] {
            let error = read(json).unwrap_err();
            assert_eq!(matches!(error, InvalidContent::Malformed(_)), malformed, "{json}: {error}");
            assert!(error.to_string().contains(word) && !error.to_string().contains("secret"), "{json}: {error}");
        }
    }
}
