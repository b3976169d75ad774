//! The event source with a scripted worker, against a real LocalStack.

mod bench;
mod failures;
mod flow;
mod leftovers;
mod rig;
