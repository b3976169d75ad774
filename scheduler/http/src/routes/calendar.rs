//! A budget's calendar around now.

use axum::extract::State;
use sendslot_shared::view;

use crate::access::{Budget, ToRead};
use crate::app::App;
use crate::calendar::CalendarView;
use crate::problem::Problem;

use super::budgets::unknown;

/// Ask for a budget's calendar
///
/// From a minute before now to two minutes ahead, second by second: capacity, bookings by lane, calls; and the backlog, what the
/// provider refused, pause and cooldown. What it costs does not grow with the backlog. The page at `/` shows it.
#[utoipa::path(get, path = "/v1/budgets/{budget}/calendar", tag = "budgets", operation_id = "calendar",
    params(("budget" = String, Path, description = "The budget", pattern = "^[a-z0-9._-]{1,64}$")),
    responses((status = 200, description = "The calendar", body = CalendarView)))]
pub(crate) async fn calendar(
    budget: Budget<ToRead>,
    State(app): State<App>,
) -> Result<axum::Json<CalendarView>, Problem> {
    let view = view::view(app.scheduler().store(), &budget.name).await?;
    view.map(|view| axum::Json(CalendarView::new(&budget.name, view))).ok_or_else(|| unknown(&budget.name))
}
