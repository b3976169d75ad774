//! A day of sends on the real scripts under a virtual clock, with everything that can happen to them.
//!
//! Each budget of the day has a Redis, a thread and an event loop of its own, since budgets never meet: what it offers, how late
//! its workers ask, what its provider answers and which of them die is drawn from the seed alone. What is checked, see `ledger`.
//!
//! | part | what |
//! |---|---|
//! | `profile` | the budgets: policies and traffic |
//! | `world` | the event loop: offers, cancels, changes of policy, the queue's copies |
//! | `worker` | what workers do with verdicts, and how their calls end |
//! | `samples` | calls that are made twice, and refusals that may leave no trace |
//! | `record` | a send's record as Redis holds it |
//! | `ledger` | what happened, and whether it may |
//! | `tally` | counts |

mod ledger;
mod profile;
mod record;
mod samples;
mod tally;
mod worker;
mod world;

use anyhow::{Context as _, Result};

pub use tally::{Report, Tally};

/// How long a day is and what it is drawn from.
#[derive(Debug, Clone)]
pub struct Day {
    /// Sends that are offered, about.
    pub sends: usize,
    /// What is drawn is drawn from this.
    pub seed: u64,
    /// Only the budget with this name.
    pub only: Option<String>,
}

impl Day {
    /// Runs all budgets, each on a thread of its own, two at a time.
    ///
    /// # Errors
    /// When Redis or a thread cannot be had; what is wrong with the sends stands in the reports.
    pub fn run(&self) -> Result<Vec<Report>> {
        let mut budgets = profile::all();
        budgets.retain(|profile| self.only.as_deref().is_none_or(|only| only == profile.name));
        let queue = std::sync::Mutex::new(budgets.into_iter());
        let next = || queue.lock().ok().and_then(|mut left| left.next());
        std::thread::scope(|scope| {
            let work = || std::iter::from_fn(next).map(|profile| self.budget(profile)).collect::<Vec<_>>();
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
            let done = threads.into_iter().map(|thread| thread.join().ok().context("a budget's thread"));
            done.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect()
        })
    }

    fn budget(&self, profile: profile::Profile) -> Result<Report> {
        let seed =
            profile.name.bytes().fold(self.seed, |seed, byte| seed.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
        // tags of copies are drawn there
        fastrand::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut world = world::World::start(profile, self, seed).await?;
            world.run().await?;
            world.finish().await
        })
    }
}
