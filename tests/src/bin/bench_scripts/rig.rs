//! One Redis that is kept busy, and what it says of itself.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, Value};
use sendslot_lua::SCRIPTS;
use sendslot_shared::budget;
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::Policy;
use sendslot_shared::store::Store;

use crate::commands::{Sends, reserve_cmd};

/// Calls that are written before the first answer is read, and connections that do so at once: Redis is never idle.
pub(crate) const DEPTH: usize = 16;
pub(crate) const CONNECTIONS: usize = 4;

/// How long one pipeline may take, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(30);

/// A Redis with the production scripts and one budget, `sendgrid`.
pub(crate) struct Rig {
    redis: Vec<MultiplexedConnection>,
    pub(crate) store: Store,
    pub(crate) budget: BudgetName,
    shas: Vec<String>,
    serial: usize,
}

impl Rig {
    pub(crate) async fn new(url: &str) -> Result<Self> {
        let client = redis::Client::open(url)?;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let mut redis = vec![];
        for _ in 0..CONNECTIONS {
            redis.push(client.get_multiplexed_async_connection_with_config(&config).await?);
        }
        let (store, budget) = (Store::new(url)?, BudgetName::new("sendgrid")?);
        let mut rig = Self { redis, store, budget, shas: vec![], serial: 0 };
        for script in SCRIPTS {
            let sha = rig.load(script.source).await?;
            rig.shas.push(sha);
        }
        Ok(rig)
    }

    /// The SHA of a script of Sendslot.
    pub(crate) fn sha(&self, script: usize) -> String {
        self.shas[script].clone()
    }

    /// The first of `n` send numbers that were never used.
    pub(crate) fn take(&mut self, n: usize) -> usize {
        self.serial += n;
        self.serial - n
    }

    /// An empty Redis with this policy.
    pub(crate) async fn fresh(&mut self, policy: &Policy) -> Result<()> {
        self.call(redis::cmd("FLUSHALL").arg("SYNC")).await?;
        budget::set(&self.store, &self.budget, policy).await?;
        Ok(())
    }

    pub(crate) async fn load(&mut self, source: &str) -> Result<String> {
        Ok(redis::from_redis_value(self.call(redis::cmd("SCRIPT").arg("LOAD").arg(source)).await?)?)
    }

    pub(crate) async fn call(&mut self, command: &Cmd) -> Result<Value> {
        Ok(self.redis[0].req_packed_command(command).await?)
    }

    /// CPU per send over some thousand calls, each for `batch` sends.
    pub(crate) async fn measure(&mut self, batch: usize, command: impl Fn(usize) -> Cmd) -> Result<f64> {
        let sends = if batch == 1 { 8_000 } else { 20_000 };
        let first = self.take(sends);
        let commands: Vec<Cmd> = (0..sends / batch).map(|i| command(first + i * batch)).collect();
        Ok(self.spent(&commands).await?.0 / sends as f64)
    }

    /// CPU per send of booking `count` sends, all of which must get a slot; and the first one's number.
    pub(crate) async fn book(&mut self, sends: Sends, count: usize, batch: usize) -> Result<(f64, usize)> {
        let (sha, first) = (self.sha(sendslot_lua::RESERVE), self.take(count));
        let commands: Vec<Cmd> =
            (first..first + count).step_by(batch).map(|n| reserve_cmd(&sha, sends, n, batch)).collect();
        let (spent, answers) = self.spent(&commands).await?;
        for answer in answers {
            let slots =
                matches!(&answer, Value::Array(items) if items.len() == batch + 2 && items[2..].iter().all(booked));
            ensure!(slots, "not booked: {answer:?}");
        }
        Ok((spent / count as f64, first))
    }

    /// CPU per call for these sends; the first number of each answer must be `code`.
    pub(crate) async fn cost(&mut self, ids: &[usize], command: impl Fn(usize) -> Cmd, code: i64) -> Result<f64> {
        let commands: Vec<Cmd> = ids.iter().map(|id| command(*id)).collect();
        let (spent, answers) = self.spent(&commands).await?;
        let good = |answer: &&Value| matches!(answer, Value::Array(items) if items.first() == Some(&Value::Int(code)));
        let wrong = answers.iter().filter(|answer| !good(answer)).count();
        ensure!(wrong == 0, "{wrong} of {} answers were not {code}", ids.len());
        Ok(spent / ids.len() as f64)
    }

    /// Redis CPU (us) that these commands take, and their answers.
    pub(crate) async fn spent(&mut self, commands: &[Cmd]) -> Result<(f64, Vec<Value>)> {
        let before = self.cpu().await?;
        let answers = self.pipelines(commands).await?;
        let spent = (self.cpu().await? - before) * 1e6;
        for answer in &answers {
            ensure!(!matches!(answer, Value::ServerError(_)), "{answer:?}");
        }
        Ok((spent, answers))
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

    async fn section(&mut self, section: &str) -> Result<BTreeMap<String, String>> {
        let info: String = redis::from_redis_value(self.call(redis::cmd("INFO").arg(section)).await?)?;
        Ok(info.lines().filter_map(|l| l.split_once(':')).map(|(n, v)| (n.to_owned(), v.trim().to_owned())).collect())
    }

    async fn info(&mut self, section: &str, names: &[&str]) -> Result<f64> {
        let info = self.section(section).await?;
        let value = |name: &&str| info.get(*name)?.parse::<f64>().ok();
        names.iter().map(|name| value(name).with_context(|| format!("{name} in INFO {section}"))).sum()
    }

    async fn cpu(&mut self) -> Result<f64> {
        self.info("cpu", &["used_cpu_user", "used_cpu_sys"]).await
    }

    /// Bytes that Redis uses.
    pub(crate) async fn memory(&mut self) -> Result<f64> {
        self.info("memory", &["used_memory"]).await
    }

    /// Counts commands from now on.
    pub(crate) async fn count_commands(&mut self) -> Result<()> {
        self.call(redis::cmd("CONFIG").arg("RESETSTAT")).await.map(drop)
    }

    /// What was counted since then.
    pub(crate) async fn commands(&mut self) -> Result<Counted> {
        let mut counted = Counted::default();
        for (name, value) in self.section("commandstats").await? {
            let field =
                |name: &str| value.split(',').find_map(|f| f.strip_prefix(name)?.parse::<u64>().ok()).unwrap_or(0);
            match name.trim_start_matches("cmdstat_") {
                "evalsha" => (counted.scripts, counted.script_us) = (field("calls="), field("usec=") as f64),
                name if name == "info" || name.starts_with("config") => {}
                _ => counted.inside += field("calls="),
            }
        }
        Ok(counted)
    }
}

/// Commands that Redis ran.
#[derive(Default)]
pub(crate) struct Counted {
    /// Script calls.
    pub(crate) scripts: u64,
    /// How long they took together, us.
    pub(crate) script_us: f64,
    /// Commands inside them.
    pub(crate) inside: u64,
}

/// '<B…' code: 0 booked, + 32 * the rule that bound it.
fn booked(answer: &Value) -> bool {
    matches!(answer, Value::BulkString(bytes) if bytes.first().is_some_and(|code| code % 32 == 0))
}
