//! Bookings that are not common: cancels, taking over, large costs, one start for all, quotes.

use std::time::Instant;

use anyhow::{Result, ensure};
use sendslot_lua::CANCEL;
use sendslot_shared::policy::{Headroom, Policy};
use sendslot_shared::quote::{QuoteRequest, quote};

use crate::commands::{PLAIN, PREEMPTING, Sends, cancel_cmd, even};
use crate::report::{median, of, say};
use crate::rig::Rig;

const ROUNDS: usize = 3;

/// Prints all of it.
pub(crate) async fn run(rig: &mut Rig) -> Result<()> {
    say("");
    cancels(rig).await?;
    taking_over(rig).await?;
    large_costs(rig).await?;
    one_start(rig).await?;
    quotes(rig).await
}

/// 2,000 of 4,000 bookings cancelled: the last ones from the end, or every other one.
async fn cancels(rig: &mut Rig) -> Result<()> {
    let mut rounds = vec![];
    for _ in 0..ROUNDS {
        let mut round = vec![];
        for middle in [false, true] {
            rig.fresh(&even()).await?;
            let (_, first) = rig.book(Sends::with(PLAIN), 4000, 100).await?;
            let sha = rig.sha(CANCEL);
            let which = |i: usize| if middle { first + 80 + 2 * i } else { first + 3999 - i };
            let ids: Vec<usize> = (0..1900).map(which).collect();
            rig.count_commands().await?;
            let us = rig.cost(&ids, |id| cancel_cmd(&sha, id), 1).await?;
            round.push((us, rig.commands().await?.inside as f64 / ids.len() as f64));
        }
        rounds.push(round);
    }
    for (case, name) in ["top of its second", "leaves a hole"].iter().enumerate() {
        let (us, calls) = (of(&rounds, |r| r[case].0), of(&rounds, |r| r[case].1));
        say(&format!("cancel, {name:<18}{us:>8.2} us, {calls:.1} commands inside"));
    }
    Ok(())
}

/// Urgent sends where 10,000 others wait: the first second's worth, and ten seconds' worth.
async fn taking_over(rig: &mut Rig) -> Result<()> {
    let mut rounds = vec![];
    let bulk = Sends { lane: None, ..Sends::with(PLAIN) };
    let urgent = Sends { lane: Some("otp"), ..bulk };
    for _ in 0..ROUNDS {
        rig.fresh(&PREEMPTING.on(even())?).await?;
        rig.book(bulk, 10_000, 100).await?;
        let plain = rig.book(bulk, 1000, 1).await?.0;
        let second = rig.book(urgent, 80, 1).await?.0;
        rounds.push((plain, second, rig.book(urgent, 800, 1).await?.0));
    }
    say(&format!(
        "10,000 wait, one a call: bulk {:.1} us; preempting {:.1} us (the first 80), {:.1} us (the next 800)",
        of(&rounds, |r| r.0),
        of(&rounds, |r| r.1),
        of(&rounds, |r| r.2)
    ));
    Ok(())
}

/// 80 units a second where a cost of 41 fits beside a full grid: u0 is 58.
fn roomy() -> Policy {
    Policy { limit: 200, headroom: Headroom::new(0.4).unwrap_or(Headroom::DEFAULT), ..even() }
}

/// 10,000 seconds with one send of cost 41 each; then further ones of this cost, of 40 (fits nowhere), 39 and 1.
async fn large_costs(rig: &mut Rig) -> Result<()> {
    ensure!(roomy().compile()?.u0 >= 41, "a cost of 41 must fit beside a full grid");
    let costs = [41, 40, 39, 1];
    let mut rounds = vec![];
    for _ in 0..ROUNDS {
        rig.fresh(&roomy()).await?;
        let mut round = vec![rig.book(Sends::costing(41), 10_000, 100).await?.0];
        for cost in costs {
            let began = Instant::now();
            rig.book(Sends::costing(cost), 1, 1).await?;
            let first_ms = began.elapsed().as_secs_f64() * 1e3;
            rig.count_commands().await?;
            let one = rig.book(Sends::costing(cost), 1000, 1).await?.0;
            let calls = rig.commands().await?.inside as f64 / 1000.0;
            round.extend([first_ms, one, calls, rig.book(Sends::costing(cost), 2000, 100).await?.0]);
        }
        rounds.push(round);
    }
    say(&format!("10,000 of cost 41, one a second, by 100: {:.2} us each; then", of(&rounds, |r| r[0])));
    for (i, cost) in costs.iter().enumerate() {
        let at = |k: usize| of(&rounds, |r| r[1 + 4 * i + k]);
        let (first, one, calls, hundred) = (at(0), at(1), at(2), at(3));
        say(&format!(
            "  cost {cost:>2}: the first {first:.2} ms, one a call {one:.2} us ({calls:.1} commands inside), by 100 {hundred:.2} us"
        ));
    }
    Ok(())
}

/// 100,000 sends with the same `not_before`, an hour ahead, and as many without.
async fn one_start(rig: &mut Rig) -> Result<()> {
    let mut rounds = vec![];
    for _ in 0..ROUNDS {
        rig.fresh(&even()).await?;
        let without = rig.book(Sends::with(PLAIN), 100_000, 100).await?.0;
        rig.fresh(&even()).await?;
        let now: (u64, u64) = redis::from_redis_value(rig.call(&redis::cmd("TIME")).await?)?;
        let sends = Sends { not_before: (now.0 + 3600) * 1_000_000, ..Sends::with(PLAIN) };
        rounds.push((without, rig.book(sends, 100_000, 100).await?.0));
    }
    let (without, with) = (of(&rounds, |r| r.0), of(&rounds, |r| r.1));
    let ratio = of(&rounds, |r| r.1 / r.0);
    say(&format!("100,000 by 100: {without:.2} us each, with one not_before {with:.2} us: x {ratio:.2}"));
    Ok(())
}

/// Quotes, with nothing booked and behind a backlog of 10,000.
async fn quotes(rig: &mut Rig) -> Result<()> {
    rig.fresh(&even()).await?;
    rig.book(Sends::with(PLAIN), 10_000, 100).await?;
    for sends in [50_000, 1_000_000] {
        let (mut waited, mut part) = (vec![], vec![]);
        for _ in 0..ROUNDS {
            rig.count_commands().await?;
            let began = Instant::now();
            let answer = quote(&rig.store, &rig.budget, &QuoteRequest { sends, ..QuoteRequest::default() }).await?;
            waited.push(began.elapsed().as_secs_f64() * 1e3);
            ensure!(answer.placed == sends, "{} of {sends} placed", answer.placed);
            let counted = rig.commands().await?;
            part.push(counted.script_us / counted.scripts as f64 / 1e3);
        }
        let (waited, part) = (median(waited), median(part));
        say(&format!("quote of {sends}: {waited:.1} ms; each of its parts keeps Redis busy for {part:.1} ms"));
    }
    Ok(())
}
