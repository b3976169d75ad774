//! A child process that never outlives us, and can be killed and stopped.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result};

/// The shell kills the child when its standard input ends: when we say so, and when this process is gone.
const GUARDIAN: &str = r#"log=$1; shift
"$@" </dev/null >>"$log" 2>&1 &
child=$!
echo $child
exec >&-
read -r _
kill -9 $child 2>/dev/null
wait $child"#;

/// A running child, in a process group of its own; killed when dropped.
#[derive(Debug)]
pub(super) struct Guarded {
    shell: Child,
    pipe: Option<ChildStdin>,
    id: String,
}

impl Guarded {
    /// Starts a program; what it prints is appended to `log`.
    pub(super) fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GUARDIAN, "guardian"]).arg(log).arg(program).args(arguments).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn().context("a shell")?;
        let pipe = shell.stdin.take();
        let mut id = String::new();
        BufReader::new(shell.stdout.take().context("its output")?).read_line(&mut id)?;
        Ok(Self { shell, pipe, id: id.trim().to_owned() })
    }

    /// Sends a signal, by its name without SIG.
    pub(super) fn signal(&self, signal: &str) -> Result<()> {
        send_signal(signal, &self.id)
    }

    /// Kills it, as a crash does, and waits until it is gone.
    pub(super) fn kill(&mut self) {
        // an end of the pipe is the guardian's order to kill
        drop(self.pipe.take());
        let _ = self.shell.wait();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to one process.
pub(super) fn send_signal(signal: &str, id: &str) -> Result<()> {
    let mut kill = Command::new("/bin/sh");
    kill.args(["-c", r#"kill -s "$1" "$2""#, "sendslot", signal, id]).stderr(Stdio::null());
    anyhow::ensure!(kill.status()?.success(), "{signal} cannot be sent to {id}");
    Ok(())
}

/// The processes whose command line is exactly this program.
pub(super) fn processes(program: &Path) -> Result<Vec<String>> {
    let output = Command::new("pgrep").args(["-x", "-f"]).arg(program).output().context("pgrep")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
