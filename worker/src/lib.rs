//! The Lambda worker of Sendslot: a loop around one question.
//!
//! A message shows up shortly before its slot. The worker asks Redis; the verdict tells it to wait, to send now, to put
//! the message back, to dead-letter it or to be done. It never counts and never chooses a slot.
//!
//! Three layers: [`run`] is the wiring to Lambda, [`Worker::handle`] takes one batch, and one message is a loop of its
//! own. A provider of your own:
//!
//! ```no_run
//! use sendslot_worker::{Outcome, Outgoing, Provider};
//!
//! struct Printer;
//!
//! impl Provider for Printer {
//!     async fn send(&self, send: &Outgoing) -> Outcome {
//!         println!("{}: {} bytes", send.id, send.payload.len());
//!         Outcome::Sent { provider_id: None }
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), sendslot_worker::RunError> {
//!     sendslot_worker::run(Printer).await
//! }
//! ```
//!
//! [`run_polling`] is the same worker as a long-lived process that polls the queue itself, for a container or a virtual machine.
//!
//! The ready-made binary `sendslot-worker` runs [`HttpProvider`], which posts the payload to a configured URL.

mod backoff;
mod batch;
mod config;
mod decide;
mod emf;
mod error_code;
mod export;
mod http;
mod local;
mod measure;
mod message;
mod poll;
mod provider;
mod put_backs;
mod retry_after;
mod round_trip;
mod run;
mod without_redis;

pub use backoff::Backoff;
pub use batch::{BatchError, Worker};
pub use config::{ConfigError, WorkerConfig};
pub use http::{HttpConfig, HttpProvider};
pub use poll::{PollConfig, poll};
pub use provider::{Outcome, Outgoing, Provider, Scope};
pub use retry_after::retry_after;
pub use run::{RunError, run, run_polling};
pub use sendslot_shared::policy_file::{PolicyFile, PolicyFileError};
pub use sendslot_shared::redis_policy::{InvalidRedisPolicy, RedisPolicies, RedisPolicy, UnitsPerSecond};
pub use without_redis::Counters;
