//! What a burst costs: SQS, Lambda, Redis.

use super::{Plan, PlanError, PlanInput};

/// What AWS asks for, in dollars. They change and differ by region: give your own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// A million requests of a standard queue.
    pub sqs_million_requests: f64,
    /// A GB-second of Lambda on arm64.
    pub lambda_gb_second: f64,
    /// A million invocations.
    pub lambda_million_requests: f64,
    /// An hour of Redis. It is there whether sends leave or not.
    pub redis_hour: f64,
}

impl Prices {
    /// List prices of us-east-1 as they were known on [`Prices::DATE`], free allowances left out; Redis is two nodes of
    /// cache.t4g.small with Valkey.
    pub const US_EAST_1: Self = Self {
        sqs_million_requests: 0.40,
        lambda_gb_second: 0.000_013_333_4,
        lambda_million_requests: 0.20,
        redis_hour: 0.0512,
    };
    /// When [`Prices::US_EAST_1`] was written down.
    pub const DATE: &'static str = "2026-11";

    pub(super) fn check(self) -> Result<(), PlanError> {
        let Self { sqs_million_requests, lambda_gb_second, lambda_million_requests, redis_hour } = self;
        let wrong = |price: &f64| !price.is_finite() || *price < 0.0;
        let all = [sqs_million_requests, lambda_gb_second, lambda_million_requests, redis_hour];
        all.into_iter().find(wrong).map_or(Ok(()), |given| Err(PlanError::Price { given }))
    }
}

/// Dollars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// SQS requests.
    pub sqs: f64,
    /// Lambda's GB-seconds, the hold before the slot included.
    pub lambda_time: f64,
    /// Lambda's invocations.
    pub lambda_requests: f64,
    /// Redis, for as long as the burst drains.
    pub redis: f64,
}

impl Cost {
    /// All of it.
    #[must_use]
    pub fn total(self) -> f64 {
        self.sqs + self.lambda_time + self.lambda_requests + self.redis
    }

    /// The same for a million sends, when a burst of `sends` costs this.
    #[must_use]
    pub fn per_million(self, sends: u64) -> Self {
        let part = 1e6 / sends as f64;
        let Self { sqs, lambda_time, lambda_requests, redis } = self;
        Self {
            sqs: sqs * part,
            lambda_time: lambda_time * part,
            lambda_requests: lambda_requests * part,
            redis: redis * part,
        }
    }
}

/// What an invocation takes that only puts copies back.
const HOP_S: f64 = 0.05;

impl Plan {
    /// How long an invocation with `messages_per_batch` sends in it is billed, seconds: from its first message until its last call has
    /// ended. Messages show up lead to lead + 1 s before their slots; the last of n is due n / (n + 1) s after the lead, on average.
    #[must_use]
    pub fn invocation_s(&self, input: &PlanInput) -> f64 {
        let n = self.messages_per_batch as f64;
        input.policy.lead.as_secs_f64() + n / (n + 1.0) + input.latency.as_secs_f64()
    }

    /// What the burst costs at the input's prices.
    #[must_use]
    pub fn cost(&self, input: &PlanInput) -> Cost {
        let prices = input.prices;
        let copies = (input.burst + self.hops) as f64;
        let invocations = (copies / self.messages_per_batch as f64).ceil();
        // copies that hop come in between: an invocation with a send among them is busy until that has left
        let busy = invocations.min(input.burst as f64);
        let seconds = busy * self.invocation_s(input) + (invocations - busy) * HOP_S;
        Cost {
            sqs: self.requests.total() as f64 * prices.sqs_million_requests / 1e6,
            lambda_time: seconds * f64::from(input.memory_mb) / 1024.0 * prices.lambda_gb_second,
            lambda_requests: invocations * prices.lambda_million_requests / 1e6,
            redis: self.drain.as_secs_f64() / 3600.0 * prices.redis_hour,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Headroom, Policy};
    use std::time::Duration;

    fn input(batch_size: u32, window_s: u64) -> PlanInput {
        let policy = Policy { headroom: Headroom::new(0.8).unwrap(), ..Policy::per_second(100) };
        let batch_window = Duration::from_secs(window_s);
        let policy = Policy { lead: policy.lead + batch_window, transit: policy.transit + batch_window, ..policy };
        PlanInput { batch_size, batch_window, ..PlanInput::new(policy, 1_000_000) }
    }

    fn cost(input: &PlanInput) -> Cost {
        Plan::new(input).unwrap().cost(input)
    }

    #[test]
    fn a_million_sends_by_ten_cost_what_is_worked_out_by_hand() {
        // 12,500 s: no send waits longer than 14 hops; 13 wake-ups on average are counted by the plan
        let input = PlanInput { burst: 10_000, ..input(10, 0) };
        let cost = cost(&input).per_million(10_000);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-3 * b;
        assert!(near(cost.sqs, 0.12), "{cost:?}");
        // 100,000 invocations of 1.5 + 10/11 + 0.05 s x 0.25 GB
        assert!(near(cost.lambda_time, 100_000.0 * 2.459_09 * 0.25 * 0.000_013_333_4), "{cost:?}");
        assert!(near(cost.lambda_requests, 0.02), "{cost:?}");
        // 12,500 s at 80 a second
        assert!(near(cost.redis, 12_500.0 / 3600.0 * 0.0512), "{cost:?}");
        assert!(near(cost.total(), cost.sqs + cost.lambda_time + cost.lambda_requests + cost.redis));
    }

    #[test]
    fn larger_batches_cost_less_and_hops_and_lead_cost_more() {
        let burst = |input: PlanInput| PlanInput { burst: 10_000, ..input };
        let total = |input: &PlanInput| cost(input).per_million(input.burst).total();
        let (one, ten, hundred) = (burst(input(1, 0)), burst(input(10, 0)), burst(input(100, 1)));
        assert!(total(&one) > total(&ten) && total(&ten) > total(&hundred));
        assert!(total(&input(10, 0)) > total(&ten), "a million at once hop");
        let lead = Policy { lead: Duration::from_secs(5), ..ten.policy.clone() };
        assert!(total(&PlanInput { policy: lead, ..ten.clone() }) > total(&ten));
        let wrong = Prices { lambda_gb_second: f64::NAN, ..Prices::US_EAST_1 };
        assert!(matches!(Plan::new(&PlanInput { prices: wrong, ..ten }), Err(PlanError::Price { .. })));
    }
}
