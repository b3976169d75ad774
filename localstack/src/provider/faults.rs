//! Faults that the provider injects, drawn from a seeded generator.

use std::time::Duration;

/// Shares of requests that go wrong, each 0..=1 and together at most 1.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Faults {
    /// Answered with 500, not accepted.
    pub server_error: f64,
    /// Answered with 429, not accepted.
    pub throttle: f64,
    /// Never answered; the connection stays open.
    pub timeout: f64,
    /// Never answered; the connection is closed.
    pub drop_connection: f64,
    /// Requests that are never answered were not taken either. Otherwise they were, if the limit let them.
    pub unanswered_are_refused: bool,
    /// Text of the `Retry-After` header of every 429; `None` computes whole seconds, at least 1.
    pub retry_after: Option<String>,
    /// A time in which every request is answered with 503.
    pub outage: Option<Outage>,
}

/// A time without service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Time from the moment the faults were set.
    pub start: Duration,
    /// How long it lasts.
    pub length: Duration,
}

/// What one draw decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    ServerError,
    Throttle,
    Timeout,
    DropConnection,
    Outage,
}

impl Faults {
    /// Whether every share is a share, and all of them fit together.
    pub(super) fn are_shares(&self) -> bool {
        let shares = self.shares();
        shares.iter().all(|share| (0.0..=1.0).contains(share)) && shares.iter().sum::<f64>() <= 1.0 + 1e-9
    }

    /// The fault of one request: `age` is the time since the faults were set, `draw` lies in 0..1.
    pub(super) fn pick(&self, age: Duration, draw: f64) -> Fault {
        if self.outage.is_some_and(|outage| outage.covers(age)) {
            return Fault::Outage;
        }
        let kinds = [Fault::ServerError, Fault::Throttle, Fault::Timeout, Fault::DropConnection];
        let mut upper = 0.0;
        for (kind, share) in kinds.into_iter().zip(self.shares()) {
            upper += share;
            if draw < upper {
                return kind;
            }
        }
        Fault::None
    }

    fn shares(&self) -> [f64; 4] {
        [self.server_error, self.throttle, self.timeout, self.drop_connection]
    }
}

impl Outage {
    fn covers(self, age: Duration) -> bool {
        age >= self.start && age - self.start < self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stack_up_in_order() {
        let faults =
            Faults { server_error: 0.1, throttle: 0.2, timeout: 0.3, drop_connection: 0.4, ..Faults::default() };
        let picks = [0.0, 0.09, 0.1, 0.29, 0.31, 0.59, 0.61, 0.99].map(|draw| faults.pick(Duration::ZERO, draw));
        let pairs = [Fault::ServerError, Fault::Throttle, Fault::Timeout, Fault::DropConnection];
        assert_eq!(picks.to_vec(), pairs.into_iter().flat_map(|kind| [kind, kind]).collect::<Vec<_>>());
        assert!(faults.are_shares());
        assert_eq!(Faults::default().pick(Duration::ZERO, 0.0), Fault::None);
    }

    #[test]
    fn shares_above_one_are_refused() {
        assert!(!Faults { timeout: 0.6, throttle: 0.6, ..Faults::default() }.are_shares());
        assert!(!Faults { timeout: -0.1, ..Faults::default() }.are_shares());
        assert!(!Faults { timeout: f64::NAN, ..Faults::default() }.are_shares());
    }

    #[test]
    fn an_outage_ends() {
        let outage = Outage { start: Duration::from_secs(2), length: Duration::from_secs(3) };
        let faults = Faults { outage: Some(outage), ..Faults::default() };
        let picks = [1, 2, 4, 5].map(|age| faults.pick(Duration::from_secs(age), 0.5));
        assert_eq!(picks, [Fault::None, Fault::Outage, Fault::Outage, Fault::None]);
    }
}
