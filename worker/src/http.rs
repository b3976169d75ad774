//! The generic HTTP provider: a POST of the payload.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};

use crate::config::{ConfigError, millis, parsed, required, setting};
use crate::error_code::error_code;
use crate::provider::{Outcome, Outgoing, Provider, Scope};
use crate::retry_after::retry_after;

/// Settings of [`HttpProvider`]. Values of headers, and what may be secret in the URL, are left out when it is printed.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Where the payload is posted.
    pub url: String,
    /// Headers of every request. In a value `{id}`, `{budget}`, `{lane}`, `{cost}` and `{attempt}` stand for the send's.
    pub headers: BTreeMap<String, String>,
    /// The longest that a connection may take. Default 2 s.
    pub connect_timeout: Duration,
    /// The longest that a whole call may take. Default 10 s.
    pub timeout: Duration,
    /// The provider may have taken a message that it answers with a 5xx: its outcome is unknown then. Default false.
    pub ambiguous_5xx: bool,
    /// Whom a 429 concerns: the whole account (default), or only the send's recipient.
    pub throttle_scope: Scope,
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, headers, connect_timeout, timeout, ambiguous_5xx, throttle_scope } = self;
        f.debug_struct("HttpConfig")
            .field("host", &Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)))
            .field("headers", &headers.keys())
            .field("connect_timeout", connect_timeout)
            .field("timeout", timeout)
            .field("ambiguous_5xx", ambiguous_5xx)
            .field("throttle_scope", throttle_scope)
            .finish()
    }
}

impl HttpConfig {
    /// Settings for a URL, with the defaults for the rest.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: BTreeMap::new(),
            connect_timeout: Duration::from_secs(2),
            timeout: Duration::from_secs(10),
            ambiguous_5xx: false,
            throttle_scope: Scope::Account,
        }
    }

    /// From `SENDSLOT_HTTP_URL`, `SENDSLOT_HTTP_HEADERS` (a JSON object), `SENDSLOT_HTTP_CONNECT_TIMEOUT_MS`,
    /// `SENDSLOT_HTTP_TIMEOUT_MS`, `SENDSLOT_HTTP_AMBIGUOUS_5XX` (`true` or `false`) and `SENDSLOT_HTTP_THROTTLE_SCOPE`
    /// (`account` or `recipient`).
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_env() -> Result<Self, ConfigError> {
        let mut config = Self::new(required("SENDSLOT_HTTP_URL", "give the URL that payloads are posted to")?);
        if let Some(text) = setting("SENDSLOT_HTTP_HEADERS") {
            config.headers = serde_json::from_str(&text).map_err(|_| ConfigError::Unreadable {
                name: "SENDSLOT_HTTP_HEADERS",
                given: SECRET.to_owned(),
                what: "give a JSON object of header names and values",
            })?;
        }
        config.ambiguous_5xx =
            parsed("SENDSLOT_HTTP_AMBIGUOUS_5XX", config.ambiguous_5xx, "give true or false", |text| {
                text.parse().ok()
            })?;
        config.throttle_scope =
            parsed("SENDSLOT_HTTP_THROTTLE_SCOPE", config.throttle_scope, "give account or recipient", scope)?;
        config.connect_timeout = millis("SENDSLOT_HTTP_CONNECT_TIMEOUT_MS", config.connect_timeout)?;
        config.timeout = millis("SENDSLOT_HTTP_TIMEOUT_MS", config.timeout)?;
        Ok(config)
    }
}

fn scope(text: &str) -> Option<Scope> {
    match text {
        "account" => Some(Scope::Account),
        "recipient" => Some(Scope::Recipient),
        _ => None,
    }
}

/// Posts each payload to one URL, once: no retries, no redirects. The send ID travels as `Idempotency-Key`; bytes of it
/// that are not visible ASCII, and `%`, are percent-encoded.
pub struct HttpProvider {
    client: reqwest::Client,
    url: Url,
    headers: Vec<(HeaderName, String)>,
    timeout: Duration,
    ambiguous_5xx: bool,
    throttle_scope: Scope,
}

/// A connection that was idle this long is not used again: the other side may have closed it, and a request that is
/// written into a closed connection has an unknown outcome.
const POOL_IDLE: Duration = Duration::from_secs(10);
/// For what may be a secret: it is not repeated.
const SECRET: &str = "…";
/// What is read of an answer that says no.
const REASON_BYTES: usize = 4096;

impl fmt::Debug for HttpProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpProvider").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

