//! A day of sends on the real scripts under a virtual clock: `cargo run --release -p sendslot-tests --bin day -- --sends 1000000
//! --seed 1`. What is drawn and what is checked, see `sendslot_tests::day`. Exit code 1 when something happened that may not.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use sendslot_tests::day::Day;

/// Simulates a day of sends and checks it.
#[derive(Debug, Parser)]
struct Args {
    /// Sends that are offered, about; 1,000,000 take 24 virtual hours, fewer a part of them.
    #[arg(long, default_value_t = 100_000)]
    sends: usize,
    /// What the day is drawn from; more than one: a day for each.
    #[arg(long, default_value = "1", value_delimiter = ',')]
    seed: Vec<u64>,
    /// Only the budget with this name.
    #[arg(long)]
    only: Option<String>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut violations = 0;
    for seed in args.seed {
        let began = Instant::now();
        let day = Day { sends: args.sends, seed, only: args.only.clone() };
        let reports = day.run()?;
        let wrong: u64 = reports.iter().map(|report| report.tally.get("violations", "in all")).sum();
        reports.iter().for_each(|report| say(&report.to_string()));
        say(&format!("seed {seed}: {wrong} violations, {:.0} s", began.elapsed().as_secs_f64()));
        violations += wrong;
    }
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[allow(clippy::print_stdout)]
fn say(line: &str) {
    println!("{line}");
}
