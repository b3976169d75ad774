//! What Redis writes, seen by MONITOR: the instant of each claim, and every change of a send's record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, ensure};
use sendslot_lua::VIRTUAL_CLOCK_KEY;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::evidence::LEASE_US;
use super::journal::Journal;

/// A claim that said `send` and was not given back: one that was is no call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    /// When it was written, by the clock of Redis' machine.
    pub(super) at_us: u64,
    /// The instant of the call that it allows, which is what the guard counts: a while after it was written, when the guard let
    /// the send pass a little later.
    pub(super) call_us: u64,
    pub(super) id: String,
    pub(super) units: u32,
    pub(super) nonce: u32,
}

/// Claims, ends, and how often each send was booked.
#[derive(Debug, Default)]
struct Seen {
    claims: Vec<Claim>,
    sent: Vec<(String, u64)>,
    bookings: HashMap<String, u64>,
    /// Claims that were given back, or decided anew.
    given_back: u64,
    /// The records that are claimed now, as they were written.
    claimed: HashMap<String, Record>,
    /// So far Redis' clock is set forward, us.
    clock_us: i64,
}

impl Seen {
    fn wrote(&mut self, at_us: u64, id: String, record: Record) {
        let before = self.claimed.remove(&id);
        // a claim is decided anew when its reply was lost, or when it was given back
        let anew = |claim: &Record| record.state == "claimed" && claim.nonce == record.nonce;
        if let Some(claim) = before.as_ref().filter(|claim| claim.is_given_back(&record) || anew(claim))
            && let Some(place) = self.claims.iter().rposition(|seen| seen.id == id && seen.nonce == claim.nonce)
        {
            self.claims.remove(place);
            self.given_back += 1;
        }
        match record.state {
            "booked" => {
                // at its place again: it did not move
                let stays = before.is_some_and(|claim| claim.is_given_back(&record) && claim.slot == record.slot);
                if !stays {
                    *self.bookings.entry(id).or_default() += 1;
                }
            }
            "sent" => self.sent.push((id, at_us)),
            "claimed" => {
                let call_us = record.call_us(at_us, self.clock_us);
                self.claims.push(Claim { at_us, call_us, id: id.clone(), units: record.units, nonce: record.nonce });
                self.claimed.insert(id, record);
            }
            _ => {}
        }
    }

    /// Redis has other data now: what it writes next says nothing about what it wrote before.
    fn forget(&mut self) {
        self.claimed.clear();
    }
}

/// Watches a server until it dies; then it is attached to the next one.
#[derive(Debug)]
pub(super) struct Monitor {
    seen: Arc<Mutex<Seen>>,
    journal: Arc<Journal>,
    task: Option<JoinHandle<()>>,
}

impl Monitor {
    pub(super) fn new(journal: Arc<Journal>) -> Self {
        Self { seen: Arc::default(), journal, task: None }
    }

