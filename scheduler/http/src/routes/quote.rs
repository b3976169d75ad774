//! When so many sends would leave.

use axum::extract::{Query, State};
use axum::http::Uri;
use sendslot_scheduler::{LaneName, Paused, QuoteRequest, Stopped};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::access::{Budget, ToRead};
use crate::app::App;
use crate::instant::{self, show};
use crate::problem::{Kind, Problem};

/// Longer quotes would keep Redis busy.
const MOST_SENDS: u32 = 1_000_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Question {
    /// How many sends.
    #[param(minimum = 1, maximum = 1_000_000)]
    sends: u32,
    /// The lane inside the budget; `default` by default.
    #[param(pattern = "^[a-z0-9._-]{1,64}$", nullable = false)]
    lane: Option<String>,
    /// Units of each send; 1 by default.
    #[param(minimum = 1, maximum = 16_777_215, nullable = false)]
    cost: Option<u32>,
    /// The earliest instant, RFC 3339.
    #[param(format = "date-time", nullable = false)]
    not_before: Option<String>,
}

/// When they would leave if they were offered now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QuoteView {
    budget: String,
    lane: String,
    sends: u32,
    cost: u32,
    #[schema(format = "date-time")]
    now: String,
    /// How many get a slot.
    placed: u32,
    /// The slot of the first.
    #[schema(format = "date-time")]
    first: Option<String>,
    /// The slot of the last.
    #[schema(format = "date-time")]
    last: Option<String>,
    /// The budget is paused. Without an end there are no instants.
    paused: bool,
    /// From now to the last; in a pause without an end from when it goes on.
    lasts_s: f64,
    /// What bounds the last; null when none gets a slot.
    bound_by: Option<&'static str>,
    /// How many leave in each hour of UTC.
    hours: Vec<HourView>,
    /// How many get no slot.
    not_placed: u32,
    /// Why they do not: `too_far` or `full`.
    stopped: Option<&'static str>,
}

#[derive(Debug, Serialize, ToSchema)]
struct HourView {
    /// Its beginning.
    #[schema(format = "date-time")]
    hour: String,
    sends: u32,
}

/// When would so many sends leave?
///
/// Nothing is booked: what others book in the meantime comes first. A pause with an end is counted.
#[utoipa::path(
    get, path = "/v1/budgets/{budget}/quote", tag = "budgets", operation_id = "quote",
    params(("budget" = String, Path, description = "The budget", pattern = "^[a-z0-9._-]{1,64}$"), Question),
    responses((status = 200, description = "The quote", body = QuoteView)),
)]
pub(crate) async fn quote(
    budget: Budget<ToRead>,
    State(app): State<App>,
    uri: Uri,
) -> Result<axum::Json<QuoteView>, Problem> {
    let invalid = |detail: String| Problem::new(Kind::Invalid, detail);
    let Query(question) = Query::<Question>::try_from_uri(&uri).map_err(|error| invalid(error.body_text()))?;
    if question.sends > MOST_SENDS {
        return Err(invalid(format!("{} sends: {MOST_SENDS} are the most of one quote", question.sends)));
    }
    let lane = question.lane.map_or_else(|| Ok(LaneName::default()), LaneName::new);
    let not_before = question.not_before.as_deref().map(instant::redis_time).transpose();
    let request = QuoteRequest {
        sends: question.sends,
        lane: lane.map_err(|error| invalid(error.to_string()))?,
        cost: question.cost.unwrap_or(1),
        not_before: not_before.map_err(|error| invalid(format!("not_before {error}")))?,
    };
    let quote = app.scheduler().quote(budget.name.as_str(), request.clone()).await?;
    let known = quote.paused != Some(Paused::Open);
    Ok(axum::Json(QuoteView {
        budget: budget.name.to_string(),
        lane: request.lane.to_string(),
        sends: request.sends,
        cost: request.cost,
        now: show(quote.now),
        placed: quote.placed,
        first: quote.first.filter(|_| known).map(show),
        last: quote.last.filter(|_| known).map(show),
        paused: quote.paused.is_some(),
        lasts_s: quote.lasts().as_secs_f64(),
        bound_by: quote.last.map(|_| quote.bound_by.as_str()),
        hours: quote.hours.iter().filter(|_| known).map(|(hour, sends)| HourView { hour: show(*hour), sends: *sends }).collect(),
        not_placed: request.sends - quote.placed,
        stopped: quote.stopped.map(|why| match why {
            Stopped::TooFar => "too_far",
            Stopped::Full => "full",
        }),
    }))
}
