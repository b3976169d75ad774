//! What Redis writes, seen by MONITOR: the instant of each claim, and every change of a send's record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::journal::Journal;

/// A claim that said `send`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    /// By Redis' clock.
    pub(super) at_us: u64,
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
        self.task = Some(tokio::spawn(watch(stream, self.seen.clone(), self.journal.clone())));
        Ok(())
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        lock(&self.seen).claims.clone()
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
        if let Some((at_us, words)) = read(&line)
            && let Some((id, record)) = record_write(&words)
        {
            journal.note_at(&id, at_us, format!("redis  {record:?}"));
            let mut seen = lock(&seen);
            if record.state == "booked" {
                *seen.bookings.entry(id).or_default() += 1;
            } else if record.state == "sent" {
                seen.sent.push((id, at_us));
            } else if record.state == "claimed" {
                let claim = Claim { at_us, id, units: record.units, nonce: record.nonce };
                // a claim is asked for again when its reply was lost
                if !seen.claims.iter().rev().take(1000).any(|c| c.id == claim.id && c.nonce == claim.nonce) {
                    seen.claims.push(claim);
                }
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
    units: u32,
    slot: (u32, u32),
    nonce: u32,
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
        bytes.iter().rev().fold(0u32, |n, byte| n << 8 | u32::from(*byte))
    };
    let states = ["none", "booked", "claimed", "sent", "cancelled", "failed", "expired", "unknown"];
    let record = Record {
        state: states.get(usize::from(bytes.first()? % 16))?,
        seq: number(4, 6),
        attempts: number(2, 3),
        units: number(8, 11),
        slot: (number(11, 15), number(15, 18)),
        nonce: number(28, 32),
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
}
