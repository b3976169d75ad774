//! `sendslot-worker`: the ready-made Lambda function. It posts each send's payload to a configured URL at its slot.
//!
//! Environment: see `HttpConfig::from_env` and `WorkerConfig::from_env`.

use sendslot_shared::log_filter;
use sendslot_worker::{HttpConfig, HttpProvider, RunError};
use tracing_subscriber::EnvFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    init_tracing();
    match start().await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "worker stopped");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn start() -> Result<(), RunError> {
    let provider = HttpProvider::new(HttpConfig::from_env()?)?;
    sendslot_worker::run(provider).await
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
