//! A private primary with a replica and a sentinel that replaces it.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use redis::RedisResult;
use tempfile::TempDir;

use crate::error::{IoContext, StackError};
use crate::process::{Launch, Process};
use crate::redis_cluster::{ask, connection, failed};
use crate::redis_server::{self, RedisServer, free_port, temporary};

const NAME: &str = "main";
const START_LIMIT: Duration = Duration::from_secs(20);

/// A primary, its replica, and one sentinel that promotes the replica when the primary was away for 500 ms. Dropping it kills
/// them.
#[derive(Debug)]
pub struct RedisSentinel {
    /// The first primary.
    pub primary: RedisServer,
    /// The replica that takes its place.
    pub replica: RedisServer,
    port: u16,
    _sentinel: Process,
    _directory: TempDir,
}

impl RedisSentinel {
    /// Starts this server program in all three roles.
    ///
    /// # Errors
    /// When one does not start, or the sentinel does not see a replica that follows within 20 s.
    pub async fn start(program: impl Into<PathBuf>) -> Result<RedisSentinel, StackError> {
        let program = program.into();
        let primary = RedisServer::start_with_options(&program, &[("repl-diskless-sync-delay", "0")]).await?;
        let replica = RedisServer::start_with(&program).await?;
        let follow = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(primary.port()).clone();
        let () = ask(&replica, &follow).await.map_err(|e| failed("make a replica", &e))?;
        let (port, directory) = (free_port()?, temporary()?);
        let home = directory.path().canonicalize().context("resolve", directory.path())?;
        let file = home.join("sentinel.conf");
        let lines = [
            format!("port {port}"),
            "bind 127.0.0.1".to_owned(),
            format!("dir {}", home.display()),
            format!("sentinel monitor {NAME} 127.0.0.1 {} 1", primary.port()),
            format!("sentinel down-after-milliseconds {NAME} 500"),
            format!("sentinel failover-timeout {NAME} 5000"),
        ];
        fs::write(&file, lines.join("\n") + "\n").context("write", &file)?;
        let arguments = vec![file.into(), "--sentinel".into()];
        let sentinel = Process::start(Launch { program, arguments, environment: Vec::new(), directory: home })?;
        let mut servers = RedisSentinel { primary, replica, port, _sentinel: sentinel, _directory: directory };
        servers.wait_for_replica().await?;
        Ok(servers)
    }

    /// The primary by way of the sentinel, as a `REDIS_URL`.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{NAME}", self.port)
    }

    /// The sentinel's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    async fn wait_for_replica(&mut self) -> Result<(), StackError> {
        let limit = Instant::now() + START_LIMIT;
        loop {
            let seen = self.replicas().await;
            let follows = |replica: &HashMap<String, String>| {
                replica.get("master-link-status").is_some_and(|status| status == "ok")
                    && replica.get("port").is_some_and(|port| *port == self.replica.port().to_string())
            };
            match seen {
                Ok(replicas) if replicas.iter().any(follows) => return Ok(()),
                other if Instant::now() > limit => {
                    return Err(StackError::Redis { action: "wait for the sentinel", message: format!("{other:?}") });
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn replicas(&self) -> RedisResult<Vec<HashMap<String, String>>> {
        let mut connection = connection(&redis_server::url(self.port)).await?;
        redis::cmd("SENTINEL").arg("REPLICAS").arg(NAME).query_async(&mut connection).await
    }
}
