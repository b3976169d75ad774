//! The run's side of the scheduler process: asks it, hears its answers, kills it, starts the next one.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::asks::{Answer, Ask};

/// How the process is started.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) environment: Vec<(String, String)>,
}

/// A running scheduler; killed when dropped.
#[derive(Debug)]
pub(super) struct SchedulerProcess {
    program: Program,
    answers: mpsc::UnboundedSender<Answer>,
    child: Child,
    asks: mpsc::UnboundedSender<String>,
    hears: JoinHandle<()>,
}

impl SchedulerProcess {
    /// Answers go to `answers`.
    pub(super) fn start(program: Program, answers: mpsc::UnboundedSender<Answer>) -> Result<Self> {
        let (child, asks, hears) = spawn(&program, &answers)?;
        Ok(Self { program, answers, child, asks, hears })
    }

    /// Asks; what is asked of a process that dies is not answered.
    pub(super) fn ask(&self, ask: &Ask) -> Result<()> {
        let _ = self.asks.send(serde_json::to_string(ask)?);
        Ok(())
    }

    /// SIGKILL, and the next one is started. All answers of the dead one are with `answers` when this returns.
    pub(super) async fn kill_and_restart(&mut self) -> Result<()> {
        self.child.kill().await.context("the scheduler is killed")?;
        (&mut self.hears).await.context("its answers")?;
        (self.child, self.asks, self.hears) = spawn(&self.program, &self.answers)?;
        Ok(())
    }
}

type Parts = (Child, mpsc::UnboundedSender<String>, JoinHandle<()>);

fn spawn(program: &Program, answers: &mpsc::UnboundedSender<Answer>) -> Result<Parts> {
    let mut command = Command::new(&program.path);
    command.arg("load").envs(program.environment.iter().cloned()).kill_on_drop(true).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("{} load", program.path.display()))?;
    let (mut input, output) = (child.stdin.take().context("its input")?, child.stdout.take().context("its output")?);
    let (asks, mut lines) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            if input.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let answers = answers.clone();
    let hears = tokio::spawn(async move {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            // a killed process may leave half a line
            if let Ok(answer) = serde_json::from_str(&line) {
                let _ = answers.send(answer);
            }
        }
    });
    Ok((child, asks, hears))
}
