//! An HTTP proxy in front of SQS that answers errors, loses calls and replies, and delivers twice.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::http::{Wire, header};
use super::journal::Journal;
use crate::port::Port;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// It is answered with a 500, and SQS does not hear it.
    Error500,
    /// It is answered with a 503, and SQS does not hear it.
    Error503,
    /// The connection breaks, and SQS does not hear it.
    Unheard,
    /// SQS does it, and the connection breaks before the reply.
    Unanswered,
    /// A receive gets the messages once more that the last one got.
    Again,
}

/// Which calls, and how many of them.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// SQS' names of the calls.
    pub(super) calls: &'static [&'static str],
    /// The share of them, 0 to 1.
    pub(super) share: f64,
    /// What becomes of them; drawn when there is more than one.
    pub(super) how: &'static [How],
}

/// Calls that put messages on a queue.
pub(super) const SENDS: &[&str] = &["SendMessage", "SendMessageBatch"];
/// All calls that schedulers, workers and event source make.
pub(super) const ALL: &[&str] = &["SendMessage", "SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch"];

/// Forwards a free loopback port to SQS.
#[derive(Debug)]
pub(super) struct SqsProxy {
    port: Port,
    control: Arc<Control>,
}

#[derive(Debug)]
struct Control {
    rule: Mutex<Option<Rule>>,
    random: Mutex<fastrand::Rng>,
    last_receive: Mutex<Option<Vec<u8>>>,
    hit: AtomicU64,
    journal: Arc<Journal>,
}

impl SqsProxy {
    pub(super) async fn to(port: u16, seed: u64, journal: Arc<Journal>) -> Result<Self> {
        let control = Arc::new(Control {
            rule: Mutex::default(),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            last_receive: Mutex::default(),
            hit: AtomicU64::new(0),
            journal,
        });
        let told = control.clone();
        let port = Port::serve(move |client| {
            let control = told.clone();
            async move { serve(Wire::new(client), port, &control).await }
        });
        Ok(Self { port: port.await?, control })
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
    }

    /// What becomes of calls from now on; `None`: they pass.
    pub(super) fn set(&self, rule: Option<Rule>) {
        *lock(&self.control.rule) = rule;
    }

    /// Calls that met a rule.
    pub(super) fn hit(&self) -> u64 {
        self.control.hit.load(SeqCst)
    }
}

/// One call after the other, until a side ends or a rule breaks the connection.
async fn serve(mut client: Wire, port: u16, control: &Control) -> std::io::Result<()> {
    let mut server = Wire::new(TcpStream::connect(("127.0.0.1", port)).await?);
    client.stream.set_nodelay(true)?;
    server.stream.set_nodelay(true)?;
    while let Some(request) = client.message().await {
        let call = header(&request, "x-amz-target").unwrap_or_default().replace("AmazonSQS.", "");
        let how = control.draw(&call);
        if let Some(how) = how {
            control.journal.note_all(&request, &format!("sqs    {call}: {how:?}"));
        }
        let again = if how == Some(How::Again) { control.again() } else { None };
        match how {
            _ if again.is_some() => client.stream.write_all(&again.unwrap_or_default()).await?,
            Some(How::Error500) => client.stream.write_all(&error("500 Internal Server Error")).await?,
            Some(How::Error503) => client.stream.write_all(&error("503 Service Unavailable")).await?,
            Some(How::Unheard) => return Ok(()),
            _ => {
                server.stream.write_all(&request).await?;
                let Some(reply) = reply(&mut client, &mut server).await else { return Ok(()) };
                control.saw(&call, &request, &reply);
                if how == Some(How::Unanswered) {
                    return Ok(());
                }
                client.stream.write_all(&reply).await?;
            }
        }
    }
    Ok(())
}

/// SQS' reply; `None` when a side ends before.
async fn reply(client: &mut Wire, server: &mut Wire) -> Option<Vec<u8>> {
    loop {
        tokio::select! {
            reply = server.message() => return reply,
            more = client.more() => if !more { return None },
        }
    }
}

fn error(status: &str) -> Vec<u8> {
    let body = r#"{"__type":"com.amazonaws.sqs#ServiceUnavailable","message":"injected"}"#;
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {length}");
    format!("{head}\r\n\r\n{body}").into_bytes()
}

impl Control {
    fn draw(&self, call: &str) -> Option<How> {
        let rule = lock(&self.rule).clone()?;
        let mut random = lock(&self.random);
        if !rule.calls.contains(&call) || random.f64() >= rule.share {
            return None;
        }
        self.hit.fetch_add(1, SeqCst);
        random.choice(rule.how.iter().copied())
    }

    fn again(&self) -> Option<Vec<u8>> {
        let again = lock(&self.last_receive).clone()?;
        self.journal.note_all(&again, "sqs    delivered once more");
        Some(again)
    }

    fn saw(&self, call: &str, request: &[u8], reply: &[u8]) {
        match call {
            "ReceiveMessage" if reply.windows(10).any(|word| word == b"\"Messages\"") => {
                self.journal.note_all(reply, "sqs    delivered");
                *lock(&self.last_receive) = Some(reply.to_vec());
            }
            "ReceiveMessage" => {}
            _ => self.journal.note_all(request, &format!("sqs    {call}")),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
