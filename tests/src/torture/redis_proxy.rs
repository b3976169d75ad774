//! A TCP proxy in front of Redis, whose connections break by chance, and can be long.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

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
    /// How long each direction takes.
    way_us: AtomicU64,
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
            way_us: AtomicU64::new(0),
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

    /// A round trip takes so much longer.
    pub(super) fn far(&self, round_trip: Duration) {
        self.control.way_us.store(round_trip.as_micros() as u64 / 2, SeqCst);
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
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let swallow = AtomicBool::new(false);
    let asked = |request: &[u8]| {
        let script = request.windows(4).any(|word| word == b"EVAL");
        let heard = !(script && control.loses(&control.unheard));
        swallow.fetch_or(heard && script && control.loses(&control.unanswered), SeqCst);
        heard
    };
    let answered = |_: &[u8]| !swallow.load(SeqCst);
    tokio::select! {
        ended = carry(from_client, to_server, control, asked) => ended,
        ended = carry(from_server, to_client, control, answered) => ended,
    }
}

/// One direction, each part as late as the way is long, while `passes` says so of what is read. Others are read meanwhile, so that
/// a long way is not a narrow one.
async fn carry(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    control: &Control,
    passes: impl Fn(&[u8]) -> bool,
) -> std::io::Result<()> {
    let (leaves, mut arrives) = mpsc::unbounded_channel();
    let read = async move {
        let mut part = vec![0; 1 << 16];
        loop {
            let n = from.read(&mut part).await?;
            if n == 0 {
                return Ok(());
            }
            control.pass().await;
            if !passes(&part[..n]) {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            let _ = leaves.send((Instant::now() + control.way(), part[..n].to_vec()));
        }
    };
    let write = async {
        while let Some((due, part)) = arrives.recv().await {
            if due > Instant::now() {
                tokio::time::sleep_until(due).await;
            }
            to.write_all(&part).await?;
        }
        Ok(())
    };
    tokio::try_join!(read, write).map(drop)
}

impl Control {
    fn is(&self, way: Way) -> bool {
        self.way.load(SeqCst) == way as u8
    }

    async fn pass(&self) {
        while self.is(Way::Silent) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn way(&self) -> Duration {
        Duration::from_micros(self.way_us.load(SeqCst))
    }

    fn loses(&self, share: &AtomicU32) -> bool {
        let share = share.load(SeqCst);
        let lost = share > 0 && self.random.lock().unwrap_or_else(PoisonError::into_inner).u32(0..1000) < share;
        self.broken.fetch_add(lost.into(), SeqCst);
        lost
    }
}
