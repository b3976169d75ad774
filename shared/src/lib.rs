//! What Sendslot's scheduler and worker both need.
//!
//! | module | what it holds |
//! |---|---|
//! | [`id`] | checked names: budget, send ID, lane |
//! | [`time`] | instants of Redis' clock, SQS timers |
//! | [`policy`], [`limits`] | a budget's numbers, and what is compiled from them |
//! | [`policy_file`] | policies that processes carry, for a Redis that lost them |
//! | [`message`] | a message to be sent, as a caller gives it, and its digest |
//! | [`envelope`] | a copy of a send as it travels on SQS |
//! | [`store`] | the connection to Redis and the scripts |
//! | [`log_filter`] | which events a program logs |
//! | [`sms`] | segments of an SMS text, for its cost |
//! | [`reserve`], [`claim`], [`settle`], [`cancel`], [`budget`], [`quote`], [`status`], [`receipt`], [`view`] | typed script calls |
//! | [`audit`] | the calls that were made, by the minute |
//! | [`recent`] | what was booked and called in the last minute |
//! | [`deployment`] | what the code relies on in Redis, the queues and the function |
//! | [`queue`] | SQS: batches, delays, errors |
//! | [`metrics`] | what can be measured, in one table |
//! | [`redis_policy`], [`outage`] | what becomes of sends while Redis cannot be asked, and the alarm about it |
//!
//! What may not enter: HTTP, the command line, provider calls, and anything called "helpers".

pub mod audit;
pub mod budget;
pub mod cancel;
pub mod claim;
pub mod deployment;
pub mod envelope;
pub mod id;
mod keys;
pub mod limits;
pub mod log_filter;
pub mod message;
pub mod metrics;
pub mod outage;
pub mod policy;
pub mod policy_file;
pub mod queue;
pub mod quote;
pub mod receipt;
pub mod recent;
pub mod redis_policy;
mod reply;
pub mod reserve;
pub mod settle;
pub mod sms;
pub mod status;
pub mod store;
pub mod time;
pub mod view;

pub use aws_sdk_sqs;
