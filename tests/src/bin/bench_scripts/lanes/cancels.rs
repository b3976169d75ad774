//! What becomes of the places of cancelled sends.

use std::collections::BTreeSet;

use anyhow::Result;
use sendslot_tests::{SECOND, START};

use super::{BULK, RATE, policy};
use crate::report::{at_least, at_most, say};
use crate::simulation::Simulation;

const SENDS: usize = 10_000;
const CANCELLED: usize = SENDS / 10;

/// A tenth of 10,000 is cancelled at random and as many are booked anew; three times over. Then all are sent.
pub(super) async fn run(simulation: &mut Simulation) -> Result<()> {
    say("\n10,000 waiting, a tenth cancelled at random and as many booked anew, three times");
    simulation.reset(&policy(vec![]), 1).await?;
    simulation.book(BULK, SENDS, |_| 1).await?;
    let mut random = fastrand::Rng::with_seed(7);
    let mut refilled = 0;
    for _ in 0..3 {
        let mut freed = BTreeSet::new();
        for _ in 0..CANCELLED {
            let send = simulation.sends.swap_remove(random.usize(..simulation.sends.len()));
            simulation.cancel(&send).await?;
            freed.insert(send.first_slot);
        }
        simulation.book(BULK, CANCELLED, |_| 1).await?;
        let anew = simulation.sends.iter().rev().take(CANCELLED);
        refilled += anew.filter(|send| freed.contains(&send.first_slot)).count();
    }
    at_least("part of the freed places that the next bookings take", refilled as f64 / (3 * CANCELLED) as f64, 1.0);
    simulation.restart();
    simulation.run().await?;
    let (from, to) = (START + SECOND, START + 101 * SECOND);
    at_least("part of the rate that is used", simulation.rate_of(BULK, from, to) / RATE, 0.99);
    at_most("most units in any rolling second", f64::from(simulation.most_in_a_second()), 100.0);
    Ok(())
}
