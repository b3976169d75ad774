//! What a process does with sends while Redis cannot be asked.

use std::fmt;
use std::str::FromStr;

use crate::id::{BudgetName, LaneName};

/// What becomes of a lane's sends while Redis cannot be asked. It stands in each process's own configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RedisPolicy {
    /// They wait on SQS, unbooked if need be; nothing is sent before Redis can be asked.
    #[default]
    Hold,
    /// They are sent all the same, by each worker process at a limit of its own, without their slots and without
    /// deduplication: what travels twice is sent twice.
    Local {
        /// The limit of one worker process.
        units_per_s: UnitsPerSecond,
    },
}

/// A low rate: 0.001 to 10,000 units per second, to three decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitsPerSecond(u32);

impl UnitsPerSecond {
    /// A rate; `None` when it is out of range. Rounded to a thousandth.
    #[must_use]
    pub fn new(given: f64) -> Option<Self> {
        let thousandths = (given * 1000.0).round();
        (1.0..=10_000_000.0).contains(&thousandths).then_some(Self(thousandths as u32))
    }

    /// Units per second.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

/// Why a text is no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "SENDSLOT_REDIS_POLICY: {given:?} {what}. Give hold or local:UNITS_PER_SECOND, for some lanes as \
     LANE=POLICY or BUDGET/LANE=POLICY (* for all), with commas between"
)]
pub struct InvalidRedisPolicy {
    /// The part that was not understood.
    given: String,
    what: &'static str,
}

impl fmt::Display for RedisPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold => f.write_str("hold"),
            Self::Local { units_per_s } => write!(f, "local:{}", units_per_s.get()),
        }
    }
}

impl FromStr for RedisPolicy {
    type Err = InvalidRedisPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidRedisPolicy> {
        let rate = match text.split_once(':') {
            None if text == "hold" => return Ok(Self::Hold),
            Some(("local", rate)) => rate.parse().ok().and_then(UnitsPerSecond::new),
            _ => return Err(InvalidRedisPolicy { given: text.to_owned(), what: "is no policy" }),
        };
        let out_of_range = || InvalidRedisPolicy { given: text.to_owned(), what: "has no rate from 0.001 to 10000" };
        rate.map(|units_per_s| Self::Local { units_per_s }).ok_or_else(out_of_range)
    }
}

/// The policies of a process by budget and lane. Sends that none is for are held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedisPolicies(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    budget: Option<BudgetName>,
    lane: Option<LaneName>,
    policy: RedisPolicy,
}

impl RedisPolicies {
    /// One policy for all budgets and lanes.
    #[must_use]
    pub fn all(policy: RedisPolicy) -> Self {
        Self::default().with(None, None, policy)
    }

    /// With a policy for a lane of a budget; `None` stands for all of them. The last one given for the same sends holds.
    #[must_use]
    pub fn with(mut self, budget: Option<BudgetName>, lane: Option<LaneName>, policy: RedisPolicy) -> Self {
        self.0.retain(|rule| (&rule.budget, &rule.lane) != (&budget, &lane));
        self.0.push(Rule { budget, lane, policy });
        self
    }

    /// The policy of a lane of a budget: the most exact one, and one for a budget before one for a lane.
    #[must_use]
    pub fn of(&self, budget: &BudgetName, lane: &LaneName) -> RedisPolicy {
        self.place(budget, lane).map_or(RedisPolicy::Hold, |place| self.0[place].policy)
    }

    /// All policies, in an order that stays.
    pub fn iter(&self) -> impl Iterator<Item = RedisPolicy> {
        self.0.iter().map(|rule| rule.policy)
    }

    /// Where in [`iter`](Self::iter) the policy of these sends stands; `None` when none is for them.
    #[must_use]
    pub fn place(&self, budget: &BudgetName, lane: &LaneName) -> Option<usize> {
        let fits = |rule: &Rule| {
            rule.budget.as_ref().is_none_or(|own| own == budget) && rule.lane.as_ref().is_none_or(|own| own == lane)
        };
        let exactness = |place: &usize| (self.0[*place].budget.is_some(), self.0[*place].lane.is_some());
        (0..self.0.len()).filter(|place| fits(&self.0[*place])).max_by_key(exactness)
    }
}

/// `hold`, `local:5`, `codes=local:5`, `sendgrid/codes=local:0.5,sendgrid/*=hold,*=local:2`
impl FromStr for RedisPolicies {
    type Err = InvalidRedisPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidRedisPolicy> {
        let mut policies = Self::default();
        for part in text.split(',').map(str::trim) {
            let bad = |what| InvalidRedisPolicy { given: part.to_owned(), what };
            let (sends, policy) = part.split_once('=').unwrap_or(("*", part));
            let (budget, lane) = sends.split_once('/').unwrap_or(("*", sends));
            let some = |text: &str| (text != "*").then(|| text.to_owned());
            let budget = some(budget).map(BudgetName::new).transpose().map_err(|_| bad("names no budget"))?;
            let lane = some(lane).map(LaneName::new).transpose().map_err(|_| bad("names no lane"))?;
            if policies.0.iter().any(|rule| (&rule.budget, &rule.lane) == (&budget, &lane)) {
                return Err(bad("names the same sends a second time"));
            }
            policies = policies.with(budget, lane, policy.parse()?);
        }
        Ok(policies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(policies: &str, budget: &str, lane: &str) -> String {
        let policies: RedisPolicies = policies.parse().unwrap();
        policies.of(&budget.parse().unwrap(), &lane.parse().unwrap()).to_string()
    }

    #[test]
    fn the_most_exact_policy_holds_and_without_one_sends_are_held() {
        let text = "news=local:1, sendgrid/news=local:2,sendgrid/*=local:0.5,wa/codes=hold,*=local:4";
        for (budget, lane, policy) in [
            ("sendgrid", "news", "local:2"),
            ("sendgrid", "codes", "local:0.5"),
            ("wa", "news", "local:1"),
            ("wa", "codes", "hold"),
            ("wa", "default", "local:4"),
        ] {
            assert_eq!(of(text, budget, lane), policy, "{budget}/{lane}");
        }
        assert_eq!(of("hold", "b", "default"), "hold");
        assert_eq!(of("local:5", "b", "default"), "local:5");
        assert_eq!(of("codes=local:5,default=hold", "b", "codes"), "local:5");
        assert_eq!(of("codes=local:5", "b", "default"), "hold");
        let none = RedisPolicies::default();
        assert_eq!(none.of(&"b".parse().unwrap(), &LaneName::default()), RedisPolicy::Hold);
    }

    #[test]
    fn what_is_no_policy_is_named() {
        for (text, words) in [
            ("", "\"\" is no policy"),
            ("allow", "is no policy"),
            ("local", "is no policy"),
            ("local:0", "from 0.001"),
            ("local:-1", "from 0.001"),
            ("local:NaN", "from 0.001"),
            ("local:1e9", "from 0.001"),
            ("codes=local:5,Codes=hold", "\"Codes=hold\" names no lane"),
            ("a b/codes=hold", "names no budget"),
            ("codes=hold,*/codes=local:1", "a second time"),
        ] {
            let error = text.parse::<RedisPolicies>().unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("LANE=POLICY"), "{text}: {error}");
        }
    }
}
