//! Redis: each server that serves bookings by itself: version, memory, persistence, replicas, clock; and the cluster as a whole.

use std::time::{Duration, SystemTime};

use sendslot_shared::deployment::{EVICTION, MEMORY_PART};
use sendslot_shared::store::{MIN_REDIS, Server};

use super::finding::{Findings, Severity};

/// Clocks that are closer together are as good as the same to people.
const SKEW: Duration = Duration::from_secs(1);
/// Deadlines that services give are off by as much.
const LARGE_SKEW: Duration = Duration::from_secs(30);
/// Of a cluster.
const SLOTS: u64 = 16_384;

/// What stands behind `REDIS_URL`: what replicas are worth depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Server,
    Sentinel,
    Cluster,
}

/// Whether all are new enough.
pub(super) fn versions(findings: &mut Findings, servers: &[Server]) -> bool {
    let check = "redis.version";
    for Server { address, version, .. } in servers.iter().filter(|server| server.is_new_enough()) {
        findings.ok(check, &format!("{address}: {}", version.as_deref().unwrap_or_default()));
    }
    let (major, minor) = MIN_REDIS;
    for Server { address, version, .. } in servers.iter().filter(|server| !server.is_new_enough()) {
        let version = version.as_deref().unwrap_or("of unknown version");
        let found = format!("{address}: Redis {version} is too old: {major}.{minor}, or Valkey 7.2, is the oldest");
        findings.error(check, &found, "upgrade the server");
    }
    servers.iter().all(Server::is_new_enough)
}

/// `nodes`: how many servers there are, with those that do not answer.
pub(super) fn check(findings: &mut Findings, servers: &[Server], nodes: usize, url: &str) {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let in_cluster = |server: &Server| server.cluster.is_some() || server.number("cluster_enabled") == Some(1);
    let shape = match () {
        () if scheme.ends_with("sentinel") => Shape::Sentinel,
        () if scheme.ends_with("cluster") || servers.iter().any(in_cluster) => Shape::Cluster,
        () => Shape::Server,
    };
    for server in servers {
        eviction(findings, server);
        memory(findings, server);
        persistence(findings, server);
        replicas(findings, server, shape);
        clock(findings, server);
    }
    if shape == Shape::Cluster {
        cluster(findings, servers, nodes, scheme);
    } else {
        findings.ok("redis.cluster", "no cluster");
    }
}

/// How people check what this user may not ask.
fn by_hand(findings: &mut Findings, check: &'static str, server: &Server, what: &str, how: &str) {
    let found = format!("{}: {what} could not be checked: this user may not ask", server.address);
    let how = format!("as an administrator: redis-cli {how}; of a managed Redis see its settings");
    findings.info(check, &found, &how);
}

fn eviction(findings: &mut Findings, server: &Server) {
    let check = "redis.eviction";
    let remedy = format!("CONFIG SET maxmemory-policy {EVICTION}, or the parameter group of a managed Redis");
    match server.line("maxmemory_policy").or_else(|| server.setting("maxmemory-policy")) {
        None => by_hand(
            findings,
            check,
            server,
            "maxmemory-policy",
            &format!("CONFIG GET maxmemory-policy must say {EVICTION}"),
        ),
        Some(policy) if policy == EVICTION => {
            findings.ok(check, &format!("{}: maxmemory-policy {policy}", server.address))
        }
        Some(policy) => {
            let found = format!(
                "{}: maxmemory-policy is {policy}: bookings are dropped when memory runs short",
                server.address
            );
            findings.error(check, &found, &remedy);
        }
    }
}

fn memory(findings: &mut Findings, server: &Server) {
    let check = "redis.memory";
    let (Some(used), Some(most)) = (server.number("used_memory"), server.number("maxmemory")) else {
        let how = "INFO memory: used_memory should stay below four fifths of maxmemory";
        return by_hand(findings, check, server, "memory", how);
    };
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    if most == 0 {
        let found =
            format!("{}: {} MiB used, no maxmemory: the machine's memory is the limit", server.address, mib(used));
        return findings.info(
            check,
            &found,
            "set maxmemory, so that bookings are refused before the machine ends Redis",
        );
    }
    let found = format!("{}: {} of {} MiB used", server.address, mib(used), mib(most));
    if used as f64 > MEMORY_PART * most as f64 {
        findings.warning(
            check,
            &found,
            "raise maxmemory: when it is used up, bookings are refused (a waiting send takes 200 bytes)",
        );
    } else {
        findings.ok(check, &found);
    }
}