    /// Returns when the server tells all that follows.
    pub(super) async fn attach(&mut self, port: u16) -> Result<()> {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?);
        stream.write_all(b"MONITOR\r\n").await?;
        let mut line = vec![];
        stream.read_until(b'\n', &mut line).await?;
        ensure!(line == b"+OK\r\n", "MONITOR: {}", String::from_utf8_lossy(&line));
        if let Some(task) = self.task.take() {
            // it ends by itself, with the server that it watches
            task.await.context("the monitor")?;
        }
        lock(&self.seen).forget();
        self.task = Some(tokio::spawn(watch(stream, self.seen.clone(), self.journal.clone())));
        Ok(())
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        lock(&self.seen).claims.clone()
    }

    /// How many claims were given back, or decided anew.
    pub(super) fn given_back(&self) -> u64 {
        lock(&self.seen).given_back
    }

    /// When sends were recorded as sent.
    pub(super) fn sent(&self) -> Vec<(String, u64)> {
        lock(&self.seen).sent.clone()
    }

    /// How many sends were booked more than once, and how often in all, their first bookings not counted.
    pub(super) fn moves(&self) -> (u64, u64) {
        let seen = lock(&self.seen);
        let moves = || seen.bookings.values().map(|times| times - 1).filter(|moves| *moves > 0);
        (moves().count() as u64, moves().sum())
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn watch(mut stream: BufReader<TcpStream>, seen: Arc<Mutex<Seen>>, journal: Arc<Journal>) {
    let mut line = vec![];
    while matches!(stream.read_until(b'\n', &mut line).await, Ok(1..)) {
        if let Some((at_us, words)) = read(&line) {
            if let Some((id, record)) = record_write(&words) {
                journal.note_at(&id, at_us, format!("redis  {record:?}"));
                lock(&seen).wrote(at_us, id, record);
            } else if let Some(clock_us) = clock_write(&words) {
                lock(&seen).clock_us = clock_us;
            } else if words.first().is_some_and(|verb| verb.eq_ignore_ascii_case(b"FLUSHALL")) {
                lock(&seen).forget();
            }
        }
        line.clear();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A record as it is written: RECORD of head.lua.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    state: &'static str,
    seq: u32,
    attempts: u32,
    throttles: u32,
    units: u32,
    slot: (u32, u32),
    /// While it is claimed: the lease's end, ms by Redis' clock.
    time_ms: u64,
    nonce: u32,
}

impl Record {
    /// Whether this claim's next record says that nothing was called: its attempt does not count, and it is not a throttled one.
    fn is_given_back(&self, next: &Self) -> bool {
        next.attempts < self.attempts && next.throttles == self.throttles
    }

    /// The instant of a claim's call, by the clock of Redis' machine: the lease counts from it. A call that is to be made at once has
    /// it rounded up to a whole millisecond; one that is made later is at least a millisecond later.
    fn call_us(&self, written_us: u64, clock_us: i64) -> u64 {
        let called = (self.time_ms * 1000).saturating_sub(LEASE_US).saturating_add_signed(-clock_us);
        if called >= written_us + 1000 { called } else { written_us }
    }
}

/// `SET sendslot:clock <us>`: Redis' clock is set forward or back.
fn clock_write(words: &[Vec<u8>]) -> Option<i64> {
    match words {
        [verb, key, us] if verb == b"SET" && key == VIRTUAL_CLOCK_KEY.as_bytes() => {
            std::str::from_utf8(us).ok()?.parse().ok()
        }
        _ => None,
    }
}

/// `SET s{budget}r:<id> <record> …`, and the SETRANGE of a settled one.
fn record_write(words: &[Vec<u8>]) -> Option<(String, Record)> {
    let [verb, key, rest @ ..] = words else { return None };
    let key = String::from_utf8_lossy(key);
    let (_, id) = key.split_once("}r:")?;
    let bytes = match verb.as_slice() {
        b"SET" => rest.first()?,
        b"SETRANGE" => rest.get(1)?,
        _ => return None,
    };
    let number = |from: usize, to: usize| {
        let bytes = bytes.get(from..to).unwrap_or_default();
        bytes.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte))
    };
    let small = |from: usize, to: usize| number(from, to) as u32;
    let states = ["none", "booked", "claimed", "sent", "cancelled", "failed", "expired", "unknown"];
    let record = Record {
        state: states.get(usize::from(bytes.first()? % 16))?,
        seq: small(4, 6),
        attempts: small(2, 3),
        throttles: small(3, 4),
        units: small(8, 11),
        slot: (small(11, 15), small(15, 18)),
        time_ms: number(22, 28),
        nonce: small(28, 32),
    };
    Some((id.to_owned(), record))
}

/// `+1700000000.123456 [0 lua] "SET" "key" …`: the instant in us and the words.
fn read(line: &[u8]) -> Option<(u64, Vec<Vec<u8>>)> {
    let text = line.strip_prefix(b"+")?;
    let space = text.iter().position(|byte| *byte == b' ')?;
    let (seconds, micros) = std::str::from_utf8(&text[..space]).ok()?.split_once('.')?;
    let at_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    let mut rest = &text[text.windows(2).position(|end| end == b"] ")? + 2..];
    let mut words = vec![];
    while let [b'"', word @ ..] = rest {
        let mut out = vec![];
        let mut at = 0;
        loop {
            match *word.get(at)? {
                b'"' => break,
                b'\\' => at += escaped(&word[at + 1..], &mut out)? + 1,
                byte => {
                    out.push(byte);
                    at += 1;
                }
            }
        }
        words.push(out);
        rest = word.get(at + 2..).unwrap_or_default();
    }
    Some((at_us, words))
}

