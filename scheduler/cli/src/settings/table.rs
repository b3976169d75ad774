//! The table of settings.

use std::time::Duration;

use sendslot_http::Coalescing;
use sendslot_http::config::Limits;

use super::{Kind, Setting};

/// What most rows of `[serve]` have in common: seconds.
const SERVE: Setting = Setting {
    name: "",
    variable: "",
    flag: "",
    value: "SECONDS",
    kind: Kind::Seconds,
    default: None,
    command: Some("serve"),
    what: "",
    give: "seconds, above 0 and at most 86,400",
    secret: false,
};

fn seconds(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

/// All settings.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "redis_url",
        variable: "REDIS_URL",
        flag: "redis-url",
        value: "URL",
        kind: Kind::Text,
        default: None,
        command: None,
        what: "Redis: one server, a cluster or a primary behind Sentinel; rediss for TLS",
        give: "redis://host:port, or run `sendslot local up` first",
        secret: true,
    },
    Setting {
        name: "queue_url",
        variable: "SENDSLOT_QUEUE_URL",
        flag: "queue-url",
        value: "URL",
        kind: Kind::Text,
        default: None,
        command: None,
        what: "The SQS queue that workers are fed from",
        give: "the URL of a standard SQS queue",
        secret: false,
    },
    Setting {
        name: "dlq_url",
        variable: "SENDSLOT_DLQ_URL",
        flag: "dlq-url",
        value: "URL",
        kind: Kind::Text,
        default: None,
        command: None,
        what: "The SQS queue where sends end that cannot be made",
        give: "the URL of the dead-letter queue",
        secret: false,
    },
    Setting {
        name: "receipts_queue_url",
        variable: "SENDSLOT_RECEIPTS_QUEUE_URL",
        flag: "receipts-queue-url",
        value: "URL",
        kind: Kind::Text,
        default: None,
        command: None,
        what: "The SQS queue that keeps what providers say became of sends",
        give: "the URL of the queue that `sendslot serve` puts receipts on",
        secret: false,
    },
    Setting {
        name: "metrics_listen",
        variable: "SENDSLOT_METRICS_LISTEN",
        flag: "metrics-listen",
        value: "HOST:PORT",
        kind: Kind::Text,
        default: None,
        command: Some("receipts"),
        what: "Where `receipts` serves its metrics to Prometheus, at /metrics; port 0 takes a free one",
        give: "an address and a port, such as 127.0.0.1:9464",
        secret: false,
    },
    Setting {
        name: "redis_policy",
        variable: "SENDSLOT_REDIS_POLICY",
        flag: "redis-policy",
        value: "POLICY",
        kind: Kind::Text,
        default: Some(|| "hold".to_owned()),
        command: None,
        what: "What becomes of sends while Redis cannot be asked; the same as the workers'",
        give: "hold, local:5 or codes=local:5,sendgrid/news=hold",
        secret: false,
    },
    Setting {
        name: "policy_file",
        variable: "SENDSLOT_POLICY_FILE",
        flag: "policy-file",
        value: "FILE",
        kind: Kind::Path,
        default: None,
        command: None,
        what: "Policies, as `sendslot budget get --json` prints them, for budgets that Redis has lost",
        give: "a file of policies",
        secret: false,
    },
    Setting {
        name: "function",
        variable: "SENDSLOT_FUNCTION",
        flag: "function",
        value: "NAME",
        kind: Kind::Text,
        default: None,
        command: Some("doctor"),
        what: "The worker's Lambda function, to check it and its mapping",
        give: "the function's name or ARN",
        secret: false,
    },
    Setting {
        name: "log",
        variable: "RUST_LOG",
        flag: "log",
        value: "LEVEL",
        kind: Kind::Text,
        default: Some(|| "warn".to_owned()),
        command: None,
        what: "What is logged on standard error",
        give: "error, warn, info, debug or trace",
        secret: false,
    },
    Setting {
        name: "serve.listen",
        variable: "SENDSLOT_LISTEN",
        flag: "listen",
        value: "ADDRESS:PORT",
        kind: Kind::Text,
        default: Some(|| "127.0.0.1:8080".to_owned()),
        command: Some("serve"),
        what: "Where `serve` listens; port 0 takes a free one",
        give: "an address and a port, such as 127.0.0.1:8080",
        secret: false,
    },
    Setting {
        name: "serve.no_auth",
        variable: "SENDSLOT_NO_AUTH",
        flag: "no-auth",
        value: "BOOLEAN",
        kind: Kind::Switch,
        default: Some(|| "false".to_owned()),
        command: Some("serve"),
        what: "`serve` does without API keys on an address that others reach: whoever reaches it may do everything",
        give: "true or false",
        secret: false,
    },
    Setting {
        name: "serve.max_requests",
        variable: "SENDSLOT_SERVE_MAX_REQUESTS",
        flag: "max-requests",
        value: "NUMBER",
        kind: Kind::Number,
        default: Some(|| Limits::default().requests.to_string()),
        what: "Requests that `serve` has in hand at once; more are refused with 503",
        give: "a whole number of requests",
        ..SERVE
    },
    Setting {
        name: "serve.max_body_memory_mib",
        variable: "SENDSLOT_SERVE_MAX_BODY_MEMORY_MIB",
        flag: "max-body-memory-mib",
        value: "MIB",
        kind: Kind::Number,
        default: Some(|| Limits::default().body_memory_mib.to_string()),
        what: "Request bodies that `serve` has in memory at once, in MiB, at least 16; what does not fit is refused with 503",
        give: "a whole number of MiB",
        ..SERVE
    },
    Setting {
        name: "serve.header_timeout_s",
        variable: "SENDSLOT_SERVE_HEADER_TIMEOUT_S",
        flag: "header-timeout-s",
        default: Some(|| seconds(Limits::default().header_timeout)),
        what: "How long a connection to `serve` may take to send a request's head, idle time included",
        ..SERVE
    },
    Setting {
        name: "serve.body_timeout_s",
        variable: "SENDSLOT_SERVE_BODY_TIMEOUT_S",
        flag: "body-timeout-s",
        default: Some(|| seconds(Limits::default().body_timeout)),
        what: "How long a request's body may take to arrive at `serve`",
        ..SERVE
    },
    Setting {
        name: "serve.request_timeout_s",
        variable: "SENDSLOT_SERVE_REQUEST_TIMEOUT_S",
        flag: "request-timeout-s",
        default: Some(|| seconds(Limits::default().request_timeout)),
        what: "How long a request to `serve` may take in all",
        ..SERVE
    },
    Setting {
        name: "serve.drain_s",
        variable: "SENDSLOT_SERVE_DRAIN_S",
        flag: "drain-s",
        default: Some(|| seconds(Limits::default().drain)),
        what: "How long `serve`, told to stop, still accepts requests while /readyz says that it is not ready",
        give: "seconds, at most 86,400",
        ..SERVE
    },
    Setting {
        name: "serve.shutdown_timeout_s",
        variable: "SENDSLOT_SERVE_SHUTDOWN_TIMEOUT_S",
        flag: "shutdown-timeout-s",
        default: Some(|| seconds(Limits::default().shutdown_timeout)),
        what: "How long requests may take that `serve` has in hand when it accepts no more",
        ..SERVE
    },
    Setting {
        name: "serve.linger_ms",
        variable: "SENDSLOT_SERVE_LINGER_MS",
        flag: "linger-ms",
        value: "MS",
        kind: Kind::Number,
        default: Some(|| Coalescing::default().linger.as_millis().to_string()),
        what: "How long a single send waits in `serve` for others to share its calls",
        give: "whole milliseconds, at most 65,535",
        ..SERVE
    },
];
