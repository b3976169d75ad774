//! Redis and SQS together.

use std::env;
use std::path::PathBuf;

use aws_sdk_sqs::Client;

use crate::access::SqsAccess;
use crate::error::StackError;
use crate::localstack_server::{LocalStackServer, Services, Tick};
use crate::queues::{self, QueueOptions, Queues};
use crate::redis_server::RedisServer;

/// What to start.
#[derive(Debug, Clone, Default)]
pub struct StackOptions {
    /// How precise the delays of LocalStack are.
    pub tick: Tick,
    /// Whether servers that the environment names are used.
    pub servers: Servers,
    /// The Redis server program; `None` finds one.
    pub redis_program: Option<PathBuf>,
    /// What a LocalStack that is started serves.
    pub services: Services,
}

/// Whether servers that the environment names are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Servers {
    /// `REDIS_URL` and `AWS_ENDPOINT_URL` are used where they are set; what is not set is started.
    #[default]
    GivenOrOwn,
    /// Both servers are started, whatever the environment says.
    Own,
}

/// Redis and SQS, started for this value or given by the environment. Dropping it kills what it started.
#[derive(Debug)]
pub struct Stack {
    redis: Redis,
    sqs: Sqs,
}

#[derive(Debug)]
enum Redis {
    Given(String),
    Own(RedisServer),
}

#[derive(Debug)]
enum Sqs {
    Given(SqsAccess),
    Own(LocalStackServer, SqsAccess),
}

impl Stack {
    /// Starts the two servers side by side, as far as the environment does not name them.
    ///
    /// # Errors
    /// When a server cannot be installed or started.
    pub async fn start(options: StackOptions) -> Result<Stack, StackError> {
        let given = options.servers == Servers::GivenOrOwn;
        let redis_url = env::var("REDIS_URL").ok().filter(|url| given && !url.is_empty());
        let access = SqsAccess::from_environment().filter(|_| given);
        let redis = Redis::start(redis_url, options.redis_program);
        let (redis, sqs) = tokio::try_join!(redis, Sqs::start(access, options.tick, options.services))?;
        Ok(Stack { redis, sqs })
    }

    /// Where Redis is.
    pub fn redis_url(&self) -> String {
        match &self.redis {
            Redis::Given(url) => url.clone(),
            Redis::Own(server) => server.url(),
        }
    }

    /// The Redis that was started, if the environment did not give one.
    pub fn redis_server(&mut self) -> Option<&mut RedisServer> {
        match &mut self.redis {
            Redis::Given(_) => None,
            Redis::Own(server) => Some(server),
        }
    }

    /// Where SQS is.
    pub fn endpoint_url(&self) -> &str {
        self.access().endpoint_url()
    }

    /// A client for SQS.
    pub fn sqs(&self) -> Client {
        self.access().client()
    }

    /// The variables with which another process reaches the stack: `REDIS_URL`, `AWS_ENDPOINT_URL`, `AWS_REGION`,
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, and `AWS_SESSION_TOKEN` if the environment gave one.
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut variables = vec![("REDIS_URL".to_owned(), self.redis_url())];
        variables.extend(self.access().variables());
        variables
    }

    /// Makes the standard queues `name` and `name-dlq`, or gives the existing ones these options.
    ///
    /// # Errors
    /// When SQS refuses or cannot be reached.
    pub async fn create_queues(&self, name: &str, options: QueueOptions) -> Result<Queues, StackError> {
        queues::create_queues(&self.sqs(), name, options).await
    }

    /// Deletes both queues with all their messages.
    ///
    /// # Errors
    /// When SQS refuses or cannot be reached.
    pub async fn delete_queues(&self, queues: &Queues) -> Result<(), StackError> {
        queues::delete_queues(&self.sqs(), queues).await
    }

    /// Ends what was started.
    pub async fn stop(self) {
        if let Redis::Own(server) = self.redis {
            server.stop().await;
        }
        if let Sqs::Own(server, _) = self.sqs {
            server.stop().await;
        }
    }

    fn access(&self) -> &SqsAccess {
        match &self.sqs {
            Sqs::Given(access) | Sqs::Own(_, access) => access,
        }
    }
}

impl Redis {
    async fn start(url: Option<String>, program: Option<PathBuf>) -> Result<Redis, StackError> {
        Ok(match (url, program) {
            (Some(url), _) => Redis::Given(url),
            (None, Some(program)) => Redis::Own(RedisServer::start_with(program).await?),
            (None, None) => Redis::Own(RedisServer::start().await?),
        })
    }
}

impl Sqs {
    async fn start(access: Option<SqsAccess>, tick: Tick, services: Services) -> Result<Sqs, StackError> {
        if let Some(access) = access {
            return Ok(Sqs::Given(access));
        }
        let server = LocalStackServer::start(tick, services).await?;
        let access = SqsAccess::local(server.url());
        Ok(Sqs::Own(server, access))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use super::*;

    #[tokio::test]
    async fn delays_a_message_and_leaves_nothing_behind() {
        let options = StackOptions { servers: Servers::Own, ..StackOptions::default() };
        let stack = Stack::start(options).await.unwrap();
        let queues = stack.create_queues("a", QueueOptions::default()).await.unwrap();
        let changed = QueueOptions { visibility_timeout: Duration::from_secs(2), ..QueueOptions::default() };
        assert_eq!(stack.create_queues("a", changed).await.unwrap(), queues);
        assert!(queues.dlq_url.starts_with(stack.endpoint_url()), "{}", queues.dlq_url);

        let sqs = stack.sqs();
        let sent = Instant::now();
        sqs.send_message().queue_url(&queues.queue_url).message_body("b").delay_seconds(1).send().await.unwrap();
        let receive = sqs.receive_message().queue_url(&queues.queue_url).wait_time_seconds(5);
        let messages = receive.send().await.unwrap().messages.unwrap_or_default();
        let waited = sent.elapsed();
        assert_eq!(messages.first().and_then(|message| message.body()), Some("b"));
        assert!(waited >= Duration::from_millis(990) && waited < Duration::from_millis(1_500), "{waited:?}");

        stack.delete_queues(&queues).await.unwrap();
        let directory = match &stack.sqs {
            Sqs::Own(server, _) => server.log().parent().unwrap().to_owned(),
            Sqs::Given(_) => unreachable!(),
        };
        let address = stack.endpoint_url().trim_start_matches("http://").to_owned();
        assert!(TcpStream::connect(&address).is_ok());
        stack.stop().await;
        let limit = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(&address).is_ok() {
            assert!(Instant::now() < limit, "{address} is still open");
        }
        assert!(!directory.exists());
    }
}
