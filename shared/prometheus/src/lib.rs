//! Sendslot's metrics for Prometheus: a recorder with the buckets of `sendslot_shared::metrics`, and the endpoint of long-lived
//! processes that serve nothing else ([`Listener`]).

mod listener;

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use sendslot_shared::metrics::{Kind, TABLE, describe};

pub use listener::Listener;

/// Renders the metrics in Prometheus' text format.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// The content type of what is rendered.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How often numbers are sorted into their buckets when nobody looks.
const UPKEEP: Duration = Duration::from_secs(5);

/// The process has a recorder already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the process has installed a metrics recorder already")]
pub struct HasRecorder;

/// A recorder with the table's buckets, which nothing records to yet.
#[must_use]
pub fn recorder() -> PrometheusRecorder {
    let mut builder = PrometheusBuilder::new();
    for metric in TABLE {
        if let Kind::Histogram(bounds) = metric.kind {
            let name = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(name, bounds).expect("the table's buckets are not empty");
        }
    }
    builder.build_recorder()
}

/// Installs a recorder for the process, with the table's buckets and descriptions, and gives what renders it. Inside of a Tokio
/// runtime.
///
/// # Errors
/// [`HasRecorder`].
pub fn install() -> Result<Render, HasRecorder> {
    let recorder = recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|_| HasRecorder)?;
    describe();
    let kept = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            // a call may be due on this thread
            let kept = kept.clone();
            let _ = tokio::task::spawn_blocking(move || kept.run_upkeep()).await;
        }
    });
    Ok(Arc::new(move || handle.render()))
}
