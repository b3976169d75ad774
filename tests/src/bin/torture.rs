//! Everything that may go wrong, with real processes: `cargo run --release -p sendslot-tests --bin torture -- --minutes 10 --seed 1`.
//! What happens and what is checked, see `sendslot_tests::torture`. Exit code 1 when something happened that may not.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use sendslot_tests::torture::{Kind, Outage, Programs, Torture, load, worker_beside};
use tracing_subscriber::EnvFilter;

const GAP: Duration = Duration::from_secs(4);

/// Harms a whole stack at random and checks that no send is lost, none is made twice, and the limit holds.
#[derive(Debug, Parser)]
struct Args {
    /// How long faults happen, minutes.
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// What load and faults are drawn from; more than one: a run for each.
    #[arg(long, default_value = "1", value_delimiter = ',')]
    seed: Vec<u64>,
    /// Part of the full load of 41 sends a second, for a machine that cannot carry it.
    #[arg(long, default_value_t = 1.0)]
    load: f64,
    /// Only faults of these kinds. `worker-outage` alone: a backlog of 10,000 at 100/s, and no worker for a minute.
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    only: Option<Vec<Kind>>,
    /// Sends of the worker outage's backlog.
    #[arg(long, default_value_t = 10_000)]
    backlog: usize,
    /// How long the worker outage lasts, seconds.
    #[arg(long, default_value_t = 60)]
    outage_s: u64,
    /// The report as JSON.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// The scheduler process of a run.
    #[command(hide = true)]
    Load,
}

fn kind(name: &str) -> Result<Kind, String> {
    let names = || Kind::ALL.map(Kind::as_str).join(", ");
    Kind::ALL.into_iter().find(|kind| kind.as_str() == name).ok_or_else(|| format!("give some of: {}", names()))
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if let Some(Part::Load) = args.part {
        load().await?;
        return Ok(ExitCode::SUCCESS);
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error,sendslot_tests=info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(std::io::stderr).init();
    tokio::select! {
        done = run(args) => done,
        // what is dropped is killed
        _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(130)),
    }
}

async fn run(args: Args) -> Result<ExitCode> {
    let torture = std::env::current_exe().context("this program's path")?;
    let beside = torture.clone();
    let worker = tokio::task::spawn_blocking(move || worker_beside(&beside)).await??;
    let programs = Programs { worker, torture };
    let mut violations = 0;
    if args.only.as_deref() == Some(&[Kind::WorkerOutage]) {
        let (before, length) = (Duration::from_secs(10), Duration::from_secs(args.outage_s));
        let outage = Outage { limit: 100, backlog: args.backlog, before, length, programs };
        let report = outage.run().await?;
        say(&if args.json { serde_json::to_string_pretty(&report)? } else { report.to_string() });
        violations = report.report.violations;
    } else {
        for seed in args.seed {
            let length = Duration::from_secs_f64(args.minutes * 60.0);
            let run = Torture {
                length,
                least: 0,
                gap: GAP,
                seed,
                load: args.load,
                only: args.only.clone(),
                programs: programs.clone(),
            };
            let report = run.run().await?;
            say(&if args.json { serde_json::to_string_pretty(&report)? } else { report.to_string() });
            violations += report.violations;
        }
    }
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[allow(clippy::print_stdout)]
fn say(line: &str) {
    println!("{line}");
}
