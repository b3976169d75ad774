//! What the command line takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use sendslot_http::keys::Role;
use sendslot_scheduler::plan::Prices;
use sendslot_shared::limits::{Adaptive, Lane, Quota, RampStep};
use sendslot_shared::time::Instant;

use crate::dlq::DlqCommand;
use crate::doctor::DoctorArgs;
use crate::instant;
use crate::policy_text::{self, Given, duration, whole_ms, whole_s};

const EXIT_CODES: &str = "Exit codes:
  0  all done
  1  Redis, SQS or the machine would not; nothing is lost, try again
  2  the command or its input is not one
  3  some messages were not accepted (each is named on standard error), the others were; or it is too late to cancel;
     or an audit found the limit exceeded
  4  the budget, the send or the dead letter is unknown
  doctor: 1 an error was found, 3 a warning, 0 neither

Each setting is its flag, else its environment variable, else what the TOML file says: `sendslot config` shows which.
AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID … as usual for AWS.";

const AUDIT: &str = "\
Each report of a call that was made notes the millisecond in which it began, by Redis' clock; that is kept for a day (for less above 194
units a second). Not noted are calls of workers that died before they reported, and failed calls that were reported after their lease had ended: the
guard at the claim bounds those as well. A Redis that stalled heard reports late and noted their calls late. The limit is the policy's as it is
now.

Exit code 3 says that a window surely held more than the limit.";

