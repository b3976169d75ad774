//! `sendslot doctor` where Redis is a cluster, stands behind Sentinel, or may not be asked everything.

use std::time::Instant;

use redis::{Cmd, FromRedisValue};
use sendslot_localstack::{RedisCluster, RedisSentinel, free_port};

use super::*;

/// What the report says so badly: the check, and its words with the remedy.
fn of(report: &Value, severity: &str) -> Vec<(String, String)> {
    let all = report["findings"].as_array().expect("findings").iter();
    let such = all.filter(|finding| finding["severity"] == severity);
    such.map(|finding| (finding["check"].as_str().expect("a name").to_owned(), finding.to_string())).collect()
}

/// Exactly these checks are so bad, and each says these words.
fn assert_found(report: &Value, severity: &str, expected: &[(&str, &[&str])]) {
    let found = of(report, severity);
    let checks = |all: Vec<&str>| -> Vec<String> {
        let mut all: Vec<_> = all.into_iter().map(str::to_owned).collect();
        all.sort();
        all
    };
    let expected_checks = checks(expected.iter().map(|(check, _)| *check).collect());
    assert_eq!(checks(found.iter().map(|(check, _)| check.as_str()).collect()), expected_checks, "{report:#}");
    for (check, words) in expected {
        let says = |text: &str| words.iter().all(|word| text.contains(word));
        assert!(found.iter().any(|(of, text)| of == check && says(text)), "{check} {words:?} in {report:#}");
    }
}

async fn on<T: FromRedisValue>(server: &RedisServer, command: &mut Cmd) -> T {
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
    command.query_async(&mut connection).await.expect("the command runs")
}

async fn config(server: &RedisServer, name: &str, value: &str) {
    let () = on(server, redis::cmd("CONFIG").arg("SET").arg(name).arg(value)).await;
}

fn address(server: &RedisServer) -> String {
    format!("127.0.0.1:{}", server.port())
}

impl Desk {
    /// A healthy deployment on this Redis.
    async fn healthy_on(name: &str, url: &str) -> Self {
        let desk = Self::healthy(name).await.with("REDIS_URL", url);
        desk.set_sms().await;
        desk
    }

    async fn report(&self) -> Value {
        self.doctor().await.json()
    }

    /// Asks until it says so.
    async fn comes_to_say(&self, severity: &str, check: &str, words: &[&str]) -> Value {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            let report = self.report().await;
            let says = |(of, text): &(String, String)| of == check && words.iter().all(|word| text.contains(word));
            if of(&report, severity).iter().any(says) {
                return report;
            }
            assert!(Instant::now() < limit, "{severity} {check} {words:?} in {report:#}");
        }
    }
}

#[tokio::test]
async fn each_primary_of_a_cluster_is_checked_and_named() {
    let program = bundled_redis().expect("a redis-server");
    let mut cluster = RedisCluster::start(program, &[("appendonly", "yes")]).await.unwrap();
    let desk = Desk::healthy_on("doctor-cluster", &cluster.url()).await;
    let addresses: Vec<String> = cluster.nodes().iter().map(address).collect();
    let report = desk.report().await;
    let alone = |i: usize| ("redis.replicas", addresses[i].as_str());
    assert_found(&report, "error", &[]);
    let expected: Vec<(&str, [&str; 2])> =
        (0..3).map(alone).map(|(check, at)| (check, [at, "without replica"])).collect();
    let expected: Vec<(&str, &[&str])> = expected.iter().map(|(check, words)| (*check, words.as_slice())).collect();
    assert_found(&report, "warning", &expected);

    let mut replicas = vec![];
    for node in 0..3 {
        replicas.push(cluster.start_replica(node).await.unwrap());
    }
    // a replica counts from its first acknowledgement on
    let limit = Instant::now() + Duration::from_secs(60);
    let healthy = loop {
        let ran = desk.doctor().await;
        if ran.code == 0 {
            break ran;
        }
        assert!(Instant::now() < limit, "{:#}", ran.json());
    };
    let report = healthy.json();
    let checks = ["version", "eviction", "memory", "persistence", "replicas", "clock"];
    for (check, at) in checks.iter().flat_map(|check| addresses.iter().map(move |at| (check, at))) {
        let names = |finding: &&Value| {
            finding["check"] == format!("redis.{check}") && finding["found"].as_str().unwrap().contains(at)
        };
        assert_eq!(report["findings"].as_array().unwrap().iter().filter(names).count(), 1, "{check} {at} {report:#}");
    }
    assert!(healthy.stdout.contains("a cluster of 3 primaries, which serve all slots"), "{report:#}");

    config(&cluster.nodes()[1], "maxmemory-policy", "allkeys-lru").await;
    desk.finds("error", "redis.eviction", &[&addresses[1], "allkeys-lru", "noeviction"]).await;
    // one node of the URL leads to all
    let one = Desk::healthy("doctor-cluster-one").await.with("REDIS_URL", &cluster.nodes()[0].url());
    one.finds("error", "redis.eviction", &[&addresses[1], "allkeys-lru"]).await;
    config(&cluster.nodes()[1], "maxmemory-policy", "noeviction").await;
    config(&cluster.nodes()[2], "maxmemory", "1000000").await;
    desk.finds("warning", "redis.memory", &[&addresses[2], "raise maxmemory"]).await;
    config(&cluster.nodes()[2], "maxmemory", "0").await;
    config(&cluster.nodes()[0], "min-replicas-to-write", "2").await;
    desk.finds("error", "redis.replicas", &[&addresses[0], "NOREPLICAS"]).await;
    config(&cluster.nodes()[0], "min-replicas-to-write", "0").await;
    config(&cluster.nodes()[0], "appendfsync", "no").await;
    desk.finds("warning", "redis.persistence", &[&addresses[0], "appendfsync"]).await;
    config(&cluster.nodes()[0], "appendfsync", "everysec").await;
    replicas.remove(1).stop().await;
    let report = desk.comes_to_say("warning", "redis.replicas", &[&addresses[1], "without replica"]).await;
    assert_found(&report, "warning", &[("redis.replicas", &[&addresses[1], "--cluster-slave"])]);
}

