//! Books each send the next free slot under a shared provider limit and puts it on Amazon SQS until then.
//!
//! ```no_run
//! use sendslot_scheduler::{Message, Scheduled, Scheduler};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let scheduler = Scheduler::from_env().await?;
//! let scheduled = scheduler.schedule(Message::new("sendgrid", "order-17-confirmation", "{\"to\":\"…\"}").cost(2)).await?;
//! match scheduled {
//!     Scheduled::Booked(booked) => println!("leaves at {:?}, in {:?}", booked.at(), booked.wait()),
//!     Scheduled::Unbooked { .. } => println!("accepted; it is booked when Redis can be asked again"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Scheduler::schedule`] takes one message, [`Scheduler::schedule_all`] a stream of them, [`Scheduler::reserve`] only
//! books, [`Scheduler::cancel`] takes a send back, [`Scheduler::status`] tells what became of it and why, [`Scheduler::quote`]
//! says when so many would leave, [`plan`] works out what a burst will take. The same ID is
//! sent once: a call that failed, or whose answer was lost, is simply made again.
//!
//! While Redis cannot be asked, messages are accepted unbooked ([`Scheduled::Unbooked`]), and a [`RedisPolicy`] for each lane says
//! what becomes of them until then.

mod builder;
mod count;
mod error;
mod gauges;
pub mod plan;
mod schedule_all;
mod scheduled;
mod scheduler;

pub use builder::{ConfigError, SchedulerBuilder};
pub use error::ScheduleError;
pub use gauges::Gauges;
pub use scheduled::{Booked, Scheduled};
pub use scheduler::{Counters, Scheduler};
pub use sendslot_shared::cancel::Cancelled;
pub use sendslot_shared::claim::MoveReason;
pub use sendslot_shared::id::{BudgetName, LaneName};
pub use sendslot_shared::message::{InvalidMessage, Message};
pub use sendslot_shared::policy_file::{PolicyFile, PolicyFileError};
pub use sendslot_shared::queue::QueueError;
pub use sendslot_shared::quote::{Quote, QuoteError, QuoteRequest, Stopped};
pub use sendslot_shared::receipt::{Delivery, Receipt};
pub use sendslot_shared::redis_policy::{InvalidRedisPolicy, RedisPolicies, RedisPolicy, UnitsPerSecond};
pub use sendslot_shared::reserve::{BoundBy, Paused, Refusal};
pub use sendslot_shared::sms;
pub use sendslot_shared::status::{DeliveryStatus, Event, SendState, SendStatus};
pub use sendslot_shared::store::StoreError;
