//! Redis in every shape that a `REDIS_URL` can name: a cluster, a primary behind Sentinel, TLS.

mod cluster;
mod moving;
mod refusals;
mod sentinel;
mod tls;
mod tls_front;
mod worker;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue, RedisResult};
use sendslot_localstack::{RedisCluster, RedisServer, bundled_redis};
use sendslot_shared::claim::{self, Answer, Claim, Verdict};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::BudgetName;
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::Policy;
use sendslot_shared::reserve::{self, Booking};
use sendslot_shared::settle::{self, Action, Ending, Report};
use sendslot_shared::store::{Store, StoreError};
use sendslot_shared::{budget, status};
use sendslot_tests::{LEASE, per_second};

/// The server programs that tests must pass on: the one on PATH (if any) and the bundled one.
async fn programs() -> Vec<PathBuf> {
    let bundled = bundled_redis().expect("the bundled redis-server can be installed");
    let preferred = RedisServer::start().await.expect("a redis-server starts");
    let other = RedisServer::start_with(&bundled).await.expect("the bundled redis-server starts");
    if preferred.version() == other.version() { vec![bundled] } else { vec![preferred.program().to_owned(), bundled] }
}

fn name(budget: &str) -> BudgetName {
    BudgetName::new(budget).expect("a name")
}

fn draft(budget: &str, id: impl Into<String>) -> Draft {
    Message::new(budget, id, "payload").check().expect("a good message")
}

async fn set(store: &Store, budget: &str, policy: &Policy) {
    budget::set(store, &name(budget), policy).await.expect("the policy is set");
}

async fn book(store: &Store, draft: &Draft) -> Result<Booking, StoreError> {
    let mut answers = reserve::reserve(store, &draft.budget, &[draft]).await?;
    Ok(answers.remove(0).expect("no refusal"))
}

async fn copy(store: &Store, draft: Draft) -> Envelope {
    let booking = book(store, &draft).await.expect("Redis answers");
    Envelope::first(draft, booking.seq, booking.at)
}

fn question(envelope: &Envelope, nonce: u32) -> Claim<'_> {
    Claim { envelope, nonce, lease: LEASE }
}

/// Asks as a worker does, until the slot is here.
async fn claim_at_slot(store: &Store, copy: &Envelope, nonce: u32) -> Verdict {
    loop {
        match claim::claim(store, question(copy, nonce)).await.expect("Redis answers").verdict {
            Verdict::Wait { wait, .. } => tokio::time::sleep(wait).await,
            verdict => return verdict,
        }
    }
}

async fn settle_sent(store: &Store, envelope: &Envelope, nonce: u32) -> Result<Action, StoreError> {
    let (delay, elapsed) = (Duration::ZERO, Duration::ZERO);
    settle::settle(
        store,
        Report { envelope, nonce, ending: Ending::Sent, delay, cooldown: None, elapsed, held_up: Duration::ZERO },
    )
    .await
}

/// One plain command on one server.
async fn on<T: FromRedisValue>(server: &RedisServer, command: &mut Cmd) -> T {
    try_on(server, command).await.expect("the command runs")
}

async fn try_on<T: FromRedisValue>(server: &RedisServer, command: &mut Cmd) -> RedisResult<T> {
    let mut connection = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
    command.query_async(&mut connection).await
}

/// The server's process.
async fn process_id(server: &RedisServer) -> String {
    let info: String = on(server, redis::cmd("INFO").arg("server")).await;
    info.lines().find_map(|line| line.strip_prefix("process_id:")).expect("a process").to_owned()
}

async fn signal(process: &str, name: &str) {
    let sent = tokio::process::Command::new("kill").args(["-s", name, process]).status().await;
    assert!(sent.expect("kill runs").success());
}

/// Asks until it is so.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < limit, "{what}: not within 60 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
