//! The provider's HTTP side: one thread, one runtime, one handler.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{ConnectInfo, Request, State as Shared};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use tokio::net::TcpSocket;
use tokio::sync::oneshot;

use super::connection::{BreakableListener, Switch};
use super::options::ProviderError;
use super::script::{End, ScriptedReply};
use super::state::{Head, Plan, State};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4_096;
/// Larger bodies are not kept: 16 MiB.
const MAX_BODY: usize = 16 << 20;

type Books = Arc<Mutex<State>>;

/// Starts the thread and waits until it listens.
pub(super) fn spawn(state: Books, stop: oneshot::Receiver<()>) -> Result<(SocketAddr, JoinHandle<()>), ProviderError> {
    let (report, started) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("strict-provider".to_owned())
        .spawn(move || run(state, stop, &report))
        .map_err(ProviderError::Start)?;
    match started.recv() {
        Ok(Ok(address)) => Ok((address, thread)),
        Ok(Err(error)) => Err(ProviderError::Start(error)),
        Err(_) => Err(ProviderError::Start(io::Error::other("its thread ended"))),
    }
}

fn run(state: Books, stop: oneshot::Receiver<()>, report: &mpsc::Sender<io::Result<SocketAddr>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tell(report, Err(error)),
    };
    runtime.block_on(async {
        let listener = match listen() {
            Ok(listener) => listener,
            Err(error) => return tell(report, Err(error)),
        };
        tell(report, listener.local_addr());
        let app = Router::new().fallback(handle).with_state(state);
        let server = axum::serve(BreakableListener(listener), app.into_make_service_with_connect_info::<Switch>());
        tokio::select! {
            _ = stop => {}
            ended = server => tracing::error!(?ended, "strict provider ended by itself"),
        }
    });
    // Dropping the runtime ends every connection, also those that are never answered.
}

/// The receiver only goes away with the thread that waits for it.
fn tell(report: &mpsc::Sender<io::Result<SocketAddr>>, what: io::Result<SocketAddr>) {
    if report.send(what).is_err() {
        tracing::error!("nobody waits for the strict provider's start");
    }
}

fn listen() -> io::Result<tokio::net::TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    socket.listen(BACKLOG)
}

async fn handle(Shared(state): Shared<Books>, ConnectInfo(switch): ConnectInfo<Switch>, request: Request) -> Response {
    let at = Instant::now();
    if request.method() != Method::POST {
        return answer(&ScriptedReply::status(405).body(r#"{"error":"POST only"}"#), 0);
    }
    let (parts, body) = request.into_parts();
    let head = Head { at, send_id: header(&parts.headers, "idempotency-key"), units: units(&parts.headers) };
    let Plan { index, reply } = lock(&state).arrive(&head);
    if let Ok(bytes) = to_bytes(body, MAX_BODY).await {
        lock(&state).keep_body(index, &bytes);
    }
    if !reply.delay.is_zero() {
        tokio::time::sleep_until((at + reply.delay).into()).await;
    }
    match reply.end {
        End::Hang => return pending().await,
        End::Drop => switch.break_connection(),
        End::Status(_) => {}
    }
    answer(&reply, index)
}

fn answer(reply: &ScriptedReply, index: usize) -> Response {
    let status = match reply.end {
        End::Status(status) => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        End::Hang | End::Drop => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = reply.body.clone().unwrap_or_else(|| default_body(status, index));
    let mut builder = Response::builder().status(status).header("content-type", "application/json");
    for (name, value) in &reply.headers {
        builder = builder.header(name, value);
    }
    builder.body(body.into()).unwrap_or_else(|error| {
        tracing::error!(%error, "a scripted header cannot be sent");
        let mut response = Response::default();
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

fn default_body(status: StatusCode, index: usize) -> String {
    if status.is_success() { format!(r#"{{"id":"prov-{index}"}}"#) } else { format!(r#"{{"error":"{status}"}}"#) }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok()).unwrap_or_default()
}

/// 1 when the header is missing, 0 when it is not a number.
fn units(headers: &HeaderMap) -> u32 {
    headers.get("x-units").map_or(1, |value| value.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(0))
}

fn lock(state: &Books) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
