//! What is offered: a mixed load in the lanes of two budgets, drawn from the seed.

use std::time::Duration;

use sendslot_shared::id::LaneName;
use sendslot_shared::limits::{Lane, Share};
use sendslot_shared::policy::{Headroom, OnUnknown, Policy};

use super::asks::Offer;

/// One budget of the run.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    /// Its name, and the beginning of its send IDs.
    pub(super) name: &'static str,
    pub(super) policy: Policy,
}

/// The budget with lanes; unknown outcomes are parked.
pub(super) const LANES: &str = "tt-a";
/// The budget that sends again what has an unknown outcome.
pub(super) const AGAIN: &str = "tt-r";
/// The lane with a reservation.
pub(super) const RESERVED: &str = "alerts";

/// Messages may gather for so long before an invocation.
pub(super) const BATCH_WINDOW: Duration = Duration::from_secs(1);

/// A policy for workers whose batches gather for [`BATCH_WINDOW`].
pub(super) fn policy(limit: u32, headroom: f64) -> Policy {
    let policy = Policy { headroom: Headroom::new(headroom).unwrap_or(Headroom::DEFAULT), ..Policy::per_second(limit) };
    Policy { lead: policy.lead + BATCH_WINDOW, transit: policy.transit + BATCH_WINDOW, ..policy }
}

/// Both budgets. Their headroom leaves room for sends that a busy machine is late with.
pub(super) fn budgets() -> Vec<Budget> {
    let lane = |name: &str| Lane::new(LaneName::new(name).unwrap_or_else(|_| unreachable!("{name} is a lane's name")));
    let alerts = Lane { reserved: Share::new(0.2).unwrap_or(Share::NONE), ..lane(RESERVED) };
    let codes = Lane { preempts: true, ..lane("codes") };
    vec![
        Budget { name: LANES, policy: Policy { lanes: vec![alerts, codes], ..policy(60, 0.8) } },
        Budget { name: AGAIN, policy: Policy { on_unknown: OnUnknown::Resend, ..policy(20, 0.8) } },
    ]
}

/// Budget, lane, sends a second.
const STREAMS: [(&str, &str, f64); 4] =
    [(LANES, "default", 16.0), (LANES, RESERVED, 4.0), (LANES, "codes", 3.0), (AGAIN, "default", 9.0)];
/// A campaign: so many sends at once, about so often.
const CAMPAIGN: (usize, Duration) = (80, Duration::from_secs(16));

/// A send and when it is cancelled after it was accepted, if it is.
pub(super) type Drawn = (Offer, Option<Duration>);

/// The load of a run.
#[derive(Debug)]
pub(super) struct Load {
    random: fastrand::Rng,
    /// Of the full load.
    part: f64,
    drawn: usize,
}

impl Load {
    /// A part of the full load, which uses about two thirds of what may leave.
    pub(super) fn new(seed: u64, part: f64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), part, drawn: 0 }
    }

    /// What is offered in a step of this length that ends at `now_us`.
    pub(super) fn step(&mut self, length: Duration, now_us: u64) -> Vec<Drawn> {
        let mut offers = vec![];
        for (budget, lane, rate) in STREAMS {
            let n = (rate * self.part * length.as_secs_f64() + self.random.f64()) as usize;
            offers.extend((0..n).map(|_| self.draw(budget, lane, now_us)));
        }
        if self.random.f64() < self.part * length.as_secs_f64() / CAMPAIGN.1.as_secs_f64() {
            offers.extend((0..CAMPAIGN.0).map(|_| self.draw(LANES, "default", now_us)));
        }
        offers
    }

    /// One plain send, in this lane.
    pub(super) fn plain(&mut self, budget: &str, lane: &str) -> Offer {
        self.drawn += 1;
        Offer {
            budget: budget.to_owned(),
            id: format!("{budget}-{:06}", self.drawn),
            lane: lane.to_owned(),
            cost: 1,
            not_before_us: None,
            deadline_us: None,
            together: lane == "default",
        }
    }

    fn draw(&mut self, budget: &str, lane: &str, now_us: u64) -> Drawn {
        let plain = self.plain(budget, lane);
        let cost = match self.random.u32(0..100) {
            0..94 => 1,
            94..98 => 2,
            _ => 4,
        };
        let mut after = |share: f64, from_s: u64, to_s: u64| {
            let after_us = self.random.u64(from_s * 1_000_000..to_s * 1_000_000);
            (self.random.f64() < share).then_some(after_us)
        };
        let not_before_us = after(0.04, 3, 20).map(|after| now_us + after);
        let deadline_us = after(0.04, 25, 60).map(|after| now_us + after);
        let cancel = after(0.04, 0, 3).map(Duration::from_micros);
        (Offer { cost, not_before_us, deadline_us, ..plain }, cancel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_load_and_about_two_thirds_of_what_may_leave() {
        let draw = |seed| {
            let mut load = Load::new(seed, 1.0);
            (0..6000u64).flat_map(|i| load.step(Duration::from_millis(50), i * 50_000)).collect::<Vec<_>>()
        };
        let offers = draw(7);
        assert_eq!(offers, draw(7));
        assert_ne!(offers, draw(8));
        for budget in budgets() {
            let of_budget = offers.iter().filter(|(offer, _)| offer.budget == budget.name);
            let units: u32 = of_budget.map(|(offer, _)| offer.cost).sum();
            let part = f64::from(units) / 300.0 / budget.policy.scheduled_rate();
            assert!((0.45..0.8).contains(&part), "{}: {part}", budget.name);
        }
    }
}
