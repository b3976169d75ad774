//! What is kept of a provider's answer that says no.

use serde_json::Value;

/// Where providers put their code for an error.
const NAMES: [&str; 8] = ["code", "error_code", "errorCode", "error", "type", "reason", "status", "name"];

/// The provider's own code for an error, if its JSON has one that looks like one. Nothing else of an answer is logged or
/// dead-lettered, since providers repeat what they were sent.
pub(crate) fn error_code(body: &[u8], payload: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let inner = [body.get("error"), body.get("errors").and_then(|errors| errors.get(0)), Some(&body)];
    let objects = inner.into_iter().flatten();
    objects.flat_map(|object| NAMES.iter().filter_map(|name| object.get(*name))).find_map(|value| code(value, payload))
}

fn code(value: &Value, payload: &[u8]) -> Option<String> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    // a longer number may be somebody's
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let fits = (1..=48).contains(&text.len()) && text.bytes().all(plain) && digits <= 6;
    let echoed = payload.windows(text.len().max(1)).any(|part| part == text.as_bytes());
    (fits && !echoed).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_kept_and_nothing_that_may_be_the_messages_own() {
        let payload = br#"{"to":"alice","type":"receipt"}"#;
        for (body, expected) in [
            (r#"{"code":21610,"message":"unsubscribed: +31612345678"}"#, Some("21610")),
            (r#"{"error":{"message":"x y","type":"OAuthException","code":131056}}"#, Some("131056")),
            (r#"{"errors":[{"code":"INVALID_TO","detail":"alice@example.org"}]}"#, Some("INVALID_TO")),
            (r#"{"error":"no_such_address"}"#, Some("no_such_address")),
            (r#"{"error":"no such address alice"}"#, None),
            (r#"{"error":"alice"}"#, None),
            (r#"{"type":"receipt","reason":"bounced"}"#, Some("bounced")),
            (r#"{"code":31612345678}"#, None),
            (r#"{"code":"+316"}"#, None),
            (r#"{"code":""}"#, None),
            (r#"{"code":null,"status":"failed"}"#, Some("failed")),
            ("alice is not here", None),
            ("[1,2]", None),
            ("", None),
        ] {
            assert_eq!(error_code(body.as_bytes(), payload).as_deref(), expected, "{body}");
        }
        assert_eq!(error_code(br#"{"code":"A1"}"#, b""), Some("A1".to_owned()));
    }
}
