//! The command on Redis in other shapes than one server.

use sendslot_localstack::{RedisCluster, RedisSentinel};

use super::*;

async fn round_trip(desk: &Desk) {
    for budget in ["sms", "mail", "push", "chat"] {
        let set = desk.run(&["budget", "set", budget, "--limit", "100", "--transit", "60s"]).await;
        assert_eq!(set.code, 0, "{set:?}");
    }
    let listed = desk.run(&["budget", "list"]).await;
    assert!(["sms", "mail", "push", "chat"].iter().all(|budget| listed.stdout.contains(budget)), "{listed:?}");
    let sent = desk.send(&["m0", "m1", "m2"].map(message), &[]).await;
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(desk.queue.len().await, 3);
    let status = desk.run(&["status", "sms", "m1", "--json"]).await;
    assert_eq!((status.code, status.json()["state"].as_str()), (0, Some("booked")), "{status:?}");
    let cancelled = desk.run(&["cancel", "sms", "m1"]).await;
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
}

#[tokio::test]
async fn a_round_trip_on_a_cluster() {
    let desk = Desk::open("cli-cluster").await;
    let program = desk.redis.program().to_owned();
    let cluster = RedisCluster::start(program, &[]).await.unwrap();
    round_trip(&desk.with("REDIS_URL", &cluster.url())).await;
}

#[tokio::test]
async fn a_round_trip_behind_a_sentinel() {
    let desk = Desk::open("cli-sentinel").await;
    let servers = RedisSentinel::start(desk.redis.program()).await.unwrap();
    round_trip(&desk.with("REDIS_URL", &servers.url())).await;
}
