//! How long one call keeps Redis, at most: every script over calendars that are made to be slow. Redis notes each call in its
//! SLOWLOG. Under the virtual clock each round makes the same calls, and of each call the shortest time counts, since
//! what else the machine does counts in the others.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use redis::Value;
use sendslot_localstack::RedisServer;
use sendslot_shared::budget;
use sendslot_shared::cancel::cancel;
use sendslot_shared::claim::Verdict;
use sendslot_shared::envelope::Envelope;
use sendslot_shared::id::LaneName;
use sendslot_shared::limits::{Lane, Quota, Share};
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::Policy;
use sendslot_shared::quote::{QuoteRequest, quote};
use sendslot_shared::settle::Ending;
use sendslot_shared::status::budget_status;
use sendslot_shared::time::Instant;
use sendslot_shared::view::view;
use sendslot_tests::{Bench, SECOND, START, per_second};

use crate::report::say;

const SCRIPTS: [&str; 10] =
    ["reserve 100", "reserve 1", "cancel", "quote", "claim", "settle", "status", "view", "policy", "cut"];
const DAY: u64 = 86_400;
const ROUNDS: usize = 3;

/// A calendar: its policy, what is booked, and every how many of these are cancelled.
struct Hostile {
    name: &'static str,
    policy: Policy,
    sends: usize,
    costs: &'static [u32],
    cancelled: usize,
    far: bool,
}

/// Prints the table.
pub(crate) async fn run(server: RedisServer) -> Result<()> {
    let bench = Bench::on(server).await;
    let names: Vec<String> = SCRIPTS.iter().map(|name| format!("{name:>12}")).collect();
    say(&format!("{:<24}{}", "", names.concat()));
    for hostile in calendars()? {
        let mut shortest = measure(&bench, &hostile).await?;
        for _ in 1..ROUNDS {
            for (script, again) in measure(&bench, &hostile).await? {
                let calls = shortest.entry(script).or_default();
                calls.iter_mut().zip(again).for_each(|(call, again)| *call = call.min(again));
            }
        }
        let longest = |script: &&str| shortest.get(script).into_iter().flatten().copied().fold(0.0, f64::max);
        let values: Vec<String> = SCRIPTS.iter().map(|script| format!("{:>12.2}", longest(script))).collect();
        say(&format!("{:<24}{}", hostile.name, values.concat()));
    }
    bench.server.stop().await;
    Ok(())
}

fn calendars() -> Result<Vec<Hostile>> {
    let lanes = |n: usize| -> Result<Vec<Lane>> {
        let lane =
            |i| Ok(Lane { reserved: Share::new(0.05)?, preempts: i < 2, ..Lane::new(LaneName::new(lane_name(i))?) });
        (0..n).map(lane).collect()
    };
    let windows = [(40, 1), (90, 3), (200, 7), (550, 20), (1_500, 60), (5_000, 240), (30_000, 1_800), (900_000, DAY)];
    let quotas: Vec<Quota> = windows.iter().map(|(n, s)| Quota::new(*n, Duration::from_secs(*s))).collect();
    let (plain, fast) = (per_second(100, 0.97), per_second(1_000, 0.97));
    let horizon = Duration::from_secs(14 * DAY);
    let with = |name, policy, sends, costs, cancelled, far| Hostile { name, policy, sends, costs, cancelled, far };
    let limited = Policy { quotas, max_cost: Some(40), ..plain.clone() };
    Ok(vec![
        with("holes", plain.clone(), 20_000, &[1], 2, false),
        with("holes, 1,000/s", fast.clone(), 30_000, &[1], 2, false),
        with("runs", Policy { max_cost: Some(900), ..plain.clone() }, 3_000, &[1, 1, 1, 60], 3, false),
        with("15 lanes", Policy { lanes: lanes(15)?, ..plain.clone() }, 20_000, &[1, 1, 2, 3], 5, false),
        with("15 lanes, 1,000/s", Policy { lanes: lanes(15)?, ..fast }, 30_000, &[1, 1, 2, 3], 5, false),
        with("8 quotas", limited.clone(), 20_000, &[1, 2], 7, false),
        with("15 lanes, 8 quotas", Policy { lanes: lanes(15)?, ..limited.clone() }, 10_000, &[1, 2], 7, false),
        with("14 days, 15 lanes", Policy { lanes: lanes(15)?, horizon, ..plain }, 10_000, &[1, 1, 2], 5, true),
        with("14 days, 8 quotas", Policy { horizon, ..limited }, 5_000, &[1, 2], 5, true),
    ])
}

fn lane_name(i: usize) -> String {
    format!("lane{i}")
}

/// One calendar under way.
struct Run<'a> {
    bench: &'a Bench,
    lanes: Vec<LaneName>,
    /// By script, how long each call took, ms.
    calls: BTreeMap<&'static str, Vec<f64>>,
    drafted: usize,
}

async fn measure(bench: &Bench, hostile: &Hostile) -> Result<BTreeMap<&'static str, Vec<f64>>> {
    let _: () = bench.command(redis::cmd("FLUSHALL").arg("SYNC")).await;
    for (name, value) in [("slowlog-log-slower-than", 0), ("slowlog-max-len", 100_000)] {
        let _: () = bench.command(redis::cmd("CONFIG").arg("SET").arg(name).arg(value)).await;
    }
    bench.set_clock(START + 400_000).await;
    bench.policy(&hostile.policy).await;
    let lanes = hostile.policy.lanes.iter().map(|lane| lane.name.clone()).chain([LaneName::default()]).collect();
    let mut run = Run { bench, lanes, calls: BTreeMap::new(), drafted: 0 };
    let copies = run.fill(hostile).await?;
    run.ask(hostile).await?;
    run.work(copies).await?;
    run.days(hostile).await?;
    Ok(run.calls)
}

