//! `sendslot-worker`: the ready-made Lambda function. It posts each send's payload to a configured URL at its slot.
//! `sendslot-worker poll` is the same as a long-lived process.
//!
//! Environment: see `HttpConfig::from_env`, `WorkerConfig::from_env` and `PollConfig::from_env`.

use std::io::Write;
use std::process::ExitCode;

use sendslot_shared::log_filter;
use sendslot_worker::{HttpConfig, HttpProvider, RunError};
use tracing_subscriber::EnvFilter;

const USAGE: &str = "\
Makes each send's provider call at its slot. Settings are environment variables: see the README.

Usage: sendslot-worker        as a Lambda function
       sendslot-worker poll   as a long-lived process that polls the queue until SIGTERM
       sendslot-worker --help | --version
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let poll = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["poll"] => true,
        ["--help" | "-h"] => return print(&mut std::io::stdout(), USAGE, ExitCode::SUCCESS),
        ["--version" | "-V"] => {
            let version = concat!("sendslot-worker ", env!("CARGO_PKG_VERSION"), "\n");
            return print(&mut std::io::stdout(), version, ExitCode::SUCCESS);
        }
        _ => return print(&mut std::io::stderr(), USAGE, ExitCode::from(2)),
    };
    init_tracing();
    match start(poll).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "worker stopped");
            ExitCode::FAILURE
        }
    }
}

fn print(to: &mut dyn Write, text: &str, code: ExitCode) -> ExitCode {
    // a reader that went away is not an error
    let _ = to.write_all(text.as_bytes());
    code
}

async fn start(poll: bool) -> Result<(), RunError> {
    let provider = HttpProvider::new(HttpConfig::from_env()?)?;
    if poll { sendslot_worker::run_polling(provider).await } else { sendslot_worker::run(provider).await }
}

/// `AWS_LAMBDA_LOG_LEVEL` (else `RUST_LOG`, else info), see [`log_filter`]; `AWS_LAMBDA_LOG_FORMAT=JSON`.
fn init_tracing() {
    let level = std::env::var("AWS_LAMBDA_LOG_LEVEL").or_else(|_| std::env::var("RUST_LOG")).unwrap_or_default();
    let filter = EnvFilter::try_new(log_filter::directives(&level));
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(log_filter::directives("")));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(std::io::stderr);
    if std::env::var("AWS_LAMBDA_LOG_FORMAT").is_ok_and(|f| f.eq_ignore_ascii_case("json")) {
        builder.json().init();
    } else {
        builder.with_ansi(false).init();
    }
}
