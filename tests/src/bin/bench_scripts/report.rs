//! Medians, lines and verdicts.

#[allow(clippy::print_stdout)]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// The middle one; of an even number the upper one of the two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value below which `share` of them lie.
pub(crate) fn quantile(values: &[u64], share: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let index = (share * sorted.len() as f64) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}

/// Median over the rounds.
pub(crate) fn of<R>(rounds: &[R], value: impl Fn(&R) -> f64) -> f64 {
    median(rounds.iter().map(value).collect())
}

/// Says whether a value is at most what it should be.
pub(crate) fn at_most(what: &str, value: f64, most: f64) {
    say(&format!("  {what}: {value:.2} (aim: at most {most}: {})", held(value <= most)));
}

/// Says whether a value is at least what it should be.
pub(crate) fn at_least(what: &str, value: f64, least: f64) {
    say(&format!("  {what}: {value:.4} (aim: at least {least}: {})", held(value >= least)));
}

fn held(good: bool) -> &'static str {
    if good { "held" } else { "missed" }
}
