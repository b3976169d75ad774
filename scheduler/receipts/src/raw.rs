//! A webhook call as it came, on its way over SQS.

use std::collections::BTreeMap;
use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sendslot_shared::time::Instant;
use serde::{Deserialize, Serialize};

/// The largest body of a webhook call that is taken, in bytes.
pub const MAX_RECEIPT_BYTES: usize = 256 * 1024;

/// The headers that are kept: what the body is, and the provider's signatures.
pub const KEPT_HEADERS: [&str; 7] = [
    "content-type",
    "user-agent",
    "x-amz-sns-message-type",
    "x-hub-signature-256",
    "x-twilio-signature",
    "x-twilio-email-event-webhook-signature",
    "x-twilio-email-event-webhook-timestamp",
];

/// The name of the query field that may carry a provider's secret; it is not kept.
pub const TOKEN: &str = "token";

/// One webhook call. What it carried is left out when it is printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RawReceipt {
    /// The provider's name in the configuration.
    pub provider: String,
    /// When it came, by the front door's clock.
    pub received: Instant,
    /// Its query, without the token.
    pub query: String,
    /// Those of [`KEPT_HEADERS`] that it had.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Vec<u8>,
}

impl fmt::Debug for RawReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RawReceipt");
        shown.field("provider", &self.provider).field("received", &self.received);
        shown.field("body_bytes", &self.body.len()).finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: u32,
    provider: String,
    received_us: Instant,
    query: String,
    headers: BTreeMap<String, String>,
    base64: String,
}

/// A message on the receipts' queue that no front door made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message is no receipt of this version")]
pub struct InvalidRaw;

impl RawReceipt {
    /// The message's body: JSON in ASCII, since SQS refuses some code points; at most about 350 KiB.
    #[must_use]
    pub fn to_message(&self) -> String {
        let ascii = |text: &str| text.chars().filter(|c| (' '..='~').contains(c)).collect::<String>();
        let wire = Wire {
            v: 1,
            provider: self.provider.clone(),
            received_us: self.received,
            query: ascii(&self.query),
            headers: self.headers.iter().map(|(name, value)| (name.clone(), ascii(value))).collect(),
            base64: STANDARD.encode(&self.body),
        };
        // strings and numbers always serialize
        serde_json::to_string(&wire).unwrap_or_default()
    }

    /// Reads a message's body.
    ///
    /// # Errors
    /// [`InvalidRaw`].
    pub fn from_message(text: &str) -> Result<Self, InvalidRaw> {
        let wire: Wire = serde_json::from_str(text).map_err(|_| InvalidRaw)?;
        if wire.v != 1 {
            return Err(InvalidRaw);
        }
        let body = STANDARD.decode(wire.base64).map_err(|_| InvalidRaw)?;
        let Wire { provider, received_us, query, headers, .. } = wire;
        Ok(Self { provider, received: received_us, query, headers, body })
    }

    /// The query of a call without its token.
    #[must_use]
    pub fn without_token(query: &str) -> String {
        query.split('&').filter(|pair| query_field(pair, TOKEN).is_none()).collect::<Vec<_>>().join("&")
    }
}

/// A field of a query, decoded.
#[must_use]
pub fn query_field(query: &str, name: &str) -> Option<String> {
    form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_travel_and_the_token_does_not() {
        let raw = RawReceipt {
            provider: "sms".to_owned(),
            received: Instant::from_micros(1_796_083_200_000_001),
            query: RawReceipt::without_token("id=a%2Fb&token=secret&budget=sms"),
            headers: BTreeMap::from([("content-type".to_owned(), "text/plain".to_owned())]),
            body: (0..=255).cycle().take(1000).collect(),
        };
        let message = raw.to_message();
        assert!(message.is_ascii() && !message.contains("secret") && !format!("{raw:?}").contains("a%2Fb"));
        assert_eq!(RawReceipt::from_message(&message).unwrap(), raw);
        assert_eq!(raw.query, "id=a%2Fb&budget=sms");
        for bad in [
            "",
            "{}",
            "hello",
            &message.replace("\"v\":1", "\"v\":2"),
            &message.replace("\"base64\":\"", "\"base64\":\"*"),
        ] {
            assert_eq!(RawReceipt::from_message(bad), Err(InvalidRaw), "{bad}");
        }
    }
}