#[tokio::test]
async fn a_cluster_whose_slots_nobody_serves_is_found() {
    let server = RedisServer::start().await.unwrap();
    let mut cluster = RedisCluster::start(server.program(), &[]).await.unwrap();
    let desk = Desk::healthy_on("doctor-slots", &cluster.url()).await;
    let addresses: Vec<String> = cluster.nodes().iter().map(address).collect();
    // the others are checked all the same
    cluster.node_mut(1).kill();
    let report = desk.comes_to_say("error", "redis.cluster", &["5461 of 16384 slots are served by nobody"]).await;
    assert!(of(&report, "error").iter().any(|(check, text)| check == "redis.answers" && text.contains(&addresses[1])));
    for at in [&addresses[0], &addresses[2]] {
        assert!(of(&report, "ok").iter().any(|(check, text)| check == "redis.eviction" && text.contains(at)));
    }
    cluster.node_mut(1).restart().await.unwrap();
    cluster.wait_until_whole().await.unwrap();
    for node in cluster.nodes() {
        let () = on(node, redis::cmd("CLUSTER").arg("DELSLOTS").arg(100).arg(200)).await;
    }
    let report = desk.comes_to_say("error", "redis.cluster", &["2 of 16384 slots are nobody's", "--cluster fix"]).await;
    assert_eq!(report["worst"], "error");
    // a cluster that then serves nothing says so itself
    let full = RedisCluster::start(server.program(), &[("cluster-require-full-coverage", "yes")]).await.unwrap();
    for node in full.nodes() {
        let () = on(node, redis::cmd("CLUSTER").arg("DELSLOTS").arg(100)).await;
    }
    let desk = desk.with("REDIS_URL", &full.url());
    desk.comes_to_say("error", "redis.cluster", &["1 of 16384 slots are nobody's"]).await;
}

#[tokio::test]
async fn behind_sentinel_the_primary_of_the_moment_is_checked_and_its_replicas_count() {
    let program = bundled_redis().expect("a redis-server");
    let mut servers = RedisSentinel::start(program).await.unwrap();
    let desk = Desk::healthy_on("doctor-sentinel", &servers.url()).await;
    let (first, second) = (address(&servers.primary), address(&servers.replica));
    config(&servers.replica, "maxmemory-policy", "allkeys-lru").await;
    let healthy = desk.doctor().await;
    assert_eq!(healthy.code, 0, "{:#}", healthy.json());
    assert_found(&healthy.json(), "warning", &[]);
    let report = healthy.json();
    let infos = of(&report, "info");
    assert!(
        infos.iter().any(|(check, text)| check == "redis.replicas" && text.contains(&format!("{first}: 1 replicas")))
    );
    assert!(infos.iter().any(|(check, text)| check == "redis.persistence" && text.contains("one of 1 replicas")));
    assert!(!report.to_string().contains(&second), "{report:#}");
    // a replica is no server to name
    let direct = Desk::healthy("doctor-replica").await.with("REDIS_URL", &servers.replica.url());
    let report = direct.report().await;
    let of_replica = format!("a replica of {first}");
    assert!(of(&report, "error").iter().any(|(check, text)| check == "redis.replicas" && text.contains(&of_replica)));
    let acknowledged: i64 = on(&servers.primary, redis::cmd("WAIT").arg(1).arg(10_000)).await;
    assert_eq!(acknowledged, 1);
    servers.primary.kill();
    let report = desk.comes_to_say("error", "redis.eviction", &[&second, "allkeys-lru"]).await;
    assert_found(&report, "error", &[("redis.eviction", &[&second])]);
    let alone: (&str, &[&str]) = ("redis.replicas", &[&second, "none to promote"]);
    assert_found(&report, "warning", &[("redis.persistence", &[&second]), alone]);
}

