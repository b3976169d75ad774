//! A stack that outlives the command that starts it: `sendslot local up` and `down`.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::access::SqsAccess;
use crate::cache;
use crate::error::{IoContext, StackError};
use crate::localstack_server::{self, LocalStackServer, Services, Tick};
use crate::process::{self, Process};
use crate::queues::{self, QueueOptions, Queues};
use crate::redis_server::{self, RedisServer, Settings, blocking};

/// The name of the queue; the dead-letter queue is `sendslot-dlq`.
const QUEUE: &str = "sendslot";

/// What to start.
#[derive(Debug, Clone, Default)]
pub struct DetachedOptions {
    /// How precise the delays of LocalStack are. A stack that runs already keeps its tick.
    pub tick: Tick,
    /// The options of the queues.
    pub queues: QueueOptions,
}

/// The detached stack of this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    redis_url: String,
    access: SqsAccess,
    queues: Queues,
}

impl Running {
    /// Where Redis is.
    pub fn redis_url(&self) -> &str {
        &self.redis_url
    }

    /// Where SQS is.
    pub fn endpoint_url(&self) -> &str {
        self.access.endpoint_url()
    }

    /// The queue and its dead-letter queue.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// The variables, name and value, with which scheduler and worker reach the stack.
    pub fn exports(&self) -> Vec<(String, String)> {
        let mut exports = vec![("REDIS_URL".to_owned(), self.redis_url.clone())];
        exports.extend(self.access.variables());
        exports.push(("SENDSLOT_QUEUE_URL".to_owned(), self.queues.queue_url.clone()));
        exports.push(("SENDSLOT_DLQ_URL".to_owned(), self.queues.dlq_url.clone()));
        exports
    }
}

/// Starts Redis and LocalStack with the queues `sendslot` and `sendslot-dlq`, so that they outlive this process.
/// If they run already, it only sees to the queues.
///
/// # Errors
/// When a server cannot be installed or started, or the state cannot be kept in the cache directory.
pub async fn up(options: DetachedOptions) -> Result<Running, StackError> {
    up_in(&cache::directory()?, options).await
}

/// Ends the detached stack with all its data. Whether there was one.
///
/// # Errors
/// When the state in the cache directory cannot be removed.
pub async fn down() -> Result<bool, StackError> {
    down_in(&cache::directory()?).await
}

async fn up_in(directory: &Path, options: DetachedOptions) -> Result<Running, StackError> {
    let _lock = lock(directory).await?;
    let state = match read(&state_file(directory)) {
        Some(state) if state.is_healthy().await => state,
        stale => {
            stale.iter().for_each(State::end);
            start(options.tick, directory).await?
        }
    };
    let access = SqsAccess::local(localstack_server::url(state.localstack.port));
    let queues = queues::create_queues(&access.client(), QUEUE, options.queues).await?;
    Ok(Running { redis_url: redis_server::url(state.redis.port), access, queues })
}

async fn down_in(directory: &Path) -> Result<bool, StackError> {
    let _lock = lock(directory).await?;
    let path = state_file(directory);
    let Some(state) = read(&path) else { return Ok(false) };
    let ran = state.redis.is_ours() || state.localstack.is_ours();
    state.end();
    fs::remove_file(&path).context("remove", &path)?;
    Ok(ran)
}

async fn lock(directory: &Path) -> Result<fs::File, StackError> {
    let path = directory.join("local.lock");
    blocking(move || cache::lock(&path)).await
}

fn state_file(directory: &Path) -> PathBuf {
    directory.join("local.json")
}

/// What is needed to find the servers again.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    redis: Server,
    localstack: Server,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Server {
    /// The process group, and its first process.
    id: u32,
    port: u16,
    /// Also tells the process apart from others that get its id later.
    directory: PathBuf,
}

