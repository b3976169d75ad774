//! `GET /metrics` and `GET /healthz`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::Render;

/// Connections at once; more wait.
const CONNECTIONS: usize = 16;
/// The longest that one may take. Each is for one request.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);

/// The endpoint of a process that serves nothing else: its metrics at `/metrics`, and 200 at `/healthz`.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Takes an address, `HOST:PORT`; port 0 takes a free one. Nothing is answered before [`Listener::serve`].
    ///
    /// # Errors
    /// It is none, or is in use, or is not this machine's.
    pub async fn bind(address: &str) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until it is dropped.
    pub async fn serve(&self, render: Render) -> Infallible {
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            if connections.len() >= CONNECTIONS {
                connections.join_next().await;
                continue;
            }
            match self.socket.accept().await {
                Ok((stream, _)) => drop(connections.spawn(tokio::time::timeout(LIMIT, answer(stream, render.clone())))),
                Err(error) => {
                    tracing::warn!(%error, "the metrics' listener cannot accept");
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
            }
        }
    }
}

async fn answer(stream: TcpStream, render: Render) {
    let service = service_fn(move |request| respond(request, render.clone()));
    // who goes away unanswered asks again
    let _ = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(request: Request<Incoming>, render: Render) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            // rendering many series takes milliseconds, in which a call may be due on this thread
            match tokio::task::spawn_blocking(move || render()).await {
                Ok(text) => (StatusCode::OK, crate::CONTENT_TYPE, text),
                Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "text/plain", String::new()),
            }
        }
        (&Method::GET | &Method::HEAD, "/healthz") => {
            (StatusCode::OK, "application/json", r#"{"status":"alive"}"#.to_owned())
        }
        (_, "/metrics" | "/healthz") => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "there is /metrics and /healthz\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    Ok(response)
}
