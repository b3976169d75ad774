//! Redis: memory, persistence, cluster, replicas, clock.

use std::time::{Duration, SystemTime};

use sendslot_shared::deployment::{EVICTION, MEMORY_PART};
use sendslot_shared::store::Server;

use super::finding::{Findings, Severity};

/// Clocks that are closer together are as good as the same to people.
const SKEW: Duration = Duration::from_secs(1);
/// Deadlines that services give are off by as much.
const LARGE_SKEW: Duration = Duration::from_secs(30);

pub(super) fn check(findings: &mut Findings, servers: &[Server], url: &str) {
    for server in servers {
        eviction(findings, server);
        memory(findings, server);
        persistence(findings, server);
        replicas(findings, server);
    }
    cluster(findings, servers, url);
    if let Some(server) = servers.first() {
        clock(findings, server);
    }
}

fn eviction(findings: &mut Findings, server: &Server) {
    let check = "redis.eviction";
    let setting = |settings: &std::collections::BTreeMap<String, String>| settings.get("maxmemory-policy").cloned();
    match server.info.get("maxmemory_policy").cloned().or_else(|| server.settings.as_ref().and_then(setting)) {
        None => findings.info(check, &format!("{}: maxmemory-policy could not be checked", server.address), &remedy()),
        Some(policy) if policy == EVICTION => {
            findings.ok(check, &format!("{}: maxmemory-policy {policy}", server.address))
        }
        Some(policy) => {
            let found = format!(
                "{}: maxmemory-policy is {policy}: bookings are dropped when memory runs short",
                server.address
            );
            findings.error(check, &found, &remedy());
        }
    }
}

fn remedy() -> String {
    format!("CONFIG SET maxmemory-policy {EVICTION}, or the parameter group of a managed Redis")
}

