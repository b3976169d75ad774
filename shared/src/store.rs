//! The connection to Redis and the scripts.

mod address;
mod errand;
mod error;
mod inspect;
mod link;
mod nodes;
mod probe;
mod slot;

use std::sync::Arc;

use redis::{Cmd, Value};
use sendslot_lua::{SCRIPTS, Script};

pub use error::StoreError;
pub use inspect::Server;

use address::Address;
use errand::Work;
use nodes::Nodes;

/// The oldest Redis that can do what the scripts need (`BITPOS … BIT`, `#!lua`).
pub const MIN_REDIS: (u32, u32) = (7, 0);

/// With this environment variable a test's programs read a stepped clock: [`Store::with_stepped_clock`].
#[cfg(feature = "virtual-clock")]
pub const STEPPED_CLOCK: &str = "SENDSLOT_STEPPED_CLOCK";

struct Loaded {
    script: Script,
    sha: String,
}

impl Loaded {
    fn new(script: Script) -> Self {
        Self { script, sha: redis::Script::new(script.source).get_hash().to_owned() }
    }
}

struct Inner {
    nodes: Nodes,
    address: String,
    scripts: Vec<Loaded>,
    probe: Loaded,
}

/// A connection to Redis (one server, a primary behind Sentinel, or a cluster) that is made when it is first needed, shared by
/// all clones, and made anew after it broke or did not answer in time (a connection of a thawed Lambda is dead without
/// knowing it).
#[derive(Clone)]
pub struct Store(Arc<Inner>);

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("address", &self.0.address).finish()
    }
}

impl Store {
    /// A store at `redis_url`. Nothing is connected yet.
    ///
    /// | URL | what |
    /// |---|---|
    /// | `redis://user:password@host:6379/db` | one server; if it is a node of a cluster, the whole cluster |
    /// | `redis+cluster://user:password@host:6379,host:6379` | a cluster by some of its nodes |
    /// | `redis+sentinel://user:password@host:26379,host:26379/name/db` | the primary that sentinels know by this name |
    /// | `rediss://…`, `rediss+cluster://…`, `rediss+sentinel://…` | the same with TLS, sentinels included |
    ///
    /// `valkey` and `valkeys` stand for `redis` and `rediss`, a `-` for the `+`. User, password, port and database may be left
    /// out; special characters in them are percent-encoded. Behind a `?`, joined by `&`:
    ///
    /// | option | meaning |
    /// |---|---|
    /// | `ssl_ca_certs=file` | PEM file of the certificate authorities to trust, instead of the system's |
    /// | `ssl_certfile=file`, `ssl_keyfile=file` | PEM files of a client certificate and its key |
    /// | `sentinel_username=…`, `sentinel_password=…` | for the sentinels; the URL's own are for Redis |
    ///
    /// # Errors
    /// [`StoreError::Url`], which does not quote the URL.
    pub fn new(redis_url: &str) -> Result<Self, StoreError> {
        #[cfg(feature = "virtual-clock")]
        if std::env::var_os(STEPPED_CLOCK).is_some() {
            return Self::with_stepped_clock(redis_url);
        }
        Self::with_scripts(redis_url, &SCRIPTS)
    }

    /// A store whose scripts read their clock from a key, for tests.
    ///
    /// # Errors
    /// [`StoreError::Url`].
    #[cfg(feature = "virtual-clock")]
    pub fn with_virtual_clock(redis_url: &str) -> Result<Self, StoreError> {
        Self::with_scripts(redis_url, &sendslot_lua::VIRTUAL_SCRIPTS)
    }

    /// A store whose clock tests set forward and back: Redis' own and the microseconds that a key holds. All stores of a process are
    /// such when [`STEPPED_CLOCK`] is in its environment.
    ///
    /// # Errors
    /// [`StoreError::Url`].
    #[cfg(feature = "virtual-clock")]
    pub fn with_stepped_clock(redis_url: &str) -> Result<Self, StoreError> {
        Self::with_scripts(redis_url, &sendslot_lua::STEPPED_SCRIPTS)
    }

    fn with_scripts(redis_url: &str, scripts: &[Script]) -> Result<Self, StoreError> {
        let address = Address::parse(redis_url).map_err(|reason| StoreError::Url { reason })?;
        let scripts = scripts.iter().copied().map(Loaded::new).collect();
        let nodes = Nodes::new(address.servers, &address.shown);
        Ok(Self(Arc::new(Inner { nodes, address: address.shown, scripts, probe: Loaded::new(probe::SCRIPT) })))
    }

