use std::time::{Duration, SystemTime};

/// The longest hint that is believed. What is longer is cut: a provider's mistake must not stop a budget for a year.
const CAP: Duration = Duration::from_secs(3600);

/// Reads a Retry-After header: seconds, whole or with a fraction (rounded up), or one of the three HTTP date forms
/// (RFC 9110). Dates are taken relative to the response's own `Date` header where it has one. No hint (`None`): nothing,
/// zero, a past date, anything that cannot be read. At most one hour.
#[must_use]
pub fn retry_after(value: &str, date: Option<&str>, local_now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let hint = if value.starts_with(|c: char| c.is_ascii_digit()) {
        seconds(value)?
    } else {
        let now = date.and_then(|d| httpdate::parse_http_date(d).ok()).unwrap_or(local_now);
        httpdate::parse_http_date(value).ok()?.duration_since(now).ok()?
    };
    (!hint.is_zero()).then_some(hint.min(CAP))
}

fn seconds(value: &str) -> Option<Duration> {
    if !value.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let seconds: f64 = value.parse().ok()?;
    Duration::try_from_secs_f64(seconds.ceil()).ok().or(Some(CAP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn reads_what_providers_send() {
        // CASES, Retry-After
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777); // Sun, 06 Nov 1994 08:49:37 GMT
        let cases = [
            ("120", Some(120)),
            ("  120 ", Some(120)),
            ("0", None),
            ("0.0", None),
            ("-1", None),
            ("1.5", Some(2)),
            ("0.493", Some(1)),
            ("", None),
            ("   ", None),
            ("1000abc", None),
            ("120, 120", None),
            ("60000", Some(3600)),
            ("1771404540", Some(3600)),
            ("99999999999999999999999999999999999999999", Some(3600)),
            ("1.2.3", None),
            (".5", None),
            ("NaN", None),
            ("inf", None),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:48:37 GMT", None),
            ("Sun, 99 Nov 1994 08:50:37 GMT", None),
            ("tomorrow", None),
            ("Mon, 06 Nov 2034 08:50:37 GMT", Some(3600)),
        ];
        for (value, expected) in cases {
            assert_eq!(retry_after(value, None, now).map(|d| d.as_secs()), expected, "{value:?}");
        }
    }

    #[test]
    fn a_date_is_relative_to_the_responses_own_clock() {
        let wrong_local = UNIX_EPOCH;
        let hint = retry_after("Sun, 06 Nov 1994 08:50:37 GMT", Some("Sun, 06 Nov 1994 08:50:07 GMT"), wrong_local);
        assert_eq!(hint, Some(Duration::from_secs(30)));
    }
}
