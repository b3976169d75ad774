//! What Sendslot's scheduler and worker both need.
//!
//! | module | what it holds |
//! |---|---|
//! | [`id`] | checked names: budget, send ID, lane |
//! | [`time`] | instants of Redis' clock, SQS timers |
//! | [`policy`], [`limits`] | a budget's numbers, and what is compiled from them |
//! | [`message`] | a message to be sent, as a caller gives it, and its digest |
//! | [`envelope`] | a copy of a send as it travels on SQS |
//! | [`store`] | the connection to Redis and the scripts |
//! | [`sms`] | segments of an SMS text, for its cost |
//! | [`reserve`], [`claim`], [`settle`], [`cancel`], [`budget`], [`quote`], [`status`] | typed script calls |
//! | [`queue`] | SQS: batches, delays, errors |
//!
//! What may not enter: HTTP, the command line, provider calls, and anything called "helpers".

pub mod budget;
pub mod cancel;
pub mod claim;
pub mod envelope;
pub mod id;
mod keys;
pub mod limits;
pub mod message;
pub mod policy;
pub mod queue;
pub mod quote;
mod reply;
pub mod reserve;
pub mod settle;
pub mod sms;
pub mod status;
pub mod store;
pub mod time;

pub use aws_sdk_sqs;
