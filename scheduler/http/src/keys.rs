//! API keys: who may do what, how often.
//!
//! A key is 256 random bits, and the configuration holds its SHA-256. A slow password hash would add nothing: it makes guessing what
//! people choose expensive, and nobody guesses 256 random bits, while each request would pay for it. The key's hash is looked up,
//! never compared byte by byte with a secret: what an attacker's timing shows is about the hash of a guess, which says nothing
//! about the hash of a key.

use std::collections::HashMap;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use sendslot_receipts::config::unhex;
use sendslot_shared::id::BudgetName;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::problem::{Kind, Problem};

/// What a key may do in its budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Schedule and cancel sends.
    Send,
    /// Ask for sends, budgets and quotes.
    Read,
    /// Set, pause and resume budgets.
    Manage,
}

impl Role {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Read => "read",
            Self::Manage => "manage",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Send, Self::Read, Self::Manage];
        known
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no role: give send, read or manage"))
    }
}

/// A key as the configuration holds it: a table of `[[keys]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    /// Whose it is: for logs.
    pub name: String,
    /// SHA-256 of the key, in hex.
    pub sha256: String,
    /// The budgets that it may use: names, or the beginning of names and a `*`.
    pub budgets: Vec<String>,
    /// What it may do there.
    pub roles: Vec<Role>,
    /// Requests per second; as many may come at once. `None`: as many as there are.
    #[serde(default)]
    pub rate: Option<f64>,
}

/// Why the configured keys cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidKey {
    /// The hash is not one.
    #[error("the key {name:?} has no SHA-256 in hex: `sendslot key new NAME` prints a key with its lines")]
    Hash {
        /// Whose.
        name: String,
    },
    /// Two entries are for one key.
    #[error("the key {name:?} is there twice")]
    Twice {
        /// Whose.
        name: String,
    },
    /// The rate is not above 0.
    #[error("the key {name:?} has a rate of {rate} requests per second: give 0.001 to 1,000,000, or leave it out")]
    Rate {
        /// Whose.
        name: String,
        /// What was given.
        rate: f64,
    },
    /// No budget has such a name.
    #[error("the key {name:?} names the budget {budget:?}: give names, or the beginning of names and a `*`")]
    Budget {
        /// Whose.
        name: String,
        /// What was given.
        budget: String,
    },
}

/// A key that has just been made.
#[derive(Clone)]
pub struct NewKey {
    /// The key itself, to be shown once.
    pub secret: String,
    /// Its SHA-256 in hex.
    pub sha256: String,
}

impl NewKey {
    /// Draws a key from the operating system's random source.
    ///
    /// # Errors
    /// When that gives nothing.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        // the prefix is for those who search for leaked secrets
        let secret = format!("ssk_{}", URL_SAFE_NO_PAD.encode(bytes));
        let sha256 = Sha256::digest(&secret).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { secret, sha256 })
    }
}

#[derive(Debug)]
struct Key {
    name: String,
    budgets: Vec<String>,
    roles: Vec<Role>,
    limiter: Option<DefaultDirectRateLimiter>,
}

/// All keys, by their hashes.
#[derive(Debug, Default)]
pub struct Keys(HashMap<[u8; 32], std::sync::Arc<Key>>);

/// Who makes a request; `None`: the server asks nobody.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Option<std::sync::Arc<Key>>);

impl Keys {
    /// The keys of the configuration.
    ///
    /// # Errors
    /// [`InvalidKey`].
    pub fn new(entries: Vec<KeyEntry>) -> Result<Self, InvalidKey> {
        let mut keys = HashMap::new();
        for entry in entries {
            let KeyEntry { name, sha256, budgets, roles, rate } = entry;
            let hash = unhex(&sha256).ok_or_else(|| InvalidKey::Hash { name: name.clone() })?;
            if let Some(budget) = budgets.iter().find(|pattern| !is_pattern(pattern)) {
                return Err(InvalidKey::Budget { name, budget: budget.clone() });
            }
            let limiter = match rate {
                Some(rate) => Some(limiter(rate).ok_or_else(|| InvalidKey::Rate { name: name.clone(), rate })?),
                None => None,
            };
            let key = std::sync::Arc::new(Key { name: name.clone(), budgets, roles, limiter });
            if keys.insert(hash, key).is_some() {
                return Err(InvalidKey::Twice { name });
            }
        }
        Ok(Self(keys))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who asks; counts the request.
    ///
    /// # Errors
    /// 401 without a known key, 429 above its rate.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        if self.is_empty() {
            return Ok(Caller(None));
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
        });
        let Some(given) = given else {
            return Err(Problem::new(Kind::Unauthenticated, "give an API key: `Authorization: Bearer KEY`"));
        };
        let hash: [u8; 32] = Sha256::digest(given).into();
        let Some(key) = self.0.get(&hash) else {
            return Err(Problem::new(Kind::Unauthenticated, "this API key is not known"));
        };
        if let Some(limiter) = &key.limiter
            && let Err(not_yet) = limiter.check()
        {
            let wait = not_yet.wait_time_from(DefaultClock::default().now());
            return Err(Problem::new(Kind::RateLimited, "wait, or put more sends into one batch").retry_after(wait));
        }
        Ok(Caller(Some(key.clone())))
    }
}

