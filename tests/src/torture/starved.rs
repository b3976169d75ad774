//! Workers that get too little of a processor.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::guarded::processes;

/// Sends the signals that it reads. When its standard input ends, which is also when this process is gone, nobody is left stopped.
const SIGNALLER: &str = r#"while read -r signal id; do
  kill -s "$signal" "$id"
  case " $all " in *" $id "*) ;; *) all="$all $id" ;; esac
done
for id in $all; do kill -s CONT "$id"; done"#;

const TICK: Duration = Duration::from_millis(5);
/// In ticks: a worker is stopped for the first 15 of every 100 ms, from a moment of its own on.
const STOPPED: u64 = 3;
const PERIOD: u64 = 20;
/// How often it is looked who runs, in ticks.
const LOOK: u64 = 100;

/// Starves all workers, also those that are started meanwhile, until it is dropped.
#[derive(Debug)]
pub(super) struct Starved {
    shell: Child,
    signals: Signals,
    task: JoinHandle<()>,
}

type Signals = Arc<Mutex<Option<ChildStdin>>>;

impl Starved {
    pub(super) fn begin(worker: &Path, seed: u64) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SIGNALLER]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = command.spawn().context("a shell")?;
        let signals = Arc::new(Mutex::new(Some(shell.stdin.take().context("its input")?)));
        let task = tokio::spawn(starve(worker.to_owned(), signals.clone(), fastrand::Rng::with_seed(seed)));
        Ok(Self { shell, signals, task })
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        self.task.abort();
        drop(lock(&self.signals).take());
        let _ = self.shell.wait();
    }
}

fn lock(signals: &Signals) -> MutexGuard<'_, Option<ChildStdin>> {
    signals.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn starve(worker: PathBuf, signals: Signals, mut random: fastrand::Rng) {
    let mut phases: HashMap<String, u64> = HashMap::new();
    let mut ticks = tokio::time::interval(TICK);
    // one that comes late makes the stop longer, not the next one shorter
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looking: Option<JoinHandle<Result<Vec<String>>>> = None;
    for tick in 0u64.. {
        ticks.tick().await;
        if looking.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(look) = looking.take()
            && let Ok(Ok(workers)) = look.await
        {
            let old = std::mem::take(&mut phases);
            phases = workers
                .into_iter()
                .map(|id| {
                    let phase = old.get(&id).copied().unwrap_or_else(|| random.u64(0..PERIOD));
                    (id, phase)
                })
                .collect();
        }
        if tick % LOOK == 0 {
            let worker = worker.clone();
            looking = Some(tokio::task::spawn_blocking(move || processes(&worker)));
        }
        for (id, phase) in &phases {
            let signal = match (tick + phase) % PERIOD {
                0 => "STOP",
                STOPPED => "CONT",
                _ => continue,
            };
            let told = lock(&signals).as_mut().map(|signals| writeln!(signals, "{signal} {id}"));
            if !matches!(told, Some(Ok(()))) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `T` while it is stopped.
    fn state(id: u32) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_starved_process_is_stopped_now_and_then_and_goes_on_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("starved-worker");
        std::fs::copy("/bin/cat", &program).unwrap();
        let mut worker = Command::new(&program).stdin(Stdio::piped()).spawn().unwrap();
        let starved = Starved::begin(&program, 1).unwrap();
        let mut seen = vec![];
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            seen.extend(state(worker.id()));
        }
        drop(starved);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let stopped = seen.iter().filter(|state| **state == 'T').count();
        assert!((10..seen.len() / 2).contains(&stopped), "{stopped} of {}", seen.len());
        assert_ne!(state(worker.id()), Some('T'));
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}
