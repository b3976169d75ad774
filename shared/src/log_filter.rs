//! Which events a program logs.

/// A plain level (`trace`) is for Sendslot's own events and for warnings of everything below: what HTTP and AWS libraries say at
/// lower levels holds payloads and credentials. A text with directives (`sendslot_worker=debug,hyper=info`) is taken as it is.
#[must_use]
pub fn directives(given: &str) -> String {
    let given = given.trim().to_lowercase();
    match given.as_str() {
        "" => "warn,sendslot=info".to_owned(),
        "error" | "off" => given,
        level @ ("warn" | "info" | "debug" | "trace") => format!("warn,sendslot={level}"),
        _ => given,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_level_is_for_our_own_events() {
        for (given, expected) in [
            ("", "warn,sendslot=info"),
            ("TRACE", "warn,sendslot=trace"),
            (" debug ", "warn,sendslot=debug"),
            ("error", "error"),
            ("info,sendslot_worker=debug", "info,sendslot_worker=debug"),
        ] {
            assert_eq!(directives(given), expected);
        }
    }
}
