//! `sendslot demo`: the main job on a local stack that it sets up itself.

mod live;
mod options;
mod report;
mod run;
mod watch;

pub(crate) use run::run;
