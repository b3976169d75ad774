//! A primary that dies and is replaced, or is demoted.

use sendslot_localstack::RedisSentinel;
use sendslot_shared::claim::{MoveReason, PutBack};
use sendslot_tests::{SECOND, START, most_in_window};

use super::*;

async fn set_clock(server: &RedisServer, now: u64) {
    let () = on(server, redis::cmd("SET").arg(sendslot_lua::VIRTUAL_CLOCK_KEY).arg(now)).await;
}

/// Plays a worker for copies until all are sent, on the virtual clock in steps of 10 ms. Gives the instants and costs of the
/// sends, and how many bookings were lost.
async fn send_all(
    server: &RedisServer,
    store: &Store,
    copies: Vec<Envelope>,
    now: &mut u64,
) -> (Vec<(u64, u32)>, usize) {
    let from = *now;
    let shows_up = |copy: Envelope| (copy.at.expect("a slot").as_micros(), copy);
    let mut waiting: Vec<(u64, Envelope)> = copies.into_iter().map(shows_up).collect();
    let (mut sends, mut lost) = (vec![], 0);
    let client = redis::Client::open(server.url()).unwrap();
    let mut clock = client.get_multiplexed_async_connection().await.unwrap();
    while !waiting.is_empty() {
        assert!(*now < from + 120 * SECOND, "{} copies are never sent", waiting.len());
        let () =
            redis::cmd("SET").arg(sendslot_lua::VIRTUAL_CLOCK_KEY).arg(*now).query_async(&mut clock).await.unwrap();
        let (due, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(at, _)| *at <= *now);
        waiting = rest;
        for (_, copy) in due {
            match claim::claim(store, question(&copy, 1)).await.unwrap().verdict {
                Verdict::Send { .. } => {
                    sends.push((*now, copy.draft.cost));
                    assert_eq!(settle_sent(store, &copy, 1).await.unwrap(), Action::Acknowledge);
                }
                Verdict::Wait { wait, moved } => {
                    lost += usize::from(moved == Some(MoveReason::Lost));
                    waiting.push((*now + wait.as_micros() as u64, copy));
                }
                Verdict::PutBack { slot, why } => {
                    lost += usize::from(why == PutBack::Rebooked(MoveReason::Lost));
                    let next = Envelope { seq: slot.seq, tag: copy.tag + 1, at: Some(slot.at), ..copy };
                    waiting.push((slot.at.as_micros(), next));
                }
                other => panic!("{}: {other:?}", copy.draft.id),
            }
        }
        *now += 10_000;
    }
    (sends, lost)
}

#[tokio::test]
async fn bookings_go_on_when_a_sentinel_replaces_a_killed_primary() {
    // D2, redis#6062
    for program in programs().await {
        let mut servers = RedisSentinel::start(program).await.unwrap();
        let store = Store::with_virtual_clock(&servers.url()).unwrap();
        set_clock(&servers.primary, START).await;
        set(&store, "b", &per_second(50, 0.8)).await;
        let mut copies = vec![];
        for i in 0..40 {
            copies.push(copy(&store, draft("b", format!("kept{i}"))).await);
        }
        let acknowledged: i64 = on(&servers.primary, redis::cmd("WAIT").arg(1).arg(10_000)).await;
        assert_eq!(acknowledged, 1, "the replica has them");
        // from here on the replica hears nothing: what follows dies with the primary
        let () = on(&servers.primary, redis::cmd("ACL").arg(&["SETUSER", "default", "-psync", "-sync"])).await;
        let cut: i64 = on(&servers.primary, redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("replica")).await;
        assert_eq!(cut, 1);
        let sent_before = copies.drain(..20).collect::<Vec<_>>();
        let mut now = START;
        let (mut sends, lost) = send_all(&servers.primary, &store, sent_before, &mut now).await;
        assert_eq!((sends.len(), lost), (20, 0));
        for i in 0..40 {
            copies.push(copy(&store, draft("b", format!("lost{i}"))).await);
        }
        // a replica that has heard nothing for ten times this long is not promoted
        let sentinel = redis::Client::open(format!("redis://127.0.0.1:{}", servers.port())).unwrap();
        let mut sentinel = sentinel.get_multiplexed_async_connection().await.unwrap();
        let patient = ["SET", "main", "down-after-milliseconds", "3000"];
        let () = redis::cmd("SENTINEL").arg(&patient).query_async(&mut sentinel).await.unwrap();
        servers.primary.kill();
        let during = book(&store, &draft("b", "during")).await.unwrap_err();
        assert!(during.is_temporary(), "{during:?}");
        until("the replica is promoted", async || {
            // the sentinel cuts all connections when it promotes
            let info: String = try_on(&servers.replica, redis::cmd("INFO").arg("replication")).await.ok()?;
            info.lines().any(|line| line == "role:master").then_some(())
        })
        .await;
        // a failover takes longer than the second that the limit is about
        now += SECOND;
        set_clock(&servers.replica, now).await;
        let after = until("bookings go on", async || book(&store, &draft("b", "during")).await.ok()).await;
        assert!(!after.existing);
        copies.push(Envelope::first(draft("b", "during"), after.seq, after.at));
        let (more, lost) = send_all(&servers.replica, &store, copies, &mut now).await;
        assert_eq!((more.len(), lost), (20 + 40 + 1, 40), "each of them once, and those of the lost time booked again");
        sends.extend(more);
        assert!(most_in_window(sends, SECOND) <= 50);
    }
}

