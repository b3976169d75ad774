//! Messages as lines of JSON.

use std::time::SystemTime;

use sendslot_scheduler::Message;
use sendslot_shared::envelope::json_error;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::instant;

/// What stands on one line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: String,
    payload: Box<RawValue>,
    cost: Option<u32>,
    lane: Option<String>,
    recipient: Option<String>,
    not_before: Option<String>,
    deadline: Option<String>,
}

/// A message of a budget from one line. A payload that is a JSON string is sent as its text, any other as its JSON.
///
/// # Errors
/// What is wrong with the line.
pub(crate) fn message(line: &str, budget: &str, lane: Option<&str>) -> Result<Message, String> {
    if !line.starts_with('{') {
        return Err("not a JSON object: give one object with id and payload a line".to_owned());
    }
    let line: Line = serde_json::from_str(line).map_err(|e| {
        // serde_json counts lines of its own text
        json_error(&e).replace(" at line 1 column", " at column")
    })?;
    let raw = line.payload.get();
    let payload = if raw.starts_with('"') {
        serde_json::from_str::<String>(raw).map_err(|e| format!("payload: {e}"))?
    } else {
        raw.to_owned()
    };
    let mut message = Message::new(budget, line.id, payload);
    if let Some(units) = line.cost {
        message = message.cost(units);
    }
    if let Some(lane) = line.lane.as_deref().or(lane) {
        message = message.lane(lane);
    }
    if let Some(key) = line.recipient {
        message = message.recipient(key);
    }
    if let Some(text) = line.not_before {
        message = message.not_before(time("not_before", &text)?);
    }
    if let Some(text) = line.deadline {
        message = message.deadline(time("deadline", &text)?);
    }
    Ok(message)
}

fn time(field: &str, text: &str) -> Result<SystemTime, String> {
    instant::system_time(text).map_err(|e| format!("{field} {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Message, String> {
        message(text, "b", None)
    }

    #[test]
    fn payloads_are_taken_as_they_are() {
        let expected = |payload: &str| Message::new("b", "a", payload);
        assert_eq!(line(r#"{"id":"a","payload":"héllo"}"#), Ok(expected("héllo")));
        assert_eq!(
            line(r#"{"id":"a","payload":{"to":[],  "n":12345678901234567890}}"#),
            Ok(expected(r#"{"to":[],  "n":12345678901234567890}"#))
        );
        // Q8: the escape of a lone surrogate travels inside a JSON payload
        assert_eq!(line(r#"{"id":"a","payload":["\ud800"]}"#), Ok(expected(r#"["\ud800"]"#)));
        assert!(line(r#"{"id":"a","payload":"\ud800"}"#).unwrap_err().contains("payload"));
    }

    #[test]
    fn a_line_names_lane_and_recipient_and_goes_before_the_option() {
        let given = message(r#"{"id":"a","payload":"x","lane":"otp","recipient":"+316"}"#, "b", Some("news"));
        assert_eq!(given, Ok(Message::new("b", "a", "x").lane("otp").recipient("+316")));
        let given = message(r#"{"id":"a","payload":"x"}"#, "b", Some("news"));
        assert_eq!(given, Ok(Message::new("b", "a", "x").lane("news")));
    }

    #[test]
    fn what_is_not_a_message_says_so() {
        for (text, word) in [
            ("", "object"),
            ("{", "EOF"),
            ("[]", "object"),
            ("[\"a\",1,1,null,null,null]", "object"),
            (r#"{"id":"a"}"#, "payload"),
            (r#"{"payload":1}"#, "id"),
            (r#"{"id":7,"payload":1}"#, "string"),
            (r#"{"id":"a","payload":1,"cost":-1}"#, "u32"),
            (r#"{"id":"a","payload":1,"not_befor":"x"}"#, "not_befor"),
            (r#"{"id":"a","payload":1,"recipient":7}"#, "string"),
            (r#"{"id":"a","payload":1,"not_before":"tomorrow"}"#, "not_before \"tomorrow\" is no instant"),
            (r#"{"id":"a","payload":1,"not_before":"tomorrow"}"#, "2026-12-01T09:00:00Z"),
            (r#"{"id":"a","payload":1} trailing"#, "trailing"),
        ] {
            let error = line(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
