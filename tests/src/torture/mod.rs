//! A torture run: real processes, a mixed load, a random schedule of faults, and a judgement at the provider and in Redis.
//!
//! | part | what |
//! |---|---|
//! | `load` | what is offered, and the budgets |
//! | `asks`, `loader`, `scheduler_process` | the scheduler as a process of its own that can be killed |
//! | `clerk`, `ledger` | offers the load, hears the answers, offers again; what was offered and answered |
//! | `rig` | everything that runs |
//! | `redis_node`, `redis_proxy`, `sqs_proxy`, `http`, `guarded` | servers and proxies that can be harmed |
//! | `faults`, `inject`, `starved` | the kinds of faults and their order; making them happen |
//! | `monitor`, `journal` | the instant of each claim; the trace of each send |
//! | `evidence`, `judge`, `report` | what was seen, whether it may happen, the figures |
//! | `outage` | a backlog without workers |
//!
//! Load, faults and their order are drawn from the seed; what real processes make of them is not. The scripts read Redis' clock and
//! what the run adds to it (`clock_stepped.lua`), so that it can be set forward and back; all else is as it is shipped.

mod asks;
mod clerk;
mod evidence;
mod faults;
mod guarded;
mod http;
mod inject;
mod journal;
mod judge;
mod ledger;
mod load;
mod loader;
mod monitor;
mod outage;
mod redis_node;
mod redis_proxy;
mod report;
mod rig;
mod run;
mod scheduler_process;
mod sqs_proxy;
mod starved;

pub use faults::Kind;
pub use loader::load;
pub use outage::{Outage, OutageReport};
pub use report::{Detail, Report, Row, Spread, Window};
pub use rig::{Programs, worker_beside};
pub use run::Torture;
