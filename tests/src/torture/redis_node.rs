//! A Redis with an append-only file, whose state can be lost in part or in whole.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::guarded::Guarded;
use super::journal::now_us;

const START_LIMIT: Duration = Duration::from_secs(10);

/// How big the append-only file was, and when.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at_us: u64,
    bytes: u64,
}

/// A private Redis on a fixed loopback port.
///
/// Its append-only file is written before each reply (`appendfsync no`), so that a killed process loses nothing: what a dead
/// machine would lose is cut from the file, and so it is known to the instant what was lost.
#[derive(Debug)]
pub(super) struct RedisNode {
    program: PathBuf,
    directory: TempDir,
    port: u16,
    process: Option<Guarded>,
    samples: Vec<Sample>,
}

impl RedisNode {
    pub(super) async fn start() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("sendslot-torture-").tempdir()?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let program = tokio::task::spawn_blocking(program).await??;
        let mut node = Self { program, directory, port, process: None, samples: vec![] };
        node.run().await?;
        Ok(node)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts the server on what its directory holds, and waits until it serves.
    pub(super) async fn run(&mut self) -> Result<()> {
        let data = self.data();
        std::fs::create_dir_all(&data)?;
        let settings = format!(
            "--port {} --bind 127.0.0.1 --appendonly yes --appendfsync no --auto-aof-rewrite-percentage 0 \
             --maxmemory-policy noeviction",
            self.port
        );
        let mut arguments: Vec<String> = settings.split(' ').map(str::to_owned).collect();
        arguments.extend(["--save", "", "--dir", &*data.to_string_lossy()].map(str::to_owned));
        let log = self.directory.path().join("log");
        self.process = Some(Guarded::start(&self.program, &arguments, &log)?);
        let limit = Instant::now() + START_LIMIT;
        while !serves(self.port).await {
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            ensure!(Instant::now() < limit, "Redis does not serve: {}", said());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    pub(super) fn kill(&mut self) {
        drop(self.process.take());
    }

    pub(super) fn signal(&self, signal: &str) -> Result<()> {
        self.process.as_ref().context("Redis runs")?.signal(signal)
    }

    /// Notes how big the append-only file is: a state that can be returned to.
    pub(super) fn sample(&mut self) {
        if let Some(bytes) = self.log_file().and_then(|file| Some(std::fs::metadata(file).ok()?.len())) {
            self.samples.push(Sample { at_us: now_us(), bytes });
        }
    }

    /// Takes the data of a dead server back to what it was about then. Answers the instant that it is back at.
    pub(super) fn rewind_to(&mut self, then_us: u64) -> Result<u64> {
        let place = self.samples.iter().rposition(|sample| sample.at_us <= then_us).unwrap_or(0);
        let sample = *self.samples.get(place).context("a state to return to")?;
        let file = self.log_file().context("an append-only file")?;
        std::fs::OpenOptions::new().write(true).open(file)?.set_len(sample.bytes)?;
        self.samples.truncate(place + 1);
        Ok(sample.at_us)
    }

    /// Takes all data of a dead server.
    pub(super) fn wipe(&mut self) -> Result<()> {
        self.samples.clear();
        Ok(std::fs::remove_dir_all(self.data())?)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn log_file(&self) -> Option<PathBuf> {
        let entries = std::fs::read_dir(self.data().join("appendonlydir")).ok()?;
        let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        files.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max()
    }
}

/// The server that `SENDSLOT_REDIS_SERVER` names, else the one on the PATH, else the bundled one.
fn program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("SENDSLOT_REDIS_SERVER") {
        return Ok(program.into());
    }
    let on_path = Path::new("redis-server");
    let version = Command::new(on_path).arg("--version").output();
    let fits = version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("v=7."));
    if fits { Ok(on_path.to_owned()) } else { Ok(sendslot_localstack::bundled_redis()?) }
}

/// Answers, and has loaded its data.
async fn serves(port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply).await?;
        std::io::Result::Ok(reply)
    };
    matches!(tokio::time::timeout(Duration::from_secs(1), ask).await, Ok(Ok(reply)) if &reply == b"+PONG")
}
