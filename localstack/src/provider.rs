//! The strict provider: an HTTP server that records every arrival and refuses what is above its limit.
//!
//! It runs on an OS thread of its own with its own single-threaded runtime, so that load elsewhere in the
//! process does not move its time stamps. Nothing is deduplicated: a send ID accepted twice is counted.

mod arrival;
mod connection;
mod faults;
mod limiter;
mod options;
mod script;
mod server;
mod state;
mod windows;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

pub use arrival::{Arrival, Body, BodyCapture, ProviderStats};
pub use faults::{Faults, Outage};
pub use limiter::{Limiter, Verdict, Window};
pub use options::{ProviderError, ProviderOptions};
pub use script::ScriptedReply;
pub use windows::{max_units_in_fixed_window, max_units_in_rolling_window, spacing_violations};

use state::State;

/// A running strict provider; stopped when dropped.
#[derive(Debug)]
pub struct StrictProvider {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    shutdown: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StrictProvider {
    /// Starts the server on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// [`ProviderError::Options`] when a number makes no sense, [`ProviderError::Start`] when the thread, the
    /// runtime or the port cannot be had.
    pub fn start(options: ProviderOptions) -> Result<Self, ProviderError> {
        options.check()?;
        let state = Arc::new(Mutex::new(State::new(options)));
        let (shutdown, stop) = oneshot::channel();
        let (address, thread) = server::spawn(Arc::clone(&state), stop)?;
        Ok(Self { address, state, shutdown: Some(shutdown), thread: Some(thread) })
    }

    /// Where to POST, without a trailing slash; every path is served alike.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far, in the order of arrival.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.lock().arrivals().to_vec()
    }

    /// What has been counted so far.
    #[must_use]
    pub fn stats(&self) -> ProviderStats {
        self.lock().stats()
    }

    /// Replaces the injected faults; the clock of an [`Outage`] starts anew.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().set_faults(faults);
    }

    /// Changes the limit for the next arrival on; what was accepted stays on the window's account.
    pub fn set_limit(&self, limit: u32, per: Duration) {
        self.lock().set_limit(limit, per);
    }

    /// Adds answers for the next arrivals of one send ID, in front of faults and limit.
    pub fn script(&self, send_id: impl Into<String>, replies: impl IntoIterator<Item = ScriptedReply>) {
        self.lock().script(send_id.into(), replies);
    }

    /// Stops the server, breaks its connections and hands back what it saw.
    #[must_use = "the arrivals are the provider's whole account; drop the provider if they do not matter"]
    pub fn stop(mut self) -> Vec<Arrival> {
        self.halt();
        self.arrivals()
    }

    fn halt(&mut self) {
        drop(self.shutdown.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("strict provider thread panicked");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StrictProvider {
    fn drop(&mut self) {
        self.halt();
    }
}

#[cfg(test)]
mod tests;
