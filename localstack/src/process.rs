//! Server processes that cannot outlive their owner, unless it releases them.
//!
//! A server runs under a small shell whose standard input is a pipe that this process holds open. When the pipe
//! closes — on drop, on exit without destructors, on SIGKILL — the shell kills its process group and removes the
//! server's directory.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::error::{IoContext, StackError};
use crate::python;

/// `$1` is the directory to remove, the rest is the command. The pipe takes one order; its end without one kills.
const GUARDIAN: &str = r#"
trap '' HUP
directory=$1; shift
exec 3<&0 </dev/null
"$@" 3<&- &
child=$!
{
    read -r order <&3
    case $order in
    release) exit 0 ;;
    stop) kill -TERM "$child"; sleep 3 ;;
    esac
    trap '' TERM
    kill -KILL "$child"
    rm -rf "$directory"
    kill -KILL 0
} 2>/dev/null &
wait "$child"
status=$?
trap '' TERM
kill -TERM 0
exit "$status"
"#;

/// What to run.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// The only environment that the server gets, apart from `PATH`.
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// Private to the server; removed when its owner is killed.
    pub(crate) directory: PathBuf,
}

/// A running server, in a process group of its own. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pipe: Option<ChildStdin>,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(launch: Launch) -> Result<Process, StackError> {
        let log = launch.directory.join("log");
        let output = File::create(&log).context("create", &log)?;
        let errors = output.try_clone().context("share", &log)?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", GUARDIAN, "sendslot"])
            .arg(&launch.directory)
            .arg(&launch.program)
            .args(launch.arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
            .envs(launch.environment)
            .current_dir(&launch.directory)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .process_group(0);
        let mut child = command.spawn().context("start", &launch.program)?;
        let pipe = child.stdin.take();
        Ok(Process { child, pipe, log })
    }

    /// The id of the process group, which is also that of its first process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    pub(crate) fn log_tail(&self) -> String {
        python::tail(&String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()))
    }

    /// Asks it to end, and kills it if it has not after 3 s.
    pub(crate) async fn stop(mut self) {
        self.order("stop");
        let limit = Instant::now() + Duration::from_millis(3_500);
        while self.ended().is_none() && Instant::now() < limit {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Lets it live on without its owner.
    pub(crate) fn release(mut self) {
        self.order("release");
        self.pipe = None;
    }

    fn order(&mut self, order: &str) {
        if let Some(pipe) = &mut self.pipe {
            // It fails only if the shell has ended, and the server with it.
            _ = writeln!(pipe, "{order}");
        }
    }

    /// Kills it, and leaves its directory.
    pub(crate) fn kill(&mut self) {
        if self.ended().is_some() {
            return;
        }
        signal_group("KILL", self.id());
        let limit = Instant::now() + Duration::from_secs(2);
        while self.ended().is_none() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Only a released one has no pipe.
        if self.pipe.is_some() {
            self.kill();
        }
    }
}

/// Sends a signal to all processes of a group.
pub(crate) fn signal_group(signal: &str, group: u32) {
    let script = r#"kill -s "$1" -- "-$2""#;
    _ = quiet("/bin/sh").args(["-c", script, "sendslot", signal, &group.to_string()]).status();
}

/// The command line of a process, if it runs.
pub(crate) fn command_line(id: u32) -> Option<String> {
    let mut ps = quiet("ps");
    let output = ps.args(["-ww", "-o", "command=", "-p", &id.to_string()]).stdout(Stdio::piped()).output().ok()?;
    let line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!line.is_empty()).then_some(line)
}

fn quiet(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a shell that starts a `sleep` and tells the ids of both.
    fn sleeper(directory: &Path) -> (Process, [u32; 2]) {
        let script = "sleep 300 & echo $$ $! >ids.new; mv ids.new ids; wait";
        let launch = Launch {
            program: "/bin/sh".into(),
            arguments: ["-c", script].map(OsString::from).into(),
            environment: Vec::new(),
            directory: directory.to_owned(),
        };
        let process = Process::start(launch).unwrap();
        let ids = wait_for(|| fs::read_to_string(directory.join("ids")).ok());
        let ids: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
        (process, [ids[0], ids[1]])
    }

    fn wait_for<T>(mut ready: impl FnMut() -> Option<T>) -> T {
        let limit = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(value) = ready() {
                return value;
            }
            assert!(Instant::now() < limit, "nothing within 5 s");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn assert_gone(ids: [u32; 2]) {
        ids.iter().for_each(|id| wait_for(|| is_gone(*id)));
    }

    /// A killed process can stay as a zombie where nothing reaps orphans.
    fn is_gone(id: u32) -> Option<()> {
        command_line(id).is_none_or(|line| line.contains("<defunct>")).then_some(())
    }

    #[test]
    fn the_end_of_the_pipe_kills_the_server_and_what_it_started() {
        let directory = tempfile::tempdir().unwrap().keep();
        let (mut process, ids) = sleeper(&directory);
        assert!(ids.iter().all(|id| command_line(*id).is_some()));
        // What the kernel does when this process is killed.
        drop(process.pipe.take());
        assert_gone(ids);
        wait_for(|| process.ended());
        wait_for(|| (!directory.exists()).then_some(()));
    }

    #[test]
    fn a_drop_kills() {
        let directory = tempfile::tempdir().unwrap();
        let (process, ids) = sleeper(directory.path());
        drop(process);
        assert_gone(ids);
    }

    #[tokio::test]
    async fn a_stop_ends_it_and_what_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let (process, ids) = sleeper(directory.path());
        let start = Instant::now();
        process.stop().await;
        assert!(start.elapsed() < Duration::from_secs(2), "took {:?}", start.elapsed());
        assert_gone(ids);
    }

    #[test]
    fn a_released_server_outlives_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let (process, ids) = sleeper(directory.path());
        let group = process.id();
        process.release();
        // A shell that took the end of the pipe for the end of its owner kills within a few milliseconds.
        std::thread::sleep(Duration::from_millis(100));
        assert!(ids.iter().all(|id| command_line(*id).is_some()));
        assert!(command_line(group).is_some_and(|line| line.contains(&*directory.path().to_string_lossy())));
        signal_group("KILL", group);
        assert_gone(ids);
    }

    #[test]
    fn an_end_of_its_own_is_noticed_with_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let launch = Launch {
            program: "/bin/sh".into(),
            arguments: ["-c", "echo cause; exit 7"].map(OsString::from).into(),
            environment: Vec::new(),
            directory: directory.path().to_owned(),
        };
        let mut process = Process::start(launch).unwrap();
        assert_eq!(wait_for(|| process.ended()).code(), Some(7));
        assert_eq!(process.log_tail(), "cause");
    }
}