    /// Hosts and ports, for messages.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Connects and checks the version. Whether anything can be written is another question: [`Store::probe`].
    ///
    /// # Errors
    /// [`StoreError::Unreachable`], [`StoreError::Login`], [`StoreError::TooOld`].
    pub async fn check(&self) -> Result<(), StoreError> {
        let found = match self.command("INFO", None, redis::cmd("INFO").arg("server")).await {
            Ok(info) => inspect::version(&info),
            // a user that may not ask, as with -@dangerous
            Err(StoreError::Refused { source, .. }) if source.code() == Some("NOPERM") => {
                inspect::version_of_hello(self.command("HELLO", None, &redis::cmd("HELLO")).await?)
            }
            Err(error) => return Err(error),
        };
        match found {
            Some(version) if is_new_enough(&version) => Ok(()),
            found => Err(StoreError::TooOld { found: found.unwrap_or_else(|| "of unknown version".to_owned()) }),
        }
    }

    /// One plain command; its key says which node of a cluster is asked.
    pub(crate) async fn command(
        &self,
        name: &'static str,
        key: Option<&str>,
        command: &Cmd,
    ) -> Result<Value, StoreError> {
        only(name, errand::run(&self.0.nodes, std::iter::once(Work::Command { name, key, command })).await)
    }

    /// One script for many calls in one round trip to each server; an error of one call does not touch the others.
    pub(crate) async fn run_all(&self, script: usize, calls: &[Call]) -> Vec<Result<Value, StoreError>> {
        let loaded = &self.0.scripts[script];
        errand::run(&self.0.nodes, calls.iter().map(|call| Work::Script(loaded, call))).await
    }

    /// One call of a script.
    pub(crate) async fn run(&self, script: usize, call: Call) -> Result<Value, StoreError> {
        only(self.0.scripts[script].script.name, self.run_all(script, std::slice::from_ref(&call)).await)
    }
}

fn only(name: &'static str, mut answers: Vec<Result<Value, StoreError>>) -> Result<Value, StoreError> {
    answers.pop().unwrap_or_else(|| Err(StoreError::Reply { script: name, reply: "nothing".to_owned() }))
}

fn is_new_enough(version: &str) -> bool {
    version_of(version).is_some_and(|version| version >= MIN_REDIS)
}

fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Keys and arguments of one script call.
pub(crate) struct Call {
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<Vec<u8>>,
}

impl Call {
    /// In a cluster it also names a key that never exists. While a slot moves from one node to another its keys are on either,
    /// and a script stops half-way at the first one that is not here. With a key that is nowhere, Redis refuses it up front
    /// (TRYAGAIN) until the slot has moved.
    fn command(&self, verb: &str, script: &str, in_cluster: bool) -> Cmd {
        let nowhere = self.keys.first().filter(|_| in_cluster).map(|key| format!("{key}~"));
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.keys.len() + usize::from(nowhere.is_some()));
        self.keys.iter().chain(&nowhere).for_each(|key| {
            command.arg(key);
        });
        self.args.iter().for_each(|arg| {
            command.arg(arg.as_slice());
        });
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version_of("7.0.15"), Some((7, 0)));
        assert!(version_of("10.2.3") > Some(MIN_REDIS));
        assert!(version_of("6.2.19") < Some(MIN_REDIS));
        assert_eq!(version_of("unknown"), None);
    }

    #[test]
    fn a_url_that_is_none_is_refused() {
        for bad in ["", "localhost:6379", "http://localhost"] {
            assert!(matches!(Store::new(bad), Err(StoreError::Url { .. })), "{bad}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let urls = ["redis", "rediss", "redis+cluster", "rediss+sentinel"].map(|s| format!("{s}://u:hunter2@h/2"));
        for url in urls {
            match Store::new(&url) {
                Ok(store) => {
                    let shown = format!("{store:?} {store:#?} {}", store.address());
                    assert!(!shown.contains("hunter2") && shown.contains("h:"), "{shown}");
                }
                Err(error) => panic!("{url}: {error}"),
            }
        }
        for bad in ["redis+sentinel://u:hunter2@h", "redis+cluster://u:hunter2@h,", "redis://u:hunter2@h/x", "hunter2"]
        {
            let error = Store::new(bad).unwrap_err();
            let shown = format!("{error} {error:?} {error:#?}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn calls_in_a_cluster_name_a_key_that_never_exists() {
        let call = Call { keys: vec!["s{b}cal".to_owned(), "s{b}policy".to_owned()], args: vec![b"arg".to_vec()] };
        let packed = |in_cluster| {
            let command = call.command("EVALSHA", "sha", in_cluster);
            let args = command.args_iter().map(|arg| match arg {
                redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => panic!("a cursor"),
            });
            args.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(packed(false), "EVALSHA sha 2 s{b}cal s{b}policy arg");
        assert_eq!(packed(true), "EVALSHA sha 3 s{b}cal s{b}policy s{b}cal~ arg");
    }
}