fn memory(findings: &mut Findings, server: &Server) {
    let check = "redis.memory";
    let (Some(used), Some(most)) = (server.number("used_memory"), server.number("maxmemory")) else {
        return findings.info(
            check,
            &format!("{}: memory could not be checked", server.address),
            "look at INFO memory",
        );
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
    let replicas = server.number("connected_slaves").unwrap_or(0);
    if server.number("aof_enabled") == Some(1) {
        let every = server.settings.as_ref().and_then(|settings| settings.get("appendfsync"));
        let found = match every.map(String::as_str) {
            Some("always") => "appendonly, at every write".to_owned(),
            Some("no") => {
                let found =
                    format!("{}: appendfsync is no: a crash loses what the system has not written", server.address);
                return findings.warning(check, &found, "CONFIG SET appendfsync everysec");
            }
            _ => "appendonly: a crash loses a second, and sends of that second may be repeated".to_owned(),
        };
        return findings.ok(check, &format!("{}: {found}", server.address));
    }
    let saves = server.settings.as_ref().map(|settings| settings.get("save").is_some_and(|save| !save.is_empty()));
    let (lost, remedy) = ("bookings are lost, and sends may be repeated", "CONFIG SET appendonly yes");
    match (saves, replicas) {
        (_, 1..) => {
            let found = format!(
                "{}: no appendonly file; a failover to one of {replicas} replicas keeps the data",
                server.address
            );
            findings.info(check, &found, &format!("if all may end at once: {remedy}"));
        }
        (Some(true), _) => {
            let found = format!("{}: snapshots alone: in a crash minutes of {lost}", server.address);
            findings.warning(check, &found, remedy);
        }
        (Some(false), _) => {
            findings.warning(check, &format!("{}: nothing is kept: in a restart all {lost}", server.address), remedy);
        }
        (None, _) => {
            let found = format!("{}: no appendonly file, and snapshots could not be checked", server.address);
            findings.warning(check, &found, &format!("{remedy}, or replicas that take over"));
        }
    }
}

fn replicas(findings: &mut Findings, server: &Server) {
    let check = "redis.replicas";
    let replicas = server.number("connected_slaves").unwrap_or(0);
    let least =
        server.settings.as_ref().and_then(|settings| settings.get("min-replicas-to-write")?.parse::<u64>().ok());
    let least_said = least.map_or("could not be checked".to_owned(), |n| n.to_string());
    let found = format!("{}: {replicas} replicas, min-replicas-to-write {least_said}", server.address);
    if least.is_some_and(|least| least > replicas) {
        findings.error(
            check,
            &found,
            "bookings are refused (NOREPLICAS): start the replicas, or lower min-replicas-to-write",
        );
    } else if replicas > 0 && least == Some(0) {
        let remedy = "CONFIG SET min-replicas-to-write 1, if a primary that is cut off shall not go on booking";
        findings.info(check, &found, remedy);
    } else {
        findings.ok(check, &found);
    }
}

fn cluster(findings: &mut Findings, servers: &[Server], url: &str) {
    let check = "redis.cluster";
    let in_cluster = |server: &&Server| server.number("cluster_enabled") == Some(1);
    let Some(node) = servers.iter().find(in_cluster) else {
        return findings.ok(check, "no cluster");
    };
    let state = node.cluster.as_ref().and_then(|info| info.get("cluster_state"));
    if state.is_some_and(|state| state != "ok") {
        let found = format!("{}: cluster_state is {}", node.address, state.map_or("unknown", String::as_str));
        return findings.error(check, &found, "see CLUSTER NODES: some slots are served by nobody");
    }
    let named = url.split_once("://").is_some_and(|(scheme, _)| scheme.ends_with("cluster"));
    let found = format!("a cluster of {} primaries", servers.len());
    if named {
        findings.ok(check, &found);
    } else {
        let remedy = "name several of its nodes (redis+cluster://host:port,host:port), so that processes start when that one is away";
        findings.info(check, &format!("{found}, of which REDIS_URL names one node"), remedy);
    }
}

/// Only for people: slots and deadlines are by Redis' clock, and no process compares that with its own.
fn clock(findings: &mut Findings, server: &Server) {
    let check = "redis.clock";
    let Some(now) = server.now.map(|now| now.to_system_time()) else {
        return findings.info(check, "its clock could not be read", "allow TIME: no script works without it");
    };
    let (here, took) = server.asked;
    let skew = apart(now, here).saturating_sub(took / 2);
    let ahead = if now > here { "ahead of" } else { "behind" };
    let found = format!("Redis' clock is {:.1} s {ahead} this machine's", skew.as_secs_f64());
    if skew < SKEW {
        return findings.ok(check, "Redis' clock is this machine's, to a second");
    }
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
        let server =
            Server { address: "h:1".into(), info: map(info), settings: settings.map(map), cluster: None, now, asked };
        let mut findings = Findings::default();
        check(&mut findings, &server);
        findings.worst()
    }

    /// What no server here can be made to say.
    #[test]
    fn where_config_is_forbidden_info_is_the_fallback() {
        use Severity::{Error, Info, Ok, Warning};
        assert_eq!(found(eviction, &[("maxmemory_policy", "noeviction")], None), Ok);
        assert_eq!(found(eviction, &[("maxmemory_policy", "volatile-lru")], None), Error);
        assert_eq!(found(eviction, &[], None), Info);
        assert_eq!(found(persistence, &[("aof_enabled", "1")], None), Ok);
        assert_eq!(found(persistence, &[("aof_enabled", "0")], None), Warning);
        assert_eq!(found(persistence, &[("aof_enabled", "0"), ("connected_slaves", "2")], None), Info);
        assert_eq!(found(memory, &[("used_memory", "81"), ("maxmemory", "100")], None), Warning);
        assert_eq!(found(memory, &[("used_memory", "80"), ("maxmemory", "100")], None), Ok);
        assert_eq!(found(replicas, &[], Some(&[("min-replicas-to-write", "1")])), Error);
    }

    #[test]
    fn a_clock_that_is_off_matters_to_people_alone() {
        let at = |s: &str| found(clock, &[("clock", s)], None);
        assert_eq!([at("1000000"), at("999990"), at("1000040")], [Severity::Ok, Severity::Info, Severity::Warning]);
    }
}
