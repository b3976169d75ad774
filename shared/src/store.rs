//! The connection to Redis and the scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, IntoConnectionInfo as _, RedisError, Value};
use sendslot_lua::{SCRIPTS, Script};
use tokio::sync::Mutex;

/// The oldest Redis that can do what the scripts need (`BITPOS … BIT`, `#!lua`).
pub const MIN_REDIS: (u32, u32) = (7, 0);

/// Why Redis could not be asked, or what it answered instead. Never permission to send.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The URL is not one.
    #[error("REDIS_URL cannot be used: {source}. Give redis://host:port or rediss://host:port")]
    Url {
        /// What redis-rs says.
        source: RedisError,
    },
    /// No connection, or it broke, or no answer in time. The script may have run; every script can be asked again.
    #[error("Redis at {address} cannot be reached: {source}. Start it, or set REDIS_URL")]
    Unreachable {
        /// Host and port.
        address: String,
        /// What redis-rs says.
        source: RedisError,
    },
    /// Redis answered with an error (LOADING, READONLY, OOM, a script error …).
    #[error("Redis refused {script}: {source}")]
    Refused {
        /// The script or command.
        script: &'static str,
        /// The error as redis-rs gives it.
        source: RedisError,
    },
    /// Redis is too old.
    #[error("Redis {found} is too old: Sendslot needs Redis 7.0 or Valkey 7.2 or later")]
    TooOld {
        /// Its version.
        found: String,
    },
    /// An answer that no script gives.
    #[error("the script {script} answered {reply}, which it never does: are all Sendslot processes of one version?")]
    Reply {
        /// The script.
        script: &'static str,
        /// The answer.
        reply: String,
    },
}

struct Loaded {
    script: Script,
    sha: String,
}

#[derive(Default)]
struct Link {
    generation: u64,
    connection: Option<MultiplexedConnection>,
    failure: Option<RedisError>,
}

struct Inner {
    client: redis::Client,
    address: String,
    config: AsyncConnectionConfig,
    scripts: Vec<Loaded>,
    link: Mutex<Link>,
    /// Attempts to connect that failed.
    failures: AtomicU64,
}

/// A connection to Redis that is made when it is first needed, shared by all clones, and made anew after it broke or
/// did not answer in time (a connection of a thawed Lambda is dead without knowing it).
#[derive(Clone)]
pub struct Store(Arc<Inner>);

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("address", &self.0.address).finish()
    }
}

/// How long Redis may take. Scripts take microseconds; 2 s leave room for a failover's pause.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

impl Store {
    /// A store at `redis_url`. Nothing is connected yet.
    ///
    /// # Errors
    /// [`StoreError::Url`].
    pub fn new(redis_url: &str) -> Result<Self, StoreError> {
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

    fn with_scripts(redis_url: &str, scripts: &[Script]) -> Result<Self, StoreError> {
        let url_error = |source| StoreError::Url { source };
        let info = redis_url.into_connection_info().map_err(url_error)?;
        let info = info.set_tcp_settings(redis::io::tcp::TcpSettings::default().set_nodelay(true));
        let address = info.addr().to_string();
        if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. })
            && rustls::crypto::CryptoProvider::get_default().is_none()
        {
            // Err: another thread was faster
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let client = redis::Client::open(info).map_err(url_error)?;
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_connection_timeout(Some(CONNECT_TIMEOUT));
        let scripts = scripts
            .iter()
            .map(|script| Loaded { script: *script, sha: redis::Script::new(script.source).get_hash().to_owned() })
            .collect();
        Ok(Self(Arc::new(Inner {
            client,
            address,
            config,
            scripts,
            link: Mutex::default(),
            failures: AtomicU64::new(0),
        })))
    }

    /// Host and port, for messages.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Connects and checks the version.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`], [`StoreError::TooOld`].
    pub async fn check(&self) -> Result<(), StoreError> {
        let info: String = match self.command("INFO", redis::cmd("INFO").arg("server")).await? {
            Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
            other => return Err(StoreError::Reply { script: "INFO", reply: format!("{other:?}") }),
        };
        let field = |name: &str| info.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let found = field("valkey_version").or_else(|| field("redis_version")).unwrap_or("of unknown version");
        if version_of(found).is_some_and(|v| v >= MIN_REDIS) {
            return Ok(());
        }
        Err(StoreError::TooOld { found: found.to_owned() })
    }

    /// One plain command, asked once more on a new connection if the first one was broken.
    pub(crate) async fn command(&self, name: &'static str, command: &Cmd) -> Result<Value, StoreError> {
        let mut replies = self.pipeline(name, std::slice::from_ref(command)).await?;
        match replies.pop() {
            Some(Value::ServerError(e)) => Err(StoreError::Refused { script: name, source: e.into() }),
            Some(value) => Ok(value),
            None => Err(StoreError::Reply { script: name, reply: "nothing".to_owned() }),
        }
    }

