//! Waits of urgent sends, and what is left for the others: a limit of 100/s, headroom 0.95.

mod cancels;
mod preempting;
mod reserved;

use anyhow::Result;
use sendslot_localstack::RedisServer;
use sendslot_shared::id::LaneName;
use sendslot_shared::limits::{Lane, Share};
use sendslot_shared::policy::Policy;
use sendslot_tests::{SECOND, START, per_second};

use crate::report::quantile;
use crate::simulation::Simulation;

/// Units a second on the grid.
const RATE: f64 = 95.0;
/// When urgent sends begin: nothing is aligned with it.
const FROM: u64 = START + 1_137_000;
const BULK: &str = LaneName::DEFAULT;
const OTP: &str = "otp";

/// Prints all of it.
pub(crate) async fn run(server: RedisServer) -> Result<()> {
    let mut simulation = Simulation::new(server, &policy(vec![])).await?;
    reserved::run(&mut simulation).await?;
    preempting::run(&mut simulation).await?;
    cancels::run(&mut simulation).await?;
    simulation.bench.server.stop().await;
    Ok(())
}

fn policy(lanes: Vec<Lane>) -> Policy {
    let day = std::time::Duration::from_secs(86_400);
    Policy { lanes, horizon: 14 * day, ..per_second(100, 0.95) }
}

fn lane(name: &str, reserved: f64, preempts: bool) -> Result<Lane> {
    Ok(Lane { reserved: Share::new(reserved)?, preempts, ..Lane::new(LaneName::new(name)?) })
}

/// p50, p99 and the longest, in ms.
fn waits(us: &[u64]) -> String {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| quantile(us, share) as f64 / 1e3);
    format!("{p50:>7.0}{p99:>7.0}{max:>7.0}")
}

fn kind(poisson: bool) -> &'static str {
    if poisson { "Poisson" } else { "even" }
}

/// From offer to the slot given, of all sends of a lane; us.
fn booked_waits(simulation: &Simulation, lane: &'static str) -> Vec<u64> {
    simulation.of_lane(lane).map(|send| send.first_slot.saturating_sub(send.offered)).collect()
}

/// Of all sends of a lane, how many got a slot in the second in which they were offered or in the next one.
fn in_time(simulation: &Simulation, lane: &'static str) -> f64 {
    let good = simulation.of_lane(lane).filter(|send| send.first_slot / SECOND <= send.offered / SECOND + 1).count();
    good as f64 / simulation.of_lane(lane).count().max(1) as f64
}
