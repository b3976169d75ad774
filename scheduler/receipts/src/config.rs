//! The tables `[receipts.NAME]` of the TOML file.

use std::collections::BTreeMap;
use std::fmt;

use sendslot_shared::id::BudgetName;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};

use crate::mapping::Mapping;
pub use crate::preset::Preset;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// JSON, whatever its content type says.
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
}

/// `[receipts.NAME]`. A place is a JSON pointer into one event (`/a/b`; `*` for each element, `name=value` for the elements that
/// have it), or the name of a form's field, or `query:name`; of several the first that is there counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderConfig {
    /// A provider whose webhook is known; the other settings go over its own.
    pub preset: Option<Preset>,
    /// SHA-256 in hex of the secret that the provider's calls bring: `?token=…`, `Authorization: Bearer …`, or the password of `Basic`.
    pub sha256: String,
    /// How bodies are written.
    pub format: Option<Format>,
    /// Where the body stands in an outer one, as text of JSON; a body without it is taken as it is.
    pub unwrap: Option<String>,
    /// Where the events stand in a body of JSON; the body itself by default.
    pub events: Option<String>,
    /// The budget of all sends of this provider.
    pub budget: Option<String>,
    /// Where an event names its budget.
    #[serde(deserialize_with = "one_or_many")]
    pub budget_at: Option<Vec<String>>,
    /// Where an event names our send ID.
    #[serde(deserialize_with = "one_or_many")]
    pub id: Option<Vec<String>>,
    /// Where it names the provider's own ID, for events without ours; workers must run with `SENDSLOT_RECEIPTS=true`.
    #[serde(deserialize_with = "one_or_many")]
    pub provider_id: Option<Vec<String>>,
    /// The provider's ID ends before the first of these that it has.
    #[serde(deserialize_with = "one_or_many")]
    pub provider_id_until: Option<Vec<String>>,
    /// Where it says what became of the send.
    #[serde(deserialize_with = "one_or_many")]
    pub status: Option<Vec<String>>,
    /// Where it says when that was: seconds, milliseconds or microseconds since 1970, or RFC 3339. Without it, when the call came.
    #[serde(deserialize_with = "one_or_many")]
    pub at: Option<Vec<String>>,
    /// Words that mean delivered.
    #[serde(deserialize_with = "one_or_many")]
    pub delivered: Option<Vec<String>>,
    /// Words that mean undelivered, for good.
    #[serde(deserialize_with = "one_or_many")]
    pub undelivered: Option<Vec<String>>,
    /// Words that mean neither; `*` for all others.
    #[serde(deserialize_with = "one_or_many")]
    pub ignored: Option<Vec<String>>,
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        One(String),
        Many(Vec<String>),
    }
    Ok(Some(match Given::deserialize(deserializer)? {
        Given::One(one) => vec![one],
        Given::Many(many) => many,
    }))
}

/// Why a provider's table cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[receipts.{provider}] {what}")]
pub struct InvalidProvider {
    /// Its name.
    pub provider: String,
    /// What is wrong, and what to do.
    pub what: String,
}

/// A provider that may call.
#[derive(Clone)]
pub struct Provider {
    secret: [u8; 32],
    /// How its calls are read.
    pub mapping: Mapping,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").finish_non_exhaustive()
    }
}

impl Provider {
    /// Whether this is its secret. Its hash is compared, not itself: time tells nothing of it.
    #[must_use]
    pub fn knows(&self, token: &str) -> bool {
        Sha256::digest(token).as_slice() == self.secret
    }
}

/// All providers, by name.
#[derive(Debug, Clone, Default)]
pub struct Providers(BTreeMap<String, Provider>);

impl Providers {
    /// Checks the tables.
    ///
    /// # Errors
    /// [`InvalidProvider`], of the first that is wrong.
    pub fn new(tables: BTreeMap<String, ProviderConfig>) -> Result<Self, InvalidProvider> {
        let mut all = BTreeMap::new();
        for (name, table) in tables {
            let provider = provider(&name, table).map_err(|what| InvalidProvider { provider: name.clone(), what })?;
            all.insert(name, provider);
        }
        Ok(Self(all))
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Provider> {
        self.0.get(name)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn provider(name: &str, table: ProviderConfig) -> Result<Provider, String> {
    if BudgetName::new(name).is_err() {
        return Err("is no name: give 1 to 64 characters of a-z 0-9 . _ -".to_owned());
    }
    let secret = unhex(&table.sha256).ok_or(
        "has no SHA-256 in hex as sha256: draw a secret, and give what `printf %s SECRET | sha256sum` prints"
            .to_owned(),
    )?;
    let table = match table.preset {
        Some(preset) => table.over(preset.settings()),
        None => table,
    };
    Ok(Provider { secret, mapping: Mapping::new(&table)? })
}

impl ProviderConfig {
    /// What is not set here is the other's.
    fn over(self, other: Self) -> Self {
        Self {
            preset: self.preset,
            sha256: self.sha256,
            format: self.format.or(other.format),
            unwrap: self.unwrap.or(other.unwrap),
            events: self.events.or(other.events),
            budget: self.budget.or(other.budget),
            budget_at: self.budget_at.or(other.budget_at),
            id: self.id.or(other.id),
            provider_id: self.provider_id.or(other.provider_id),
            provider_id_until: self.provider_id_until.or(other.provider_id_until),
            status: self.status.or(other.status),
            at: self.at.or(other.at),
            delivered: self.delivered.or(other.delivered),
            undelivered: self.undelivered.or(other.undelivered),
            ignored: self.ignored.or(other.ignored),
        }
    }
}

/// A SHA-256 as the configuration writes it: 64 hexadecimal digits.
#[must_use]
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}
