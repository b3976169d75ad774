//! What the front door takes: `cargo run --release -p sendslot-tests --bin bench_http`. It ends by itself.
//!
//! Single sends come in an open loop: each at its own instant, whatever became of those before, and its latency counts from that
//! instant on. Batches come as fast as they are answered.

mod cpu;
mod front;
mod load;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use sendslot_http::Coalescing;
use sendslot_localstack::{QueueOptions, Servers, Stack, StackOptions};
use sendslot_shared::budget;
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::Policy;
use sendslot_shared::store::Store;

use cpu::Cpu;
use front::{Counts, Front, FrontArgs};

/// Measures the front door on Redis and LocalStack of its own.
#[derive(Debug, Parser)]
struct Args {
    /// Single sends per second.
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// How long single sends come, seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// How long a single send waits for others to share its calls, milliseconds; a run for each.
    #[arg(long, default_value = "0,2,5,10", value_delimiter = ',')]
    linger_ms: Vec<u64>,
    /// Calls of one budget in flight; a run for each.
    #[arg(long, default_value = "8", value_delimiter = ',')]
    calls: Vec<usize>,
    /// Batches.
    #[arg(long, default_value_t = 300)]
    batches: u32,
    /// Sends of a batch.
    #[arg(long, default_value_t = 100)]
    batch_size: u32,
    /// Batches at once.
    #[arg(long, default_value_t = 4)]
    callers: u32,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// The server of a run.
    #[command(hide = true)]
    Front(FrontArgs),
}

#[allow(clippy::print_stdout)]
fn say(line: &str) {
    println!("{line}");
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if let Some(Part::Front(options)) = args.part {
        front::run(options).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let stack = Stack::start(StackOptions { servers: Servers::Own, ..StackOptions::default() }).await?;
    let queues = stack.create_queues("bench-http", QueueOptions::default()).await?;
    let store = Store::new(&stack.redis_url())?;
    let policy = Policy { horizon: Duration::from_secs(14 * 86_400), ..Policy::per_second(100_000) };
    budget::set(&store, &BudgetName::new("bench")?, &policy).await?;
    let mut environment = stack.environment();
    environment.push(("SENDSLOT_QUEUE_URL".to_owned(), queues.queue_url.clone()));
    say("LocalStack answers with one Python thread: at about 100% of a core it is what bounds the rest\n");
    let kinds = args.calls.iter().flat_map(|calls| args.linger_ms.iter().map(move |linger_ms| (*linger_ms, *calls)));
    for (run, (linger_ms, calls)) in kinds.enumerate() {
        let front = Front::start(&environment, linger_ms, calls).await?;
        say(&format!(
            "{} single sends/s for {} s, linger {linger_ms} ms, {calls} calls at once",
            args.rate, args.seconds
        ));
        let watch = Watch::begin(&front).await?;
        let singles = load::singles(&front, run as u64, args.rate, args.seconds).await?;
        watch.end(&front, args.rate * args.seconds).await?;
        let latencies = &singles.accepted;
        if let Some(first) = &singles.first_refusal {
            say(&format!("  {} of {} refused: {first}", singles.refused, args.rate * args.seconds));
        }
        let ms = |share: f64| {
            let index = ((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1));
            latencies.get(index).map_or(f64::NAN, |us| *us as f64 / 1000.0)
        };
        let held = if ms(0.99) < 50.0 && singles.refused == 0 { "held" } else { "missed" };
        let (p50, p99, max) = (ms(0.5), ms(0.99), ms(1.0));
        say(&format!(
            "  accepted in p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms (aim: p99 under 50 ms: {held})\n"
        ));
    }
    let default = Coalescing::default();
    let front = Front::start(&environment, default.linger.as_millis() as u64, default.calls).await?;
    let (batches, size) = (args.batches, args.batch_size);
    say(&format!("{batches} batches of {size}, {} at once", args.callers));
    let (watch, began) = (Watch::begin(&front).await?, Instant::now());
    load::batches(&front, batches, size, args.callers).await?;
    let per_second = f64::from(batches * size) / began.elapsed().as_secs_f64();
    let bound = watch.end(&front, batches * size).await?;
    let held = if per_second >= 10_000.0 { "held".to_owned() } else { format!("missed: {bound}") };
    say(&format!("  {per_second:.0} sends/s (aim: 10,000: {held})"));
    drop(front);
    stack.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// What is used up during a run.
struct Watch {
    began: Instant,
    counts: Counts,
    cpu: Cpu,
}

impl Watch {
    async fn begin(front: &Front) -> Result<Self> {
        Ok(Self { counts: front.counts().await?, cpu: Cpu::now(), began: Instant::now() })
    }

    /// Prints it, and says what bounds more.
    async fn end(self, front: &Front, sends: u32) -> Result<String> {
        let wall = self.began.elapsed().as_secs_f64();
        let counts = front.counts().await?.since(&self.counts).context("counters that fall")?;
        let shares = Cpu::now().since(&self.cpu);
        let per = |total: f64, n: u64| total / (n.max(1) as f64);
        say(&format!(
            "  Redis: {} calls for {:.1} sends each, {:.2} ms a call, {:.2} in flight",
            counts.reserve_calls,
            per(f64::from(sends), counts.reserve_calls),
            per(counts.reserve_s * 1000.0, counts.reserve_calls),
            counts.reserve_s / wall
        ));
        say(&format!(
            "  SQS: {} calls of {:.1} messages each, {:.2} ms a call, {:.2} in flight",
            counts.enqueue_calls,
            per(counts.enqueued as f64, counts.enqueue_calls),
            per(counts.enqueue_s * 1000.0, counts.enqueue_calls),
            counts.enqueue_s / wall
        ));
        let share = |name: &str| shares.get(name).copied().unwrap_or(0.0) / wall * 100.0;
        let (sqs, redis, own, load) = (share("python"), share("redis"), share("front"), share("load"));
        say(&format!("  CPU, % of a core: LocalStack {sqs:.0}, Redis {redis:.0}, front door {own:.0}, load {load:.0}"));
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        Ok(if sqs > 85.0 {
            format!("LocalStack's thread is busy for {sqs:.0}% of a core")
        } else if sqs + redis + own + load > 85.0 * cores {
            format!("all {cores} cores are busy, LocalStack with {sqs:.0}% of one")
        } else {
            format!("each SQS call takes {:.1} ms", per(counts.enqueue_s * 1000.0, counts.enqueue_calls))
        })
    }
}
