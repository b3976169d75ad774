//! Finding, and where possible building, the worker's binary.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::StackError;

const NAME: &str = "sendslot-worker";

/// The path of `sendslot-worker`: what `SENDSLOT_WORKER` names; under `cargo run`, a fresh build of this workspace's;
/// else the one beside the running program.
///
/// Blocks while it builds.
///
/// # Errors
/// [`StackError::NoWorker`], with what to do.
pub fn worker_binary() -> Result<PathBuf, StackError> {
    if let Some(path) = env::var_os("SENDSLOT_WORKER") {
        return Ok(PathBuf::from(path));
    }
    let program = env::current_exe().map_err(|e| no_worker(e.to_string()))?;
    let folder = program.parent().unwrap_or(Path::new("."));
    if let Some(cargo) = env::var_os("CARGO")
        && let Some(manifest) = workspace_of(folder)
    {
        build(Path::new(&cargo), &manifest, folder)?;
    }
    let worker = folder.join(NAME);
    if worker.is_file() { Ok(worker) } else { Err(no_worker(format!("{} does not exist", worker.display()))) }
}

/// The manifest of this very workspace, when the program lies in its target folder.
fn workspace_of(folder: &Path) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let manifest = root.join("Cargo.toml");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    (manifest.is_file() && folder.starts_with(target)).then_some(manifest)
}

/// Both packages are named, so that features come out as in the build of the command line and nothing is built twice.
fn build(cargo: &Path, manifest: &Path, folder: &Path) -> Result<(), StackError> {
    let release = folder.file_name().is_some_and(|name| name == "release");
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "sendslot-cli", "-p", NAME, "--bin", NAME, "--manifest-path"]);
    command.arg(manifest).args(release.then_some("--release"));
    let output = command.output().map_err(|e| no_worker(format!("cargo could not be run: {e}")))?;
    if output.status.success() { Ok(()) } else { Err(no_worker(String::from_utf8_lossy(&output.stderr).into_owned())) }
}

fn no_worker(reason: String) -> StackError {
    StackError::NoWorker { reason }
}
