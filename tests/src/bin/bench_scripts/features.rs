//! A booking with lanes, quotas and spacing, beside the plain one in calls of the same size.

use anyhow::Result;

use crate::commands::{EVERYTHING, Features, LANES, LANES_QUOTAS, PLAIN, QUOTAS, SPACING, Sends, even};
use crate::report::{at_most, of, say};
use crate::rig::Rig;

const ROUNDS: usize = 7;
const CASES: [Features; 6] = [PLAIN, LANES, QUOTAS, SPACING, LANES_QUOTAS, EVERYTHING];
const BATCHES: [usize; 4] = [1, 10, 100, 500];

/// us of Redis CPU per send, by case and size of the call.
type Round = [[f64; BATCHES.len()]; CASES.len()];

/// Prints all of it.
pub(crate) async fn run(rig: &mut Rig) -> Result<()> {
    let mut rounds = vec![];
    for _ in 0..ROUNDS {
        rounds.push(round(rig).await?);
    }
    let sizes: String = BATCHES.iter().map(|batch| format!("{:>16}", format!("{batch} a call"))).collect();
    say(&format!("\nbooking: us, x plain  {sizes}"));
    for (case, features) in CASES.iter().enumerate() {
        let cells = (0..BATCHES.len()).map(|b| {
            format!("{:>9.2}{:>7.2}", of(&rounds, |r: &Round| r[case][b]), of(&rounds, |r| r[case][b] / r[0][b]))
        });
        say(&format!("{:<22}{}", features.name, cells.collect::<String>()));
    }
    let hundred = |case: usize| of(&rounds, |r: &Round| r[case][2] / r[0][2]);
    at_most("lanes + quotas / plain, 100 a call", hundred(4), 1.5);
    at_most("everything, with spacing / plain, 100 a call", hundred(5), 2.5);
    Ok(())
}

async fn round(rig: &mut Rig) -> Result<Round> {
    let mut round = Round::default();
    for (b, batch) in BATCHES.into_iter().enumerate() {
        for (case, features) in CASES.into_iter().enumerate() {
            rig.fresh(&features.on(even())?).await?;
            rig.book(Sends::with(features), batch.max(200), batch).await?;
            let sends = if batch == 1 { 4_000 } else { 20_000 };
            round[case][b] = rig.book(Sends::with(features), sends, batch).await?.0;
        }
    }
    Ok(round)
}
