//! The scripts of a plain budget beside plain scripts, in the same run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use sendslot_lua::{CLAIM, RESERVE, SETTLE};

use crate::commands::{
    FAR, PLAIN, SLOTS_ARE_OVER, Sends, claim_cmd, evalsha, even, fast, record_key, reserve_cmd, settle_cmd,
};
use crate::report::{at_most, median, of, say};
use crate::rig::Rig;

pub(crate) const ROUNDS: usize = 9;

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

/// Prints all of it.
pub(crate) async fn run(rig: &mut Rig) -> Result<()> {
    let (mut rounds, mut walks) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let mut round = Round::new();
        plain(rig, &mut round).await?;
        walks.push(backlog(rig, &mut round).await?);
        life(rig, &mut round).await?;
        rounds.push(round);
    }
    print(&rounds, walks);
    bytes(rig).await?;
    round_trips(rig).await
}

fn print(rounds: &[Round], walks: Vec<f64>) {
    say("                                  us      x EVALSHA TIME");
    for name in CASES {
        let (cost, ratio) = (of(rounds, |r| r[name]), of(rounds, |r| r[name] / r["EVALSHA TIME"]));
        say(&format!("{name:<28}{cost:>9.2}{ratio:>12.2}"));
    }
    let part = |over: &'static str, under: &'static str| of(rounds, |r| r[over] / r[under]);
    at_most("one booking / cursor with a record", part("reserve, 1 a call", "cursor with a record"), 1.5);
    let ahead = part("reserve, 10 h ahead full", "reserve, 1 a call");
    at_most("one booking with 10 h ahead full / with none", ahead, 1.2);
    let life = |r: &Round| r["reserve, 100 a call"] + r["claim: wait"] + r["claim: send"] + r["settle: sent"];
    at_most("whole life (booked by 100, wait, send, settle), us", of(rounds, life), 30.0);
    say(&format!("whole life / EVALSHA TIME: {:.1}", of(rounds, |r| life(r) / r["EVALSHA TIME"])));
    let hundred = of(rounds, |r| r["reserve, 100 a call"]);
    say(&format!("recorded bookings per second of Redis CPU, by 100: {:.0} (aim: 200,000)", 1e6 / hundred));
    say(&format!("first booking that walks 36,000 full seconds: {:.1} ms", median(walks)));
}

async fn plain(rig: &mut Rig, round: &mut Round) -> Result<()> {
    rig.fresh(&even()).await?;
    let (time, cursor, record) = (rig.load(TIME).await?, rig.load(CURSOR).await?, rig.load(CURSOR_RECORD).await?);
    let reserve = rig.sha(RESERVE);
    let c = || "c".to_owned();
    round.insert("PING", rig.measure(1, |_| redis::cmd("PING")).await?);
    round.insert("EVALSHA TIME", rig.measure(1, |_| evalsha(&time, &[], &[])).await?);
    round.insert("cursor", rig.measure(1, |_| evalsha(&cursor, &[c()], &[])).await?);
    let cost = rig.measure(1, |n| evalsha(&record, &[c(), record_key(n)], &[])).await?;
    round.insert("cursor with a record", cost);
    for (name, batch) in CASES[4..8].iter().zip([1, 10, 100, 500]) {
        rig.fresh(&even()).await?;
        round.insert(name, rig.measure(batch, |n| reserve_cmd(&reserve, Sends::with(PLAIN), n, batch)).await?);
    }
    Ok(())
}

/// One booking a call where 36,000 seconds ahead are full. Answers how long the first one took, in ms.
async fn backlog(rig: &mut Rig, round: &mut Round) -> Result<f64> {
    rig.fresh(&even()).await?;
    let reserve = &rig.sha(RESERVE);
    let one = |n| reserve_cmd(reserve, Sends::with(PLAIN), n, 1);
    let first = rig.take(101);
    rig.call(&one(first)).await?;
    let cal = "s{sendgrid}cal";
    let header: Vec<u8> = redis::from_redis_value(rig.call(redis::cmd("GETRANGE").arg(cal).arg(0).arg(3)).await?)?;
    let base = u32::from_le_bytes(header.try_into().ok().context("a header")?);
    let now: (u64, u64) = redis::from_redis_value(rig.call(&redis::cmd("TIME")).await?)?;
    let full = 80_u32.to_le_bytes().repeat(36_000);
    let offset = 232 + 4 * (now.0 + 1 - u64::from(base));
    rig.call(redis::cmd("SETRANGE").arg(cal).arg(offset).arg(full)).await?;
    // the first booking behind them walks the backlog once
    let mut slowest = Duration::ZERO;
    for n in first + 1..first + 101 {
        let began = Instant::now();
        rig.call(&one(n)).await?;
        slowest = slowest.max(began.elapsed());
    }
    round.insert("reserve, 10 h ahead full", rig.measure(1, one).await?);
    Ok(slowest.as_secs_f64() * 1e3)
}

/// Claim and settle.
async fn life(rig: &mut Rig, round: &mut Round) -> Result<()> {
    let (claim, settle) = (rig.sha(CLAIM), rig.sha(SETTLE));
    let claim = |id| claim_cmd(&claim, PLAIN, id);
    let waiting = waiting(rig, FAR).await?;
    round.insert("claim: wait", rig.cost(&waiting, claim, 1).await?);
    let due = self::waiting(rig, Duration::ZERO).await?;
    tokio::time::sleep(SLOTS_ARE_OVER).await;
    round.insert("claim: send", rig.cost(&due, claim, 0).await?);
    round.insert("settle: sent", rig.cost(&due, |id| settle_cmd(&settle, PLAIN, id), 0).await?);
    round.insert("claim: done", rig.cost(&due, claim, 2).await?);
    Ok(())
}

async fn waiting(rig: &mut Rig, transit: Duration) -> Result<Vec<usize>> {
    rig.fresh(&fast(transit)).await?;
    let (_, first) = rig.book(Sends::with(PLAIN), 4000, 100).await?;
    Ok((first..first + 4000).collect())
}

async fn bytes(rig: &mut Rig) -> Result<()> {
    let bytes = crate::life::bytes_per_send(rig, PLAIN).await?;
    at_most(&format!("bytes of Redis per waiting send (key of {} bytes)", record_key(1).len()), bytes, 200.0);
    Ok(())
}

/// One client, one call at a time.
async fn round_trips(rig: &mut Rig) -> Result<()> {
    rig.fresh(&even()).await?;
    let (time, reserve) = (&rig.load(TIME).await?, &rig.sha(RESERVE));
    let (mut bare, mut booked) = (vec![], vec![]);
    for _ in 0..2000 {
        let began = Instant::now();
        rig.call(&evalsha(time, &[], &[])).await?;
        bare.push(began.elapsed().as_secs_f64() * 1e6);
        let command = reserve_cmd(reserve, Sends::with(PLAIN), rig.take(1), 1);
        let began = Instant::now();
        rig.call(&command).await?;
        booked.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let (bare, booked) = (median(bare), median(booked));
    say(&format!(
        "unpipelined round trip        EVALSHA TIME {bare:.0} us, one booking {booked:.0} us: + {:.0} us",
        booked - bare
    ));
    Ok(())
}
