//! Budgets: their policies, and whether their sends go on.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use sendslot_shared::budget::{self, UNTIL_RESUMED};
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::Policy;
use sendslot_shared::status::{self, BudgetStatus};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::{Anyone, Budget, ToManage, ToRead, forbidden};
use crate::app::App;
use crate::body::{Form, Json};
use crate::instant::show;
use crate::keys::Role;
use crate::policy_view::PolicyView;
use crate::problem::{Kind, Problem};

/// Questions to Redis at once for a list.
const SIDE_BY_SIDE: usize = 8;

/// A budget: its policy, what follows from it, and how it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BudgetView {
    budget: String,
    /// Rises with each change of the policy.
    version: u64,
    policy: PolicyView,
    /// Units per second that follow from limit and headroom.
    scheduled_per_s: f64,
    /// Units per second that are booked now: what the ramp and the adaptive rate make of it.
    rate_per_s: f64,
    /// What may vary between the verdict and the call's arrival at the provider without the limit being exceeded there.
    jitter_ms: f64,
    /// The largest cost of one send.
    max_cost: u32,
    /// The largest cost that fits beside a full grid.
    largest_cost_beside_others: u32,
    /// Redis' clock.
    #[schema(format = "date-time")]
    now: String,
    /// The end of the pause in force.
    #[schema(format = "date-time")]
    paused_until: Option<String>,
    /// The end of the cooldown that the provider asked for.
    #[schema(format = "date-time")]
    cooldown_until: Option<String>,
    /// The end of the last second with a booking.
    #[schema(format = "date-time")]
    booked_until: Option<String>,
    /// How far that is ahead.
    backlog_s: f64,
}

impl BudgetView {
    fn new(name: &BudgetName, (version, policy): (u64, &Policy), known: &BudgetStatus) -> Result<Self, Problem> {
        let compiled = policy.compile().map_err(|error| Problem::new(Kind::InvalidPolicy, error.to_string()))?;
        let booked = known.booked_until.map_or(0, |at| at.as_micros().saturating_sub(known.now.as_micros()));
        Ok(Self {
            budget: name.to_string(),
            version,
            policy: policy.into(),
            scheduled_per_s: policy.scheduled_rate(),
            rate_per_s: known.rate.unwrap_or_else(|| policy.scheduled_rate_at(known.now)),
            jitter_ms: compiled.jitter.as_micros() as f64 / 1000.0,
            max_cost: compiled.max_cost,
            largest_cost_beside_others: compiled.u0,
            now: show(known.now),
            paused_until: known.paused_until.map(show),
            cooldown_until: known.cooldown_until.map(show),
            booked_until: known.booked_until.map(show),
            backlog_s: booked as f64 / 1e6,
        })
    }
}

/// The budget as it stands; `None` when it has no policy.
async fn view(app: &App, name: &BudgetName) -> Result<Option<BudgetView>, Problem> {
    let store = app.scheduler().store();
    let Some((version, policy)) = budget::get(store, name).await? else { return Ok(None) };
    let known = status::budget_status(store, name).await?;
    BudgetView::new(name, (version, &policy), &known).map(Some)
}

pub(super) fn unknown(name: &BudgetName) -> Problem {
    let detail = format!("set one with PUT /v1/budgets/{name}, or `sendslot budget set {name} --limit UNITS`");
    Problem::new(Kind::UnknownBudget, detail)
}

async fn known(app: &App, name: &BudgetName) -> Result<axum::Json<BudgetView>, Problem> {
    view(app, name).await?.map(axum::Json).ok_or_else(|| unknown(name))
}

/// Budgets.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BudgetsView {
    budgets: Vec<BudgetView>,
}

/// List the budgets
///
/// Those that the key may read, sorted by name.
#[utoipa::path(get, path = "/v1/budgets", tag = "budgets", operation_id = "list_budgets",
    responses((status = 200, description = "The budgets", body = BudgetsView)))]
pub(crate) async fn list(Anyone(caller): Anyone, State(app): State<App>) -> Result<axum::Json<BudgetsView>, Problem> {
    if !caller.has(Role::Read) {
        return Err(forbidden(Role::Read, "some budget"));
    }
    let names = budget::list(app.scheduler().store()).await?;
    let views = names.into_iter().filter(|name| caller.may(Role::Read, name)).map(|name| {
        let app = app.clone();
        async move { view(&app, &name).await }
    });
    let views: Vec<_> = stream::iter(views).buffered(SIDE_BY_SIDE).try_collect().await?;
    Ok(axum::Json(BudgetsView { budgets: views.into_iter().flatten().collect() }))
}

