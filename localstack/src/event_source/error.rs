//! Why an event source did not start.

use std::path::PathBuf;

/// Why an event source did not start, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum EventSourceError {
    /// An option is out of bounds; AWS refuses the mapping for the same reason.
    #[error("event source: {0}")]
    Options(String),
    /// There is no such worker binary.
    #[error("worker binary {} is not a file; build it first (cargo build -p sendslot-worker)", .0.display())]
    NoWorker(PathBuf),
    /// The queue did not answer.
    #[error("queue {url} does not answer; check the URL, the endpoint and the credentials")]
    Queue {
        /// The queue.
        url: String,
        /// What the SDK said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Messages would come back while the function still works on them; AWS refuses this too.
    #[error(
        "queue visibility timeout of {visibility_s} s is less than the function timeout of {function_s} s; \
         raise the one (AWS advises six times the function timeout) or lower the other"
    )]
    VisibilityTooShort {
        /// The queue's VisibilityTimeout.
        visibility_s: u64,
        /// The function timeout, rounded up.
        function_s: u64,
    },
    /// No port for the Runtime API, or the log file cannot be opened.
    #[error("event source: {what}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A warm environment ended before it asked for its first event.
    #[error("worker did not start: {reason}; its last lines:\n{log}")]
    Worker {
        /// How it ended.
        reason: String,
        /// The last lines of its output.
        log: String,
    },
}
