//! What was seen of each send, by everybody, in the order of time: the trace of a violation.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// All send IDs of a run begin so, and are this long: `tt-a-000123`.
pub(super) const ID_PREFIX: &[u8] = b"tt-";
pub(super) const ID_LENGTH: usize = 11;

/// Microseconds since 1970: Redis, provider and run are on one machine and read one clock.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Lines by send ID.
#[derive(Debug, Default)]
pub(super) struct Journal(Mutex<HashMap<String, Vec<(u64, String)>>>);

impl Journal {
    pub(super) fn note(&self, id: &str, what: impl Into<String>) {
        self.note_at(id, now_us(), what);
    }

    pub(super) fn note_at(&self, id: &str, at_us: u64, what: impl Into<String>) {
        self.lock().entry(id.to_owned()).or_default().push((at_us, what.into()));
    }

    /// The same line for every send that these bytes name.
    pub(super) fn note_all(&self, bytes: &[u8], what: &str) {
        for id in ids_in(bytes) {
            self.note(&id, what);
        }
    }

    /// All lines of one send, with seconds since `began_us`.
    pub(super) fn trace(&self, id: &str, began_us: u64) -> Vec<String> {
        let mut lines = self.lock().get(id).cloned().unwrap_or_default();
        lines.sort_by_key(|(at, _)| *at);
        let line = |(at, what): (u64, String)| format!("{:10.4} {what}", at.saturating_sub(began_us) as f64 / 1e6);
        lines.into_iter().map(line).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<(u64, String)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The send IDs that stand in these bytes, each once.
pub(super) fn ids_in(bytes: &[u8]) -> Vec<String> {
    let mut ids = vec![];
    for at in 0..bytes.len().saturating_sub(ID_LENGTH - 1) {
        let word = &bytes[at..at + ID_LENGTH];
        if word.starts_with(ID_PREFIX) && word[5..].iter().all(u8::is_ascii_digit) {
            let id = String::from_utf8_lossy(word).into_owned();
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_in_whatever_carries_them() {
        let text = br#"id=tt-a-000123 {\"id\":\"tt-r-000007\"} tt-a-000123 tt-a tt-a-00012"#;
        assert_eq!(ids_in(text), ["tt-a-000123", "tt-r-000007"]);
        assert!(ids_in(b"tt-").is_empty());
    }
}
