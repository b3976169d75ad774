//! A lane with a reservation of 20% beside a backlog of 100,000.

use anyhow::Result;
use sendslot_tests::{SECOND, START};

use super::{BULK, FROM, OTP, booked_waits, in_time, kind, lane, policy, waits};
use crate::report::{at_least, say};
use crate::simulation::Simulation;

/// How long urgent sends arrive, s.
const LASTS: u64 = 120;

/// Prints all of it.
pub(super) async fn run(simulation: &mut Simulation) -> Result<()> {
    say("\nOTP lane with 20% reserved (19 of 95 units); wait from booking to slot, ms");
    say("                                 p50    p99    max  this or next second  OTP/s  bulk/s");
    let mut even = vec![];
    for (rate, poisson) in [1.0, 5.0, 10.0, 19.0].iter().flat_map(|rate| [(*rate, false), (*rate, true)]) {
        one(simulation, rate, poisson, 100_000).await?;
        if !poisson {
            even.push(in_time(simulation, OTP));
        }
    }
    for poisson in [false, true] {
        one(simulation, 90.0, poisson, 0).await?;
    }
    at_least("even OTP up to its share in this or the next second", even.into_iter().fold(1.0, f64::min), 1.0);
    Ok(())
}

async fn one(simulation: &mut Simulation, rate: f64, poisson: bool, backlog: usize) -> Result<()> {
    simulation.reset(&policy(vec![lane(OTP, 0.2, false)?]), 1).await?;
    // until the last of them has its slot
    simulation.until = FROM + (LASTS + 20) * SECOND;
    simulation.book(BULK, backlog, |_| 1).await?;
    simulation.offer_at_rate(OTP, rate, poisson, FROM, LASTS);
    simulation.run().await?;
    // whole seconds, behind the longest wait
    let (from, to) = (START + 7 * SECOND, START + LASTS * SECOND);
    let waited = booked_waits(simulation, OTP);
    say(&format!(
        "{backlog:>7} bulk, OTP {rate:>2}/s {:<8}{}{:>21.3}{:>7.1}{:>8.1}",
        kind(poisson),
        waits(&waited),
        in_time(simulation, OTP),
        simulation.rate_of(OTP, from, to),
        simulation.rate_of(BULK, from, to),
    ));
    Ok(())
}
