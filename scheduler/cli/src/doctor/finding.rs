//! What was found, and what to do about it.

use serde::Serialize;

use crate::output;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// To be known; or it could not be checked.
    Info,
    /// It works now, and will not always.
    Warning,
    /// It does not work, or sends may be lost or sent twice.
    Error,
}

#[derive(Debug, Serialize)]
struct Finding {
    severity: Severity,
    /// What was checked: `queue.visibility`.
    check: &'static str,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// All findings.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

#[derive(Serialize)]
struct Report<'a> {
    worst: Severity,
    findings: &'a [Finding],
}

impl Findings {
    pub(super) fn ok(&mut self, check: &'static str, found: &str) {
        self.0.push(Finding { severity: Severity::Ok, check, found: found.to_owned(), remedy: None });
    }

    pub(super) fn info(&mut self, check: &'static str, found: &str, remedy: &str) {
        self.add(Severity::Info, check, found, remedy);
    }

    pub(super) fn warning(&mut self, check: &'static str, found: &str, remedy: &str) {
        self.add(Severity::Warning, check, found, remedy);
    }

    pub(super) fn error(&mut self, check: &'static str, found: &str, remedy: &str) {
        self.add(Severity::Error, check, found, remedy);
    }

    pub(super) fn add(&mut self, severity: Severity, check: &'static str, found: &str, remedy: &str) {
        self.0.push(Finding { severity, check, found: found.to_owned(), remedy: Some(remedy.to_owned()) });
    }

    pub(super) fn worst(&self) -> Severity {
        self.0.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    pub(super) fn show(&self, json: bool) -> Result<(), serde_json::Error> {
        if json {
            return output::json(&Report { worst: self.worst(), findings: &self.0 });
        }
        for Finding { severity, check, found, remedy } in &self.0 {
            let severity = format!("{severity:?}").to_lowercase();
            output::line(&format!("{severity:<8} {check:<22} {found}"));
            if let Some(remedy) = remedy {
                output::line(&format!("{:<31} -> {remedy}", ""));
            }
        }
        let count = |severity| self.0.iter().filter(|finding| finding.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        output::line(&format!("{errors} errors, {warnings} warnings, {} checks", self.0.len()));
        Ok(())
    }
}
