//! What each request passes on its way to its route and back.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::FutureExt as _;
use utoipa_swagger_ui::SwaggerUi;

use crate::access::KeyName;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::{openapi, page, routes};

/// All routes, with the live view at `/`, the OpenAPI document at `/openapi.json` and a page for people at `/docs`.
pub fn router(app: App) -> Router {
    let (routes, document) = routes::all().split_for_parts();
    let document = openapi::complete(document);
    routes
        .route("/", get(page::page))
        .merge(SwaggerUi::new("/docs").url("/openapi.json", document))
        .fallback(async || not_found())
        .method_not_allowed_fallback(async || method_not_allowed())
        .layer(middleware::from_fn_with_state(app.clone(), pass))
        .with_state(app)
}

/// Bounds a request, and logs it: its route and its key's name, never its path, which holds the send's ID, and never what it carries.
async fn pass(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("-", |path| path.as_str()).to_owned();
    let key = KeyName::default();
    request.extensions_mut().insert(key.clone());
    let response = bounded(&app, request, next).await.unwrap_or_else(|problem| problem.into_response());
    let key = key.0.get().map_or("-", String::as_str);
    let (status, took_ms) = (response.status().as_u16(), began.elapsed().as_millis());
    if status == 500 {
        tracing::error!(%method, route, status, key, took_ms, "request");
    } else {
        tracing::info!(%method, route, status, key, took_ms, "request");
    }
    response
}

async fn bounded(app: &App, request: Request, next: Next) -> Result<Response, Problem> {
    // a process that has too much to do lives
    let _admitted = if request.uri().path() == "/healthz" { None } else { Some(app.admit()?) };
    if !is_encoded(request.uri().path()) {
        let detail = "a % is not followed by two hexadecimal digits: a % of the ID itself is %25";
        return Err(Problem::new(Kind::MalformedPath, detail));
    }
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind();
    match tokio::time::timeout(app.options().limits.request_timeout, answer).await {
        Ok(Ok(response)) => Ok(as_problem(response)),
        Ok(Err(_)) => Err(Problem::new(Kind::Internal, "a bug: the server's log says where. Asking again is safe")),
        Err(_) => {
            let detail = "nobody knows whether it was done: asking again is safe";
            Err(Problem::new(Kind::Timeout, detail).retry_after(Duration::from_secs(1)))
        }
    }
}

/// What a library refused in its own words (a file that `/docs` has not) is a problem as well.
fn as_problem(response: Response) -> Response {
    let status = response.status();
    let json =
        |kind: &HeaderValue| kind.to_str().is_ok_and(|kind| kind.starts_with("application/") && kind.contains("json"));
    if !(status.is_client_error() || status.is_server_error())
        || response.headers().get(header::CONTENT_TYPE).is_some_and(json)
    {
        return response;
    }
    match status {
        StatusCode::NOT_FOUND => not_found().into_response(),
        StatusCode::METHOD_NOT_ALLOWED => {
            let mut problem = method_not_allowed().into_response();
            if let Some(allow) = response.headers().get(header::ALLOW) {
                problem.headers_mut().insert(header::ALLOW, allow.clone());
            }
            problem
        }
        StatusCode::INTERNAL_SERVER_ERROR => Problem::new(Kind::Internal, "asking again is safe").into_response(),
        _ => response,
    }
}

fn not_found() -> Problem {
    Problem::new(Kind::NotFound, "the page /docs lists the paths")
}

fn method_not_allowed() -> Problem {
    Problem::new(Kind::MethodNotAllowed, "the header Allow lists the methods of this path")
}

/// Whether each `%` begins a percent-encoding.
fn is_encoded(path: &str) -> bool {
    let mut parts = path.split('%').skip(1);
    parts.all(|part| part.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_begin_encodings() {
        for (path, encoded) in
            [("/a%20b%C3%A9", true), ("/", true), ("/%", false), ("/%2", false), ("/%zz", false), ("/%25zz", true)]
        {
            assert_eq!(is_encoded(path), encoded, "{path}");
        }
    }
}
