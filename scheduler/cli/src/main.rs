//! `sendslot`: the command line.

mod args;
mod audit;
mod budget;
mod cancel;
mod demo;
mod dlq;
mod exit;
mod history;
mod instant;
mod jsonl;
mod key;
mod local;
mod output;
mod plan;
mod policy_json;
mod policy_text;
mod quote;
mod receipts;
mod send;
mod serve;
mod status;
mod words;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser as _;
use sendslot_shared::log_filter;
use tracing_subscriber::EnvFilter;

use args::{Args, Command};
use exit::{Exit, Failure};

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() };
        }
    };
    init_tracing();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::from(anyhow::Error::from(error)).report(),
    };
    runtime.block_on(run(args.command)).unwrap_or_else(Failure::report)
}

async fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Demo(options) => demo::run(options).await,
        Command::Send(options) => send::run(options).await,
        Command::Budget(command) => budget::run(command).await,
        Command::Status(options) => status::run(options).await,
        Command::Cancel(options) => cancel::run(options).await,
        Command::Audit(options) => audit::run(options).await,
        Command::Quote(options) => quote::run(options).await,
        Command::Plan(options) => plan::run(&options),
        Command::Serve(options) => serve::run(options).await,
        Command::Receipts(options) => receipts::run(options).await,
        Command::Key(command) => key::run(command),
        Command::Dlq(command) => dlq::run(command).await,
        Command::Local(command) => local::run(command).await,
    }
    .map(ExitCode::from)
}

/// Logs go to standard error: warnings and above, unless RUST_LOG says otherwise (see [`log_filter`]).
fn init_tracing() {
    let quiet = || EnvFilter::new("warn,sendslot_localstack=info,aws_config=error");
    let given = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = given.and_then(|text| EnvFilter::try_new(log_filter::directives(&text)).ok()).unwrap_or_else(quiet);
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_ansi(colours);
    lines.with_writer(std::io::stderr).init();
}
