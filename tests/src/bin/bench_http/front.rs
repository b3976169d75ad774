//! The server, as a process of its own: this program with another argument.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sendslot_http::{Coalescing, Options, Server};
use sendslot_scheduler::Scheduler;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

#[derive(Debug, clap::Args)]
pub(crate) struct FrontArgs {
    linger_ms: u64,
    calls: usize,
}

/// What the server's scheduler has done.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) reserve_calls: u64,
    pub(crate) reserve_s: f64,
    pub(crate) enqueued: u64,
    pub(crate) enqueue_calls: u64,
    pub(crate) enqueue_s: f64,
}

impl Counts {
    pub(crate) fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            reserve_calls: self.reserve_calls.checked_sub(before.reserve_calls)?,
            reserve_s: self.reserve_s - before.reserve_s,
            enqueued: self.enqueued.checked_sub(before.enqueued)?,
            enqueue_calls: self.enqueue_calls.checked_sub(before.enqueue_calls)?,
            enqueue_s: self.enqueue_s - before.enqueue_s,
        })
    }
}

/// Serves until it is killed; `/metrics` gives the counters.
pub(crate) async fn run(args: FrontArgs) -> Result<()> {
    let scheduler = Scheduler::from_env().await?;
    let counters = scheduler.clone();
    let metrics = move || {
        let counters = counters.counters();
        let counts = Counts {
            reserve_calls: counters.reserve_calls,
            reserve_s: counters.reserve_time.as_secs_f64(),
            enqueued: counters.enqueued,
            enqueue_calls: counters.enqueue_calls,
            enqueue_s: counters.enqueue_time.as_secs_f64(),
        };
        serde_json::to_string(&counts).unwrap_or_default()
    };
    let coalescing = Coalescing { linger: Duration::from_millis(args.linger_ms), calls: args.calls };
    let options = Options { metrics: Some(Arc::new(metrics)), coalescing, ..Options::default() };
    let server = Server::bind("127.0.0.1:0".parse()?).await?;
    crate::say(&format!("http://{}", server.address()));
    let app = sendslot_http::app(scheduler, options);
    server.run(app.clone(), sendslot_http::router(app), std::future::pending()).await;
    Ok(())
}

/// A running server; killed when dropped.
pub(crate) struct Front {
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
    _child: Child,
}

impl Front {
    pub(crate) async fn start(environment: &[(String, String)], linger_ms: u64, calls: usize) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("front").arg(linger_ms.to_string()).arg(calls.to_string());
        command.envs(environment.iter().cloned()).kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("the server")?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let url = lines.next_line().await?.context("the server ended")?;
        Ok(Self { url, client: reqwest::Client::new(), _child: child })
    }

    pub(crate) async fn counts(&self) -> Result<Counts> {
        let text = self.client.get(format!("{}/metrics", self.url)).send().await?.text().await?;
        serde_json::from_str(&text).context(text)
    }
}
