//! One module per behaviour.

mod booking;
mod verdicts;
