//! What a request is answered with that was not done: RFC 9457 problem details.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident = $status:literal $slug:literal $title:literal;)*) => {
        /// What kind of problem it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind { $($(#[doc = $doc])* $name,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &[Kind] = &[$(Kind::$name),*];

            /// Its type, a URI reference.
            #[must_use]
            pub const fn uri(self) -> &'static str {
                match self { $(Kind::$name => concat!("/problems/", $slug),)* }
            }

            /// Its title, the same for each of its kind.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Kind::$name => $title,)* }
            }

            /// Its status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Kind::$name => $status,)* }
            }
        }
    };
}

kinds! {
    /// The body is not JSON.
    MalformedJson = 400 "malformed-json" "The body is not JSON";
    /// The path has a `%` that is no percent-encoding, or is not UTF-8.
    MalformedPath = 400 "malformed-path" "The path cannot be decoded";
    /// No key, or one that is not known.
    Unauthenticated = 401 "unauthenticated" "No valid API key";
    /// The key may not do this.
    Forbidden = 403 "forbidden" "The API key may not do this";
    /// No such route.
    NotFound = 404 "not-found" "There is nothing at this path";
    /// The budget has no policy.
    UnknownBudget = 404 "unknown-budget" "The budget has no policy";
    /// Nothing is known of the send.
    UnknownSend = 404 "unknown-send" "Nothing is known of this send";
    /// The route has no such method.
    MethodNotAllowed = 405 "method-not-allowed" "This path has no such method";
    /// The body did not arrive in time.
    RequestTimeout = 408 "request-timeout" "The request took too long to arrive";
    /// The same ID with other content.
    Conflict = 409 "conflict" "This ID was scheduled with other content";
    /// The send was cancelled.
    Cancelled = 409 "cancelled" "The send was cancelled";
    /// The send failed and was dead-lettered.
    Failed = 409 "failed" "The send failed";
    /// The send's deadline passed first.
    Expired = 409 "expired" "The send's deadline passed before it could be sent";
    /// Nobody knows whether it was sent.
    UnknownOutcome = 409 "unknown-outcome" "Nobody knows whether the send was sent";
    /// It is too late to cancel.
    TooLate = 409 "too-late" "It is too late to cancel the send";
    /// The body is too large.
    TooLarge = 413 "too-large" "The body is too large";
    /// The body is no JSON by its content type.
    UnsupportedMediaType = 415 "unsupported-media-type" "The body must be JSON";
    /// JSON, but not what is asked for.
    Invalid = 422 "invalid" "The request is not valid";
    /// The cost is above what the budget takes.
    CostTooLarge = 422 "cost-too-large" "The cost is above what the budget takes";
    /// The policy contradicts itself or is out of range.
    InvalidPolicy = 422 "invalid-policy" "The policy is not one";
    /// The key makes too many requests.
    RateLimited = 429 "rate-limited" "The API key makes too many requests";
    /// A bug.
    Internal = 500 "internal" "Something is wrong with this server";
    /// The lane's first free slot is further ahead than its longest wait.
    Full = 503 "full" "The lane is full";
    /// The first free slot lies behind the deadline.
    DeadlineCannotBeMet = 503 "deadline-cannot-be-met" "The first free slot lies behind the deadline";
    /// The first free slot lies behind the budget's horizon.
    TooFar = 503 "too-far" "The first free slot lies behind the budget's horizon";
    /// Redis could not be asked, or refused.
    RedisUnavailable = 503 "redis-unavailable" "Redis could not be asked";
    /// SQS did not take it.
    QueueUnavailable = 503 "queue-unavailable" "The queue did not take the send";
    /// Too many requests are in hand.
    Overloaded = 503 "overloaded" "The server has too much to do";
    /// The request took longer than the server waits.
    Timeout = 503 "timeout" "The request took too long";
}

/// A problem as it is answered, `application/problem+json` (RFC 9457).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Problem(Box<Details>);

/// A problem: what kind it is, and what to do (RFC 9457).
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
struct Details {
    /// What kind it is: a URI reference that stays the same.
    #[serde(rename = "type")]
    #[schema(value_type = String, format = "uri-reference")]
    uri: &'static str,
    /// The same for each of its kind.
    title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong with this request, and what to do.
    detail: String,
    /// The send, in the results of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// When to try again, as in the header Retry-After.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    retry_after_s: Option<u64>,
    /// The first free slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    would_be_at: Option<String>,
    /// The largest cost that the budget takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_cost: Option<u32>,
    /// What became of the send.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

impl PartialSchema for Problem {
    fn schema() -> RefOr<Schema> {
        Details::schema()
    }
}

impl ToSchema for Problem {}

impl Problem {
    /// A problem of a kind, and what to do about it.
    #[must_use]
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self(Box::new(Details {
            uri: kind.uri(),
            title: kind.title(),
            status: kind.status(),
            detail: detail.into(),
            id: None,
            retry_after_s: None,
            would_be_at: None,
            max_cost: None,
            state: None,
        }))
    }

    /// When to try again: whole seconds, rounded up, at least 1.
    #[must_use]
    pub fn retry_after(mut self, wait: std::time::Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.0.retry_after_s = Some(seconds.max(1));
        self
    }

    /// The first free slot.
    #[must_use]
    pub fn would_be_at(mut self, at: String) -> Self {
        self.0.would_be_at = Some(at);
        self
    }

    /// The largest cost.
    #[must_use]
    pub fn max_cost(mut self, units: u32) -> Self {
        self.0.max_cost = Some(units);
        self
    }

    /// What became of the send.
    #[must_use]
    pub fn state(mut self, state: &'static str) -> Self {
        self.0.state = Some(state);
        self
    }

    /// Whose problem it is, in a batch.
    #[must_use]
    pub fn of(mut self, id: Option<String>) -> Self {
        self.0.id = id;
        self
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let status = self.status();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.0.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(r#"Bearer realm="sendslot""#));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn retry_after_is_in_whole_seconds_up_and_at_least_one() {
        // L6, fastify-rate-limit#301
        for (ms, s) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (5001, 6)] {
            let response = Problem::new(Kind::Full, "").retry_after(Duration::from_millis(ms)).into_response();
            assert_eq!(response.headers()[header::RETRY_AFTER], s.to_string(), "{ms}");
        }
    }

    #[test]
    fn each_kind_has_a_type_of_its_own() {
        let mut uris: Vec<_> = Kind::ALL.iter().map(|kind| kind.uri()).collect();
        uris.sort_unstable();
        uris.dedup();
        assert_eq!(uris.len(), Kind::ALL.len());
    }
}
