//! What `sendslot dlq` takes.

use std::time::Duration;

use clap::Subcommand;

use super::letter::reason;
use crate::policy_text::duration;

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List dead letters, without their payloads.
    List(ListArgs),
    /// Show the dead letters of one send.
    Show(ShowArgs),
    /// Book dead letters anew and put them on the queue: new slots at the budget's pace. Running it again is safe.
    Redrive(RedriveArgs),
    /// Delete dead letters.
    Purge(PurgeArgs),
}

/// Which dead letters.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Filters {
    /// Only of this budget.
    #[arg(long)]
    pub(crate) budget: Option<String>,
    /// Only of this lane.
    #[arg(long)]
    pub(crate) lane: Option<String>,
    /// Only of this send ID, or of this SQS message ID.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Only those that ended for this reason. Again for each.
    #[arg(long, value_parser = reason)]
    pub(crate) reason: Vec<String>,
    /// Only those that are dead for longer than this.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) older_than: Option<Duration>,
    /// Only those that are dead for less than this.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) newer_than: Option<Duration>,
    /// At most so many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Reading {
    /// What is looked at is hidden from others until the command ends, and at most for this, should the command be killed.
    #[arg(long, value_name = "TIME", value_parser = hidden, default_value = "5m")]
    pub(crate) visibility: Duration,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// A send ID, or an SQS message ID.
    pub(crate) id: String,
    /// Only of this budget.
    #[arg(long)]
    pub(crate) budget: Option<String>,
    /// The payload as well.
    #[arg(long)]
    pub(crate) payload: bool,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RedriveArgs {
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Those as well of which nobody knows whether they were sent: they may be sent a second time.
    #[arg(long)]
    pub(crate) resend_unknown: bool,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Delete them; without it they are counted.
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

/// A visibility timeout: whole seconds, 1 s to 12 h (SQS).
fn hidden(text: &str) -> Result<Duration, String> {
    let given = duration(text)?;
    let taken = Duration::from_secs(1)..=Duration::from_secs(12 * 3600);
    if given.subsec_nanos() == 0 && taken.contains(&given) {
        Ok(given)
    } else {
        Err("give whole seconds, 1s to 12h".to_owned())
    }
}
