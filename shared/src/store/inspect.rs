//! What servers say of themselves, for people who look after them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use redis::{Value, from_redis_value};

use super::nodes::failed;
use super::{Store, StoreError};
use crate::time::Instant;

/// A server that serves bookings.
#[derive(Debug, Clone)]
pub struct Server {
    /// Host and port.
    pub address: String,
    /// Its INFO.
    pub info: BTreeMap<String, String>,
    /// Settings by CONFIG GET; `None` when that is forbidden, as mostly by those who run Redis for others.
    pub settings: Option<BTreeMap<String, String>>,
    /// CLUSTER INFO of a cluster's node.
    pub cluster: Option<BTreeMap<String, String>>,
    /// Its clock.
    pub now: Option<Instant>,
    /// This machine's clock halfway through the question, and how long the question took.
    pub asked: (SystemTime, Duration),
}

impl Server {
    /// A line of INFO as a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.info.get(name)?.parse().ok()
    }
}

/// Settings that are asked for.
const SETTINGS: [&str; 6] =
    ["maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write"];

impl Store {
    /// Asks each server that serves bookings, once, about itself: one, or a cluster's primaries.
    ///
    /// # Errors
    /// [`StoreError`] when one of them does not answer.
    pub async fn inspect(&self) -> Result<Vec<Server>, StoreError> {
        let nodes = &self.0.nodes;
        let table = nodes.table().await?;
        let links = nodes.primaries(&table);
        let asked = links.iter().map(|link| async move {
            let commands = [
                redis::cmd("INFO"),
                redis::cmd("TIME"),
                redis::cmd("CONFIG").arg("GET").arg(&SETTINGS).clone(),
                redis::cmd("CLUSTER").arg("INFO").clone(),
            ];
            // connected before the clock is read
            link.ask(&[redis::cmd("PING")]).await.map_err(|failure| failed("PING", link, failure))?;
            let (began, clock) = (std::time::Instant::now(), SystemTime::now());
            let replies = link.ask(&commands).await.map_err(|failure| failed("INFO", link, failure))?;
            let took = began.elapsed();
            let [info, time, config, cluster]: [Value; 4] = replies
                .try_into()
                .map_err(|_| StoreError::Reply { script: "INFO", reply: "not four replies".to_owned() })?;
            if let Value::ServerError(error) = info {
                return Err(StoreError::refused("INFO", &link.address, error.into()));
            }
            Ok(Server {
                address: link.address.clone(),
                info: lines(&info),
                settings: from_redis_value(config).ok(),
                cluster: matches!(cluster, Value::BulkString(_) | Value::VerbatimString { .. })
                    .then(|| lines(&cluster)),
                now: from_redis_value::<(u64, u64)>(time).ok().map(|(s, us)| Instant::from_micros(s * 1_000_000 + us)),
                asked: (clock + took / 2, took),
            })
        });
        join_all(asked).await.into_iter().collect()
    }

    /// Up to `most` keys of a pattern, of the server that serves `key`, after at most `looks` looks at a thousand keys each.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) async fn some_keys(
        &self,
        key: &str,
        pattern: &str,
        most: usize,
        looks: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let (mut cursor, mut found) = (0_u64, vec![]);
        for _ in 0..looks {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
            let reply = self.command("SCAN", Some(key), &scan).await?;
            let (next, keys): (u64, Vec<Vec<u8>>) =
                from_redis_value(reply).map_err(|e| StoreError::Refused { script: "SCAN", source: e.into() })?;
            found.extend(keys);
            cursor = next;
            if cursor == 0 || found.len() >= most {
                break;
            }
        }
        found.truncate(most);
        Ok(found)
    }
}

/// `name:value` lines.
fn lines(reply: &Value) -> BTreeMap<String, String> {
    let text = match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text.clone(),
        _ => return BTreeMap::new(),
    };
    let pair = |line: &str| line.trim().split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter_map(pair).collect()
}
