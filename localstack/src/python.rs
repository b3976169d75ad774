//! Finds a Python, and a `uv` to install with.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cache;
use crate::error::{IoContext, StackError};

const UV: &str = include_str!("../python/uv.txt");

/// What `uv` fetches when the machine's own Python is too old or too new.
const FETCHED: &str = "3.12";

/// A Python of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Python {
    pub(crate) program: String,
    pub(crate) version: (u32, u32),
}

impl Python {
    /// The one that `SENDSLOT_PYTHON` names, else the best one on the `PATH`.
    pub(crate) fn find() -> Result<Python, StackError> {
        if let Ok(program) = env::var("SENDSLOT_PYTHON") {
            return Self::ask(&program).ok_or(StackError::NoPython);
        }
        let names = ["python3", "python3.13", "python3.12", "python3.11"];
        let found: Vec<Python> = names.iter().filter_map(|name| Self::ask(name)).collect();
        let fit = found.iter().find(|python| python.is_fit());
        fit.or(found.first()).cloned().ok_or(StackError::NoPython)
    }

    fn ask(program: &str) -> Option<Python> {
        let mut command = Command::new(program);
        command.args(["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).stdin(Stdio::null());
        let output = command.output().ok().filter(|output| output.status.success())?;
        let version = parse_version(&String::from_utf8_lossy(&output.stdout))?;
        Some(Python { program: program.to_owned(), version })
    }

    /// LocalStack 4.13.1 claims 3.10 but imports what came with 3.11; its requirements have packages up to 3.13.
    fn is_fit(&self) -> bool {
        ((3, 11)..=(3, 13)).contains(&self.version)
    }

    /// What `uv venv --python` is to use: this one, or one that `uv` fetches because this one does not fit.
    pub(crate) fn for_environment(&self) -> &str {
        if self.is_fit() { &self.program } else { FETCHED }
    }

    /// The version that an environment then has.
    pub(crate) fn environment_version(&self) -> String {
        if self.is_fit() { self.version_text() } else { FETCHED.to_owned() }
    }

    fn version_text(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }
}

/// The program of this machine's Python: the one that `SENDSLOT_PYTHON` names, else the best one on the `PATH`.
///
/// # Errors
/// [`StackError::NoPython`].
pub fn python() -> Result<String, StackError> {
    Python::find().map(|python| python.program)
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// A `uv`: the pinned one in an environment of its own, else the one on the `PATH`.
pub(crate) fn uv(python: &Python) -> Result<PathBuf, StackError> {
    let home = cache::directory()?.join(format!("uv-{}", cache::fingerprint(&[UV, &python.version_text()])));
    let uv = home.join("bin/uv");
    let complete = home.join(".complete");
    let _lock = cache::lock(&home.with_extension("lock"))?;
    if complete.exists() && uv.exists() {
        return Ok(uv);
    }
    let mut output = String::new();
    for way in [with_ensurepip, with_pip_outside] {
        _ = fs::remove_dir_all(&home);
        match way(python, &home) {
            Ok(()) => {
                fs::write(&complete, "").context("write", &complete)?;
                return Ok(uv);
            }
            Err(end) => output = output + &end + "\n",
        }
    }
    _ = fs::remove_dir_all(&home);
    let on_path = Command::new("uv").arg("--version").output();
    if on_path.is_ok_and(|output| output.status.success()) {
        return Ok("uv".into());
    }
    Err(StackError::NoVirtualEnvironment { python: python.program.clone(), output })
}

fn with_ensurepip(python: &Python, home: &Path) -> Result<(), String> {
    run(Command::new(&python.program).args(["-m", "venv"]).arg(home))?;
    pip_install(Command::new(home.join("bin/python")).args(["-m", "pip"]), home)
}

/// Debian without `python3-venv` has no ensurepip, but it may have pip.
fn with_pip_outside(python: &Python, home: &Path) -> Result<(), String> {
    run(Command::new(&python.program).args(["-m", "venv", "--without-pip"]).arg(home))?;
    let inside = home.join("bin/python");
    pip_install(Command::new(&python.program).args(["-m", "pip", "--python"]).arg(inside), home)
}

fn pip_install(pip: &mut Command, home: &Path) -> Result<(), String> {
    let requirements = home.join("uv.txt");
    fs::write(&requirements, UV).map_err(|error| error.to_string())?;
    run(pip.args(["install", "--quiet", "--no-input", "--require-hashes", "-r"]).arg(requirements))
}

/// Runs it to its end; a failure is the end of what it printed.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .env_remove("PYTHONDONTWRITEBYTECODE")
        .env_remove("VIRTUAL_ENV")
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}\n{}", output.status, tail(&text)))
}

/// The last lines: enough to see the cause.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(version: (u32, u32)) -> Python {
        Python { program: "python3".into(), version }
    }

    #[test]
    fn reads_what_python_says() {
        assert_eq!(parse_version("3.11\n"), Some((3, 11)));
        assert_eq!(parse_version("Python 3"), None);
    }

    #[test]
    fn has_uv_fetch_a_python_where_the_own_one_is_too_old_or_too_new() {
        assert_eq!(python((3, 10)).for_environment(), FETCHED);
        assert_eq!(python((3, 11)).for_environment(), "python3");
        assert_eq!(python((3, 13)).for_environment(), "python3");
        assert_eq!(python((3, 14)).for_environment(), FETCHED);
    }

    #[test]
    fn a_tail_is_the_last_thirty_lines() {
        let text: String = (0..100).map(|line| format!("{line}\n")).collect();
        assert!(tail(&text).starts_with("70\n") && tail(&text).ends_with("99"));
        assert_eq!(tail("one"), "one");
    }
}