fn persistence(findings: &mut Findings, server: &Server) {
    let check = "redis.persistence";
    let address = &server.address;
    let appends = server.line("aof_enabled").map(|on| on == "1");
    let Some(appends) = appends.or_else(|| server.setting("appendonly").map(|on| on == "yes")) else {
        let how = "CONFIG GET appendonly should say yes, or INFO replication should count replicas";
        return by_hand(findings, check, server, "persistence", how);
    };
    if appends {
        return match server.setting("appendfsync") {
            Some("always") => findings.ok(check, &format!("{address}: appendonly, at every write")),
            Some("no") => {
                let found = format!("{address}: appendfsync is no: a crash loses what the system has not written");
                findings.warning(check, &found, "CONFIG SET appendfsync everysec");
            }
            Some(_) => {
                let found = "appendonly: a crash loses a second, and sends of that second may be repeated";
                findings.ok(check, &format!("{address}: {found}"));
            }
            None => {
                let what = "there is an appendonly file; appendfsync";
                by_hand(findings, check, server, what, "CONFIG GET appendfsync should not say no");
            }
        };
    }
    let (lost, remedy) = ("bookings are lost, and sends may be repeated", "CONFIG SET appendonly yes");
    match (server.setting("save").map(|save| !save.is_empty()), online_replicas(server).unwrap_or(0)) {
        (_, replicas @ 1..) => {
            let found =
                format!("{address}: no appendonly file; a failover to one of {replicas} replicas keeps the data");
            findings.info(check, &found, &format!("if all may end at once: {remedy}"));
        }
        (Some(true), _) => {
            let found = format!("{address}: snapshots alone: in a crash minutes of {lost}");
            findings.warning(check, &found, remedy);
        }
        (Some(false), _) => {
            findings.warning(check, &format!("{address}: nothing is kept: in a restart all {lost}"), remedy);
        }
        (None, _) => {
            let found = format!(
                "{address}: no appendonly file and no replica (snapshots could not be checked): in a crash {lost}"
            );
            findings.warning(check, &found, &format!("{remedy}, or replicas that take over"));
        }
    }
}

/// Those that have the data; `None` when it may not be asked.
fn online_replicas(server: &Server) -> Option<u64> {
    let is_online = |(name, line): &(&String, &String)| {
        name.strip_prefix("slave").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
            && line.split(',').any(|field| field == "state=online")
    };
    Some(server.info.as_ref()?.iter().filter(is_online).count() as u64)
}

fn replicas(findings: &mut Findings, server: &Server, shape: Shape) {
    let check = "redis.replicas";
    let address = &server.address;
    let Some(replicas) = online_replicas(server) else {
        let how = "INFO replication: a primary that somebody may replace has one or more lines with state=online";
        return by_hand(findings, check, server, "the number of replicas", how);
    };
    if server.line("role") == Some("slave") {
        let of = |name| server.line(name).unwrap_or("?");
        let found =
            format!("{address}: a replica of {}:{}, which refuses bookings", of("master_host"), of("master_port"));
        let remedy = "name the primary in REDIS_URL, or the sentinels: redis+sentinel://host:port,host:port/name";
        return findings.error(check, &found, remedy);
    }
    let least = server.setting("min-replicas-to-write").and_then(|least| least.parse::<u64>().ok());
    if let Some(least) = least.filter(|least| *least > replicas) {
        let found = format!("{address}: {replicas} replicas, min-replicas-to-write {least}");
        let remedy = "bookings are refused (NOREPLICAS): start the replicas, or lower min-replicas-to-write";
        return findings.error(check, &found, remedy);
    }
    match (shape, replicas, least) {
        (Shape::Cluster, 0, _) => {
            let found = format!("{address}: a primary without replica: when it ends, nobody serves its slots");
            let remedy = format!("redis-cli --cluster add-node NEW-HOST:PORT {address} --cluster-slave");
            findings.warning(check, &found, &remedy);
        }
        (Shape::Sentinel, 0, _) => {
            let found =
                format!("{address}: a primary without replica: when it ends, the sentinels have none to promote");
            findings.warning(check, &found, "start a replica of it: REPLICAOF host port");
        }
        (_, _, None) => {
            let (what, how) = (
                format!("{replicas} replicas; min-replicas-to-write"),
                "CONFIG GET min-replicas-to-write: 1 keeps a primary that is cut off from booking",
            );
            by_hand(findings, check, server, &what, how);
        }
        (_, 1.., Some(0)) => {
            let found = format!("{address}: {replicas} replicas, min-replicas-to-write 0");
            let remedy = "CONFIG SET min-replicas-to-write 1, if a primary that is cut off shall not go on booking";
            findings.info(check, &found, remedy);
        }
        (_, _, Some(least)) => {
            findings.ok(check, &format!("{address}: {replicas} replicas, min-replicas-to-write {least}"));
        }
    }
}

