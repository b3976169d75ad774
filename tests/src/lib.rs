//! What tests and benches share: a private Redis with a virtual clock, and short ways to book and to claim.

pub mod conformance;
pub mod day;
pub mod engine;
pub mod pipeline;
pub mod port;
pub mod proxy;
pub mod queues;
pub mod torture;

use std::path::PathBuf;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use sendslot_localstack::{RedisServer, bundled_redis};
use sendslot_shared::claim::{self, Answer, Claim, Verdict};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::BudgetName;
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::{Headroom, Policy};
use sendslot_shared::reserve::{self, Booking, Refusal};
use sendslot_shared::settle::{self, Action, Cooldown, Ending, Report, Scope};
use sendslot_shared::store::Store;
use sendslot_shared::{budget, status};

/// A Monday in the future, so that no key expires by the real clock: 2030-01-07 12:00:00 UTC, in microseconds.
pub const START: u64 = 1_894_017_600_000_000;
/// One second in microseconds.
pub const SECOND: u64 = 1_000_000;

/// A private Redis whose scripts read a virtual clock, and one budget `b`.
pub struct Bench {
    /// The server; killed on drop.
    pub server: RedisServer,
    /// A store with virtual scripts.
    pub store: Store,
    /// A plain connection.
    pub redis: MultiplexedConnection,
    /// The budget's name.
    pub budget: BudgetName,
}

/// Runs a test body on each Redis server that tests must pass on: the one on PATH (if any) and the bundled one.
pub async fn on_each_redis(body: impl AsyncFn(Bench)) {
    for server in servers().await {
        body(Bench::on(server).await).await;
    }
}

async fn servers() -> Vec<RedisServer> {
    let bundled: PathBuf = bundled_redis().expect("the bundled redis-server can be installed");
    let preferred = RedisServer::start().await.expect("a redis-server starts");
    let other = RedisServer::start_with(&bundled).await.expect("the bundled redis-server starts");
    if preferred.version() == other.version() { vec![other] } else { vec![preferred, other] }
}

impl Bench {
    /// On the preferred server alone.
    pub async fn start() -> Self {
        Self::on(RedisServer::start().await.expect("a redis-server starts")).await
    }

    /// On this server.
    pub async fn on(server: RedisServer) -> Self {
        let store = Store::with_virtual_clock(&server.url()).expect("a store");
        let client = redis::Client::open(server.url()).expect("a URL");
        // a busy machine is no failure; the tests' own limits say what is too slow
        let patient = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
        let redis = client.get_multiplexed_async_connection_with_config(&patient).await.expect("a connection");
        let bench = Self { server, store, redis, budget: BudgetName::new("b").expect("a name") };
        bench.set_clock(START).await;
        bench
    }

    /// Sets the virtual clock, microseconds since 1970.
    pub async fn set_clock(&self, now: u64) {
        let mut redis = self.redis.clone();
        let set: redis::RedisResult<()> =
            redis::cmd("SET").arg(sendslot_lua::VIRTUAL_CLOCK_KEY).arg(now).query_async(&mut redis).await;
        set.expect("the clock is set");
    }

    /// One plain command.
    pub async fn command<T: redis::FromRedisValue>(&self, command: &mut redis::Cmd) -> T {
        command.query_async(&mut self.redis.clone()).await.expect("the command runs")
    }

    /// Sets the budget's policy.
    pub async fn policy(&self, policy: &Policy) {
        budget::set(&self.store, &self.budget, policy).await.expect("the policy is set");
    }

    /// Books one draft.
    pub async fn reserve(&self, draft: &Draft) -> Result<Booking, Refusal> {
        self.reserve_all(std::slice::from_ref(draft)).await.remove(0)
    }

    /// Books many drafts in one call.
    pub async fn reserve_all(&self, drafts: &[Draft]) -> Vec<Result<Booking, Refusal>> {
        let drafts: Vec<&Draft> = drafts.iter().collect();
        reserve::reserve(&self.store, &self.budget, &drafts).await.expect("Redis answers")
    }

    /// Books a draft and gives its first copy.
    pub async fn copy(&self, draft: &Draft) -> Envelope {
        let booking = self.reserve(draft).await.expect("it is booked");
        Envelope::first(draft.clone(), booking.seq, booking.at)
    }

    /// Asks for a copy.
    pub async fn claim(&self, envelope: &Envelope, nonce: u32) -> Answer {
        let claim = Claim { envelope, nonce, lease: LEASE };
        claim::claim(&self.store, claim).await.expect("Redis answers")
    }

    /// Asks for a copy; the verdict alone.
    pub async fn verdict(&self, envelope: &Envelope, nonce: u32) -> Verdict {
        self.claim(envelope, nonce).await.verdict
    }

    /// Reports an ending.
    pub async fn settle(&self, envelope: &Envelope, nonce: u32, ending: Ending) -> Action {
        self.settle_with(envelope, nonce, ending, Duration::ZERO, None).await
    }

    /// Reports an ending with a delay and a cooldown; the call took no time.
    pub async fn settle_with(
        &self,
        envelope: &Envelope,
        nonce: u32,
        ending: Ending,
        delay: Duration,
        rest: Option<Duration>,
    ) -> Action {
        let cooldown = rest.map(|rest| Cooldown { rest, scope: Scope::Account });
        let report =
            Report { envelope, nonce, ending, delay, cooldown, elapsed: Duration::ZERO, held_up: Duration::ZERO };
        settle::settle(&self.store, report).await.expect("Redis answers")
    }

    /// What is known of a send.
    pub async fn status(&self, draft: &Draft) -> Option<status::SendStatus> {
        status::status(&self.store, &self.budget, &draft.id).await.expect("Redis answers").1
    }

    /// The names of all keys with this pattern.
    pub async fn keys(&self, pattern: &str) -> Vec<String> {
        let mut keys: Vec<String> = self.command(redis::cmd("KEYS").arg(pattern)).await;
        keys.sort();
        keys
    }
}

/// The lease of claims in tests.
pub const LEASE: Duration = Duration::from_secs(15);

/// A draft of cost 1 for budget `b`.
pub fn draft(id: impl Into<String>) -> Draft {
    costing(id, 1)
}

/// A draft with a cost.
pub fn costing(id: impl Into<String>, cost: u32) -> Draft {
    Message::new("b", id, "payload").cost(cost).check().expect("a good message")
}

/// A policy per second with a headroom.
pub fn per_second(limit: u32, headroom: f64) -> Policy {
    Policy { headroom: Headroom::new(headroom).expect("a headroom"), ..Policy::per_second(limit) }
}

/// The most units in any window of `per` microseconds; arrivals at t and t + per are not in one window.
pub fn most_in_window(mut sends: Vec<(u64, u32)>, per: u64) -> u32 {
    sends.sort_unstable();
    let (mut first, mut units, mut most) = (0, 0, 0);
    for &(at, cost) in &sends {
        units += cost;
        while sends[first].0 + per <= at {
            units -= sends[first].1;
            first += 1;
        }
        most = most.max(units);
    }
    most
}

/// The README's Rust compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
