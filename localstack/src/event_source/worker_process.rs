//! A worker process that never outlives us.
//!
//! The worker runs below a guardian shell whose standard input is a pipe that we hold. When the pipe closes, because
//! we say so or because this process was killed, the shell kills the worker. The other way round, the end of
//! the worker's output tells us that it is gone; then we close the pipe and the shell reports how it ended.

use std::io::{self, PipeWriter};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

use super::log::Log;

/// The shell closes its copy of the output, so that the output ends with the worker.
const GUARDIAN: &str = r#""$@" </dev/null 2>&1 & worker=$!
exec >&- 2>&-
read -r _
kill -9 $worker
wait $worker"#;

/// What to run.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub(super) path: &'a std::path::Path,
    pub(super) environment: Vec<(String, String)>,
    pub(super) number: u64,
}

/// A running worker; killed when dropped.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    kill_switch: KillSwitch,
    exit: watch::Receiver<Option<String>>,
}

/// Kills the worker when it is thrown, or when the last copy is dropped.
#[derive(Debug, Clone)]
pub(super) struct KillSwitch(Arc<Mutex<Option<PipeWriter>>>);

impl KillSwitch {
    pub(super) fn throw(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl WorkerProcess {
    /// Starts the worker in a process group of its own: an interrupt at the terminal must not reach it.
    pub(super) fn start(program: Program<'_>, log: Arc<Log>) -> io::Result<Self> {
        let (guard, ours) = io::pipe()?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(GUARDIAN).arg("guardian").arg(program.path);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs(program.environment).process_group(0);
        command.stdin(guard).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let output = child.stdout.take();
        let kill_switch = KillSwitch(Arc::new(Mutex::new(Some(ours))));
        let (report, exit) = watch::channel(None);
        let switch = kill_switch.clone();
        // Not tied to the event source's end: it reaps the shell.
        tokio::spawn(async move {
            copy_lines(output, program.number, &log).await;
            switch.throw();
            report.send_replace(Some(wait(child).await));
        });
        Ok(Self { kill_switch, exit })
    }

    /// Waits until the worker is gone and says how it ended.
    pub(super) async fn exited(&mut self) -> String {
        match self.exit.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => "nobody waits for it any more".to_owned(),
        }
    }

    pub(super) fn kill_switch(&self) -> KillSwitch {
        self.kill_switch.clone()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill_switch.throw();
    }
}

async fn copy_lines(output: Option<ChildStdout>, number: u64, log: &Log) {
    let Some(output) = output else { return };
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line).await, Ok(1..)) {
        log.line(number, String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

/// The shell's status is the worker's: 128 + n for signal n.
async fn wait(mut child: Child) -> String {
    match child.wait().await.map(|status| status.code()) {
        Ok(Some(code @ 129..)) => format!("killed by signal {}", code - 128),
        Ok(Some(code)) => format!("exit status {code}"),
        Ok(None) => "its guardian was killed".to_owned(),
        Err(error) => format!("unknown end: {error}"),
    }
}