/// Ask for a budget
///
/// Its policy, in a form that can be PUT again, and how it stands.
#[utoipa::path(get, path = "/v1/budgets/{budget}", tag = "budgets", operation_id = "budget",
    params(("budget" = String, Path, description = "The budget", pattern = "^[a-z0-9._-]{1,64}$")),
    responses((status = 200, description = "The budget", body = BudgetView)))]
pub(crate) async fn get(budget: Budget<ToRead>, State(app): State<App>) -> Result<axum::Json<BudgetView>, Problem> {
    known(&app, &budget.name).await
}

impl Form for PolicyView {
    const WHAT: &str = "the field limit, and what else differs from the defaults";
}

/// Set a budget's policy
///
/// For the next booking of every process, and for what is already booked. What is not given takes its default.
#[utoipa::path(put, path = "/v1/budgets/{budget}", tag = "budgets", operation_id = "set_budget",
    params(("budget" = String, Path, description = "The budget", pattern = "^[a-z0-9._-]{1,64}$")),
    request_body = PolicyView,
    responses(
        (status = 200, description = "It is changed", body = BudgetView),
        (status = 201, description = "It is new", body = BudgetView),
    ))]
pub(crate) async fn set(
    budget: Budget<ToManage>,
    State(app): State<App>,
    body: Json<PolicyView>,
) -> Result<(StatusCode, axum::Json<BudgetView>), Problem> {
    let policy = body.value.policy().map_err(|detail| Problem::new(Kind::InvalidPolicy, detail))?;
    let (version, _) = budget::set(app.scheduler().store(), &budget.name, &policy).await?;
    let view = known(&app, &budget.name).await?;
    Ok((if version == 1 { StatusCode::CREATED } else { StatusCode::OK }, view))
}

/// A pause.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pause {
    /// For so long; until it is resumed by default.
    #[serde(default)]
    #[schema(exclusive_minimum = 0, maximum = 3_153_600_000_u64)]
    for_s: Option<f64>,
}

impl Form for Pause {
    const WHAT: &str = "the field for_s, or nothing";
    const MAY_BE_EMPTY: bool = true;
}

/// Pause a budget
///
/// What is booked meanwhile is booked again when the pause is over. Without a body: until it is resumed.
#[utoipa::path(post, path = "/v1/budgets/{budget}/pause", tag = "budgets", operation_id = "pause",
    params(("budget" = String, Path, description = "The budget", pattern = "^[a-z0-9._-]{1,64}$")),
    request_body = Pause,
    responses((status = 200, description = "It is paused", body = BudgetView)))]
pub(crate) async fn pause(
    budget: Budget<ToManage>,
    State(app): State<App>,
    body: Json<Pause>,
) -> Result<axum::Json<BudgetView>, Problem> {
    let rest = match body.value.for_s {
        None => UNTIL_RESUMED,
        Some(s) if s > 0.0 && s <= UNTIL_RESUMED.as_secs_f64() => Duration::from_secs_f64(s),
        Some(s) => {
            let detail = format!("for_s {s}: give seconds above 0, or leave it out; POST …/resume ends a pause");
            return Err(Problem::new(Kind::Invalid, detail));
        }
    };
    change(&app, &budget.name, Some(rest)).await
}

/// Resume a budget
///
/// Its sends go on; also when it was not paused.
#[utoipa::path(post, path = "/v1/budgets/{budget}/resume", tag = "budgets", operation_id = "resume",
    params(("budget" = String, Path, description = "The budget", pattern = "^[a-z0-9._-]{1,64}$")),
    responses((status = 200, description = "It goes on", body = BudgetView)))]
pub(crate) async fn resume(
    budget: Budget<ToManage>,
    State(app): State<App>,
) -> Result<axum::Json<BudgetView>, Problem> {
    change(&app, &budget.name, None).await
}

async fn change(app: &App, name: &BudgetName, rest: Option<Duration>) -> Result<axum::Json<BudgetView>, Problem> {
    if !budget::pause(app.scheduler().store(), name, rest).await? {
        return Err(unknown(name));
    }
    known(app, name).await
}