#[tokio::test]
async fn a_primary_that_is_demoted_and_promoted_again_goes_on() {
    // D2, redis-client#64
    let server = RedisServer::start().await.unwrap();
    let store = Store::new(&server.url()).unwrap();
    set(&store, "b", &per_second(100, 0.8)).await;
    let first = book(&store, &draft("b", "first")).await.unwrap();
    let () = on(&server, redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1)).await;
    let refused = book(&store, &draft("b", "m")).await.unwrap_err();
    assert!(refused.is_temporary() && matches!(refused, StoreError::Refused { .. }), "{refused:?}");
    let copy = Envelope::first(draft("b", "first"), 1, first.at);
    let refused = claim::claim(&store, question(&copy, 1)).await.unwrap_err();
    assert!(refused.is_temporary() && refused.to_string().contains("ReadOnly"), "{refused}");
    let () = on(&server, redis::cmd("REPLICAOF").arg("NO").arg("ONE")).await;
    let booked = book(&store, &draft("b", "m")).await.unwrap();
    assert!(!booked.existing, "nothing was booked meanwhile");
    assert!(book(&store, &draft("b", "first")).await.unwrap().seq <= 2);
}

#[tokio::test]
async fn a_primary_that_is_demoted_during_a_call_is_tried_on_a_new_connection() {
    let server = RedisServer::start().await.unwrap();
    let store = Store::new(&server.url()).unwrap();
    set(&store, "b", &per_second(100, 0.8)).await;
    let () = on(&server, redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1)).await;
    let connections = async || -> u64 {
        let info: String = on(&server, redis::cmd("INFO").arg("stats")).await;
        let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.expect("a count").parse().expect("a number")
    };
    let before = connections().await;
    let _ = book(&store, &draft("b", "m")).await.unwrap_err();
    // one for this question, one for the second try
    assert_eq!(connections().await, before + 2);
}

#[tokio::test]
async fn sentinels_and_primary_have_passwords_of_their_own() {
    let servers = RedisSentinel::start(programs().await.remove(0)).await.unwrap();
    let set_password = |password: &str| redis::cmd("ACL").arg(&["SETUSER", "default", "resetpass", password]).clone();
    let _: () = on(&servers.primary, &mut set_password(">s@crt/9")).await;
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", servers.port())).unwrap();
    let mut sentinel = client.get_multiplexed_async_connection().await.unwrap();
    let () = set_password(">watch").query_async(&mut sentinel).await.unwrap();
    let hosts = format!("127.0.0.1:{}/main", servers.port());
    let check = async |url: String| Store::new(&url).unwrap().check().await;
    check(format!("redis+sentinel://:s%40crt%2F9@{hosts}?sentinel_password=watch")).await.unwrap();
    for url in [
        format!("redis+sentinel://:s%40crt%2F9@{hosts}"),
        format!("redis+sentinel://:s%40crt%2F9@{hosts}?sentinel_password=hunter2"),
        format!("redis+sentinel://:hunter2@{hosts}?sentinel_password=watch"),
        format!("redis+sentinel://{hosts}?sentinel_password=watch"),
    ] {
        let error = check(url).await.unwrap_err();
        assert!(matches!(error, StoreError::Login { .. }), "{error:?}");
        let shown = format!("{error} {error:?}");
        assert!(!["crt", "watch", "hunter2"].iter().any(|secret| shown.contains(secret)), "{shown}");
    }
}
