//! Whom to ask: the one server, the primary that the sentinels name, or the cluster's node that serves a key's slot.
//!
//! Redis-rs' own cluster connection is not used. It repeats a whole pipeline for one error in it, sends ASKING for the first command
//! of a pipeline alone, keeps a connection that timed out, and lets a node that hangs hold up the calls to the others.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::select_ok;
use redis::{ConnectionInfo, Value};

use super::address::{Servers, sibling};
use super::error::StoreError;
use super::link::{Failure, Link};

/// A node that is away is no reason to ask the others for the slots more often.
const LEARN_AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Nodes {
    /// What the URL names.
    seeds: Vec<Arc<Link>>,
    /// How the nodes are reached that the cluster names; none are behind Sentinel.
    way: Option<ConnectionInfo>,
    /// The URL names one server, which may be a node of a cluster.
    alone: bool,
    table: Mutex<Arc<Table>>,
    /// The last failure to learn.
    learning: tokio::sync::Mutex<Option<StoreError>>,
    failures: AtomicU64,
}

/// Who serves what. Without slots there is one server, which serves everything.
#[derive(Clone, Default)]
pub(super) struct Table {
    pub(super) version: u64,
    slots: Vec<Slots>,
    /// All links by host and port.
    links: HashMap<String, Arc<Link>>,
    /// When the servers were last asked what they are.
    learned: Option<Instant>,
}

#[derive(Clone)]
struct Slots {
    first: u16,
    last: u16,
    link: Arc<Link>,
}

impl Table {
    pub(super) fn is_cluster(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Takes over what a node says. Links in use are kept, with their connections.
    fn serve(&mut self, ranges: Vec<Range>, way: &ConnectionInfo) {
        let mut old = std::mem::take(&mut self.links);
        self.slots = ranges
            .into_iter()
            .map(|(first, last, host, port)| Slots { first, last, link: link_to(&mut old, way, &host, port) })
            .collect();
        self.links = self.slots.iter().map(|s| (s.link.address.clone(), s.link.clone())).collect();
        self.version += 1;
        self.learned = Some(Instant::now());
    }

    pub(super) fn serving(&self, slot: u16) -> Option<&Arc<Link>> {
        self.slots.iter().find(|s| (s.first..=s.last).contains(&slot)).map(|s| &s.link)
    }
}

impl Nodes {
    pub(super) fn new(servers: Servers, shown: &str) -> Self {
        let alone = matches!(servers, Servers::One(_));
        let (seeds, way, learned) = match servers {
            Servers::Sentinel(client) => {
                (vec![Link::to_primary(*client, shown.to_owned())], None, Some(Instant::now()))
            }
            Servers::One(info) => (vec![Link::to_server((*info).clone())], Some(*info), None),
            Servers::Cluster(infos) => {
                let way = infos.first().cloned();
                (infos.into_iter().map(Link::to_server).collect(), way, None)
            }
        };
        let seeds: Vec<Arc<Link>> = seeds.into_iter().map(Arc::new).collect();
        let links = seeds.iter().map(|link| (link.address.clone(), link.clone())).collect();
        let table = Mutex::new(Arc::new(Table { links, learned, ..Table::default() }));
        Self { seeds, way, alone, table, learning: tokio::sync::Mutex::default(), failures: AtomicU64::new(0) }
    }

