//! Counts of a day, as they are printed.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Counts by kind and name.
#[derive(Debug, Clone, Default)]
pub struct Tally(BTreeMap<(&'static str, String), u64>);

impl Tally {
    pub(super) fn one(&mut self, kind: &'static str, name: impl Into<String>) {
        self.add(kind, name, 1);
    }

    pub(super) fn add(&mut self, kind: &'static str, name: impl Into<String>, n: u64) {
        *self.0.entry((kind, name.into())).or_default() += n;
    }

    pub(super) fn most(&mut self, kind: &'static str, name: impl Into<String>, n: u64) {
        let most = self.0.entry((kind, name.into())).or_default();
        *most = n.max(*most);
    }

    /// One count; 0 when nothing was counted.
    #[must_use]
    pub fn get(&self, kind: &'static str, name: &str) -> u64 {
        self.0.get(&(kind, name.to_owned())).copied().unwrap_or(0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: BTreeMap<&str, String> = BTreeMap::new();
        for ((kind, name), n) in &self.0 {
            write!(lines.entry(kind).or_default(), "  {name} {n}")?;
        }
        lines.iter().try_for_each(|(kind, line)| writeln!(f, "  {kind:<14}{line}"))
    }
}

/// What became of one budget's day.
#[derive(Debug, Clone)]
pub struct Report {
    /// The budget.
    pub budget: &'static str,
    /// The seed of the day.
    pub seed: u64,
    /// Counts.
    pub tally: Tally,
    /// Figures: name and value with its unit.
    pub figures: Vec<(&'static str, String)>,
    /// What may not happen and did; empty when all is well.
    pub violations: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "budget {} (seed {})", self.budget, self.seed)?;
        for (name, value) in &self.figures {
            writeln!(f, "  {name:<42}{value}")?;
        }
        write!(f, "{}", self.tally)?;
        self.violations.iter().try_for_each(|what| writeln!(f, "  VIOLATION seed {} {what}", self.seed))
    }
}
