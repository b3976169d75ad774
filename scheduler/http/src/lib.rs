//! The HTTP front door: schedules sends for programs in any language.
//!
//! ```no_run
//! use sendslot_http::{App, Options, Server, app, router};
//! use sendslot_scheduler::Scheduler;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let scheduler = Scheduler::from_env().await?;
//! let server = Server::bind("127.0.0.1:8080".parse()?).await?;
//! let app = app(scheduler, Options::default());
//! server.run(app.clone(), router(app), std::future::pending()).await;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `routes` | a handler for each route |
//! | `access`, [`keys`] | who may do what, looked at before a body is read |
//! | `body`, [`content`], `canonical` | JSON bodies, and what a send is in JSON |
//! | `answer`, [`problem`] | the engine's answers as HTTP's, RFC 9457 |
//! | `coalesce` | single sends that arrive together share calls |
//! | [`calendar`], `page` | a budget's calendar around now, in JSON and for people |
//! | `passage` | what each request passes: its log line, bounds, panics |
//! | `server`, [`config`] | connections and their bounds; the tables of the TOML file |

mod access;
mod answer;
mod app;
mod body;
pub mod calendar;
mod canonical;
mod coalesce;
pub mod config;
pub mod content;
pub mod instant;
pub mod keys;
mod openapi;
mod page;
mod passage;
mod policy_view;
pub mod problem;
mod routes;
mod server;

pub use app::{App, Coalescing, Options, Receipts, RenderMetrics};
pub use passage::router;
pub use server::{BindError, Ended, Server};

use sendslot_scheduler::Scheduler;

/// What all requests of a server share.
#[must_use]
pub fn app(scheduler: Scheduler, options: Options) -> App {
    App::new(scheduler, options)
}

/// The OpenAPI document of all routes.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    openapi::complete(routes::all().into_openapi())
}
