//! Metrics for Prometheus.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use sendslot_shared::metrics::{self, Kind, TABLE};

use crate::app::RenderMetrics;

/// How often numbers are sorted into their buckets when nobody looks.
const UPKEEP: Duration = Duration::from_secs(5);

/// Installs a recorder for the process, with the buckets and descriptions of the table, and gives what renders it. Inside of a Tokio
/// runtime.
///
/// # Errors
/// When there is a recorder already.
pub fn install() -> Result<RenderMetrics, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for metric in TABLE {
        if let Kind::Histogram(bounds) = metric.kind {
            builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), bounds)?;
        }
    }
    let handle = builder.install_recorder()?;
    metrics::describe();
    let kept = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            kept.run_upkeep();
        }
    });
    Ok(Arc::new(move || handle.render()))
}