    /// One script for many calls in one round trip; an error of one call does not touch the others.
    pub(crate) async fn run_all(
        &self,
        script: usize,
        calls: &[Call],
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        if calls.is_empty() {
            return Ok(vec![]);
        }
        let loaded = &self.0.scripts[script];
        let name = loaded.script.name;
        let commands: Vec<Cmd> = calls.iter().map(|call| call.command("EVALSHA", &loaded.sha)).collect();
        let mut replies = self.pipeline(name, &commands).await?;
        // NOSCRIPT: not run. EVAL carries the text and leaves the script in the cache for the next call.
        let missing: Vec<usize> = (0..replies.len()).filter(|i| is_no_script(&replies[*i])).collect();
        if !missing.is_empty() {
            let commands: Vec<Cmd> = missing.iter().map(|i| calls[*i].command("EVAL", loaded.script.source)).collect();
            for (i, reply) in missing.into_iter().zip(self.pipeline(name, &commands).await?) {
                replies[i] = reply;
            }
        }
        Ok(replies
            .into_iter()
            .map(|reply| match reply {
                Value::ServerError(e) => Err(StoreError::Refused { script: name, source: e.into() }),
                value => Ok(value),
            })
            .collect())
    }

    /// One call of a script.
    pub(crate) async fn run(&self, script: usize, call: Call) -> Result<Value, StoreError> {
        let name = self.0.scripts[script].script.name;
        let reply = self.run_all(script, std::slice::from_ref(&call)).await?.pop();
        reply.unwrap_or_else(|| Err(StoreError::Reply { script: name, reply: "nothing".to_owned() }))
    }

    async fn pipeline(&self, name: &'static str, commands: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        let mut pipe = redis::Pipeline::with_capacity(commands.len());
        for command in commands {
            pipe.add_command(command.clone());
        }
        let mut last = None;
        for attempt in 0..2 {
            let (generation, mut connection) = match self.connect().await {
                Ok(connection) => connection,
                Err(e) => return Err(self.unreachable(e)),
            };
            match connection.req_packed_commands(&pipe, 0, commands.len()).await {
                // a primary that was demoted: the name may lead to the new one by now
                Ok(replies) if replies.iter().any(is_read_only) => {
                    self.discard(generation).await;
                    if attempt > 0 {
                        return Ok(replies);
                    }
                }
                Ok(replies) if replies.len() == commands.len() => return Ok(replies),
                Ok(replies) => {
                    return Err(StoreError::Reply { script: name, reply: format!("{} replies", replies.len()) });
                }
                Err(e) if e.is_timeout() || e.is_io_error() || e.is_unrecoverable_error() => {
                    self.discard(generation).await;
                    last = Some(e);
                }
                Err(source) => return Err(StoreError::Refused { script: name, source }),
            }
        }
        Err(last.map_or_else(
            || StoreError::Reply { script: name, reply: "nothing".to_owned() },
            |source| self.unreachable(source),
        ))
    }

    fn unreachable(&self, source: RedisError) -> StoreError {
        StoreError::Unreachable { address: self.0.address.clone(), source }
    }

    async fn connect(&self) -> Result<(u64, MultiplexedConnection), RedisError> {
        let failures = self.0.failures.load(SeqCst);
        let mut link = self.0.link.lock().await;
        if let Some(connection) = &link.connection {
            return Ok((link.generation, connection.clone()));
        }
        // An attempt failed while this caller waited for it: one failure is everybody's, or N callers wait N timeouts.
        if let Some(failure) = link.failure.clone().filter(|_| self.0.failures.load(SeqCst) != failures) {
            return Err(failure);
        }
        let connection = match self.0.client.get_multiplexed_async_connection_with_config(&self.0.config).await {
            Ok(connection) => connection,
            Err(failure) => {
                link.failure = Some(failure.clone());
                self.0.failures.fetch_add(1, SeqCst);
                return Err(failure);
            }
        };
        link.generation += 1;
        link.connection = Some(connection.clone());
        Ok((link.generation, connection))
    }

    async fn discard(&self, generation: u64) {
        let mut link = self.0.link.lock().await;
        if link.generation == generation {
            link.connection = None;
        }
    }
}

fn is_no_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(e) if e.code() == "NOSCRIPT")
}

fn is_read_only(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(e) if e.code() == "READONLY")
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
    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.keys.len());
        self.keys.iter().for_each(|key| {
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
}
