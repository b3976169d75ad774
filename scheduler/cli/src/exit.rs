//! Exit codes and failures.

use std::process::ExitCode;

/// What the exit code says; the list stands in `sendslot --help` and in the README.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All done.
    Success = 0,
    /// Redis, SQS or the machine would not: nothing is lost, try again.
    Failed = 1,
    /// The command or its input is not one.
    Usage = 2,
    /// Some messages were not accepted, the others were; or it is too late to cancel; or the limit was exceeded.
    Partial = 3,
    /// The budget or the send is unknown.
    Unknown = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// An error with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    error: anyhow::Error,
}

impl Failure {
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Usage, error: error.into() }
    }

    pub(crate) fn unknown(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Unknown, error: error.into() }
    }

    /// Prints it on standard error.
    pub(crate) fn report(self) -> ExitCode {
        crate::output::note(&format!("sendslot: {:#}", self.error));
        self.exit.into()
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { exit: Exit::Failed, error: error.into() }
    }
}
