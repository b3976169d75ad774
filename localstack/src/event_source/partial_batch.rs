//! Reads the worker's answer with the rules of `ReportBatchItemFailures`.

use std::collections::HashSet;

use serde_json::Value;

/// Why an answer fails the whole batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompleteFailure {
    /// The answer is no JSON.
    #[error("the response is no valid JSON")]
    InvalidJson,
    /// The answer, or its list, has another shape than documented.
    #[error("the response is not {{\"batchItemFailures\": [{{\"itemIdentifier\": \"…\"}}]}}")]
    WrongShape,
    /// An entry has no `itemIdentifier`, or it is null or empty.
    #[error("an itemIdentifier is missing, null or empty")]
    NoIdentifier,
    /// An entry names no message of this batch.
    #[error("itemIdentifier {0:?} names no message of this batch")]
    UnknownIdentifier(String),
}

/// The message IDs that the worker reports as failed; all others succeeded.
///
/// An empty or null answer, and an empty, null or absent list, are complete successes. A wrong outer key is
/// therefore a success too, so it is logged.
///
/// # Errors
/// [`CompleteFailure`], when the whole batch counts as failed.
pub fn failed_items(response: &[u8], message_ids: &[&str]) -> Result<HashSet<String>, CompleteFailure> {
    if response.trim_ascii().is_empty() {
        return Ok(HashSet::new());
    }
    let entries = match serde_json::from_slice(response).map_err(|_| CompleteFailure::InvalidJson)? {
        Value::Null => return Ok(HashSet::new()),
        Value::Object(mut object) => {
            let list = object.remove("batchItemFailures");
            if list.is_none() && !object.is_empty() {
                tracing::warn!("response has no batchItemFailures: AWS takes that as a complete success");
            }
            list.unwrap_or_default()
        }
        _ => return Err(CompleteFailure::WrongShape),
    };
    match entries {
        Value::Null => Ok(HashSet::new()),
        Value::Array(entries) => {
            let known: HashSet<&str> = message_ids.iter().copied().collect();
            entries.iter().map(|entry| identifier(entry, &known)).collect()
        }
        _ => Err(CompleteFailure::WrongShape),
    }
}

fn identifier(entry: &Value, known: &HashSet<&str>) -> Result<String, CompleteFailure> {
    match entry.get("itemIdentifier").and_then(Value::as_str) {
        None | Some("") => Err(CompleteFailure::NoIdentifier),
        Some(id) if known.contains(id) => Ok(id.to_owned()),
        Some(id) => Err(CompleteFailure::UnknownIdentifier(id.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(response: &str) -> Result<Vec<String>, CompleteFailure> {
        let failed = failed_items(response.as_bytes(), &["a", "b"])?;
        let mut failed: Vec<_> = failed.into_iter().collect();
        failed.sort();
        Ok(failed)
    }

    #[test]
    fn nothing_reported_is_a_complete_success() {
        for response in ["", " \n", "null", "{}", r#"{"batchItemFailures":[]}"#, r#"{"batchItemFailures":null}"#] {
            assert_eq!(read(response), Ok(Vec::new()), "{response:?}");
        }
        assert_eq!(read(r#"{"batchItemFailure":[{"itemIdentifier":"a"}]}"#), Ok(Vec::new()));
    }

    #[test]
    fn only_the_named_items_fail() {
        assert_eq!(read(r#"{"batchItemFailures":[{"itemIdentifier":"b"}]}"#), Ok(vec!["b".to_owned()]));
        let twice = r#"{"batchItemFailures":[{"itemIdentifier":"b"},{"itemIdentifier":"b"},{"itemIdentifier":"a"}]}"#;
        assert_eq!(read(twice), Ok(vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn every_documented_mistake_fails_the_batch() {
        let list = |entry: &str| read(&format!(r#"{{"batchItemFailures":[{{"itemIdentifier":"a"}},{entry}]}}"#));
        assert_eq!(read("{"), Err(CompleteFailure::InvalidJson));
        assert_eq!(read("not json"), Err(CompleteFailure::InvalidJson));
        assert_eq!(list(r#"{"itemIdentifier":""}"#), Err(CompleteFailure::NoIdentifier));
        assert_eq!(list(r#"{"itemIdentifier":null}"#), Err(CompleteFailure::NoIdentifier));
        assert_eq!(list(r#"{"itemIdentifer":"b"}"#), Err(CompleteFailure::NoIdentifier));
        assert_eq!(list(r#"{"itemIdentifier":"c"}"#), Err(CompleteFailure::UnknownIdentifier("c".to_owned())));
        assert_eq!(read(r#"{"batchItemFailures":"a"}"#), Err(CompleteFailure::WrongShape));
        assert_eq!(read("[]"), Err(CompleteFailure::WrongShape));
    }
}
