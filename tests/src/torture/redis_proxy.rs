//! A TCP proxy in front of Redis, whose connections break by chance.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::port::Port;

/// What becomes of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Way {
    /// They are forwarded.
    Open,
    /// They are closed at once, those that stand too.
    Closed,
    /// They are kept, and nothing passes.
    Silent,
}

/// Forwards a free loopback port to another one, as it is told.
#[derive(Debug)]
pub(super) struct RedisProxy {
    port: Port,
    control: Arc<Control>,
}

#[derive(Debug)]
struct Control {
    way: AtomicU8,
    /// Raised to close all connections.
    epoch: watch::Sender<u64>,
    /// Of 1,000 script calls so many never reach the server, and of so many the reply does not come back.
    unheard: AtomicU32,
    unanswered: AtomicU32,
    broken: AtomicU64,
    random: Mutex<fastrand::Rng>,
}

impl RedisProxy {
    pub(super) async fn to(port: u16, seed: u64) -> Result<Self> {
        let control = Arc::new(Control {
            way: AtomicU8::new(Way::Open as u8),
            epoch: watch::Sender::new(0),
            unheard: AtomicU32::new(0),
            unanswered: AtomicU32::new(0),
            broken: AtomicU64::new(0),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
        });
        let told = control.clone();
        let port = Port::serve(move |client| {
            let (control, mut epoch) = (told.clone(), told.epoch.subscribe());
            async move {
                if !control.is(Way::Closed) {
                    tokio::select! {
                        _ = epoch.changed() => {}
                        _ = forward(client, port, &control) => {}
                    }
                }
            }
        });
        Ok(Self { port: port.await?, control })
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port.number())
    }

    pub(super) fn set(&self, way: Way) {
        self.control.way.store(way as u8, SeqCst);
        if way == Way::Closed {
            self.control.epoch.send_modify(|epoch| *epoch += 1);
        }
    }

    /// Of 1,000 script calls `unheard` never reach Redis, and of `unanswered` the reply is lost. Both break the connection.
    pub(super) fn lose(&self, unheard: u32, unanswered: u32) {
        self.control.unheard.store(unheard, SeqCst);
        self.control.unanswered.store(unanswered, SeqCst);
    }

    /// Calls that were lost in either way.
    pub(super) fn broken(&self) -> u64 {
        self.control.broken.load(SeqCst)
    }
}

/// Ends, and closes both sides, when one side does or chance says so.
async fn forward(mut client: TcpStream, port: u16, control: &Control) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut request, mut reply) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut swallow = false;
    loop {
        tokio::select! {
            read = client.read(&mut request) => match read? {
                0 => return Ok(()),
                n => {
                    control.pass().await;
                    let script = request[..n].windows(4).any(|word| word == b"EVAL");
                    if script && control.loses(&control.unheard) {
                        return Ok(());
                    }
                    swallow |= script && control.loses(&control.unanswered);
                    server.write_all(&request[..n]).await?;
                }
            },
            read = server.read(&mut reply) => match read? {
                0 => return Ok(()),
                _ if swallow => return Ok(()),
                n => {
                    control.pass().await;
                    client.write_all(&reply[..n]).await?;
                }
            },
        }
    }
}

impl Control {
    fn is(&self, way: Way) -> bool {
        self.way.load(SeqCst) == way as u8
    }

    async fn pass(&self) {
        while self.is(Way::Silent) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    fn loses(&self, share: &AtomicU32) -> bool {
        let share = share.load(SeqCst);
        let lost = share > 0 && self.random.lock().unwrap_or_else(PoisonError::into_inner).u32(0..1000) < share;
        self.broken.fetch_add(lost.into(), SeqCst);
        lost
    }
}
