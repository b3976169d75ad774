//! Messages as lines of JSON.

use sendslot_http::content::{Content, InvalidContent, JsonPayload, object};
use sendslot_scheduler::Message;

/// A message of a budget from one line. A payload that is a JSON string is sent as its text, any other as its JSON.
///
/// # Errors
/// What is wrong with the line.
pub(crate) fn message(line: &str, budget: &str, lane: Option<&str>) -> Result<Message, String> {
    let what = "one object with id and payload a line";
    if !line.starts_with('{') {
        return Err(format!("not a JSON object: give {what}"));
    }
    let content: Content = object(line.as_bytes(), what).map_err(|error| {
        let (InvalidContent::Malformed(text) | InvalidContent::Invalid(text)) = error;
        // serde_json counts lines of its own text
        text.replace(" at line 1 column", " at column")
    })?;
    content.into_message(budget, lane, JsonPayload::AsIs)
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
