//! Answers that a test gives for particular arrivals.

use std::time::Duration;

/// One scripted answer; it goes in front of faults and of the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptedReply {
    pub(super) end: End,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<String>,
    pub(super) delay: Duration,
    pub(super) accepted: bool,
}

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Status(u16),
    Hang,
    Drop,
}

impl ScriptedReply {
    /// Answers with this status; 2xx counts as accepted, whatever the limit says.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::new(End::Status(status), (200..300).contains(&status))
    }

    /// Never answers; counts as accepted unless [`ScriptedReply::accepted`] says otherwise.
    #[must_use]
    pub fn hang() -> Self {
        Self::new(End::Hang, true)
    }

    /// Closes the connection without an answer; counts as accepted unless told otherwise.
    #[must_use]
    pub fn drop_connection() -> Self {
        Self::new(End::Drop, true)
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Replaces the JSON body of the answer.
    #[must_use]
    pub fn body(mut self, body: impl Into<String>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Waits this long after the arrival.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Says whether the provider took the send.
    #[must_use]
    pub fn accepted(mut self, accepted: bool) -> Self {
        self.accepted = accepted;
        self
    }

    fn new(end: End, accepted: bool) -> Self {
        Self { end, headers: Vec::new(), body: None, delay: Duration::ZERO, accepted }
    }
}
