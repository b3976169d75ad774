//! The head of a campaign on AWS, under a virtual clock: `cargo run --release -p sendslot-tests --bin scale`.
//!
//! Bookings and claims are the real scripts on a real Redis. SQS' timers, the event-source mapping and Lambda's environments are a
//! model (see `model`), since nothing here takes 10,000 messages a second.

mod model;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use model::{Figures, Model, Start};
use sendslot_scheduler::plan::{Plan, PlanInput};
use sendslot_shared::policy::{Headroom, Policy};

/// Simulates the first minute of campaigns at several rates, and prints what becomes of it as a table.
#[derive(Debug, Parser)]
struct Args {
    /// How many seconds of sends are given to the scheduler at one moment.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// A timer ends up to so many milliseconds late.
    #[arg(long, default_value_t = 100)]
    timer_ms: u64,
    /// How long a new environment takes until its first question, milliseconds.
    #[arg(long, default_value_t = 250)]
    cold_start_ms: u64,
    /// How long the provider takes, milliseconds.
    #[arg(long, default_value_t = 50)]
    latency_ms: u64,
    /// What timers are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only rows that contain this.
    #[arg(long)]
    only: Option<String>,
}

/// A campaign.
struct Row {
    budgets: usize,
    limit: u32,
    batch_size: u32,
    window_s: u64,
    lead_ms: u64,
    start: Start,
}

const fn row(budgets: usize, limit: u32, batch_size: u32, window_s: u64, lead_ms: u64, start: Start) -> Row {
    Row { budgets, limit, batch_size, window_s, lead_ms, start }
}

const ROWS: [Row; 16] = [
    row(1, 100, 10, 0, 1_500, Start::Ramp),
    row(1, 100, 100, 1, 2_500, Start::Ramp),
    row(1, 1_000, 10, 0, 1_500, Start::Ramp),
    row(1, 1_000, 10, 0, 11_500, Start::Ramp),
    row(1, 1_000, 10, 0, 1_500, Start::Provisioned),
    row(1, 1_000, 100, 1, 2_500, Start::Ramp),
    row(1, 1_000, 100, 1, 11_500, Start::Ramp),
    row(1, 1_000, 100, 1, 2_500, Start::Provisioned),
    row(1, 1_000, 1_000, 5, 6_500, Start::Ramp),
    row(10, 100, 10, 0, 1_500, Start::Ramp),
    row(10, 100, 100, 1, 2_500, Start::Ramp),
    row(100, 100, 100, 1, 2_500, Start::Ramp),
    row(100, 100, 100, 1, 2_500, Start::Provisioned),
    row(1, 10_000, 100, 1, 2_500, Start::Ramp),
    row(1, 10_000, 100, 1, 2_500, Start::Provisioned),
    row(1, 10_000, 1_000, 5, 6_500, Start::Ramp),
];

impl Row {
    fn name(&self) -> String {
        let window = if self.window_s == 0 { String::new() } else { format!(", {} s", self.window_s) };
        let rate = format!("{} x {}/s", self.budgets, self.limit);
        let start = match self.start {
            Start::Ramp => "5, then +300 a minute".to_owned(),
            Start::Provisioned => format!("provisioned, {} pollers", self.pollers()),
        };
        format!("| {rate} | {}{window} | {:.1} s | {start} |", self.batch_size, self.lead_ms as f64 / 1000.0)
    }

    /// What `plan` says of all budgets together.
    fn plan(&self) -> Plan {
        let limit = self.limit * self.budgets as u32;
        let policy = Policy { lead: Duration::from_millis(self.lead_ms), ..Policy::per_second(limit) };
        let batch_window = Duration::from_secs(self.window_s);
        let input =
            PlanInput { batch_size: self.batch_size, batch_window, ..PlanInput::new(policy, 60 * u64::from(limit)) };
        Plan::new(&input).expect("a plan")
    }

    /// Each carries 10 concurrent invocations.
    fn pollers(&self) -> u64 {
        self.plan().environments.div_ceil(10)
    }

    fn policy(&self) -> Policy {
        Policy {
            lead: Duration::from_millis(self.lead_ms),
            // the earliest slot leaves time for its timer and its batch
            transit: Duration::from_millis(self.lead_ms.saturating_sub(1_250)),
            ..Policy::per_second(self.limit)
        }
    }

    fn model(&self, args: &Args) -> Model {
        let plan = self.plan();
        let concurrency = match self.start {
            // as `plan --parameters` has it
            Start::Ramp => (plan.environments * 2).clamp(2, 1_000),
            Start::Provisioned => self.pollers() * 10,
        };
        Model {
            budgets: self.budgets,
            policy: self.policy(),
            sends: (f64::from(self.limit * args.seconds) * Headroom::DEFAULT.get()) as usize,
            batch_size: self.batch_size as usize,
            window: Duration::from_secs(self.window_s),
            start: self.start,
            concurrency: concurrency as usize,
            timer: Duration::from_millis(args.timer_ms),
            cold_start: Duration::from_millis(args.cold_start_ms),
            latency: Duration::from_millis(args.latency_ms),
            seed: args.seed,
        }
    }
}

#[allow(clippy::print_stdout)]
fn say(line: &str) {
    println!("{line}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    say(
        "| budgets | batch, window | lead | concurrency | environments, by plan | messages a batch | re-booked | until after | drains later by | most in a second | Redis CPU a send |",
    );
    say("|---|---|---|---|---|---|---|---|---|---|---|");
    for row in ROWS {
        let name = row.name();
        if args.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let began = Instant::now();
        let f: Figures = row.model(&args).run().await?;
        say(&format!(
            "{name} {}, {} | {:.0} | {} ({:.1}%) | {:.1} s | {:.2} s | {} of {} | {:.0} us |",
            f.environments,
            row.plan().environments,
            f.messages_a_batch,
            f.rebooked,
            f.rebooked as f64 * 100.0 / f.sends as f64,
            f.rebooked_until.as_secs_f64(),
            f.late.as_secs_f64(),
            f.most,
            row.limit,
            f.redis_us,
        ));
        eprintln_took(began);
    }
    Ok(())
}

#[allow(clippy::print_stderr)]
fn eprintln_took(began: Instant) {
    eprintln!("  {:.0} s", began.elapsed().as_secs_f64());
}
