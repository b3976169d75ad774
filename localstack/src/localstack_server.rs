//! A private LocalStack that serves SQS, and CloudFormation where a test needs it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{IoContext, StackError};
use crate::install;
use crate::process::{Launch, Process};
use crate::redis_server::blocking;

const NAME: &str = "LocalStack";
const START_LIMIT: Duration = Duration::from_secs(90);

/// Added to the priority number of the process: on a small machine it must not hold up the timers of the workers.
const NICENESS: &str = "5";

/// How often LocalStack makes messages visible whose delay or visibility timeout has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tick {
    /// Every 20 ms: a delayed message is at most about 25 ms late. Pacing can be measured.
    #[default]
    Fast,
    /// LocalStack's own 1 s: a delayed message is up to 1 s late, in bursts.
    Stock,
}

impl Tick {
    fn argument(self) -> &'static str {
        match self {
            Tick::Fast => "20",
            Tick::Stock => "stock",
        }
    }
}

/// What LocalStack serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Services {
    /// SQS alone.
    #[default]
    Sqs,
    /// CloudFormation too, with what a stack of queues, roles, log groups and alarms is made of: an installation of its own.
    CloudFormation,
}

/// A private LocalStack on a free loopback port, without Docker. Dropping it kills it.
#[derive(Debug)]
pub struct LocalStackServer {
    process: Process,
    port: u16,
    directory: TempDir,
}

impl LocalStackServer {
    /// Starts LocalStack, which is installed first if it is not yet (110 MB, half a minute; with CloudFormation 140 MB).
    ///
    /// # Errors
    /// When it cannot be installed, ends while it starts, or does not answer within 90 s.
    pub async fn start(tick: Tick, services: Services) -> Result<LocalStackServer, StackError> {
        let directory =
            tempfile::Builder::new().prefix("sendslot-localstack-").tempdir().context("create in", env::temp_dir())?;
        Self::launch(tick, services, directory).await
    }

    pub(crate) async fn launch(
        tick: Tick,
        services: Services,
        directory: TempDir,
    ) -> Result<LocalStackServer, StackError> {
        let home = blocking(move || install::localstack(services)).await?;
        let mut process = Process::start(arguments(&home, directory.path(), tick, services)?)?;
        let port_file = port_file(directory.path());
        let limit = Instant::now() + START_LIMIT;
        while Instant::now() < limit {
            let port = fs::read_to_string(&port_file).ok().and_then(|text| text.parse().ok());
            if let Some(port) = port
                && answers(port).await
            {
                return Ok(LocalStackServer { process, port, directory });
            }
            if process.ended().is_some() {
                return Err(StackError::Ended { server: NAME, log: process.log_tail() });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(StackError::NotReady { server: NAME, limit: START_LIMIT, log: process.log_tail() })
    }

    /// Where it listens, as an `AWS_ENDPOINT_URL`.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// The loopback port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The file that its output goes to, until it is stopped.
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// Ends it at once: there is nothing that it could save.
    pub async fn stop(self) {
        drop(self);
    }

    pub(crate) fn into_parts(self) -> (Process, TempDir) {
        (self.process, self.directory)
    }
}

pub(crate) fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn port_file(directory: &Path) -> PathBuf {
    directory.join("port")
}

fn arguments(home: &Path, directory: &Path, tick: Tick, services: Services) -> Result<Launch, StackError> {
    let launcher = directory.join("sendslot_localstack.py");
    fs::write(&launcher, install::LAUNCHER).context("write", &launcher)?;
    let arguments: Vec<OsString> = vec![
        "-n".into(),
        NICENESS.into(),
        home.join("bin/python").into(),
        launcher.into(),
        "serve".into(),
        install::catalog(home).into(),
        port_file(directory).into(),
        tick.argument().into(),
    ];
    let environment = settings(directory, services);
    Ok(Launch { program: "nice".into(), arguments, environment, directory: directory.to_owned() })
}

/// LocalStack's settings: these services alone, nothing outside of `directory`, no network, and no work that SQS does not need.
pub(crate) fn settings(directory: &Path, services: Services) -> Vec<(&'static str, OsString)> {
    let fixed = [
        ("LANG", "C.UTF-8"),
        (
            "SERVICES",
            match services {
                Services::Sqs => "sqs",
                Services::CloudFormation => "sqs,cloudformation,cloudwatch,iam,logs,sts",
            },
        ),
        // a dashboard, for one
        ("CFN_IGNORE_UNSUPPORTED_RESOURCE_TYPES", "1"),
        ("EAGER_SERVICE_LOADING", "1"),
        ("OVERRIDE_IN_DOCKER", "0"),
        ("DNS_ADDRESS", "0"),
        ("DISABLE_EVENTS", "1"),
        ("SKIP_SSL_CERT_DOWNLOAD", "1"),
        // The queue URLs then have the address that the client used, not a public name that resolves to this machine.
        ("SQS_ENDPOINT_STRATEGY", "dynamic"),
        ("SQS_DISABLE_CLOUDWATCH_METRICS", "1"),
        ("LS_LOG", "error"),
        ("DISABLE_CORS_CHECKS", "1"),
        ("DISABLE_CORS_HEADERS", "1"),
        ("LOCALSTACK_RESPONSE_HEADER_ENABLED", "0"),
        // Each long poll holds a thread.
        ("GATEWAY_WORKER_COUNT", "256"),
    ];
    let places = [("HOME", ""), ("TMPDIR", ""), ("FILESYSTEM_ROOT", "files"), ("LOCALSTACK_VOLUME_DIR", "volume")];
    let fixed = fixed.map(|(name, value)| (name, OsString::from(value)));
    let places = places.map(|(name, place)| (name, directory.join(place).into_os_string()));
    fixed.into_iter().chain(places).collect()
}

/// Whether SQS answers on this port. Before LocalStack is ready the request waits, so the limit is short.
pub(crate) async fn answers(port: u16) -> bool {
    let request = format!(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n\
         Content-Type: application/x-amz-json-1.0\r\nContent-Length: 2\r\nAuthorization: AWS4-HMAC-SHA256 \
         Credential=test/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n{{}}"
    );
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        std::io::Result::Ok(status)
    };
    let status = tokio::time::timeout(Duration::from_secs(2), ask).await;
    status.is_ok_and(|status| status.is_ok_and(|status| status.ends_with(b" 200")))
}
