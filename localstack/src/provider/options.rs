//! What the provider is told at its start.

use std::collections::HashMap;
use std::time::Duration;

use super::{BodyCapture, Faults, ScriptedReply, Window};

/// Everything about a strict provider; `ProviderOptions::new(limit)` gives one without faults.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// Units in each `per`.
    pub limit: u32,
    /// The period of the limit, 1 s by default.
    pub per: Duration,
    /// How the provider counts.
    pub window: Window,
    /// Time from the arrival to the answer of an accepted send.
    pub latency: Duration,
    /// What goes wrong.
    pub faults: Faults,
    /// Seed of the generator that draws faults.
    pub seed: u64,
    /// For a send ID: the answers to its first, second … arrival; later ones are treated as usual.
    pub scripted: HashMap<String, Vec<ScriptedReply>>,
    /// How much of each body is kept.
    pub body: BodyCapture,
}

impl ProviderOptions {
    /// A provider with a rolling limit of `limit` units per second, no latency and no faults.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self {
            limit,
            per: Duration::from_secs(1),
            window: Window::Rolling,
            latency: Duration::ZERO,
            faults: Faults::default(),
            seed: 0,
            scripted: HashMap::new(),
            body: BodyCapture::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), ProviderError> {
        if self.limit == 0 || self.per.as_micros() == 0 {
            return Err(ProviderError::Options("limit must be at least 1 unit and per at least 1 us"));
        }
        if !self.faults.are_shares() {
            return Err(ProviderError::Options("each fault is a share of 0..=1, and their sum is at most 1"));
        }
        Ok(())
    }
}

/// Why the provider did not start.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// An option makes no sense.
    #[error("strict provider: {0}")]
    Options(&'static str),
    /// No thread, runtime or port.
    #[error("strict provider could not start on 127.0.0.1: {0}; check the limits on threads and open files")]
    Start(#[source] std::io::Error),
}
