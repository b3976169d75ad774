//! The suite that every [`Engine`] passes: one module per area, one function per sentence.

#![expect(missing_docs, reason = "the names of the cases are sentences")]

pub mod clocks;
pub mod costs;
pub mod deadlines;
pub mod history;
pub mod holes;
pub mod lanes;
pub mod pausing;
pub mod preempting;
pub mod quotas;
pub mod quoting;
pub mod rates;
pub mod rebooking;
pub mod spacing;
pub mod traces;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sendslot_shared::claim::{MoveReason, NextSlot, PutBack, Verdict};
use sendslot_shared::envelope::{Envelope, fresh_tag};
use sendslot_shared::id::LaneName;
use sendslot_shared::limits::{Lane, Share};
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::Policy;
use sendslot_shared::reserve::Booking;
use sendslot_shared::settle::{Action, Ending};

use crate::engine::Engine;
use crate::{SECOND, START, per_second};

/// The second of [`START`].
const S: u32 = (START / SECOND) as u32;

/// 80/s: positions are 12.5 ms apart, the jitter is 50 ms, u0 is 8.
fn eighty() -> Policy {
    per_second(100, 0.8)
}

fn lane(name: &str) -> Lane {
    Lane::new(LaneName::new(name).expect("a name"))
}

fn reserved(name: &str, share: f64) -> Lane {
    Lane { reserved: Share::new(share).expect("a share"), ..lane(name) }
}

fn urgent() -> Lane {
    Lane { preempts: true, ..lane("now") }
}

fn with_lanes(policy: Policy, lanes: impl IntoIterator<Item = Lane>) -> Policy {
    Policy { lanes: lanes.into_iter().collect(), ..policy }
}

fn message(id: impl Into<String>) -> Message {
    Message::new("b", id, "x")
}

fn good(message: Message) -> Draft {
    message.check().expect("a good message")
}

fn in_lane(lane: &str, id: impl Into<String>) -> Draft {
    good(message(id).lane(lane))
}

/// `n` drafts of cost 1, named by a prefix and a number.
fn drafts(prefix: &str, n: usize) -> Vec<Draft> {
    many(prefix, n, |m| m)
}

fn many(prefix: &str, n: usize, with: impl Fn(Message) -> Message) -> Vec<Draft> {
    (0..n).map(|i| good(with(message(format!("{prefix}{i}"))))).collect()
}

fn time(us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(us)
}

fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a short time")
}

fn slot_of(copy: &Envelope) -> u64 {
    copy.at.expect("a slot").as_micros()
}

/// Moves the clock to a copy's slot.
async fn go_to<E: Engine>(engine: &E, copy: &Envelope) {
    engine.set_clock(slot_of(copy)).await;
}

/// Claims a copy at its slot.
async fn claim_on_time<E: Engine>(engine: &E, copy: &Envelope, nonce: u32) -> Verdict {
    go_to(engine, copy).await;
    engine.verdict(copy, nonce).await
}

#[track_caller]
fn assert_send(verdict: Verdict) {
    assert!(matches!(verdict, Verdict::Send { .. }), "{verdict:?}");
}

/// The new slot of a send that moved at its claim, from `now`, and why.
#[track_caller]
fn moved(verdict: Verdict, now: u64) -> (u64, MoveReason) {
    match verdict {
        Verdict::Wait { wait, moved: Some(why) } => (now + us(wait), why),
        Verdict::PutBack { slot, why: PutBack::Rebooked(why) } => (slot.at.as_micros(), why),
        other => panic!("not moved: {other:?}"),
    }
}

/// The copy that a worker puts on the queue.
fn next(copy: &Envelope, slot: NextSlot) -> Envelope {
    Envelope { seq: slot.seq, tag: fresh_tag(), at: Some(slot.at), ..copy.clone() }
}

/// How many bookings each second holds.
fn per_slot_second(bookings: &[Booking]) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for booking in bookings {
        *counts.entry(booking.slot.0).or_insert(0) += 1;
    }
    counts
}

