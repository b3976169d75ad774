//! A TCP proxy that breaks connections at the worst moment.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Forwards a free loopback port to a server, until it is told to be in the way.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    faults: Arc<Faults>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Faults {
    /// So many replies to script calls are still to be swallowed.
    swallow: AtomicUsize,
    connections: AtomicUsize,
    traps: Mutex<Vec<Armed>>,
    /// Becomes true when what is held may go on, and closes when it is given up.
    held: Mutex<Option<watch::Receiver<bool>>>,
}

/// Where a request is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The server has not seen it.
    Request,
    /// The server has answered, the client has not heard it.
    Reply,
}

#[derive(Debug)]
struct Armed {
    words: Vec<String>,
    stop: Stop,
    sprung: oneshot::Sender<Held>,
}

/// Waits for one request.
#[derive(Debug)]
pub struct Trap(oneshot::Receiver<Held>);

/// A request, or its reply, that does not go on, nor does anything else at this proxy: a client that loses patience is not
/// heard on another connection. Dropped, all these connections break there.
#[derive(Debug)]
pub struct Held(watch::Sender<bool>);

impl Trap {
    /// The request that it waits for has come.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub async fn sprung(self) -> Held {
        let sprung = tokio::time::timeout(Duration::from_secs(60), self.0).await;
        sprung.expect("the request comes within a minute").expect("the proxy runs")
    }
}

impl Held {
    /// Lets it go on.
    pub fn go_on(self) {
        self.0.send_replace(true);
    }
}

impl Proxy {
    /// A proxy to a loopback port.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let own_port = listener.local_addr().expect("an address").port();
        let faults = Arc::new(Faults::default());
        let task = tokio::spawn(accept(listener, port, faults.clone()));
        Self { port: own_port, faults, task }
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The next `n` scripts run, but the connection breaks before their reply.
    pub fn swallow_script_replies(&self, n: usize) {
        self.faults.swallow.store(n, SeqCst);
    }

    /// Replies that are still to be swallowed.
    #[must_use]
    pub fn to_swallow(&self) -> usize {
        self.faults.swallow.load(SeqCst)
    }

    /// Stops the next request, once, that has all these words in it.
    #[must_use]
    pub fn stop(&self, words: &[&str], stop: Stop) -> Trap {
        let (sprung, trap) = oneshot::channel();
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        lock(&self.faults.traps).push(Armed { words, stop, sprung });
        Trap(trap)
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.faults.connections.load(SeqCst)
    }

    /// Closes the port and all connections.
    pub async fn close(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn accept(listener: TcpListener, port: u16, faults: Arc<Faults>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        faults.connections.fetch_add(1, SeqCst);
        let faults = faults.clone();
        connections.spawn(async move {
            let server = TcpStream::connect(("127.0.0.1", port)).await?;
            forward(client, server, &faults).await
        });
    }
}

/// Ends, and closes both sides, when one side does, a reply is swallowed, or what is held is given up.
async fn forward(mut client: TcpStream, mut server: TcpStream, faults: &Faults) -> std::io::Result<()> {
    let (mut request, mut reply) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut script = false;
    // what the client has said since the last reply, and who waits for the next one
    let (mut said, mut trap) = (vec![], None);
    loop {
        tokio::select! {
            read = client.read(&mut request) => match read? {
                0 => return Ok(()),
                n => {
                    said.extend_from_slice(&request[..n]);
                    // a script's text comes in more than one read
                    script = said.windows(4).any(|word| word == b"EVAL");
                    match faults.disarm(&said) {
                        Some(armed) if armed.stop == Stop::Request => faults.spring(armed),
                        armed => trap = armed.or(trap),
                    }
                    if !faults.passage().await {
                        return Ok(());
                    }
                    server.write_all(&request[..n]).await?;
                }
            },
            read = server.read(&mut reply) => match read? {
                0 => return Ok(()),
                _ if script && reply[0] != b'-' && faults.take_one() => return Ok(()),
                n => {
                    said.clear();
                    if let Some(armed) = trap.take() {
                        faults.spring(armed);
                    }
                    if !faults.passage().await {
                        return Ok(());
                    }
                    client.write_all(&reply[..n]).await?;
                }
            },
        }
    }
}

impl Faults {
    fn take_one(&self) -> bool {
        self.swallow.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    /// The trap for what was said, which is disarmed by that.
    fn disarm(&self, said: &[u8]) -> Option<Armed> {
        let has = |word: &String| said.windows(word.len()).any(|part| part == word.as_bytes());
        let mut traps = lock(&self.traps);
        traps.retain(|armed| !armed.sprung.is_closed());
        let sprung = traps.iter().position(|armed| armed.words.iter().all(has))?;
        Some(traps.swap_remove(sprung))
    }

    fn spring(&self, armed: Armed) {
        let (go_on, held) = watch::channel(false);
        if armed.sprung.send(Held(go_on)).is_ok() {
            *lock(&self.held) = Some(held);
        }
    }

    /// Waits while something is held; false: it was given up.
    async fn passage(&self) -> bool {
        let Some(mut held) = lock(&self.held).clone() else { return true };
        let goes_on = held.wait_for(|goes_on| *goes_on).await.is_ok();
        let mut current = lock(&self.held);
        if current.as_ref().is_some_and(|current| current.same_channel(&held)) {
            *current = None;
        }
        goes_on
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
