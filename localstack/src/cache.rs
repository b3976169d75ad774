//! Where the installed servers and the state of the detached stack live.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{IoContext, StackError};

/// The cache directory of this user: `SENDSLOT_CACHE_DIR`, else the platform's place. It exists on return.
pub(crate) fn directory() -> Result<PathBuf, StackError> {
    let path = choose(|name| env::var_os(name).filter(|value| !value.is_empty())).ok_or(StackError::NoCacheDir)?;
    fs::create_dir_all(&path).context("create", &path)?;
    path.canonicalize().context("resolve", &path)
}

fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(path) = variable("SENDSLOT_CACHE_DIR") {
        return Some(path.into());
    }
    let base = match variable("XDG_CACHE_HOME") {
        Some(path) => PathBuf::from(path),
        None => {
            PathBuf::from(variable("HOME")?).join(if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" })
        }
    };
    Some(base.join("sendslot"))
}

/// Holds off other processes until it is dropped. Blocks while another one holds it.
pub(crate) fn lock(path: &Path) -> Result<File, StackError> {
    let file = File::options().create(true).append(true).open(path).context("open", path)?;
    file.lock().context("lock", path)?;
    Ok(file)
}

/// A name for what `parts` describe: it changes when they do.
pub(crate) fn fingerprint(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)]) -> Option<PathBuf> {
        choose(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_own_variable_wins_over_the_platform() {
        let all = [("SENDSLOT_CACHE_DIR", "/own"), ("XDG_CACHE_HOME", "/xdg"), ("HOME", "/home/a")];
        assert_eq!(chosen(&all), Some("/own".into()));
        assert_eq!(chosen(&all[1..]), Some("/xdg/sendslot".into()));
        let home =
            if cfg!(target_os = "macos") { "/home/a/Library/Caches/sendslot" } else { "/home/a/.cache/sendslot" };
        assert_eq!(chosen(&all[2..]), Some(home.into()));
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn a_fingerprint_changes_with_each_part_and_its_borders() {
        assert_eq!(fingerprint(&["uv==1", "3.11"]), fingerprint(&["uv==1", "3.11"]));
        assert_ne!(fingerprint(&["uv==1", "3.11"]), fingerprint(&["uv==1", "3.12"]));
        assert_ne!(fingerprint(&["ab", "c"]), fingerprint(&["a", "bc"]));
        assert_eq!(fingerprint(&["x"]).len(), 12);
    }
}