impl Caller {
    /// The key's name, for logs.
    pub(crate) fn name(&self) -> &str {
        self.0.as_ref().map_or("-", |key| key.name.as_str())
    }

    /// Whether it may do this in some budget.
    pub(crate) fn has(&self, role: Role) -> bool {
        self.0.as_ref().is_none_or(|key| key.roles.contains(&role))
    }

    /// Whether it may do this in a budget.
    pub(crate) fn may(&self, role: Role, budget: &BudgetName) -> bool {
        self.has(role) && self.0.as_ref().is_none_or(|key| key.budgets.iter().any(|p| matches(p, budget.as_str())))
    }

    /// Whether it may do this in all budgets.
    pub(crate) fn may_in_all(&self, role: Role) -> bool {
        self.has(role) && self.0.as_ref().is_none_or(|key| key.budgets.iter().any(|pattern| pattern == "*"))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

fn is_pattern(text: &str) -> bool {
    let start = text.strip_suffix('*').unwrap_or(text);
    text == "*" || BudgetName::new(start).is_ok()
}

/// Evenly spaced, with a burst of one second's requests.
fn limiter(rate: f64) -> Option<DefaultDirectRateLimiter> {
    if !(0.001..=1_000_000.0).contains(&rate) {
        return None;
    }
    let burst = std::num::NonZeroU32::new(rate.ceil() as u32)?;
    let quota = Quota::with_period(Duration::from_secs_f64(1.0 / rate))?.allow_burst(burst);
    Some(RateLimiter::direct(quota))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &NewKey) -> KeyEntry {
        let (budgets, roles) = (vec!["mail".to_owned(), "wa.*".to_owned()], vec![Role::Send]);
        KeyEntry { name: "shop".to_owned(), sha256: key.sha256.clone(), budgets, roles, rate: None }
    }

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn a_key_is_known_by_its_hash_and_may_use_its_budgets() {
        let key = NewKey::generate().unwrap();
        let keys = Keys::new(vec![entry(&key)]).unwrap();
        let caller = keys.caller(&headers(&format!("bearer {}", key.secret))).unwrap();
        for (name, may) in [("mail", true), ("wa.1", true), ("wa.", true), ("wa", false), ("mail2", false)] {
            let budget = BudgetName::new(name).unwrap();
            assert_eq!(caller.may(Role::Send, &budget), may, "{name}");
            assert!(!caller.may(Role::Manage, &budget));
        }
        let other = NewKey::generate().unwrap();
        for value in [
            format!("Bearer {}", other.secret),
            key.secret.clone(),
            "Basic x".into(),
            key.sha256.clone(),
            "Bearer ".into(),
        ] {
            assert_eq!(keys.caller(&headers(&value)).unwrap_err().status(), 401, "{value}");
        }
        assert_eq!(keys.caller(&HeaderMap::new()).unwrap_err().status(), 401);
    }

    #[test]
    fn a_rate_is_a_burst_of_a_second() {
        let key = NewKey::generate().unwrap();
        let keys = Keys::new(vec![KeyEntry { rate: Some(3.0), ..entry(&key) }]).unwrap();
        let value = headers(&format!("Bearer {}", key.secret));
        let taken = (0..50).filter(|_| keys.caller(&value).is_ok()).count();
        assert!((3..50).contains(&taken), "{taken}");
    }

    #[test]
    fn keys_that_are_none_say_so() {
        let key = NewKey::generate().unwrap();
        let wrong = |change: fn(&mut KeyEntry)| {
            let mut entry = entry(&key);
            change(&mut entry);
            Keys::new(vec![entry]).unwrap_err().to_string()
        };
        assert!(wrong(|e| e.sha256 = "x".repeat(64)).contains("key new"));
        assert!(wrong(|e| e.rate = Some(0.0)).contains("rate"));
        assert!(wrong(|e| e.rate = Some(f64::NAN)).contains("rate"));
        assert!(wrong(|e| e.budgets = vec!["a*b".to_owned()]).contains("a*b"));
        assert!(Keys::new(vec![entry(&key), entry(&key)]).unwrap_err().to_string().contains("twice"));
    }
}