#[tokio::test]
async fn what_an_acl_forbids_to_ask_is_a_note_that_says_how_to_check_it() {
    let desk = Desk::healthy("doctor-acl").await;
    let user = ["SETUSER", "plain", "on", ">secret9", "~*", "+@all", "-@dangerous"];
    desk.redis(&[&["ACL"], user.as_slice()].concat()).await;
    let url = desk.redis.url().replace("redis://", "redis://plain:secret9@");
    let desk = desk.with("REDIS_URL", &url);
    let ran = desk.doctor().await;
    let report = ran.json();
    assert_eq!(ran.code, 0, "{report:#}");
    for (check, how) in [
        ("redis.eviction", "CONFIG GET maxmemory-policy must say noeviction"),
        ("redis.memory", "INFO memory"),
        ("redis.persistence", "CONFIG GET appendonly"),
        ("redis.replicas", "INFO replication"),
    ] {
        let notes = of(&report, "info");
        let says = |text: &str| [how, "could not be checked", &address(&desk.redis)].iter().all(|w| text.contains(w));
        assert!(notes.iter().any(|(of, text)| of == check && says(text)), "{check} {report:#}");
    }
    let version = desk.redis.version();
    assert!(
        of(&report, "ok").iter().any(|(check, text)| check == "redis.version" && text.contains(version)),
        "{report:#}"
    );
    assert!(!format!("{ran:?}").contains("secret9"));
    // it is enough to work with
    assert_eq!(desk.send(&[message("a")], &[]).await.code, 0);
    assert_eq!(desk.run(&["status", "sms", "a"]).await.code, 0);

    let cluster = RedisCluster::start(desk.redis.program(), &[]).await.unwrap();
    for node in cluster.nodes() {
        let () = on(node, redis::cmd("ACL").arg(&user)).await;
    }
    let one = cluster.nodes()[2].url().replace("redis://", "redis://plain:secret9@");
    let desk = desk.with("REDIS_URL", &one);
    let report = desk.report().await;
    assert_found(&report, "error", &[]);
    assert_found(&report, "warning", &[]);
    for node in cluster.nodes() {
        let at = address(node);
        assert!(
            of(&report, "info").iter().any(|(of, text)| of == "redis.eviction" && text.contains(&at)),
            "{report:#}"
        );
    }
    assert!(of(&report, "info").iter().any(|(of, text)| of == "redis.cluster" && text.contains("3 primaries")));
    for node in cluster.nodes() {
        let () = on(node, redis::cmd("ACL").arg(&["SETUSER", "plain", "-cluster|info"])).await;
    }
    let report = desk.with("REDIS_URL", &cluster.url().replace("://", "://plain:secret9@")).report().await;
    assert_found(&report, "error", &[]);
    assert!(of(&report, "info").iter().any(|(of, text)| of == "redis.cluster" && text.contains("--cluster check")));
}

/// Redis as some who run it for others give it: there is no CONFIG.
#[tokio::test]
async fn a_server_without_config_is_checked_by_info() {
    let desk = Desk::healthy("doctor-managed").await;
    let port = free_port().unwrap();
    let lines = [
        "bind 127.0.0.1",
        "save \"\"",
        "appendonly yes",
        "maxmemory-policy volatile-lru",
        "rename-command CONFIG \"\"",
    ];
    let file = desk.folder.path().join("managed.conf");
    std::fs::write(&file, format!("port {port}\ndir {}\n{}\n", desk.folder.path().display(), lines.join("\n")))
        .unwrap();
    let mut command = Command::new(desk.redis.program());
    let _server = command.arg(&file).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let desk = desk.with("REDIS_URL", &format!("redis://127.0.0.1:{port}"));
    let report = desk.comes_to_say("error", "redis.eviction", &["volatile-lru", "parameter group"]).await;
    assert_found(&report, "error", &[("redis.eviction", &["volatile-lru"])]);
    assert_found(&report, "warning", &[]);
    for (check, what) in [("redis.persistence", "CONFIG GET appendfsync"), ("redis.replicas", "min-replicas-to-write")]
    {
        assert!(of(&report, "info").iter().any(|(of, text)| of == check && text.contains(what)), "{report:#}");
    }
}
