//! Errors that time heals, from servers that really are in that state: nothing is applied, and the same store goes on.

use super::cluster::Rig;
use super::*;

/// One server with the budget `b` and a copy that waits; a call on it finds no second try in time.
struct Refusing {
    server: RedisServer,
    store: Store,
    copy: Envelope,
}

impl Refusing {
    async fn start(program: PathBuf) -> Self {
        let server = RedisServer::start_with(program).await.unwrap();
        let store = Store::new(&server.url()).unwrap();
        set(&store, "b", &Policy { transit: Duration::from_secs(60), ..per_second(100, 0.8) }).await;
        let copy = copy(&store, draft("b", "first")).await;
        Self { server, store, copy }
    }

    async fn config(&self, name: &str, value: &str) {
        let () = on(&self.server, redis::cmd("CONFIG").arg("SET").arg(name).arg(value)).await;
    }

    async fn assert_refuses(&self, code: &str) {
        assert_refused(book(&self.store, &draft("b", code)).await, code);
        assert_refused(claim::claim(&self.store, question(&self.copy, 1)).await, code);
        assert_refused(settle_sent(&self.store, &self.copy, 1).await, code);
    }

    async fn assert_goes_on(&self, code: &str) {
        assert!(!book(&self.store, &draft("b", code)).await.unwrap().existing, "{code} booked nothing");
        let known = status::status(&self.store, &name("b"), &self.copy.draft.id).await.unwrap().1.unwrap();
        assert_eq!((known.state, known.attempts), (status::SendState::Booked, 0), "{code} claimed nothing");
    }
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(answer: Result<T, StoreError>, code: &str) {
    let error = answer.unwrap_err();
    let StoreError::Refused { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(source.code(), Some(code));
    assert!(error.is_temporary(), "{error}");
}

#[tokio::test]
async fn a_server_that_has_lost_its_primary_or_its_replicas_applies_nothing() {
    // D5
    for program in programs().await {
        let redis = Refusing::start(program).await;
        redis.config("min-replicas-to-write", "1").await;
        redis.assert_refuses("NOREPLICAS").await;
        redis.config("min-replicas-to-write", "0").await;
        redis.assert_goes_on("NOREPLICAS").await;
        redis.config("replica-serve-stale-data", "no").await;
        let () = on(&redis.server, redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1)).await;
        let Err(budget::BudgetError::Store(error)) = budget::get(&redis.store, &name("b")).await else { panic!() };
        assert_refused::<()>(Err(error), "MASTERDOWN");
        redis.assert_refuses("READONLY").await;
        let () = on(&redis.server, redis::cmd("REPLICAOF").arg("NO").arg("ONE")).await;
        redis.assert_goes_on("READONLY").await;
    }
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_applies_nothing() {
    // D5
    for program in programs().await {
        let redis = Refusing::start(program).await;
        redis.config("busy-reply-threshold", "1").await;
        let client = redis::Client::open(redis.server.url()).unwrap();
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let mut patient = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let endless = tokio::spawn(async move {
            let never: RedisResult<()> =
                redis::cmd("EVAL").arg("while true do end").arg(0).query_async(&mut patient).await;
            never.unwrap_err()
        });
        until("it is busy", async || try_on::<()>(&redis.server, &mut redis::cmd("DBSIZE")).await.err()).await;
        redis.assert_refuses("BUSY").await;
        let () = on(&redis.server, redis::cmd("SCRIPT").arg("KILL")).await;
        assert!(endless.await.unwrap().to_string().contains("killed"));
        redis.assert_goes_on("BUSY").await;
    }
}

#[tokio::test]
async fn a_slot_that_nobody_serves_is_waited_for() {
    // D5
    for program in programs().await {
        let rig = Rig::start(program, &[]).await;
        let (of, other) = (rig.budget_on(1).await, rig.budget_on(2).await);
        book(&rig.store, &draft(&of, "before")).await.unwrap();
        let node = &rig.cluster.nodes()[1];
        let slot: u16 = on(node, redis::cmd("CLUSTER").arg("KEYSLOT").arg(format!("s{{{of}}}cal"))).await;
        let () = on(node, redis::cmd("CLUSTER").arg("DELSLOTS").arg(slot)).await;
        assert_refused(book(&rig.store, &draft(&of, "during")).await, "CLUSTERDOWN");
        book(&rig.store, &draft(&other, "during")).await.unwrap();
        let () = on(node, redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slot)).await;
        let after = until("it is served", async || book(&rig.store, &draft(&of, "during")).await.ok()).await;
        assert!(!after.existing, "nothing was booked meanwhile");
    }
}
