//! What an SNS topic asks of an address that it is to call: to be confirmed, by opening a URL.

use serde_json::Value;

/// Longer ones are none of SNS.
const MAX_URL_BYTES: usize = 2048;

/// The SubscribeURL of such a body, if it is one of SNS itself, and what to do with it.
pub(crate) fn subscribe_url(body: &[u8]) -> Option<(String, &'static str)> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let url = body.get("SubscribeURL")?.as_str().filter(|url| is_of_sns(url))?;
    let remedy = match body.get("Type").and_then(Value::as_str) {
        Some("UnsubscribeConfirmation") => "the topic calls no more: open subscribe_url if it shall",
        _ => "the topic calls from when this is confirmed: open subscribe_url",
    };
    Some((url.to_owned(), remedy))
}

/// `https://sns.REGION.amazonaws.com/…`, or `.com.cn`; nothing else in the place of the host.
fn is_of_sns(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("https://sns.") else { return false };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = &rest[..end];
    let region = host.strip_suffix(".amazonaws.com").or_else(|| host.strip_suffix(".amazonaws.com.cn"));
    let in_region = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    url.len() <= MAX_URL_BYTES
        && url.chars().all(|c| c.is_ascii_graphic())
        && region.is_some_and(|region| !region.is_empty() && region.chars().all(in_region))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_sns_are_taken() {
        for url in [
            "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:us-east-1:1:t&Token=23",
            "https://sns.cn-north-1.amazonaws.com.cn/?Action=ConfirmSubscription",
            "https://sns.eu-west-1.amazonaws.com",
        ] {
            assert!(is_of_sns(url), "{url}");
        }
        for url in [
            "http://sns.us-east-1.amazonaws.com/",
            "https://sns.us-east-1.amazonaws.com.example.org/",
            "https://sns.us-east-1.amazonaws.com@example.org/",
            "https://sns.x@example.org/.amazonaws.com",
            "https://sns.us-east-1.amazonaws.com:8443/",
            "https://sns.us-east-1.amazonaws.com\\@example.org/",
            "https://sns.example.org/.amazonaws.com",
            "https://sns.example.org#.amazonaws.com",
            "https://sns..amazonaws.com/",
            "https://sns.amazonaws.com/",
            "https://sns.a.b.amazonaws.com/",
            "https://s3.us-east-1.amazonaws.com/",
            "https://sns.us-east-1.amazonaws.com/ open-this",
            "https://sns.us-east-1.amazonaws.com/\nERROR",
            "HTTPS://sns.us-east-1.amazonaws.com/",
            "",
        ] {
            assert!(!is_of_sns(url), "{url}");
        }
        assert!(!is_of_sns(&format!("https://sns.us-east-1.amazonaws.com/{}", "x".repeat(MAX_URL_BYTES))));
        assert_eq!(subscribe_url(b"{\"SubscribeURL\":7}"), None);
        assert_eq!(subscribe_url(b"no json"), None);
    }
}
