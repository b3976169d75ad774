//! The routes. A further one is a handler with `#[utoipa::path]` and a line in [`all`].

mod batch;
mod budgets;
mod calendar;
mod health;
mod quote;
mod receipts;
mod sends;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// All routes that the OpenAPI document lists.
pub(crate) fn all() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(sends::schedule))
        .routes(routes!(batch::schedule))
        .routes(routes!(sends::status, sends::cancel))
        .routes(routes!(quote::quote))
        .routes(routes!(budgets::list))
        .routes(routes!(budgets::get, budgets::set))
        .routes(routes!(calendar::calendar))
        .routes(routes!(budgets::pause))
        .routes(routes!(budgets::resume))
        .routes(routes!(receipts::receive, receipts::confirm))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
}