/// Schedules sends under a shared provider limit.
#[derive(Debug, Parser)]
#[command(name = "sendslot", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the main job on a local stack that it sets up itself: a burst becomes a schedule.
    Demo(DemoArgs),
    /// Schedule the messages of a JSONL file; running it again is safe.
    Send(SendArgs),
    /// Set, show, list, pause and resume budgets.
    #[command(subcommand)]
    Budget(BudgetCommand),
    /// What is known of a budget, or of one of its sends and how it got there.
    Status(StatusArgs),
    /// Watch budgets in the terminal: calendar, calls against the limit, backlog; pause and resume them.
    Top(TopArgs),
    /// Take a send back that no worker has claimed; asking again is safe.
    Cancel(CancelArgs),
    /// When so many sends would leave if they were offered now. Nothing is booked.
    Quote(QuoteArgs),
    /// Whether the limit held, by the calls that workers reported: the largest rolling window, utilisation, a plot.
    #[command(after_help = AUDIT)]
    Audit(AuditArgs),
    /// Work out what a burst will take: time, hops, workers, cost. Needs no Redis and no AWS.
    Plan(PlanArgs),
    /// Schedule sends for programs in any language: the HTTP front door.
    Serve(ServeArgs),
    /// Read what providers say became of sends, as `serve` took it, and record it; `serve` does so itself.
    Receipts,
    /// API keys of the front door.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Check the deployment against what the code relies on, each finding with its remedy.
    Doctor(DoctorArgs),
    /// What could not be sent: list, show, book again, delete.
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// A stack for development: Redis and LocalStack.
    #[command(subcommand)]
    Local(LocalCommand),
    /// All settings with their values, and where each comes from.
    Config(ConfigArgs),
    /// Print what completes this command in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page.
    Man(ManArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Only put receipts on their queue; `sendslot receipts` reads it elsewhere.
    #[arg(long)]
    pub(crate) no_receipts_mapper: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory instead.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key: shows it once, on standard error, and prints the lines for the configuration, which hold its hash alone.
    New {
        /// Whose it is: for logs.
        name: String,
        /// A budget that it may use, or the beginning of names and a `*`. Again for each [default: *].
        #[arg(long, value_name = "BUDGET")]
        budget: Vec<String>,
        /// What it may do: send (and cancel), read, manage (budgets). Again for each [default: send and read].
        #[arg(long)]
        role: Vec<Role>,
        /// Requests per second; as many may come at once [default: no limit].
        #[arg(long)]
        rate: Option<f64>,
        /// One JSON document on standard output, and nothing else.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    /// The budget that the messages are charged to.
    #[arg(long)]
    pub(crate) budget: String,
    /// The lane of lines that name none.
    #[arg(long)]
    pub(crate) lane: Option<String>,
    /// Messages, one JSON object a line: id, payload, optional cost, lane, recipient, not_before, deadline (RFC 3339).
    /// `-` reads standard input.
    pub(crate) file: PathBuf,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// Set a budget's policy; what is not given stays as it is, or takes its default.
    Set(Box<BudgetSetArgs>),
    /// Show a budget's policy, in a form that can be pasted.
    Get {
        /// The budget.
        name: String,
        /// One JSON document on standard output, and nothing else.
        #[arg(long)]
        json: bool,
    },
    /// List all budgets with their policies, each in a form that can be pasted.
    List {
        /// One JSON document on standard output, and nothing else.
        #[arg(long)]
        json: bool,
    },
    /// Stop a budget's sends; what is booked meanwhile is booked again when the pause is over.
    Pause {
        /// The budget.
        name: String,
        /// For so long [default: until it is resumed].
        #[arg(long = "for", value_name = "TIME", value_parser = duration)]
        rest: Option<Duration>,
        /// One JSON document on standard output, and nothing else.
        #[arg(long)]
        json: bool,
    },
    /// Let a paused budget go on.
    Resume {
        /// The budget.
        name: String,
        /// One JSON document on standard output, and nothing else.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct BudgetSetArgs {
    /// The budget: 1 to 64 characters of a-z 0-9 . _ -
    pub(crate) name: String,
    /// What is not given takes its default instead of staying as it is.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Units that the provider takes in any `per`.
    #[arg(long)]
    pub(crate) limit: Option<u32>,
    /// The window of the limit [default: 1s].
    #[arg(long, value_parser = whole_ms)]
    pub(crate) per: Option<Duration>,
    /// The part of the limit that is scheduled, above 0 and at most 1 [default: 0.97].
    #[arg(long)]
    pub(crate) headroom: Option<f64>,
    /// What may vary between the verdict and the call's arrival at the provider; `none` for the default [default: 0.6 of what the
    /// headroom buys, (1 - headroom) / headroom x per, 50ms at most].
    #[arg(long, value_name = "TIME", value_parser = or_none(policy_text::whole_ms))]
    pub(crate) jitter: Option<Given<Duration>>,
    /// The earliest slot offered is this far ahead [default: 250ms].
    #[arg(long, value_parser = whole_ms)]
    pub(crate) transit: Option<Duration>,
    /// Messages show up 0 to 1 s more than this before their slot [default: 1500ms].
    #[arg(long, value_parser = whole_ms)]
    pub(crate) lead: Option<Duration>,
    /// The furthest slot offered, at most 14 days [default: 24h].
    #[arg(long, value_parser = whole_s)]
    pub(crate) horizon: Option<Duration>,
    /// How long a send's end is remembered past its slot [default: 24h].
    #[arg(long, value_parser = whole_s)]
    pub(crate) dedup_ttl: Option<Duration>,
    /// The largest cost of one send; above the limit it says that the provider takes that. `none`: the limit, and what
    /// ramp and quotas hold.
    #[arg(long, value_name = "UNITS", value_parser = or_none(policy_text::units))]
    pub(crate) max_cost: Option<Given<u32>>,
    /// Provider calls for one send before it is dead-lettered [default: 5].
    #[arg(long)]
    pub(crate) max_attempts: Option<u8>,
    /// What an outcome that nobody knows leads to [default: park].
    #[arg(long)]
    pub(crate) on_unknown: Option<OnUnknownArg>,
    /// A priority class: otp:reserved=20%,max-wait=30s,preempts, or its name alone. Again for each; `none` clears them.
    #[arg(long, value_name = "LANE", value_parser = or_none(policy_text::lane))]
    pub(crate) lane: Vec<Given<Lane>>,
    /// A further limit in fixed windows of UTC: 50000/24h, or of local time so far ahead of it: 50000/24h@+1h. Again for
    /// each; `none` clears them.
    #[arg(long, value_name = "UNITS/WINDOW", value_parser = or_none(policy_text::quota))]
    pub(crate) quota: Vec<Given<Quota>>,
    /// The least time between two sends to one recipient; `none` clears it.
    #[arg(long, value_name = "TIME", value_parser = or_none(policy_text::whole_ms))]
    pub(crate) spacing: Option<Given<Duration>>,
    /// Another limit from an instant on: 2026-12-01T00:00:00Z=200. Again for each, ascending; `none` clears them.
    #[arg(long, value_name = "INSTANT=UNITS", value_parser = or_none(policy_text::ramp_step))]
    pub(crate) ramp: Vec<Given<RampStep>>,
    /// The rate follows what the provider takes, down to a floor, up to a ceiling [default: the limit], in the limit's
    /// units: 20, or 20..80. `none` clears it.
    #[arg(long, value_name = "FLOOR[..CEILING]", value_parser = or_none(policy_text::adaptive))]
    pub(crate) adaptive: Option<Given<Adaptive>>,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OnUnknownArg {
    /// Dead-letter it: never sent twice.
    Park,
    /// Send it again with the same idempotency key.
    Resend,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// The budget.
    pub(crate) budget: String,
    /// A send ID; without it, the budget's own status.
    pub(crate) id: Option<String>,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// These budgets alone [default: all].
    #[arg(value_name = "BUDGET")]
    pub(crate) budgets: Vec<String>,
    /// Print one picture as text and end.
    #[arg(long)]
    pub(crate) once: bool,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// The budget.
    pub(crate) budget: String,
    /// The send ID.
    pub(crate) id: String,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QuoteArgs {
    /// The budget that the sends would be charged to.
    #[arg(long)]
    pub(crate) budget: String,
    /// The lane inside the budget [default: default].
    #[arg(long)]
    pub(crate) lane: Option<String>,
    /// Units of each send.
    #[arg(long, default_value_t = 1)]
    pub(crate) cost: u32,
    /// The earliest instant: RFC 3339, or local time with a zone in brackets.
    #[arg(long, value_name = "INSTANT", value_parser = instant::redis_time)]
    pub(crate) not_before: Option<Instant>,
    /// How many sends.
    pub(crate) sends: u32,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// The budget.
    pub(crate) budget: String,
    /// So far back from the end.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1h")]
    pub(crate) since: Duration,
    /// From this instant on: RFC 3339, or local time with a zone in brackets.
    #[arg(long, value_name = "INSTANT", value_parser = instant::redis_time, conflicts_with = "since")]
    pub(crate) from: Option<Instant>,
    /// Until before this instant [default: now].
    #[arg(long, value_name = "INSTANT", value_parser = instant::redis_time)]
    pub(crate) to: Option<Instant>,
    /// Write a plot of the units in each rolling window to this SVG file.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// Sends that are scheduled at one moment.
    #[arg(long)]
    pub(crate) burst: u64,
    /// Units that the provider takes in any `per`.
    #[arg(long)]
    pub(crate) limit: u32,
    /// The window of the limit.
    #[arg(long, value_parser = duration, default_value = "1s")]
    pub(crate) per: Duration,
    /// The part of the limit that is scheduled, above 0 and at most 1.
    #[arg(long, default_value_t = sendslot_shared::policy::Headroom::DEFAULT.get())]
    pub(crate) headroom: f64,
    /// Units of each send.
    #[arg(long, default_value_t = 1)]
    pub(crate) units: u32,
    /// The largest cost of one send; above the limit it says that the provider takes that [default: the limit].
    #[arg(long)]
    pub(crate) max_cost: Option<u32>,
    /// How long the provider takes to answer.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(..=900_000))]
    pub(crate) latency_ms: u64,
    /// Messages per invocation of the worker; above 10 with a batch window of at least 1s.
    #[arg(long, default_value_t = 10)]
    pub(crate) batch_size: u32,
    /// How long a batch is gathered.
    #[arg(long, value_parser = duration, default_value = "0s")]
    pub(crate) batch_window: Duration,
    /// Messages show up 0 to 1 s more than this before their slot [default: 1500ms, plus the batch window].
    #[arg(long, value_parser = duration)]
    pub(crate) lead: Option<Duration>,
    /// The earliest slot offered is this far ahead [default: 250ms, plus the batch window].
    #[arg(long, value_parser = duration)]
    pub(crate) transit: Option<Duration>,
    /// The furthest slot offered, at most 14 days.
    #[arg(long, value_parser = duration, default_value = "24h")]
    pub(crate) horizon: Duration,
    /// Bytes of each send's payload.
    #[arg(long, default_value_t = 1024)]
    pub(crate) payload_bytes: usize,
    /// What it costs in dollars, with the effect of batch size, lead and hops. Prices are those of us-east-1 in 2026-11 without free
    /// allowances, unless given.
    #[arg(long)]
    pub(crate) cost: bool,
    /// A worker's memory, MB.
    #[arg(long, default_value_t = 256)]
    pub(crate) memory_mb: u32,
    /// Dollars per million requests of a standard queue.
    #[arg(long, default_value_t = Prices::US_EAST_1.sqs_million_requests)]
    pub(crate) sqs_price: f64,
    /// Dollars per GB-second of Lambda on arm64.
    #[arg(long, default_value_t = Prices::US_EAST_1.lambda_gb_second)]
    pub(crate) lambda_price: f64,
    /// Dollars per million Lambda invocations.
    #[arg(long, default_value_t = Prices::US_EAST_1.lambda_million_requests)]
    pub(crate) lambda_request_price: f64,
    /// Dollars per hour of Redis [default: two nodes of cache.t4g.small].
    #[arg(long, default_value_t = Prices::US_EAST_1.redis_hour)]
    pub(crate) redis_price: f64,
    /// Only what infra/template.yaml is deployed with: parameters of its bulk lanes, for --parameter-overrides.
    #[arg(long, conflicts_with_all = ["json", "cost"])]
    pub(crate) parameters: bool,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LocalCommand {
    /// Start Redis and LocalStack, create the queues, print the exports. They stay until `local down`.
    Up {
        /// How often LocalStack looks for messages whose delay has ended.
        #[arg(long, default_value = "fast")]
        tick: TickArg,
        /// One JSON document on standard output, and nothing else.
        #[arg(long)]
        json: bool,
    },
    /// Stop them.
    Down {
        /// One JSON document on standard output, and nothing else.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TickArg {
    /// Every 20 ms.
    Fast,
    /// Every second, as LocalStack comes.
    Stock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WindowArg {
    /// In any rolling second.
    Rolling,
    /// In each calendar second.
    Fixed,
    /// Sends at least 1/limit apart.
    Spacing,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Messages in the burst.
    #[arg(long, default_value_t = 1000, conflicts_with = "input")]
    pub(crate) burst: usize,
    /// The provider's limit, units per second.
    #[arg(long, default_value_t = 100)]
    pub(crate) limit: u32,
    /// The part of the limit that is scheduled.
    #[arg(long, default_value_t = sendslot_shared::policy::Headroom::DEFAULT.get())]
    pub(crate) headroom: f64,
    /// How long the provider takes to answer.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(..=15_000))]
    pub(crate) latency_ms: u64,
    /// How the provider counts its limit.
    #[arg(long, default_value = "rolling")]
    pub(crate) window: WindowArg,
    /// Messages of a JSONL file instead of a burst.
    #[arg(long)]
    pub(crate) input: Option<PathBuf>,
    /// Post to this URL instead of the strict provider.
    #[arg(long)]
    pub(crate) provider_url: Option<String>,
    /// The burst is for later: nothing leaves before this is over (a local SQS takes some 1,000 messages a second).
    #[arg(long, value_parser = duration, conflicts_with = "input")]
    pub(crate) start_in: Option<Duration>,
    /// The share of calls that the provider answers with 500.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) inject_500: f64,
    /// The share of calls that the provider answers with 429.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) inject_429: f64,
    /// Messages per invocation of the worker [default: 10, above 300/s 100].
    #[arg(long)]
    pub(crate) batch_size: Option<usize>,
    /// How long a batch is gathered [default: 0s, above 300/s 1s].
    #[arg(long, value_parser = duration)]
    pub(crate) batch_window: Option<Duration>,
    /// The most environments (concurrent invocations) of the worker.
    #[arg(long, default_value_t = 200)]
    pub(crate) max_environments: usize,
    /// Let environments come as on AWS: 5 at first and 300 more a minute.
    #[arg(long)]
    pub(crate) ramp: bool,
    /// How long before its slot a message shows up at least [default: 1500ms, plus the batch window].
    #[arg(long, value_parser = duration)]
    pub(crate) lead: Option<Duration>,
    /// How often LocalStack looks for messages whose delay has ended.
    #[arg(long, default_value = "fast")]
    pub(crate) tick: TickArg,
    /// Append what the workers log to this file, debug level included.
    #[arg(long)]
    pub(crate) worker_log: Option<PathBuf>,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A parser that also takes `none`.
fn or_none<T: 'static>(
    parse: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Given<T>, String> + Clone + Send + Sync + 'static {
    move |text| Given::read(text, parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
