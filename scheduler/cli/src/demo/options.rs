//! From the command line to what the parts take.

use std::time::Duration;

use sendslot_localstack::event_source::{EventSourceOptions, Ramp, WorkerLog};
use sendslot_localstack::provider::{Faults, ProviderOptions, Window};
use sendslot_localstack::{QueueOptions, Queues, Stack};
use sendslot_scheduler::Message;
use sendslot_shared::policy::{Headroom, Policy};

use crate::args::{DemoArgs, WindowArg};
use crate::exit::Failure;
use crate::jsonl;

const FUNCTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Above this rate an environment for each ten messages would be hundreds of processes.
const MANY_PER_S: f64 = 300.0;

impl DemoArgs {
    pub(crate) fn policy(&self) -> Result<Policy, Failure> {
        let headroom = Headroom::new(self.headroom).map_err(Failure::usage)?;
        let policy = Policy { headroom, horizon: Duration::from_secs(14 * 86_400), ..Policy::per_second(self.limit) };
        // a message may wait for its batch, at the start and shortly before its slot
        let window = self.batch_window();
        let lead = self.lead.unwrap_or(policy.lead + window);
        let policy = Policy { lead, transit: policy.transit + window, ..policy };
        policy.compile().map_err(Failure::usage)?;
        Ok(policy)
    }

    fn many(&self) -> bool {
        f64::from(self.limit) * self.headroom > MANY_PER_S
    }

    fn batch_window(&self) -> Duration {
        self.batch_window.unwrap_or(Duration::from_secs(self.many().into()))
    }

    /// The messages: those of the file, every line of which must be one, or the burst.
    pub(crate) async fn messages(&self, budget: &str) -> Result<Vec<Message>, Failure> {
        let Some(file) = &self.input else {
            let payload = |n| format!("{{\"to\":\"user-{n}@example.com\",\"subject\":\"hello\"}}");
            return Ok((0..self.burst).map(|n| Message::new(budget, format!("demo-{n:06}"), payload(n))).collect());
        };
        let text = tokio::fs::read_to_string(file).await;
        let text = text.map_err(|e| Failure::usage(anyhow::anyhow!("{} cannot be read: {e}", file.display())))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines
            .map(|(n, line)| {
                let message = jsonl::message(line, budget, None);
                message.map_err(|e| Failure::usage(anyhow::anyhow!("{} line {}: {e}", file.display(), n + 1)))
            })
            .collect()
    }

    pub(crate) fn provider(&self) -> ProviderOptions {
        let window = match self.window {
            WindowArg::Rolling => Window::Rolling,
            WindowArg::Fixed => Window::Fixed,
            WindowArg::Spacing => Window::Spacing { tolerance: Duration::ZERO },
        };
        let faults = Faults { server_error: self.inject_500, throttle: self.inject_429, ..Faults::default() };
        let latency = Duration::from_millis(self.latency_ms);
        ProviderOptions { window, faults, latency, seed: 1, ..ProviderOptions::new(self.limit) }
    }

    pub(crate) fn queues(&self) -> QueueOptions {
        // AWS: at least six times the function's timeout, plus the batching window
        QueueOptions { visibility_timeout: 6 * FUNCTION_TIMEOUT + self.batch_window(), ..QueueOptions::default() }
    }

    pub(crate) fn event_source(
        &self,
        stack: &Stack,
        queues: &Queues,
        worker: std::path::PathBuf,
        provider_url: &str,
    ) -> EventSourceOptions {
        let mut options = EventSourceOptions::new(stack.sqs(), &queues.queue_url, worker);
        options.environment = stack.environment();
        let timeout_ms = (self.latency_ms + 5000).to_string();
        for (name, value) in [
            ("SENDSLOT_QUEUE_URL", queues.queue_url.as_str()),
            ("SENDSLOT_DLQ_URL", queues.dlq_url.as_str()),
            ("SENDSLOT_HTTP_URL", provider_url),
            ("SENDSLOT_HTTP_HEADERS", r#"{"x-units":"{cost}"}"#),
            ("SENDSLOT_HTTP_TIMEOUT_MS", timeout_ms.as_str()),
            ("AWS_LAMBDA_LOG_LEVEL", if self.worker_log.is_some() { "warn,sendslot_worker=debug" } else { "warn" }),
        ] {
            options.environment.push((name.to_owned(), value.to_owned()));
        }
        options.batch_size = self.batch_size.unwrap_or(if self.many() { 100 } else { 10 });
        options.window = self.batch_window();
        options.max_environments = self.max_environments;
        options.ramp = self.ramp.then_some(Ramp::AWS);
        options.function_timeout = FUNCTION_TIMEOUT;
        if let Some(file) = &self.worker_log {
            options.log = WorkerLog::File(file.clone());
        }
        options
    }
}
