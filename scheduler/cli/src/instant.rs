//! Instants as people write and read them: the same as over HTTP.

pub(crate) use sendslot_http::instant::{redis_time, show};
