//! Books each send the next free slot under a shared provider limit and puts it on Amazon SQS until then.
//!
//! ```no_run
//! use sendslot_scheduler::{Message, Scheduler};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let scheduler = Scheduler::from_env().await?;
//! let booked = scheduler.schedule(Message::new("sendgrid", "order-17-confirmation", "{\"to\":\"…\"}").cost(2)).await?;
//! println!("leaves at {:?}, in {:?}", booked.at(), booked.wait());
//! # Ok(())
//! # }
//! ```
//!
//! [`Scheduler::schedule`] takes one message, [`Scheduler::schedule_all`] a stream of them, [`Scheduler::reserve`] only
//! books, [`Scheduler::cancel`] takes a send back, [`Scheduler::status`] tells what became of it and why, [`Scheduler::quote`]
//! says when so many would leave, [`plan`] works out what a burst will take. The same ID is
//! sent once: a call that failed, or whose answer was lost, is simply made again.

mod builder;
mod error;
pub mod plan;
mod schedule_all;
mod scheduler;

pub use builder::{ConfigError, SchedulerBuilder};
pub use error::ScheduleError;
pub use scheduler::{Booked, Counters, Scheduler};
pub use sendslot_shared::cancel::Cancelled;
pub use sendslot_shared::claim::MoveReason;
pub use sendslot_shared::id::LaneName;
pub use sendslot_shared::message::{InvalidMessage, Message};
pub use sendslot_shared::queue::QueueError;
pub use sendslot_shared::quote::{Quote, QuoteError, QuoteRequest, Stopped};
pub use sendslot_shared::reserve::{BoundBy, Refusal};
pub use sendslot_shared::sms;
pub use sendslot_shared::status::{Event, SendState, SendStatus};
pub use sendslot_shared::store::StoreError;