impl HttpProvider {
    /// A provider with these settings.
    ///
    /// # Errors
    /// [`ConfigError::Unreadable`] for a URL or a header that is none.
    pub fn new(config: HttpConfig) -> Result<Self, ConfigError> {
        let bad = |name, given: &str, what| ConfigError::Unreadable { name, given: given.to_owned(), what };
        let url = Url::parse(&config.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| bad("SENDSLOT_HTTP_URL", SECRET, "give an http:// or https:// URL"))?;
        let mut headers = vec![];
        for (name, value) in config.headers {
            let what = "give header names and values as HTTP allows them";
            let parsed = HeaderName::try_from(&name).map_err(|_| bad("SENDSLOT_HTTP_HEADERS", &name, what))?;
            HeaderValue::try_from(&value).map_err(|_| bad("SENDSLOT_HTTP_HEADERS", &name, what))?;
            headers.push((parsed, value));
        }
        let client = reqwest::Client::builder()
            // inside the whole call's timeout, so that a slow connection is told from a call without an answer
            .connect_timeout(config.connect_timeout.min(config.timeout.mul_f64(0.75)))
            .timeout(config.timeout)
            .pool_idle_timeout(POOL_IDLE)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .user_agent(concat!("sendslot/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|_| bad("SENDSLOT_HTTP_URL", SECRET, "the HTTP client could not be made"))?;
        let HttpConfig { timeout, ambiguous_5xx, throttle_scope, .. } = config;
        Ok(Self { client, url, headers, timeout, ambiguous_5xx, throttle_scope })
    }

    fn headers(&self, send: &Outgoing) -> Result<HeaderMap, Outcome> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let value = |text: &str| {
            HeaderValue::try_from(text).map_err(|_| Outcome::Rejected {
                reason: "a configured header cannot carry this send's values".to_owned(),
            })
        };
        let id = encoded(&send.id);
        headers.insert(HeaderName::from_static("idempotency-key"), value(&id)?);
        for (name, template) in &self.headers {
            headers.insert(name.clone(), value(&fill(template, send, &id))?);
        }
        Ok(headers)
    }

    async fn read(&self, mut response: Response, send: &Outgoing) -> Outcome {
        let status = response.status();
        if status.is_success() {
            let provider_id = header(&response, "x-message-id");
            // read to its end, so that the connection can be used again
            while let Ok(Some(_)) = response.chunk().await {}
            return Outcome::Sent { provider_id };
        }
        let hint = header(&response, RETRY_AFTER.as_str())
            .and_then(|value| retry_after(&value, header(&response, DATE.as_str()).as_deref(), SystemTime::now()));
        let code = error_code(&beginning(response).await, &send.payload);
        let error = format!("HTTP {}{}", status.as_u16(), code.map(|code| format!(" ({code})")).unwrap_or_default());
        match status {
            StatusCode::TOO_MANY_REQUESTS => Outcome::Throttled { retry_after: hint, scope: self.throttle_scope },
            _ if status.is_server_error() && self.ambiguous_5xx => Outcome::Unknown { error },
            // how some providers answer while an earlier call with the same idempotency key still runs
            StatusCode::CONFLICT if send.attempt > 1 => Outcome::Unknown { error },
            // 401: the credentials, not this message; 408: the provider did not get the whole request
            StatusCode::UNAUTHORIZED | StatusCode::REQUEST_TIMEOUT => Outcome::Unavailable { retry_after: hint, error },
            _ if status.is_server_error() => Outcome::Unavailable { retry_after: hint, error },
            _ => Outcome::Rejected { reason: error },
        }
    }
}

/// Placeholders become the send's.
fn fill(template: &str, send: &Outgoing, id: &str) -> String {
    if !template.contains('{') {
        return template.to_owned();
    }
    template
        .replace("{budget}", &send.budget)
        .replace("{lane}", &send.lane)
        .replace("{cost}", &send.cost.to_string())
        .replace("{attempt}", &send.attempt.to_string())
        .replace("{id}", id)
}

/// The ID as a header carries it: what is not visible ASCII is percent-encoded, and so is `%`.
fn encoded(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'%' | 0..=0x20 | 0x7f.. => text.push_str(&format!("%{byte:02X}")),
            visible => text.push(char::from(visible)),
        }
    }
    text
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_owned)
}

async fn beginning(mut response: Response) -> Vec<u8> {
    let mut bytes = vec![];
    // no further: a body that drips must not hold up what its status says
    while bytes.len() < REASON_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        let room = REASON_BYTES.saturating_sub(bytes.len());
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    bytes
}

impl Provider for HttpProvider {
    fn call_timeout(&self) -> Duration {
        // the client's own timeout ends the call first
        self.timeout + Duration::from_millis(100)
    }

    async fn send(&self, send: &Outgoing) -> Outcome {
        let headers = match self.headers(send) {
            Ok(headers) => headers,
            Err(outcome) => return outcome,
        };
        let request = self.client.post(self.url.clone()).headers(headers).body(send.payload.clone());
        match request.send().await {
            Ok(response) => self.read(response, send).await,
            Err(error) if error.is_connect() => {
                Outcome::Unavailable { retry_after: None, error: words(&error.without_url()) }
            }
            Err(error) => Outcome::Unknown { error: words(&error.without_url()) },
        }
    }
}

/// An error with its causes.
fn words(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
