use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why the local stack could not be set up, started or stopped. The messages say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// Neither `HOME` nor `SENDSLOT_CACHE_DIR` says where to install.
    #[error("no place to install to: set SENDSLOT_CACHE_DIR to a directory")]
    NoCacheDir,

    /// There is no Python to install with.
    #[error(
        "no Python found: install one of 3.11 to 3.13 (Debian: `apt-get install python3 python3-venv`; \
         macOS: `brew install python@3.13`), or set SENDSLOT_PYTHON to its path"
    )]
    NoPython,

    /// Python is there, but none of the ways to make a virtual environment worked.
    #[error(
        "{python} cannot make a virtual environment: install the missing part (Debian: \
         `apt-get install python3-venv`) or `uv`, and try again\n{output}"
    )]
    NoVirtualEnvironment {
        /// The Python that was tried.
        python: String,
        /// The end of what it printed.
        output: String,
    },

    /// There is no worker binary.
    #[error(
        "no sendslot-worker binary: build it with `cargo build -p sendslot-worker`, or name one in SENDSLOT_WORKER ({reason})"
    )]
    NoWorker {
        /// What was tried.
        reason: String,
    },

    /// A step of the installation failed.
    #[error(
        "could not install {what} into {}: check the connection to the package index and try again\n{output}",
        path.display()
    )]
    Install {
        /// What was being installed.
        what: &'static str,
        /// Where to.
        path: PathBuf,
        /// The end of what the installer printed.
        output: String,
    },

    /// The given server is not a Redis or Valkey that the scripts can run on.
    #[error("{} is not a Redis or Valkey server of version 7.0 or newer: {found}", path.display())]
    UnfitRedis {
        /// The server that was tried.
        path: PathBuf,
        /// What it says of itself.
        found: String,
    },

    /// A server ended while it started.
    #[error("{server} ended while it started; the end of its log:\n{log}")]
    Ended {
        /// Which server.
        server: &'static str,
        /// The end of its log.
        log: String,
    },

    /// A server did not answer in time.
    #[error("{server} did not answer within {} s; the end of its log:\n{log}", limit.as_secs())]
    NotReady {
        /// Which server.
        server: &'static str,
        /// How long was waited.
        limit: Duration,
        /// The end of its log.
        log: String,
    },

    /// Redis servers could not be put together.
    #[error("Redis: could not {action}: {message}")]
    Redis {
        /// What was attempted.
        action: &'static str,
        /// What Redis or the connection said.
        message: String,
    },

    /// An SQS call failed.
    #[error("SQS: could not {action} {queue}: {message}")]
    Sqs {
        /// What was attempted.
        action: &'static str,
        /// The name or URL of the queue.
        queue: String,
        /// What SQS or the connection said.
        message: String,
    },

    /// The file system or a process refused.
    #[error("could not {action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file, directory or program.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Adds to an I/O error what was attempted on which path.
pub(crate) trait IoContext<T> {
    fn context(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, StackError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, StackError> {
        self.map_err(|source| StackError::Io { action, path: path.into(), source })
    }
}