/// Workers that follow copies to their end, each asking exactly at its slot or `late` after it.
struct Crew<'a, E> {
    engine: &'a E,
    queue: BTreeMap<(u64, usize), (Envelope, u32)>,
    serial: usize,
    now: u64,
    late: u64,
    /// Instant, slot, cost and ID of each send.
    sent: Vec<(u64, (u32, u32), u32, String)>,
    moves: Vec<(String, MoveReason)>,
    dead: BTreeSet<String>,
    done: BTreeSet<String>,
}

impl<'a, E: Engine> Crew<'a, E> {
    fn new(engine: &'a E, now: u64) -> Self {
        let (sent, moves, dead, done) = (vec![], vec![], BTreeSet::new(), BTreeSet::new());
        Self { engine, queue: BTreeMap::new(), serial: 0, now, late: 0, sent, moves, dead, done }
    }

    fn put(&mut self, at: u64, copy: Envelope, nonce: u32) {
        self.serial += 1;
        self.queue.insert((at, self.serial), (copy, nonce));
    }

    /// Copies arrive at their slots; the verdict does the rest.
    fn take(&mut self, copies: impl IntoIterator<Item = Envelope>) {
        for copy in copies {
            self.put(slot_of(&copy) + self.late, copy, fresh_tag());
        }
    }

    /// Works until `until`; the clock stands there afterwards.
    async fn work(&mut self, until: u64) {
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= until) {
            let ((at, _), (copy, nonce)) = entry.remove_entry();
            self.now = self.now.max(at);
            self.engine.set_clock(self.now).await;
            self.step(copy, nonce).await;
        }
        self.now = self.now.max(until);
        self.engine.set_clock(self.now).await;
    }

    /// Works until nothing is left, 30 days at most.
    async fn finish(&mut self) {
        self.work_all(self.now + 30 * 86_400 * SECOND).await;
        assert!(self.queue.is_empty(), "everything ends");
    }

    async fn work_all(&mut self, until: u64) {
        while let Some(((at, _), _)) = self.queue.first_key_value() {
            if *at > until {
                return;
            }
            let at = *at;
            self.work(at.max(self.now)).await;
        }
    }

    async fn step(&mut self, copy: Envelope, nonce: u32) {
        match self.engine.verdict(&copy, nonce).await {
            Verdict::Send { delay, .. } => self.deliver(copy, nonce, self.now + us(delay)).await,
            Verdict::Wait { wait, moved } => {
                self.moves.extend(moved.map(|why| (copy.draft.id.to_string(), why)));
                self.put(self.now + us(wait) + self.late, copy, nonce);
            }
            Verdict::PutBack { slot, why } => {
                if let PutBack::Rebooked(why) = why {
                    self.moves.push((copy.draft.id.to_string(), why));
                }
                let early = us(slot.wait.min(Duration::from_secs(890)));
                self.put(self.now + early + self.late, next(&copy, slot), fresh_tag());
            }
            Verdict::Busy { wait } => self.put(self.now + us(wait), copy, fresh_tag()),
            Verdict::Done => _ = self.done.insert(copy.draft.id.to_string()),
            Verdict::Dead { .. } => _ = self.dead.insert(copy.draft.id.to_string()),
            Verdict::Hold => panic!("the budget has a policy"),
        }
    }

    async fn deliver(&mut self, copy: Envelope, nonce: u32, at: u64) {
        let slot = self.engine.send(&copy.draft).await.expect("a record").slot;
        self.sent.push((at, slot, copy.draft.cost, copy.draft.id.to_string()));
        assert_eq!(self.engine.settle(&copy, nonce, Ending::Sent).await, Action::Acknowledge);
    }

    /// No ID was sent twice, and no two sends stood in one position.
    #[track_caller]
    fn assert_sound(&self) {
        let ids: BTreeSet<&String> = self.sent.iter().map(|(.., id)| id).collect();
        assert_eq!(ids.len(), self.sent.len(), "no send twice");
        let mut taken = BTreeMap::new();
        for (_, (s, p), cost, id) in &self.sent {
            for q in *p..*p + *cost {
                if let Some(other) = taken.insert((*s, q), id) {
                    panic!("{other} and {id} were both sent in position {q} of second {s}");
                }
            }
        }
    }

    /// When a send left.
    #[track_caller]
    fn left(&self, id: &str) -> u64 {
        self.sent.iter().find(|(.., sent)| sent == id).unwrap_or_else(|| panic!("{id} was not sent")).0
    }
}
