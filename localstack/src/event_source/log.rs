//! Where the worker's output goes, and its last lines.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::EventSourceError;

/// Lines kept for error reports.
const KEPT: usize = 50;

/// A caller's own sink: the environment's number and one line.
pub type LineSink = Arc<dyn Fn(u64, &str) + Send + Sync>;

/// Where the worker's standard output and standard error go; the last lines are kept in any case.
#[derive(Clone, Default)]
pub enum WorkerLog {
    /// Nowhere else.
    #[default]
    Discard,
    /// Appended to this file.
    File(PathBuf),
    /// Given to a function, line by line; it must be quick.
    Lines(LineSink),
}

impl fmt::Debug for WorkerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Discard => f.write_str("Discard"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Lines(_) => f.write_str("Lines"),
        }
    }
}

/// An opened [`WorkerLog`].
pub(super) struct Log {
    sink: Sink,
    tail: Mutex<VecDeque<String>>,
}

enum Sink {
    Discard,
    File(Mutex<File>),
    Lines(LineSink),
}

impl Log {
    pub(super) fn open(log: &WorkerLog) -> Result<Self, EventSourceError> {
        let sink = match log {
            WorkerLog::Discard => Sink::Discard,
            WorkerLog::Lines(lines) => Sink::Lines(Arc::clone(lines)),
            WorkerLog::File(path) => Sink::File(Mutex::new(open(path)?)),
        };
        Ok(Self { sink, tail: Mutex::new(VecDeque::new()) })
    }

    pub(super) fn line(&self, environment: u64, line: &str) {
        match &self.sink {
            Sink::Discard => {}
            Sink::Lines(lines) => lines(environment, line),
            Sink::File(file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = writeln!(file, "[{environment}] {line}") {
                    tracing::warn!(%error, "worker log cannot be written");
                }
            }
        }
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() == KEPT {
            tail.pop_front();
        }
        tail.push_back(format!("[{environment}] {line}"));
    }

    pub(super) fn tail(&self) -> Vec<String> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

fn open(path: &PathBuf) -> Result<File, EventSourceError> {
    let opened = File::options().create(true).append(true).open(path);
    opened.map_err(|source| EventSourceError::Io { what: format!("worker log {}", path.display()), source })
}