/// What stands behind a backslash; how many bytes it takes.
fn escaped(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let (byte, taken) = match *text.first()? {
        b'x' => (u8::from_str_radix(std::str::from_utf8(text.get(1..3)?).ok()?, 16).ok()?, 3),
        b'n' => (b'\n', 1),
        b'r' => (b'\r', 1),
        b't' => (b'\t', 1),
        b'a' => (7, 1),
        b'b' => (8, 1),
        other => (other, 1),
    };
    out.push(byte);
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_read_from_what_monitor_prints() {
        let (head, slot) = (r"\x02\x00\x01\x00\x03\x00\x00\x00\x05\x00\x00", r"\x01\x00\x00\x00\x07\x00\x00");
        let (epoch_and_time, nonce) = (r"\x00".repeat(10), r#"\"\\\n\xff"#);
        let record = format!("{head}{slot}{epoch_and_time}{nonce}");
        let line =
            format!("+1700000000.000042 [0 lua] \"SET\" \"s{{tt-a}}r:tt-a-000123\" \"{record}\" \"KEEPTTL\"\r\n");
        let (at_us, words) = read(line.as_bytes()).unwrap();
        assert_eq!((at_us, words.len()), (1_700_000_000_000_042, 4));
        let (id, record) = record_write(&words).unwrap();
        assert_eq!((id.as_str(), record.state, record.seq, record.units), ("tt-a-000123", "claimed", 3, 5));
        assert_eq!((record.slot, record.nonce), ((1, 7), 0xff0a_5c22));
        assert_eq!(read(b"+OK\r\n"), None);
    }

    const AT: u64 = 1_700_000_000_000_300;

    fn record(state: &'static str, attempts: u32, throttles: u32, call_us: u64) -> Record {
        let time_ms = (call_us + LEASE_US).div_ceil(1000);
        Record { state, seq: 1, attempts, throttles, units: 1, slot: (1, 7), time_ms, nonce: 9 }
    }

    fn wrote(records: &[Record]) -> Seen {
        let mut seen = Seen::default();
        for (record, at_us) in records.iter().zip((AT..).step_by(500_000)) {
            seen.wrote(at_us, "tt-a-000123".to_owned(), record.clone());
        }
        seen
    }

    #[test]
    fn a_claim_is_for_the_instant_of_its_call() {
        for (call_us, clock_us, told_us) in
            [(AT, 0, AT), (AT + 199_700, 0, AT + 199_700), (AT + 201_700, 2000, AT + 199_700)]
        {
            let record = record("claimed", 1, 0, call_us);
            let mut seen = Seen { clock_us, ..Seen::default() };
            seen.wrote(AT, "tt-a-000123".to_owned(), record);
            assert_eq!((seen.claims[0].at_us, seen.claims[0].call_us), (AT, told_us), "{call_us} {clock_us}");
        }
        let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(clock_write(&words(&["SET", VIRTUAL_CLOCK_KEY, "-300000"])), Some(-300_000));
        assert_eq!(clock_write(&words(&["SET", "other", "1"])), None);
    }

    #[test]
    fn a_claim_that_was_given_back_or_decided_anew_is_no_call() {
        let claimed = record("claimed", 1, 0, AT);
        let given_back = wrote(&[record("booked", 0, 0, 0), claimed.clone(), record("booked", 0, 0, 0)]);
        assert_eq!((given_back.claims.len(), given_back.bookings["tt-a-000123"]), (0, 1));
        for next in
            [record("booked", 1, 0, 0), record("booked", 0, 1, 0), record("sent", 1, 0, 0), record("unknown", 1, 0, 0)]
        {
            assert_eq!(wrote(&[claimed.clone(), next.clone()]).claims.len(), 1, "{next:?}");
        }
        let elsewhere = Record { slot: (9, 0), ..record("booked", 0, 0, 0) };
        let moved = wrote(&[claimed.clone(), elsewhere]);
        assert_eq!((moved.claims.len(), moved.bookings["tt-a-000123"]), (0, 1));
        let anew = wrote(&[claimed.clone(), record("claimed", 1, 0, AT + 700_000)]);
        assert_eq!(anew.claims.iter().map(|claim| claim.at_us).collect::<Vec<_>>(), [AT + 500_000]);
        let other = Record { nonce: 10, ..claimed.clone() };
        assert_eq!(wrote(&[claimed.clone(), record("booked", 1, 0, 0), other]).claims.len(), 2);
        let mut rewound = wrote(&[claimed]);
        rewound.forget();
        rewound.wrote(AT, "tt-a-000123".to_owned(), record("booked", 0, 0, 0));
        assert_eq!(rewound.claims.len(), 1);
    }
}
