//! One module per behaviour.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod booking;
mod cli;
mod conformance;
mod day;
mod end_to_end;
mod faults;
mod http_provider;
mod limits;
mod properties;
mod queue;
mod verdicts;
mod worker;
