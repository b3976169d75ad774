//! A private Redis Cluster.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult};

use crate::error::StackError;
use crate::redis_server::{RedisServer, Settings, temporary};

const NODES: u16 = 3;
const SLOTS: u16 = 16384;
const JOIN_LIMIT: Duration = Duration::from_secs(20);

/// Three nodes on free loopback ports, each a primary with a third of the slots. A node that is away takes only its own slots with
/// it. Dropping it kills them.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    replicas: usize,
    settings: Settings,
}

impl RedisCluster {
    /// Starts this server program three times, with more options as in redis.conf, and joins them.
    ///
    /// # Errors
    /// When a node does not start, or they have not found each other within 20 s.
    pub async fn start(program: impl Into<PathBuf>, options: &[(&str, &str)]) -> Result<RedisCluster, StackError> {
        let usual = [
            ("cluster-node-timeout", "1000"),
            ("cluster-require-full-coverage", "no"),
            ("repl-diskless-sync-delay", "0"),
        ];
        let settings = Settings { node: true, ..Settings::new(program, &[&usual, options].concat()) };
        let mut nodes = vec![];
        for _ in 0..NODES {
            nodes.push(RedisServer::launch(settings.clone(), temporary()?).await?);
        }
        let cluster = RedisCluster { nodes, replicas: 0, settings };
        cluster.join().await.map_err(|e| failed("join the cluster", &e))?;
        cluster.wait_until_whole().await?;
        Ok(cluster)
    }

    /// All nodes, as a `REDIS_URL`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The nodes, in the order of their slots.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// One node, to kill and to restart it.
    pub fn node_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.nodes[index]
    }

    /// Waits until every node knows that all slots are served.
    ///
    /// # Errors
    /// When that takes more than 20 s.
    pub async fn wait_until_whole(&self) -> Result<(), StackError> {
        for node in &self.nodes {
            self.wait_until_known_by(node).await?;
        }
        Ok(())
    }

    async fn wait_until_known_by(&self, node: &RedisServer) -> Result<(), StackError> {
        let limit = Instant::now() + JOIN_LIMIT;
        let known = format!("cluster_known_nodes:{}", self.nodes.len() + self.replicas);
        loop {
            let info: RedisResult<String> = ask(node, redis::cmd("CLUSTER").arg("INFO")).await;
            let wanted = ["cluster_state:ok", "cluster_slots_ok:16384", &known];
            match info {
                Ok(info) if wanted.iter().all(|line| info.lines().any(|l| l == *line)) => return Ok(()),
                other if Instant::now() > limit => {
                    let message = format!("{other:?}");
                    return Err(StackError::Redis { action: "wait for the cluster", message });
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Starts a replica of one of the nodes, and waits until it has the node's data and all know it.
    ///
    /// # Errors
    /// When that takes more than 20 s.
    pub async fn start_replica(&mut self, of: usize) -> Result<RedisServer, StackError> {
        let replica = RedisServer::launch(self.settings.clone(), temporary()?).await?;
        let action = "add a replica to the cluster";
        meet(&self.nodes[0], &replica).await.map_err(|e| failed(action, &e))?;
        self.replicas += 1;
        self.wait_until_whole().await?;
        // one that does not know its primary's slots could not take them over
        self.wait_until_known_by(&replica).await?;
        let id: String =
            ask(&self.nodes[of], redis::cmd("CLUSTER").arg("MYID")).await.map_err(|e| failed(action, &e))?;
        let limit = Instant::now() + JOIN_LIMIT;
        let mut told = false;
        loop {
            if !told {
                // it may not know that node yet
                let answer: RedisResult<()> = ask(&replica, redis::cmd("CLUSTER").arg("REPLICATE").arg(&id)).await;
                told = answer.is_ok();
            }
            let info: RedisResult<String> = ask(&replica, redis::cmd("INFO").arg("replication")).await;
            match info {
                Ok(info) if info.contains("master_link_status:up") => return Ok(replica),
                other if Instant::now() > limit => {
                    return Err(StackError::Redis { action, message: format!("{other:?}") });
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn join(&self) -> RedisResult<()> {
        for (i, node) in (0..).zip(&self.nodes) {
            let (first, next) = (SLOTS / NODES * i, if i + 1 == NODES { SLOTS } else { SLOTS / NODES * (i + 1) });
            let () = ask(node, redis::cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(i + 1)).await?;
            let () = ask(node, redis::cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(first).arg(next - 1)).await?;
            if i > 0 {
                meet(&self.nodes[0], node).await?;
            }
        }
        Ok(())
    }
}

async fn meet(node: &RedisServer, other: &RedisServer) -> RedisResult<()> {
    let mut meet = redis::cmd("CLUSTER");
    let port = other.tls_port().unwrap_or(other.port());
    meet.arg("MEET").arg("127.0.0.1").arg(port).arg(other.bus_port());
    ask(node, &meet).await
}

pub(crate) async fn ask<T: FromRedisValue>(server: &RedisServer, command: &Cmd) -> RedisResult<T> {
    command.query_async(&mut connection(&server.url()).await?).await
}

pub(crate) async fn connection(url: &str) -> RedisResult<MultiplexedConnection> {
    redis::Client::open(url)?.get_multiplexed_async_connection().await
}

pub(crate) fn failed(action: &'static str, error: &redis::RedisError) -> StackError {
    StackError::Redis { action, message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis_server::{blocking, find};

    #[tokio::test]
    async fn nodes_know_each_other_and_come_back() {
        let program = blocking(find).await.unwrap();
        let mut cluster = RedisCluster::start(program, &[]).await.unwrap();
        let port = cluster.nodes()[1].port();
        let set = redis::cmd("SET").arg("foo").arg("bar").clone();
        // slot 12182
        let moved: RedisResult<()> = ask(&cluster.nodes()[0], &set).await;
        let said = moved.unwrap_err();
        assert_eq!(said.redirect_node(), Some((format!("127.0.0.1:{}", cluster.nodes()[2].port()).as_str(), 12182)));
        let () = ask(&cluster.nodes()[2], &set).await.unwrap();
        cluster.node_mut(1).restart().await.unwrap();
        cluster.wait_until_whole().await.unwrap();
        assert_eq!(cluster.nodes()[1].port(), port);
    }
}
