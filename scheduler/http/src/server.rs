//! The listener and its connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};

use crate::app::App;

/// The most bytes of a request's head.
const MOST_HEAD: usize = 64 * 1024;

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("{address} cannot be listened on: {source}. Stop what listens there, or give another address")]
pub struct BindError {
    /// Where.
    pub address: SocketAddr,
    /// Why.
    pub source: io::Error,
}

/// A port that is listened on; connections wait until it is served.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All requests were answered.
    Drained,
    /// So many requests were still in hand when the time was over. They were not answered; what they asked for may be done.
    Cut(usize),
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let bound = TcpListener::bind(address).await;
        let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = bound.map_err(|source| BindError { address, source })?;
        Ok(Self { listener, address })
    }

    /// Where it listens; with the port that it got for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is told to stop: then it is not ready any more, goes on for the time to drain, accepts no connection more, answers
    /// what it has in hand, and ends.
    pub async fn run(self, app: App, router: Router, stop: impl Future<Output = ()>) -> Ended {
        let limits = app.options().limits;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout).max_buf_size(MOST_HEAD);
        let connections = GracefulShutdown::new();
        let stop = async {
            stop.await;
            app.drain();
            tokio::time::sleep(limits.drain).await;
        };
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, _)) => serve(&http, stream, router.clone(), &connections),
                Err(error) if is_the_connection(&error) => {}
                // no file descriptors: those in use come back
                Err(error) => {
                    tracing::error!(%error, "accept_failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(self.listener);
        tokio::select! {
            () = connections.shutdown() => {}
            () = tokio::time::sleep(limits.shutdown_timeout) => {}
        }
        match app.in_hand() {
            0 => Ended::Drained,
            requests => Ended::Cut(requests),
        }
    }
}

fn serve(http: &http1::Builder, stream: TcpStream, router: Router, connections: &GracefulShutdown) {
    let _ = stream.set_nodelay(true);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection_failed");
        }
    });
}

fn is_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
