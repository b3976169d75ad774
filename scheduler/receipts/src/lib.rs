//! What providers say became of sends after they took them.
//!
//! The front door puts each webhook call on SQS as it came ([`raw`]) and answers; a [`mapper`] reads it by the provider's
//! [`mapping`], finds the send and records the receipt in Redis. So a receipt is safe before anything looks at it, and a mapping
//! that was wrong is put right later, with the dead letters of the receipts' queue.

pub mod config;
pub mod mapper;
pub mod mapping;
mod paths;
mod preset;
pub mod raw;
mod sns;
