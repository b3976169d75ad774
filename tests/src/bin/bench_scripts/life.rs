//! The whole life of a send with each feature: booked by 100, asked for once before its slot and once at it, settled.

use std::time::Duration;

use anyhow::Result;
use sendslot_lua::{CLAIM, SETTLE};

use crate::commands::{
    EVERYTHING, FAR, Features, LANES, LANES_QUOTAS, PLAIN, PREEMPTING, QUOTAS, SLOTS_ARE_OVER, SPACING, Sends,
    claim_cmd, even, fast, settle_cmd,
};
use crate::report::{at_most, of, say};
use crate::rig::Rig;

const ROUNDS: usize = 5;
const CASES: [Features; 7] = [PLAIN, LANES, QUOTAS, SPACING, LANES_QUOTAS, EVERYTHING, PREEMPTING];
const SENDS: usize = 3000;

/// What one case took: us of Redis CPU per send, script calls per send, and commands inside them.
struct Life {
    reserve: f64,
    wait: f64,
    send: f64,
    settle: f64,
    scripts: f64,
    inside: f64,
}

impl Life {
    fn whole(&self) -> f64 {
        self.reserve + self.wait + self.send + self.settle
    }
}

/// Prints all of it.
pub(crate) async fn run(rig: &mut Rig) -> Result<()> {
    let mut rounds: Vec<Vec<Life>> = vec![];
    for _ in 0..ROUNDS {
        let mut round = vec![];
        for features in CASES {
            round.push(life(rig, features).await?);
        }
        rounds.push(round);
    }
    say("\nwhole life: us      by 100     wait     send   settle    whole  x plain  calls  with those inside scripts");
    for (case, features) in CASES.iter().enumerate() {
        let us = |value: fn(&Life) -> f64| of(&rounds, |r| value(&r[case]));
        say(&format!(
            "{:<17}{:>9.2}{:>9.2}{:>9.2}{:>9.2}{:>9.2}{:>9.2}{:>7.2}{:>9.2}",
            features.name,
            us(|l| l.reserve),
            us(|l| l.wait),
            us(|l| l.send),
            us(|l| l.settle),
            us(Life::whole),
            of(&rounds, |r| r[case].whole() / r[0].whole()),
            us(|l| l.scripts),
            us(|l| l.scripts + l.inside),
        ));
    }
    at_most("whole life of a plain send, us", of(&rounds, |r| r[0].whole()), 30.0);
    bytes(rig).await
}

async fn life(rig: &mut Rig, features: Features) -> Result<Life> {
    let (claim, settle) = (rig.sha(CLAIM), rig.sha(SETTLE));
    let claim = |id| claim_cmd(&claim, features, id);
    let (_, waiting) = booked(rig, features, FAR).await?;
    rig.count_commands().await?;
    let wait = rig.cost(&waiting, claim, 1).await?;
    let waits = rig.commands().await?;
    let (reserve, due) = booked(rig, features, Duration::ZERO).await?;
    tokio::time::sleep(SLOTS_ARE_OVER).await;
    let send = rig.cost(&due, claim, 0).await?;
    let settle = rig.cost(&due, |id| settle_cmd(&settle, features, id), 0).await?;
    let others = rig.commands().await?;
    let per_send = |a: u64, b: u64| (a + b) as f64 / SENDS as f64;
    let (scripts, inside) = (per_send(waits.scripts, others.scripts), per_send(waits.inside, others.inside));
    Ok(Life { reserve, wait, send, settle, scripts, inside })
}

/// An empty Redis but for these sends: what booking one took, and their numbers. Commands are counted from here on.
async fn booked(rig: &mut Rig, features: Features, transit: Duration) -> Result<(f64, Vec<usize>)> {
    rig.fresh(&features.on(fast(transit))?).await?;
    rig.count_commands().await?;
    let (us, first) = rig.book(Sends::with(features), SENDS, 100).await?;
    Ok((us, (first..first + SENDS).collect()))
}

async fn bytes(rig: &mut Rig) -> Result<()> {
    say("\nbytes of Redis per waiting send");
    let plain = bytes_per_send(rig, PLAIN).await?;
    for features in [PLAIN, LANES, QUOTAS, SPACING, EVERYTHING] {
        let bytes = if features == PLAIN { plain } else { bytes_per_send(rig, features).await? };
        say(&format!("{:<22}{bytes:>8.0}{:>8.2}", features.name, bytes / plain));
    }
    Ok(())
}

/// What 100,000 waiting sends take.
pub(crate) async fn bytes_per_send(rig: &mut Rig, features: Features) -> Result<f64> {
    let n = 100_000;
    rig.fresh(&features.on(even())?).await?;
    rig.book(Sends::with(features), 100, 100).await?;
    let before = rig.memory().await?;
    rig.book(Sends::with(features), n, 500).await?;
    Ok((rig.memory().await? - before) / n as f64)
}