impl State {
    async fn is_healthy(&self) -> bool {
        self.redis.is_ours()
            && self.localstack.is_ours()
            && redis_server::answers(self.redis.port, &self.redis.directory).await
            && localstack_server::answers(self.localstack.port).await
    }

    fn end(&self) {
        self.redis.end();
        self.localstack.end();
    }
}

impl Server {
    fn new(process: &Process, port: u16, directory: &TempDir) -> Server {
        Server { id: process.id(), port, directory: directory.path().to_owned() }
    }

    fn is_ours(&self) -> bool {
        process::command_line(self.id).is_some_and(|command| command.contains(&*self.directory.to_string_lossy()))
    }

    fn end(&self) {
        if self.is_ours() {
            process::signal_group("KILL", self.id);
        }
        _ = fs::remove_dir_all(&self.directory);
    }
}

async fn start(tick: Tick, parent: &Path) -> Result<State, StackError> {
    let directory = |prefix| tempfile::Builder::new().prefix(prefix).tempdir_in(parent).context("create in", parent);
    let program = blocking(redis_server::find).await?;
    let (redis, localstack) = tokio::try_join!(
        RedisServer::launch(Settings::new(program, &[]), directory("local-redis-")?),
        LocalStackServer::launch(tick, Services::Sqs, directory("local-localstack-")?),
    )?;
    let ports = (redis.port(), localstack.port());
    let (redis, redis_directory) = redis.into_parts();
    let (localstack, localstack_directory) = localstack.into_parts();
    let state = State {
        redis: Server::new(&redis, ports.0, &redis_directory),
        localstack: Server::new(&localstack, ports.1, &localstack_directory),
    };
    write(&state_file(parent), &state)?;
    redis.release();
    localstack.release();
    _ = redis_directory.keep();
    _ = localstack_directory.keep();
    Ok(state)
}

fn write(path: &Path, state: &State) -> Result<(), StackError> {
    let unfinished = path.with_extension("new");
    let text = serde_json::to_vec_pretty(state).map_err(std::io::Error::from).context("write", path)?;
    fs::write(&unfinished, text).context("write", &unfinished)?;
    fs::rename(&unfinished, path).context("write", path)
}

/// A state that cannot be read, such as one of another version, is as good as none.
fn read(path: &Path) -> Option<State> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(id: u32, directory: &Path) -> Server {
        Server { id, port: 1, directory: directory.to_owned() }
    }

    #[test]
    fn the_state_round_trips() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("local.json");
        assert_eq!(read(&path), None);
        let state = State { redis: server(1, &path), localstack: server(2, &path) };
        write(&path, &state).unwrap();
        assert_eq!(read(&path), Some(state));
        fs::write(&path, "{}").unwrap();
        assert_eq!(read(&path), None);
    }

    #[test]
    fn never_kills_a_process_that_took_over_the_id() {
        let directory = tempfile::tempdir().unwrap();
        let mut other = std::process::Command::new("sleep").arg("300").spawn().unwrap();
        let stale = server(other.id(), &directory.path().join("gone"));
        assert!(!stale.is_ours());
        stale.end();
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[tokio::test]
    async fn comes_up_once_and_goes_down_for_good() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let running = up_in(&path, DetachedOptions::default()).await.unwrap();
        assert_eq!(up_in(&path, DetachedOptions::default()).await.unwrap(), running);
        let names: Vec<String> = running.exports().into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"SENDSLOT_DLQ_URL".to_owned()), "{names:?}");

        let half = read(&state_file(&path)).unwrap();
        half.redis.end();
        let renewed = up_in(&path, DetachedOptions::default()).await.unwrap();
        assert_ne!(renewed, running);

        let state = read(&state_file(&path)).unwrap();
        assert!(down_in(&path).await.unwrap());
        assert!(!down_in(&path).await.unwrap());
        assert!(!redis_server::answers(state.redis.port, &state.redis.directory).await);
        assert!(!localstack_server::answers(state.localstack.port).await);
        let left: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["local.lock"]);
    }
}
