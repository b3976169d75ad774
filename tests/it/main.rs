//! One module per behaviour.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod alerts;
mod audit;
mod booking;
mod cli;
mod conformance;
mod crashes;
mod day;
mod end_to_end;
mod faults;
mod http;
mod http_provider;
mod infra;
mod limits;
mod metrics;
mod model;
mod outage;
mod page;
mod poison;
mod polling;
mod properties;
mod queue;
mod receipts;
mod secrets;
mod topologies;
mod torture;
mod traces;
mod verdicts;
mod view;
mod worker;
