//! A TCP proxy that breaks connections at the worst moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
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

/// Ends, and closes both sides, when one side does or a reply is swallowed.
async fn forward(mut client: TcpStream, mut server: TcpStream, faults: &Faults) -> std::io::Result<()> {
    let (mut request, mut reply) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut script = false;
    loop {
        tokio::select! {
            read = client.read(&mut request) => match read? {
                0 => return Ok(()),
                n => {
                    script = request[..n].windows(4).any(|word| word == b"EVAL");
                    server.write_all(&request[..n]).await?;
                }
            },
            read = server.read(&mut reply) => match read? {
                0 => return Ok(()),
                _ if script && reply[0] != b'-' && faults.take_one() => return Ok(()),
                n => client.write_all(&reply[..n]).await?,
            },
        }
    }
}

impl Faults {
    fn take_one(&self) -> bool {
        self.swallow.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}
