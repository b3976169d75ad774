//! What the provider remembers of each request.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// How much of each body is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyCapture {
    /// Its length only.
    #[default]
    Length,
    /// A 64-bit hash, to compare bodies without keeping them.
    Hash,
    /// All its bytes.
    Bytes,
}

/// What was kept of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Not read: the body had not fully arrived yet, or the client left before.
    Missing,
    /// Bytes in the body.
    Length(usize),
    /// SipHash of the bytes, stable within one build.
    Hash(u64),
    /// The bytes.
    Bytes(Arc<[u8]>),
}

impl BodyCapture {
    pub(super) fn keep(self, bytes: &[u8]) -> Body {
        match self {
            Self::Length => Body::Length(bytes.len()),
            Self::Hash => {
                let mut hasher = DefaultHasher::new();
                hasher.write(bytes);
                Body::Hash(hasher.finish())
            }
            Self::Bytes => Body::Bytes(bytes.into()),
        }
    }
}

/// One request as the provider saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Microseconds since the provider's start, monotonic, read when the request head was there.
    pub at_us: u64,
    /// The same instant in microseconds since 1970, by the system clock as it stood at the provider's start.
    pub unix_us: u64,
    /// The `Idempotency-Key` header; empty when it was missing.
    pub send_id: Arc<str>,
    /// The `x-units` header, 1 when it was missing.
    pub units: u32,
    /// The HTTP status of the answer; `None` when the request is never answered.
    pub status: Option<u16>,
    /// Whether the provider took the send, answered or not.
    pub accepted: bool,
    /// The body, as far as it was to be kept.
    pub body: Body,
}

/// Counts over all arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProviderStats {
    /// Requests.
    pub arrivals: u64,
    /// Requests that were taken.
    pub accepted: u64,
    /// Requests answered with 429, injected ones too.
    pub throttled: u64,
    /// Requests answered with 500 and above.
    pub server_errors: u64,
    /// Requests that were never answered: injected timeouts and dropped connections.
    pub unanswered: u64,
    /// Send IDs that were accepted more than once.
    pub duplicates: u64,
    /// Units accepted in the last `per`.
    pub in_last_window: u64,
    /// The most units accepted in any rolling `per`, whatever window the provider counts by.
    pub max_units_in_window: u64,
}