impl Run<'_> {
    fn drafts(&mut self, n: usize, with: impl Fn(usize, Message) -> Message) -> Result<Vec<Draft>> {
        self.drafted += n;
        let first = self.drafted - n;
        let draft = |i| Ok(with(i, Message::new("b", format!("send{i}"), "payload")).check()?);
        (first..first + n).map(draft).collect()
    }

    fn lane(&self, n: usize) -> &str {
        self.lanes[n % self.lanes.len()].as_str()
    }

    /// Notes the script calls since the last look.
    async fn note(&mut self, script: &'static str) -> Result<()> {
        let calls: Vec<Value> = self.bench.command(redis::cmd("SLOWLOG").arg("GET").arg(-1)).await;
        for call in calls {
            let Value::Array(fields) = call else { continue };
            let (Some(Value::Int(us)), Some(Value::Array(words))) = (fields.get(2), fields.get(3)) else { continue };
            if matches!(words.first(), Some(Value::BulkString(word)) if word.eq_ignore_ascii_case(b"evalsha")) {
                self.calls.entry(script).or_default().push(*us as f64 / 1e3);
            }
        }
        self.forget().await;
        Ok(())
    }

    async fn forget(&self) {
        let _: () = self.bench.command(redis::cmd("SLOWLOG").arg("RESET")).await;
    }

    async fn fill(&mut self, hostile: &Hostile) -> Result<Vec<Envelope>> {
        let mut copies = vec![];
        for from in (0..hostile.sends).step_by(100) {
            let lane = self.lane(from / 100).to_owned();
            let costs = hostile.costs;
            let drafts = self.drafts(100, |i, m| m.lane(&lane).cost(costs[i * 7 % costs.len()]))?;
            let bookings = self.bench.reserve_all(&drafts).await;
            let booked = drafts.into_iter().zip(bookings).filter_map(|(draft, booking)| Some((draft, booking.ok()?)));
            copies.extend(booked.map(|(draft, booking)| Envelope::first(draft, booking.seq, booking.at)));
        }
        if hostile.far {
            let at = Instant::from_micros(START + (14 * DAY - 10) * SECOND).to_system_time();
            for n in 0..40 {
                let lane = self.lane(n).to_owned();
                let drafts = self.drafts(1, |_, m| m.lane(&lane).cost(1 + n as u32).not_before(at))?;
                self.bench.reserve_all(&drafts).await;
            }
        }
        self.forget().await;
        for copy in copies.iter().step_by(hostile.cancelled) {
            let _ = cancel(&self.bench.store, &self.bench.budget, &copy.draft.id).await?;
        }
        self.note("cancel").await?;
        Ok(copies)
    }

    async fn ask(&mut self, hostile: &Hostile) -> Result<()> {
        let (store, budget) = (&self.bench.store, &self.bench.budget);
        for cost in [1, 2, 3, 7, 39] {
            for n in [0, 2, self.lanes.len() - 1] {
                let lane = self.lanes[n % self.lanes.len()].clone();
                let question = QuoteRequest { sends: 2_000, lane: lane.clone(), cost, not_before: None };
                self.forget().await;
                quote(store, budget, &question).await?;
                self.note("quote").await?;
                for (size, script) in [(100, "reserve 100"), (1, "reserve 1"), (1, "reserve 1")] {
                    let drafts = self.drafts(size, |_, m| m.lane(lane.as_str()).cost(cost))?;
                    self.forget().await;
                    self.bench.reserve_all(&drafts).await;
                    self.note(script).await?;
                }
            }
        }
        budget_status(store, budget).await?;
        self.note("status").await?;
        view(store, budget).await?;
        self.note("view").await?;
        for policy in [Policy { lanes: vec![], ..hostile.policy.clone() }, hostile.policy.clone()] {
            self.bench.policy(&policy).await;
        }
        self.note("policy").await
    }

    /// Claims on time and late, and what comes of them.
    async fn work(&mut self, copies: Vec<Envelope>) -> Result<()> {
        let mut due: Vec<(u64, Envelope)> =
            copies.into_iter().filter_map(|copy| Some((copy.at?.as_micros(), copy))).collect();
        due.sort_by_key(|(at, _)| *at);
        let endings = [Ending::Sent, Ending::Throttled, Ending::Unavailable, Ending::NotStarted];
        let mut now = START + 3 * SECOND;
        for (i, (at, copy)) in
            due.into_iter().filter(|(at, _)| *at > START + 3 * SECOND).step_by(21).take(200).enumerate()
        {
            now = now.max(at + [0, 0, 20_000, 300_000, 3_000_000][i % 5]);
            self.bench.set_clock(now).await;
            self.forget().await;
            let verdict = self.bench.verdict(&copy, 9).await;
            self.note("claim").await?;
            if matches!(verdict, Verdict::Send { .. }) {
                let _ = self.bench.settle(&copy, 9, endings[i % endings.len()]).await;
                self.note("settle").await?;
            }
        }
        view(&self.bench.store, &self.bench.budget).await?;
        self.note("view").await?;
        budget::pause(&self.bench.store, &self.bench.budget, None).await.context("a pause")?;
        self.note("policy").await
    }

    /// The first bookings after some hours, and after days.
    async fn days(&mut self, hostile: &Hostile) -> Result<()> {
        for hours in [4, 8, 30, 6 * 24] {
            self.bench.set_clock(START + hours * 3600 * SECOND).await;
            for n in 0..30 {
                let lane = self.lane(n).to_owned();
                let drafts = self.drafts(1, |_, m| m.lane(&lane).cost(hostile.costs[0]))?;
                self.bench.reserve_all(&drafts).await;
            }
        }
        self.note("cut").await
    }
}
