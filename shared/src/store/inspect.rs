//! What servers say of themselves, for people who look after them.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use redis::{Value, from_redis_value};

use super::link::Link;
use super::nodes::{failed, text_of};
use super::{Store, StoreError, is_new_enough};
use crate::time::Instant;

/// A server that serves bookings.
#[derive(Debug, Clone)]
pub struct Server {
    /// Host and port; behind Sentinel those of the primary that the sentinels name.
    pub address: String,
    /// Its version; `None` when it does not say.
    pub version: Option<String>,
    /// Its INFO; `None` when that is forbidden.
    pub info: Option<BTreeMap<String, String>>,
    /// Settings by CONFIG GET; `None` when that is forbidden, as mostly by those who run Redis for others.
    pub settings: Option<BTreeMap<String, String>>,
    /// CLUSTER INFO of a cluster's node; `None` of others, and when that is forbidden.
    pub cluster: Option<BTreeMap<String, String>>,
    /// Its clock.
    pub now: Option<Instant>,
    /// This machine's clock halfway through the question, and how long the question took.
    pub asked: (SystemTime, Duration),
}

impl Server {
    /// A line of INFO.
    #[must_use]
    pub fn line(&self, name: &str) -> Option<&str> {
        self.info.as_ref()?.get(name).map(String::as_str)
    }

    /// A line of INFO as a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.line(name)?.parse().ok()
    }

    /// A setting, by CONFIG GET.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether its version is one that Sendslot works with.
    #[must_use]
    pub fn is_new_enough(&self) -> bool {
        self.version.as_deref().is_some_and(is_new_enough)
    }
}

/// Settings that are asked for.
const SETTINGS: [&str; 6] =
    ["maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write"];

impl Store {
    /// Asks each server that serves bookings, once, about itself: one, or a cluster's primaries. One that does not answer takes
    /// nothing from what the others say.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be learned who serves bookings; inside, when that server does not answer.
    pub async fn inspect(&self) -> Result<Vec<Result<Server, StoreError>>, StoreError> {
        let nodes = &self.0.nodes;
        let table = nodes.table().await?;
        let links = nodes.primaries(&table);
        Ok(join_all(links.iter().map(|link| inspect(link))).await)
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

async fn inspect(link: &Link) -> Result<Server, StoreError> {
    let commands = [
        redis::cmd("INFO"),
        redis::cmd("TIME"),
        redis::cmd("CONFIG").arg("GET").arg(&SETTINGS).clone(),
        redis::cmd("CLUSTER").arg("INFO").clone(),
        redis::cmd("HELLO"),
    ];
    // connected before the clock is read
    link.ask(&[redis::cmd("PING")]).await.map_err(|failure| failed("PING", link, failure))?;
    let (began, clock) = (std::time::Instant::now(), SystemTime::now());
    let replies = link.ask(&commands).await.map_err(|failure| failed("INFO", link, failure))?;
    let took = began.elapsed();
    let [info, time, config, cluster, hello]: [Value; 5] =
        replies.try_into().map_err(|_| StoreError::Reply { script: "INFO", reply: "not five replies".to_owned() })?;
    if let Value::ServerError(error) = &info
        && let login @ StoreError::Login { .. } = StoreError::refused("INFO", &link.address, error.clone().into())
    {
        return Err(login);
    }
    Ok(Server {
        address: link.at().await,
        version: version(&info).or_else(|| version_of_hello(hello)),
        info: lines(&info),
        settings: from_redis_value(config).ok(),
        cluster: lines(&cluster),
        now: from_redis_value::<(u64, u64)>(time).ok().map(|(s, us)| Instant::from_micros(s * 1_000_000 + us)),
        asked: (clock + took / 2, took),
    })
}

/// The version that INFO tells.
pub(super) fn version(info: &Value) -> Option<String> {
    let mut lines = lines(info)?;
    lines.remove("valkey_version").or_else(|| lines.remove("redis_version"))
}

/// The version that HELLO tells, which no ACL forbids.
pub(super) fn version_of_hello(hello: Value) -> Option<String> {
    let mut fields: HashMap<String, Value> = from_redis_value(hello).ok()?;
    from_redis_value(fields.remove("version")?).ok()
}

/// `name:value` lines; `None` of what is no text.
fn lines(reply: &Value) -> Option<BTreeMap<String, String>> {
    let pair = |line: &str| line.trim().split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some(text_of(reply)?.lines().filter_map(pair).collect())
}
