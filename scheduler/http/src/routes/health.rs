//! Whether the process lives, whether it can do its work, and what it measures. None of these needs a budget.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::{Anyone, forbidden};
use crate::app::App;
use crate::keys::Role;
use crate::problem::{Kind, Problem};

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AliveView {
    /// `alive`.
    #[schema(pattern = "^alive$")]
    status: &'static str,
}

/// Does the process live?
///
/// For a liveness probe: it says nothing of Redis and SQS.
#[utoipa::path(get, path = "/healthz", tag = "operations", operation_id = "healthz",
    responses((status = 200, description = "It does", body = AliveView)))]
pub(crate) async fn alive() -> axum::Json<AliveView> {
    axum::Json(AliveView { status: "alive" })
}

/// What the server needs, and whether it answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReadyView {
    ready: bool,
    /// Redis answers, and takes writes. While it is away sends are accepted unbooked; all other questions are not answered.
    redis: bool,
    /// SQS answers. Without it nothing is accepted.
    sqs: bool,
    /// The server was told to stop.
    stopping: bool,
}

/// Can it do its work?
///
/// For a readiness probe: within the last second Redis took writes and SQS answered.
#[utoipa::path(get, path = "/readyz", tag = "operations", operation_id = "readyz",
    responses(
        (status = 200, description = "It can", body = ReadyView),
        (status = 503, description = "It cannot; the body says what does not answer", body = ReadyView),
    ))]
pub(crate) async fn ready(State(app): State<App>) -> (StatusCode, axum::Json<ReadyView>) {
    let known = app.readiness().await;
    let stopping = app.is_draining();
    let ready = known.redis && known.sqs && !stopping;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(ReadyView { ready, redis: known.redis, sqs: known.sqs, stopping }))
}

/// Metrics
///
/// In Prometheus' text format. With API keys this needs the role `read` in all budgets (`*`), since it names them all.
#[utoipa::path(get, path = "/metrics", tag = "operations", operation_id = "metrics",
    responses((status = 200, description = "The metrics", body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(Anyone(caller): Anyone, State(app): State<App>) -> Result<Response, Problem> {
    if !caller.may_in_all(Role::Read) {
        return Err(forbidden(Role::Read, "all budgets"));
    }
    let Some(render) = &app.options().metrics else {
        return Err(Problem::new(Kind::NotFound, "this server measures nothing"));
    };
    app.gauges().refresh().await;
    Ok(([(header::CONTENT_TYPE, sendslot_prometheus::CONTENT_TYPE)], render()).into_response())
}
