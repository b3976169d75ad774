//! The Lambda Runtime API: one server, one path for each environment.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Weak};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;

use super::EventSourceError;
use super::core::Core;
use super::handover::{Call, Invocation};

/// Lambda's limit for a response is 6 MB; what is longer is refused.
const MAX_RESPONSE: usize = 6 * 1024 * 1024 + 1024;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// The server must not keep a dropped event source alive.
type Api = State<Weak<Core>>;

pub(super) fn no_port(source: io::Error) -> EventSourceError {
    EventSourceError::Io { what: "no port on 127.0.0.1 for the Runtime API".to_owned(), source }
}

pub(super) async fn listen() -> Result<TcpListener, EventSourceError> {
    let open = || {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        socket.listen(BACKLOG)
    };
    open().map_err(no_port)
}

/// Serves until the event source is killed.
pub(super) fn serve(core: &Arc<Core>, listener: TcpListener) {
    let app = Router::new()
        .route("/env/{number}/2018-06-01/runtime/invocation/next", get(next))
        .route("/env/{number}/2018-06-01/runtime/invocation/{request}/response", post(response))
        .route("/env/{number}/2018-06-01/runtime/invocation/{request}/error", post(error))
        .route("/env/{number}/2018-06-01/runtime/init/error", post(init_error))
        .with_state(Arc::downgrade(core));
    let lifecycle = Arc::clone(&core.lifecycle);
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::warn!(%error, "no TCP_NODELAY on a Runtime API connection");
        }
    });
    tokio::spawn(async move {
        tokio::select! {
            () = lifecycle.reached(super::lifecycle::Phase::Killed) => {}
            ended = axum::serve(listener, app) => tracing::error!(?ended, "Runtime API ended by itself"),
        }
    });
}

async fn next(State(core): Api, Path(number): Path<u64>) -> Response {
    let (parked, invocation) = oneshot::channel();
    if !call(core.clone(), number, Call::Next(parked)).await {
        return StatusCode::GONE.into_response();
    }
    match invocation.await {
        Ok(invocation) => event(&core, invocation),
        Err(_) => StatusCode::GONE.into_response(),
    }
}

fn event(core: &Weak<Core>, Invocation { request_id, deadline_ms, payload }: Invocation) -> Response {
    let arn = core.upgrade().map(|core| core.options.function_arn.clone()).unwrap_or_default();
    let (epoch, root, parent) = (deadline_ms / 1_000, fastrand::u128(..) >> 32, fastrand::u64(..));
    let trace = format!("Root=1-{epoch:08x}-{root:024x};Parent={parent:016x};Sampled=0");
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("lambda-runtime-aws-request-id", request_id),
        ("lambda-runtime-deadline-ms", deadline_ms.to_string()),
        ("lambda-runtime-invoked-function-arn", arn),
        ("lambda-runtime-trace-id", trace),
    ];
    (headers, payload).into_response()
}

async fn response(State(core): Api, Path((number, request)): Path<(u64, String)>, body: Body) -> StatusCode {
    match to_bytes(body, MAX_RESPONSE).await {
        Ok(bytes) => answer(core, number, request, Ok(bytes)).await,
        Err(_) => StatusCode::PAYLOAD_TOO_LARGE,
    }
}

async fn error(State(core): Api, Path((number, request)): Path<(u64, String)>, body: Bytes) -> StatusCode {
    let text = String::from_utf8_lossy(&body).into_owned();
    answer(core, number, request, Err(text)).await
}

async fn init_error(State(core): Api, Path(number): Path<u64>, body: Bytes) -> StatusCode {
    let text = String::from_utf8_lossy(&body).into_owned();
    if call(core, number, Call::InitError(text)).await { StatusCode::ACCEPTED } else { StatusCode::GONE }
}

async fn answer(core: Weak<Core>, number: u64, request_id: String, result: Result<Bytes, String>) -> StatusCode {
    let (reply, status) = oneshot::channel();
    if !call(core, number, Call::Answer { request_id, result, reply }).await {
        return StatusCode::GONE;
    }
    status.await.unwrap_or(StatusCode::GONE)
}

/// Whether the environment still exists and has heard the call.
async fn call(core: Weak<Core>, number: u64, call: Call) -> bool {
    let calls = core.upgrade().and_then(|core| core.pool.calls(number));
    match calls {
        Some(calls) => calls.send(call).await.is_ok(),
        None => false,
    }
}
