//! What `serve` reads from the TOML file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use sendslot_receipts::config::{InvalidProvider, ProviderConfig, Providers};
use serde::{Deserialize, Serialize};

use crate::app::Coalescing;
use crate::keys::{InvalidKey, KeyEntry, Keys};

/// The tables `[serve]`, `[[keys]]` and `[receipts]`; others are not looked at.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Config {
    /// `[serve]`.
    #[serde(default)]
    pub serve: ServeConfig,
    /// `[[keys]]`.
    #[serde(default)]
    pub keys: Vec<KeyEntry>,
    /// `[receipts.NAME]`.
    #[serde(default)]
    pub receipts: BTreeMap<String, ProviderConfig>,
}

/// `[serve]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeConfig {
    /// Where it listens.
    pub listen: Option<SocketAddr>,
    /// Whether it may do without keys on an address that others reach.
    pub no_auth: Option<bool>,
    /// Requests at once; more are refused.
    pub max_requests: Option<usize>,
    /// Bytes of request bodies in memory at once, in MiB.
    pub max_body_memory_mib: Option<u32>,
    /// How long a connection may take to send a request's head, idle time included.
    pub header_timeout_s: Option<f64>,
    /// How long a request's body may take to arrive.
    pub body_timeout_s: Option<f64>,
    /// How long a request may take in all, its body included.
    pub request_timeout_s: Option<f64>,
    /// How long requests may take that are in hand when the server is told to stop.
    pub shutdown_timeout_s: Option<f64>,
    /// How long it goes on accepting requests, not ready any more, when it is told to stop.
    pub drain_s: Option<f64>,
    /// How long a single send waits for others to share its calls.
    pub linger_ms: Option<u16>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not what it should be. Says where, and repeats no values.
    #[error("{0}")]
    Toml(String),
    /// A key.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// A provider whose receipts are taken.
    #[error(transparent)]
    Provider(#[from] InvalidProvider),
    /// A time that is none.
    #[error("[serve] {name} = {given}: give seconds, above 0 and at most 86,400")]
    Time {
        /// The setting.
        name: &'static str,
        /// What was given.
        given: f64,
    },
}

/// What bounds a server's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests at once; more are refused with 503. Default 1,024.
    pub requests: usize,
    /// Bytes of request bodies in memory at once, in MiB; what does not fit is refused with 503. Default 256, at least 16.
    pub body_memory_mib: u32,
    /// How long a connection may take to send a request's head, idle time included. Default 75 s: longer than the 60 s for
    /// which a load balancer keeps an idle connection.
    pub header_timeout: Duration,
    /// How long a request's body may take to arrive. Default 15 s.
    pub body_timeout: Duration,
    /// How long a request may take in all, its body included. Default 40 s.
    pub request_timeout: Duration,
    /// How long requests may take that are in hand when the server is told to stop. Default 30 s.
    pub shutdown_timeout: Duration,
    /// How long the server, told to stop, goes on accepting requests while its readiness is false, before it answers what is in hand
    /// and ends: as long as the load balancer in front needs to see that. Default 0 s.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 1024,
            body_memory_mib: 256,
            header_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(40),
            shutdown_timeout: Duration::from_secs(30),
            drain: Duration::ZERO,
        }
    }
}

impl Config {
    /// Reads the file's text.
    ///
    /// # Errors
    /// [`ConfigError::Toml`].
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
            let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            ConfigError::Toml(format!("{place}{}", error.message()))
        })
    }

    /// The keys.
    ///
    /// # Errors
    /// [`ConfigError::Key`].
    pub fn keys(&self) -> Result<Keys, ConfigError> {
        Ok(Keys::new(self.keys.clone())?)
    }

    /// The providers whose receipts are taken.
    ///
    /// # Errors
    /// [`ConfigError::Provider`].
    pub fn providers(&self) -> Result<Providers, ConfigError> {
        Ok(Providers::new(self.receipts.clone())?)
    }

    /// What bounds the server's work, with the defaults for what is not set.
    ///
    /// # Errors
    /// [`ConfigError::Time`].
    pub fn limits(&self) -> Result<Limits, ConfigError> {
        let (given, default) = (&self.serve, Limits::default());
        let time = |name, given: Option<f64>, default| match given {
            None => Ok(default),
            Some(s) if s > 0.0 && s <= 86_400.0 => Ok(Duration::from_secs_f64(s)),
            Some(given) => Err(ConfigError::Time { name, given }),
        };
        let drain = match given.drain_s {
            Some(0.0) => Ok(Duration::ZERO),
            other => time("drain_s", other, default.drain),
        };
        Ok(Limits {
            requests: given.max_requests.unwrap_or(default.requests).max(1),
            body_memory_mib: given.max_body_memory_mib.unwrap_or(default.body_memory_mib).clamp(16, 1 << 20),
            header_timeout: time("header_timeout_s", given.header_timeout_s, default.header_timeout)?,
            body_timeout: time("body_timeout_s", given.body_timeout_s, default.body_timeout)?,
            request_timeout: time("request_timeout_s", given.request_timeout_s, default.request_timeout)?,
            shutdown_timeout: time("shutdown_timeout_s", given.shutdown_timeout_s, default.shutdown_timeout)?,
            drain: drain?,
        })
    }
}

impl ServeConfig {
    /// How single sends are put together.
    #[must_use]
    pub fn coalescing(&self) -> Coalescing {
        let default = Coalescing::default();
        Coalescing { linger: self.linger_ms.map_or(default.linger, |ms| Duration::from_millis(ms.into())), ..default }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Role;

    #[test]
    fn the_file_holds_the_server_and_its_keys_and_may_hold_more() {
        let text = "redis_url = \"x\"\n[serve]\nlisten = \"127.0.0.1:8080\"\nbody_timeout_s = 0.5\n[other]\na = 1\n[[keys]]\n\
                    name = \"shop\"\nsha256 = \"00\"\nbudgets = [\"*\"]\nroles = [\"send\", \"read\"]\nrate = 10\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.serve.listen, Some("127.0.0.1:8080".parse().unwrap()));
        assert_eq!(config.limits().unwrap().body_timeout, Duration::from_millis(500));
        assert_eq!((&config.keys[0].roles[..], config.keys[0].rate), (&[Role::Send, Role::Read][..], Some(10.0)));
        assert!(matches!(config.keys(), Err(ConfigError::Key(InvalidKey::Hash { .. }))));
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, words) in [
            ("[serve]\nlisten = 1", ["line 2", "socket address"]),
            ("[serve]\nlistn = \"x\"", ["line 2", "listn"]),
            ("a = 1\n[serve\n", ["line 2", ""]),
            ("[[keys]]\nname = \"a\"\n", ["line 1", "sha256"]),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
        }
        let config = Config::parse("[serve]\nbody_timeout_s = 0").unwrap();
        assert!(config.limits().unwrap_err().to_string().contains("body_timeout_s"));
    }
}