/// Each node says what it knows; the one that knows of the most uncovered slots is told.
fn cluster(findings: &mut Findings, servers: &[Server], nodes: usize, scheme: &str) {
    let check = "redis.cluster";
    let number = |server: &Server, name: &str| server.cluster.as_ref()?.get(name)?.parse::<u64>().ok();
    let served = servers.iter().filter_map(|server| Some((number(server, "cluster_slots_ok")?, server)));
    let Some((served, node)) = served.min_by_key(|(served, _)| *served) else {
        let found = "the cluster's state could not be checked: this user may not ask CLUSTER INFO";
        return findings.info(check, found, "as an administrator: redis-cli --cluster check HOST:PORT");
    };
    let assigned = number(node, "cluster_slots_assigned").unwrap_or(SLOTS);
    if assigned < SLOTS {
        let found = format!(
            "{} of {SLOTS} slots are nobody's, as {} says: budgets in them have no bookings",
            SLOTS - assigned,
            node.address
        );
        return findings.error(check, &found, &format!("redis-cli --cluster fix {}", node.address));
    }
    if served < SLOTS {
        let found = format!("{} of {SLOTS} slots are served by nobody, as {} says", SLOTS - served, node.address);
        let remedy = "start the node that is away (CLUSTER NODES names it), or let a replica of it take over";
        return findings.error(check, &found, remedy);
    }
    let not_ok = |server: &&Server| {
        server.cluster.as_ref().and_then(|info| info.get("cluster_state")).is_some_and(|state| state != "ok")
    };
    if let Some(node) = servers.iter().find(not_ok) {
        let found = format!("{}: cluster_state is not ok: it refuses bookings", node.address);
        return findings.error(check, &found, "see CLUSTER NODES: does it reach most of the primaries?");
    }
    let found = format!("a cluster of {nodes} primaries, which serve all slots");
    if scheme.ends_with("cluster") {
        findings.ok(check, &found);
    } else {
        let remedy = "name several of its nodes (redis+cluster://host:port,host:port), so that processes start when that one is away";
        findings.info(check, &format!("{found}, of which REDIS_URL names one node"), remedy);
    }
}

/// Only for people: slots and deadlines are by Redis' clock, and no process compares that with its own.
fn clock(findings: &mut Findings, server: &Server) {
    let (check, address) = ("redis.clock", &server.address);
    let Some(now) = server.now.map(|now| now.to_system_time()) else {
        let found = format!("{address}: its clock could not be read");
        return findings.info(check, &found, "allow TIME: no script works without it");
    };
    let (here, took) = server.asked;
    let skew = apart(now, here).saturating_sub(took / 2);
    let ahead = if now > here { "ahead of" } else { "behind" };
    if skew < SKEW {
        return findings.ok(check, &format!("{address}: its clock is this machine's, to a second"));
    }
    let found = format!("{address}: its clock is {:.1} s {ahead} this machine's", skew.as_secs_f64());
    let severity = if skew < LARGE_SKEW { Severity::Info } else { Severity::Warning };
    let remedy = "slots are not touched by it; `not_before`, deadlines and what people read are off by that: let NTP set both clocks";
    findings.add(severity, check, &found, remedy);
}

fn apart(a: SystemTime, b: SystemTime) -> Duration {
    a.duration_since(b).unwrap_or_else(|earlier| earlier.duration())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        check: impl Fn(&mut Findings, &Server),
        info: &[(&str, &str)],
        settings: Option<&[(&str, &str)]>,
    ) -> Severity {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let asked = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000), Duration::from_millis(1));
        let at = info.iter().find(|(name, _)| *name == "clock").map_or("1000000", |(_, value)| value);
        let now = Some(sendslot_shared::time::Instant::from_micros(at.parse::<u64>().unwrap() * 1_000_000));
        let server = Server {
            address: "h:1".into(),
            version: Some("7.0.15".into()),
            info: Some(map(info)),
            settings: settings.map(map),
            cluster: None,
            now,
            asked,
        };
        let mut findings = Findings::default();
        check(&mut findings, &server);
        findings.worst()
    }

    #[test]
    fn memory_is_short_above_four_fifths() {
        let at = |used: &str| found(memory, &[("used_memory", used), ("maxmemory", "100")], None);
        assert_eq!([at("80"), at("81")], [Severity::Ok, Severity::Warning]);
    }

    #[test]
    fn replicas_that_have_the_data_alone_count() {
        let line = |state: &str| format!("ip=::1,port=7001,state={state},offset=5,lag=0");
        let count = |states: &[&str]| {
            let lines: Vec<_> =
                states.iter().enumerate().map(|(i, state)| (format!("slave{i}"), line(state))).collect();
            let info: Vec<_> = lines.iter().map(|(name, line)| (name.as_str(), line.as_str())).collect();
            found(
                |findings, server| replicas(findings, server, Shape::Sentinel),
                &info,
                Some(&[("min-replicas-to-write", "1")]),
            )
        };
        assert_eq!(
            [count(&["online"]), count(&["wait_bgsave"]), count(&[])],
            [Severity::Ok, Severity::Error, Severity::Error]
        );
    }

    #[test]
    fn a_clock_that_is_off_matters_to_people_alone() {
        let at = |s: &str| found(clock, &[("clock", s)], None);
        assert_eq!([at("1000000"), at("999990"), at("1000040")], [Severity::Ok, Severity::Info, Severity::Warning]);
    }
}