    fn known(&self) -> Arc<Table> {
        self.change(|table| table.clone())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Arc<Table>) -> T) -> T {
        change(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who serves what, asked once.
    pub(super) async fn table(&self) -> Result<Arc<Table>, StoreError> {
        let table = self.known();
        if table.learned.is_some() {
            return Ok(table);
        }
        if let Some(one) = self.seeds.first().filter(|_| self.alone) {
            // CLUSTER INFO for those who may not ask INFO; who may ask neither hears MOVED in time
            let commands = [redis::cmd("INFO").arg("cluster").clone(), redis::cmd("CLUSTER").arg("INFO").clone()];
            let replies = one.ask(&commands).await.map_err(|failure| failed("INFO", one, failure))?;
            let is_node = match replies.as_slice() {
                [Value::ServerError(_), cluster] => has_line(cluster, "cluster_state:"),
                [info, ..] => has_line(info, "cluster_enabled:1"),
                [] => false,
            };
            if !is_node {
                self.change(|table| Arc::make_mut(table).learned = Some(Instant::now()));
                return Ok(self.known());
            }
        }
        self.learn(None, table.version).await?;
        Ok(self.known())
    }

    /// The link for a slot. What has no key goes to any node, to another one each time that one did not answer.
    pub(super) fn link(&self, table: &Table, slot: Option<u16>, tries: usize) -> Arc<Link> {
        let any = || {
            let all: Vec<&Arc<Link>> = table.slots.iter().map(|s| &s.link).chain(&self.seeds).collect();
            all[tries % all.len()].clone()
        };
        slot.and_then(|slot| table.serving(slot).cloned()).unwrap_or_else(any)
    }

    /// All servers that serve bookings.
    pub(super) fn primaries(&self, table: &Table) -> Vec<Arc<Link>> {
        let mut all: Vec<Arc<Link>> = table.slots.iter().map(|slots| slots.link.clone()).collect();
        if all.is_empty() {
            all.extend(self.seeds.first().cloned());
        }
        all.sort_by(|a, b| a.address.cmp(&b.address));
        all.dedup_by(|a, b| a.address == b.address);
        all
    }

    /// The link that a redirection of this node names: `3999 host:port`, without a host when it is the node's own.
    pub(super) fn named(&self, detail: Option<&str>, by: &Link) -> Option<Arc<Link>> {
        let (host, port) = detail?.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
        let host = if host.is_empty() { by.host() } else { host };
        let way = self.way.as_ref()?;
        let port = port.parse().ok()?;
        Some(self.change(|table| link_to(&mut Arc::make_mut(table).links, way, host, port)))
    }

    /// Asks this node for the slots, or else whichever answers first; once for all callers that know the same table.
    pub(super) async fn learn(&self, node: Option<&Arc<Link>>, version: u64) -> Result<(), StoreError> {
        let failures = self.failures.load(SeqCst);
        let mut failure = self.learning.lock().await;
        // It failed while this caller waited: one failure is everybody's.
        if let Some(failure) = failure.clone().filter(|_| self.failures.load(SeqCst) != failures) {
            return Err(failure);
        }
        let table = self.known();
        let Some(way) = self.way.as_ref().filter(|_| table.version == version) else { return Ok(()) };
        let all = table.links.values().chain(&self.seeds);
        let asked: Vec<&Arc<Link>> = node.map_or_else(|| all.collect(), |node| vec![node]);
        match select_ok(asked.into_iter().map(|link| Box::pin(slots_of(link)))).await {
            Ok((ranges, _)) => self.change(|table| Arc::make_mut(table).serve(ranges, way)),
            Err(error) => {
                *failure = Some(error.clone());
                self.failures.fetch_add(1, SeqCst);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Like [`Nodes::learn`], after a node was away: its slots may be another's by now.
    pub(super) async fn learn_again(&self, table: &Table) {
        if table.is_cluster() && table.learned.is_none_or(|at| at.elapsed() >= LEARN_AGAIN) {
            self.change(|table| Arc::make_mut(table).learned = Some(Instant::now()));
            // the caller's own error says more than this one's
            let _ = tokio::time::timeout(LEARN_AGAIN, self.learn(None, table.version)).await;
        }
    }
}

fn link_to(links: &mut HashMap<String, Arc<Link>>, way: &ConnectionInfo, host: &str, port: u16) -> Arc<Link> {
    let link = || Arc::new(Link::to_server(sibling(way, host, port)));
    links.entry(format!("{host}:{port}")).or_insert_with(link).clone()
}

/// First and last slot, and host and port of their primary.
type Range = (u16, u16, String, u16);

/// Who serves what, as this node knows it.
async fn slots_of(link: &Arc<Link>) -> Result<Vec<Range>, StoreError> {
    const NAME: &str = "CLUSTER SLOTS";
    let replies = link.ask(&[redis::cmd("CLUSTER").arg("SLOTS").clone()]).await;
    match replies.map_err(|failure| failed(NAME, link, failure))?.pop() {
        Some(Value::ServerError(e)) => Err(StoreError::refused(NAME, &link.address, e.into())),
        Some(reply) => ranges(&reply, link.host()).filter(|ranges| !ranges.is_empty()).ok_or_else(|| {
            let reply = format!("{reply:?}").chars().take(200).collect();
            StoreError::Reply { script: NAME, reply }
        }),
        None => Err(StoreError::Reply { script: NAME, reply: "nothing".to_owned() }),
    }
}

pub(super) fn failed(name: &'static str, link: &Link, failure: Failure) -> StoreError {
    match failure {
        Failure::Away(source) | Failure::Lost(source) => StoreError::unreachable(&link.address, source),
        Failure::Odd(source) => StoreError::refused(name, &link.address, source),
    }
}

fn ranges(reply: &Value, own: &str) -> Option<Vec<Range>> {
    let number = |value: &Value| if let Value::Int(n) = value { u16::try_from(*n).ok() } else { None };
    let mut all = vec![];
    let Value::Array(items) = reply else { return None };
    for item in items {
        let Value::Array(fields) = item else { return None };
        let [first, last, Value::Array(primary), ..] = fields.as_slice() else { return None };
        let [host, port, ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::BulkString(name) => String::from_utf8_lossy(name).into_owned(),
            _ => String::new(),
        };
        match host.as_str() {
            // its address is not known yet
            "?" => {}
            // the same as the one that was asked
            "" => all.push((number(first)?, number(last)?, own.to_owned(), number(port)?)),
            _ => all.push((number(first)?, number(last)?, host, number(port)?)),
        }
    }
    Some(all)
}

fn has_line(reply: &Value, start: &str) -> bool {
    text_of(reply).is_some_and(|text| text.lines().any(|line| line.starts_with(start)))
}

/// A reply that is text, in any of the forms that it may have.
pub(super) fn text_of(reply: &Value) -> Option<Cow<'_, str>> {
    match reply {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes)),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn slots_are_read_with_hosts_that_are_left_out() {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![])]);
        let range = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let reply = Value::Array(vec![
            range(0, 99, node(text("10.0.0.1"), 7000)),
            range(100, 199, node(Value::Nil, 7001)),
            range(200, 299, node(text(""), 7002)),
            range(300, 399, node(text("?"), 7003)),
        ]);
        let own = || "seed".to_owned();
        let known = vec![(0, 99, "10.0.0.1".to_owned(), 7000), (100, 199, own(), 7001), (200, 299, own(), 7002)];
        assert_eq!(ranges(&reply, "seed"), Some(known));
        assert_eq!(ranges(&Value::Nil, "seed"), None);
        assert_eq!(ranges(&Value::Array(vec![Value::Int(1)]), "seed"), None);
    }
}
