//! From a provider's outcome to what Redis is told. No I/O.

use std::time::Duration;

use sendslot_shared::settle::{Cooldown, Ending};

use crate::backoff::Backoff;
use crate::provider::Outcome;

/// What is reported of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) ending: Ending,
    /// The send is not booked again before this is over.
    pub(crate) delay: Duration,
    /// The whole budget rests, or its recipient.
    pub(crate) cooldown: Option<Cooldown>,
    /// For the dead letter and the log.
    pub(crate) error: String,
    /// What the provider calls a send that it took.
    pub(crate) provider_id: Option<String>,
}

impl Decision {
    /// An ending that no backoff and no cooldown belong to.
    pub(crate) fn plain(ending: Ending, error: &str) -> Self {
        Self { ending, delay: Duration::ZERO, cooldown: None, error: error.to_owned(), provider_id: None }
    }
}

/// The longest hint of a provider that is followed.
const LONGEST_HINT: Duration = Duration::from_secs(86_400);

/// `failures`: calls of this send that did not succeed, this one included, throttles too.
pub(crate) fn decide(outcome: &Outcome, failures: u32, backoff: Backoff, jitter: f64) -> Decision {
    let plain = Decision::plain;
    let wait = backoff.delay(failures, jitter);
    let hint = |given: &Option<Duration>| given.map(|hint| hint.min(LONGEST_HINT));
    match outcome {
        Outcome::Sent { provider_id } => Decision { provider_id: provider_id.clone(), ..plain(Ending::Sent, "") },
        Outcome::Rejected { reason } => plain(Ending::Rejected, reason),
        Outcome::Unknown { error } => Decision { delay: wait, ..plain(Ending::Unknown, error) },
        Outcome::Unavailable { retry_after, error } => {
            Decision { delay: wait.max(hint(retry_after).unwrap_or_default()), ..plain(Ending::Unavailable, error) }
        }
        Outcome::Throttled { retry_after, scope } => Decision {
            delay: wait.max(hint(retry_after).unwrap_or_default()),
            cooldown: hint(retry_after).map(|rest| Cooldown { rest, scope: *scope }),
            ..plain(Ending::Throttled, "throttled")
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Scope;

    #[test]
    fn each_outcome_has_its_ending_delay_and_cooldown() {
        let s = Duration::from_secs;
        let hint = Some(s(9));
        let rest = |rest_s, scope| Some(Cooldown { rest: s(rest_s), scope });
        let error = || "boom".to_owned();
        let throttled = |retry_after, scope| Outcome::Throttled { retry_after, scope };
        let cases = [
            (Outcome::Sent { provider_id: None }, Ending::Sent, 0, None),
            (Outcome::Rejected { reason: error() }, Ending::Rejected, 0, None),
            (Outcome::Unknown { error: error() }, Ending::Unknown, 2, None),
            (Outcome::Unavailable { retry_after: None, error: error() }, Ending::Unavailable, 2, None),
            (Outcome::Unavailable { retry_after: hint, error: error() }, Ending::Unavailable, 9, None),
            // R1: no hint still backs off
            (throttled(None, Scope::Account), Ending::Throttled, 2, None),
            (throttled(Some(s(1)), Scope::Account), Ending::Throttled, 2, rest(1, Scope::Account)),
            (throttled(hint, Scope::Account), Ending::Throttled, 9, rest(9, Scope::Account)),
            // R8: a recipient's throttle stops nobody else
            (throttled(hint, Scope::Recipient), Ending::Throttled, 9, rest(9, Scope::Recipient)),
        ];
        for (outcome, ending, delay_s, cooldown) in cases {
            let decision = decide(&outcome, 3, Backoff::default(), 0.5);
            assert_eq!(
                (decision.ending, decision.delay, decision.cooldown),
                (ending, s(delay_s), cooldown),
                "{outcome:?}"
            );
        }
    }
}
