//! What all parts of one event source share.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::lifecycle::{Lifecycle, Phase};
use super::log::Log;
use super::pool::Pool;
use super::ramp::RampState;
use super::stats::Counters;
use super::{EventSourceError, EventSourceOptions};

#[derive(Debug)]
pub(super) struct Core {
    pub(super) options: EventSourceOptions,
    pub(super) lifecycle: Arc<Lifecycle>,
    pub(super) counters: Counters,
    pub(super) pool: Pool,
    pub(super) log: Arc<Log>,
    /// One for each concurrent invocation, taken before the first message is received.
    pub(super) permits: Arc<Semaphore>,
    /// `http://127.0.0.1:<port>`, without the environment's path.
    runtime_api: String,
}

impl Core {
    pub(super) fn new(options: EventSourceOptions, listener: &TcpListener) -> Result<Self, EventSourceError> {
        let address = listener.local_addr().map_err(super::runtime_api::no_port)?;
        let max = options.max_environments;
        let permits = options.ramp.map_or(max, |ramp| RampState::new(ramp, max).allowed());
        Ok(Self {
            lifecycle: Arc::new(Lifecycle::new()),
            counters: Counters::new(),
            pool: Pool::default(),
            log: Arc::new(Log::open(&options.log)?),
            permits: Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))),
            runtime_api: format!("http://{address}"),
            options,
        })
    }

    pub(super) fn kill(&self) {
        self.lifecycle.advance(Phase::Killed);
        self.pool.kill_all();
    }

    pub(super) fn forget(&self, environment: u64) {
        self.pool.forget(environment);
    }

    /// The variables that Lambda sets, then the caller's.
    pub(super) fn worker_environment(&self, environment: u64) -> Vec<(String, String)> {
        let name = &self.options.function_name;
        let directory = self.options.worker.parent().unwrap_or(std::path::Path::new("/")).display().to_string();
        let own = [
            ("AWS_LAMBDA_RUNTIME_API", format!("{}/env/{environment}", self.runtime_api)),
            ("AWS_LAMBDA_FUNCTION_NAME", name.clone()),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST".to_owned()),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128".to_owned()),
            ("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand".to_owned()),
            ("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{name}")),
            ("AWS_LAMBDA_LOG_STREAM_NAME", format!("local/[$LATEST]{environment:032x}")),
            ("AWS_EXECUTION_ENV", "AWS_Lambda_provided.al2023".to_owned()),
            ("AWS_REGION", self.options.region.clone()),
            ("AWS_DEFAULT_REGION", self.options.region.clone()),
            ("LAMBDA_TASK_ROOT", directory.clone()),
            ("LAMBDA_RUNTIME_DIR", directory),
            ("_HANDLER", "bootstrap".to_owned()),
            ("LANG", "en_US.UTF-8".to_owned()),
            ("TZ", ":UTC".to_owned()),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        own.chain(self.options.environment.iter().cloned()).collect()
    }
}
