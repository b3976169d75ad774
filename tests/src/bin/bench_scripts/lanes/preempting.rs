//! A lane that preempts, where 10,000 sends of another lane wait.

use anyhow::Result;
use sendslot_shared::limits::Lane;
use sendslot_tests::{SECOND, START};

use super::{BULK, FROM, OTP, RATE, booked_waits, kind, lane, policy, waits};
use crate::report::{at_least, at_most, quantile, say};
use crate::simulation::Simulation;

const BACKLOG: usize = 10_000;
/// How long urgent sends arrive, s.
const LASTS: u64 = 60;

/// Seconds in which urgent sends stand all the time.
const FULL: (u64, u64) = (START + 3 * SECOND, START + LASTS * SECOND);

/// What one run showed besides its line.
struct Seen {
    /// The longest p99 of the wait until sent, ms.
    p99_ms: f64,
    most: u32,
    /// Sends that were lost, or left in the slot of another one.
    wrong: usize,
}

/// Prints all of it.
pub(super) async fn run(simulation: &mut Simulation) -> Result<()> {
    idle(simulation).await?;
    say(
        "                      booked: p50    p99    max   sent: p50    p99    max   bulk/s   moved  put back  most in 1 s  lost",
    );
    let mut seen = vec![];
    for (rate, poisson) in [1.0, 5.0, 10.0, 25.0, 47.0].iter().flat_map(|rate| [(*rate, false), (*rate, true)]) {
        seen.push(one(simulation, vec![lane(OTP, 0.0, true)?], rate, poisson).await?);
    }
    at_most("OTP wait until sent, p99 (ms)", seen.iter().map(|s| s.p99_ms).fold(0.0, f64::max), 500.0);
    say("  bulk with 50% guaranteed, OTP above what is left:");
    let guaranteed = || Ok::<_, anyhow::Error>(vec![lane(BULK, 0.5, false)?, lane(OTP, 0.0, true)?]);
    for poisson in [false, true] {
        seen.push(one(simulation, guaranteed()?, 60.0, poisson).await?);
        let bulk = simulation.rate_of(BULK, FULL.0, FULL.1);
        at_least("bulk's part of its 47 units a second", bulk / 47.0, 1.0);
    }
    at_most("most units in any rolling second", seen.iter().map(|s| f64::from(s.most)).fold(0.0, f64::max), 100.0);
    at_most("lost, or two in one slot", seen.iter().map(|s| s.wrong).sum::<usize>() as f64, 0.0);
    Ok(())
}

/// Bulk alone: how much of the rate it uses while nothing urgent comes.
async fn idle(simulation: &mut Simulation) -> Result<()> {
    simulation.reset(&policy(vec![lane(OTP, 0.0, true)?]), 1).await?;
    simulation.book(BULK, BACKLOG, |_| 1).await?;
    simulation.run().await?;
    let (from, to) = (START + SECOND, START + 101 * SECOND);
    say("\nOTP lane that preempts, 10,000 bulk waiting; ms");
    at_least("part of the rate that bulk uses while OTP is idle", simulation.rate_of(BULK, from, to) / RATE, 0.99);
    Ok(())
}

async fn one(simulation: &mut Simulation, lanes: Vec<Lane>, rate: f64, poisson: bool) -> Result<Seen> {
    simulation.reset(&policy(lanes), 1).await?;
    simulation.book(BULK, BACKLOG, |_| 1).await?;
    simulation.offer_at_rate(OTP, rate, poisson, FROM, LASTS);
    simulation.run().await?;
    let sent: Vec<u64> = simulation.of_lane(OTP).filter_map(|send| Some(send.sent? - send.offered)).collect();
    let lost = simulation.sends.iter().filter(|send| send.sent.is_none()).count();
    let (urgent, most) = (simulation.of_lane(OTP).count() as f64, simulation.most_in_a_second());
    say(&format!(
        "OTP {rate:>2}/s {:<8}{:>12}   {:>12}{:>9.1}{:>8.2}{:>10.2}{most:>13}{lost:>6}",
        kind(poisson),
        waits(&booked_waits(simulation, OTP)),
        waits(&sent),
        simulation.rate_of(BULK, FULL.0, FULL.1),
        simulation.moved as f64 / urgent,
        simulation.put_back as f64 / urgent,
    ));
    Ok(Seen { p99_ms: quantile(&sent, 0.99) as f64 / 1e3, most, wrong: lost + simulation.doubled() })
}
