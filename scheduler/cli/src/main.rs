//! `sendslot`: the command line.

mod args;
mod audit;
mod budget;
mod cancel;
mod config;
mod demo;
mod dlq;
mod doctor;
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
mod settings;
mod shell;
mod status;
mod top;
mod words;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use sendslot_shared::log_filter;
use tracing_subscriber::EnvFilter;

use args::{Args, Command};
use exit::{Exit, Failure};
use settings::Settings;

fn main() -> ExitCode {
    let matches = settings::with_flags(Args::command()).try_get_matches();
    let (args, matches) = match matches.and_then(|matches| Ok((Args::from_arg_matches(&matches)?, matches))) {
        Ok(given) => given,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() };
        }
    };
    // what needs no setting works beside a broken file, too
    let done = match &args.command {
        Command::Completions { shell } => shell::completions(*shell),
        Command::Man(options) => shell::man(options),
        _ => with_settings(args.command, &matches),
    };
    done.map_or_else(Failure::report, ExitCode::from)
}

fn with_settings(command: Command, matches: &clap::ArgMatches) -> Result<Exit, Failure> {
    let settings = Settings::load(matches)?;
    init_tracing(settings.given("log"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(command, &settings))
}

async fn run(command: Command, settings: &Settings) -> Result<Exit, Failure> {
    match command {
        Command::Demo(options) => demo::run(options).await,
        Command::Send(options) => send::run(options, settings).await,
        Command::Budget(command) => budget::run(command, settings).await,
        Command::Status(options) => status::run(options, settings).await,
        Command::Top(options) => top::run(options, settings).await,
        Command::Audit(options) => audit::run(options, settings).await,
        Command::Cancel(options) => cancel::run(options, settings).await,
        Command::Quote(options) => quote::run(options, settings).await,
        Command::Plan(options) => plan::run(&options),
        Command::Serve(options) => serve::run(options, settings).await,
        Command::Receipts => receipts::run(settings).await,
        Command::Key(command) => key::run(command),
        Command::Doctor(options) => doctor::run(options, settings).await,
        Command::Dlq(command) => dlq::run(command, settings).await,
        Command::Local(command) => local::run(command).await,
        Command::Config(options) => config::run(&options, settings),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man(options) => shell::man(&options),
    }
}

/// Logs go to standard error: warnings and above, unless `log` says otherwise (see [`log_filter`]).
fn init_tracing(given: Option<&str>) {
    let quiet = || EnvFilter::new("warn,sendslot_localstack=info,aws_config=error");
    let filter = given.and_then(|text| EnvFilter::try_new(log_filter::directives(text)).ok()).unwrap_or_else(quiet);
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_ansi(colours);
    lines.with_writer(std::io::stderr).init();
}
