//! Standard output for results, standard error for everything else.

use std::io::Write as _;

use serde::Serialize;

/// One line on standard output. A reader that went away is not an error.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// One line on standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// The one JSON document that `--json` promises.
pub(crate) fn json(document: &impl Serialize) -> Result<(), serde_json::Error> {
    line(&serde_json::to_string_pretty(document)?);
    Ok(())
}
