//! One connection: made when it is first needed, shared, and made anew after it broke or did not answer in time.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::Mutex;

use super::error::Cure;

/// How long Redis may take. Scripts take microseconds; 2 s leave room for a failover's pause.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a server gave no answers.
#[derive(Clone)]
pub(super) enum Failure {
    /// There is no connection: it heard nothing.
    Away(RedisError),
    /// The connection broke, or no answer came in time: it may have heard everything.
    Lost(RedisError),
    /// What came is no answer.
    Odd(RedisError),
}

/// How a server is found.
enum Dial {
    Server(Box<ConnectionInfo>),
    Sentinel(Box<Mutex<SentinelClient>>),
}

#[derive(Default)]
struct State {
    generation: u64,
    connection: Option<MultiplexedConnection>,
    /// Host and port that the connection leads to.
    at: Option<String>,
    failure: Option<RedisError>,
}

pub(super) struct Link {
    /// What messages may show.
    pub(super) address: String,
    dial: Dial,
    state: Mutex<State>,
    /// Attempts to connect that failed.
    failures: AtomicU64,
}

impl Link {
    pub(super) fn to_server(info: ConnectionInfo) -> Self {
        Self::new(info.addr().to_string(), Dial::Server(Box::new(info)))
    }

    pub(super) fn to_primary(sentinel: SentinelClient, address: String) -> Self {
        Self::new(address, Dial::Sentinel(Box::new(Mutex::new(sentinel))))
    }

    fn new(address: String, dial: Dial) -> Self {
        Self { address, dial, state: Mutex::default(), failures: AtomicU64::new(0) }
    }

    /// Its host alone.
    pub(super) fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or("", |(host, _)| host)
    }

    /// Host and port of whom it was connected to last: behind Sentinel the primary's.
    pub(super) async fn at(&self) -> String {
        self.state.lock().await.at.clone().unwrap_or_else(|| self.address.clone())
    }

    /// Asks once, all commands in one round trip. An error reply is an answer of its command.
    pub(super) async fn ask(&self, commands: &[Cmd]) -> Result<Vec<Value>, Failure> {
        let mut pipe = Pipeline::with_capacity(commands.len());
        for command in commands {
            pipe.add_command(command.clone());
        }
        let (generation, mut connection) = self.connect().await.map_err(Failure::Away)?;
        match connection.req_packed_commands(&pipe, 0, commands.len()).await {
            Ok(replies) if replies.len() == commands.len() => {
                if replies.iter().any(is_stale) {
                    self.discard(generation).await;
                }
                Ok(replies)
            }
            Ok(_) => Err(Failure::Odd((ErrorKind::Client, "not one reply for each command").into())),
            Err(e) if e.is_timeout() || e.is_io_error() || e.is_unrecoverable_error() => {
                self.discard(generation).await;
                Err(Failure::Lost(e))
            }
            Err(e) => Err(Failure::Odd(e)),
        }
    }

    async fn connect(&self) -> RedisResult<(u64, MultiplexedConnection)> {
        let failures = self.failures.load(SeqCst);
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok((state.generation, connection.clone()));
        }
        // An attempt failed while this caller waited for it: one failure is everybody's, or N callers wait N timeouts.
        if let Some(failure) = state.failure.clone().filter(|_| self.failures.load(SeqCst) != failures) {
            return Err(failure);
        }
        let (connection, at) = match self.dial().await {
            Ok(dialled) => dialled,
            Err(failure) => {
                state.failure = Some(failure.clone());
                self.failures.fetch_add(1, SeqCst);
                return Err(failure);
            }
        };
        state.generation += 1;
        state.connection = Some(connection.clone());
        state.at = Some(at);
        Ok((state.generation, connection))
    }

    async fn dial(&self) -> RedisResult<(MultiplexedConnection, String)> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_connection_timeout(Some(CONNECT_TIMEOUT));
        let client = match &self.dial {
            Dial::Server(info) => Client::open((**info).clone())?,
            Dial::Sentinel(sentinel) => {
                let mut sentinel = sentinel.lock().await;
                tokio::time::timeout(CONNECT_TIMEOUT, sentinel.async_get_client())
                    .await
                    .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??
            }
        };
        let at = client.get_connection_info().addr().to_string();
        Ok((client.get_multiplexed_async_connection_with_config(&config).await?, at))
    }

    async fn discard(&self, generation: u64) {
        let mut state = self.state.lock().await;
        if state.generation == generation {
            state.connection = None;
        }
    }
}

/// A primary that was demoted.
fn is_stale(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(e) if Cure::of(e.code()) == Cure::Reconnect)
}
