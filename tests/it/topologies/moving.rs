//! Slots that move between nodes while their budgets are in use.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::SystemTime;

use futures_util::future::join_all;
use sendslot_shared::cancel::cancel;

use super::cluster::Rig;
use super::*;

/// A slot on its way from one node to another.
struct Move<'a> {
    rig: &'a Rig,
    slot: u16,
    from: usize,
    to: usize,
}

impl<'a> Move<'a> {
    /// Says that the slot is about to move; all keys are where they were.
    async fn begin(rig: &'a Rig, budget: &str, from: usize, to: usize) -> Self {
        let nodes = rig.cluster.nodes();
        let slot = on(&nodes[0], redis::cmd("CLUSTER").arg("KEYSLOT").arg(format!("s{{{budget}}}cal"))).await;
        let this = Self { rig, slot, from, to };
        this.set(to, "IMPORTING", from).await;
        this.set(from, "MIGRATING", to).await;
        this
    }

    async fn set(&self, on_node: usize, state: &str, other: usize) {
        let nodes = self.rig.cluster.nodes();
        let id: String = on(&nodes[other], redis::cmd("CLUSTER").arg("MYID")).await;
        let () = on(&nodes[on_node], redis::cmd("CLUSTER").arg("SETSLOT").arg(self.slot).arg(state).arg(id)).await;
    }

    /// Moves up to `n` keys; tells whether any were left.
    async fn keys(&self, n: usize) -> bool {
        let nodes = self.rig.cluster.nodes();
        let keys: Vec<Vec<u8>> =
            on(&nodes[self.from], redis::cmd("CLUSTER").arg("GETKEYSINSLOT").arg(self.slot).arg(n)).await;
        if keys.is_empty() {
            return false;
        }
        let port = nodes[self.to].port();
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(port).arg("").arg(0).arg(5000).arg("KEYS").arg(&keys);
        let _: redis::Value = on(&nodes[self.from], &mut migrate).await;
        true
    }

    /// All keys are there: so is the slot.
    async fn end(self) {
        for node in [self.to, self.from, 3 - self.to - self.from] {
            self.set(node, "NODE", self.to).await;
        }
    }

    /// The strings in the slot, wherever they are.
    async fn contents(&self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut all = vec![];
        for node in self.rig.cluster.nodes() {
            let client = redis::Client::open(node.url()).expect("a URL");
            let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
            let keys: Vec<Vec<u8>> =
                on(node, redis::cmd("CLUSTER").arg("GETKEYSINSLOT").arg(self.slot).arg(1000)).await;
            for key in keys {
                let mut get = redis::pipe();
                get.cmd("ASKING").ignore().cmd("GET").arg(&key);
                let value: redis::RedisResult<(Option<Vec<u8>>,)> = get.query_async(&mut connection).await;
                all.push((key, value.ok().and_then(|(value,)| value)));
            }
        }
        all.sort();
        all
    }
}

#[track_caller]
fn assert_temporary<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let error = answer.unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("TryAgain"), "{error}");
}

#[tokio::test]
async fn a_script_never_stops_half_way_in_a_slot_that_moves() {
    for program in programs().await {
        let rig = Rig::start(program, &[]).await;
        let (from, to) = (1, 2);
        let of = rig.budget_on(from).await;
        let drafts: Vec<Draft> = (0..8).map(|i| draft(&of, format!("m{i}"))).collect();
        let mut copies = vec![];
        for draft in &drafts {
            copies.push(copy(&rig.store, draft.clone()).await);
        }
        let moving = Move::begin(&rig, &of, from, to).await;
        let before = moving.contents().await;
        // before the first key has left, in between, and when all have
        for left in ["none", "some", "all"] {
            assert_temporary(book(&rig.store, &draft(&of, "new")).await);
            assert_temporary(book(&rig.store, &drafts[0]).await);
            assert_temporary(cancel(&rig.store, &name(&of), &drafts[1].id).await);
            assert_temporary(claim::claim(&rig.store, question(&copies[2], 1)).await);
            assert_temporary(settle_sent(&rig.store, &copies[3], 1).await);
            assert_temporary(budget::pause(&rig.store, &name(&of), Some(Duration::from_secs(60))).await);
            let refused = budget::set(&rig.store, &name(&of), &per_second(50, 0.8)).await;
            assert!(matches!(refused, Err(budget::BudgetError::Store(error)) if error.is_temporary()));
            assert!(budget::get(&rig.store, &name(&of)).await.unwrap().is_some(), "one key is found wherever it is");
            assert_eq!(moving.contents().await, before, "{left} of the keys have left");
            match left {
                "none" => assert!(moving.keys(3).await),
                _ => while moving.keys(100).await {},
            }
        }
        moving.end().await;
        assert!(book(&rig.store, &drafts[0]).await.unwrap().existing);
        assert!(!book(&rig.store, &draft(&of, "new")).await.unwrap().existing);
        assert_eq!(rig.keys_on(to, &of).await, before.len() + 1, "on the new node");
    }
}

#[tokio::test]
async fn a_slot_that_moves_while_bookings_run_loses_none_and_gives_no_position_twice() {
    let rig = Rig::preferred(&[]).await;
    let of = rig.budget_on(0).await;
    // four a second, ten minutes from now on: all stand in one row without gaps
    set(&rig.store, &of, &per_second(5, 0.8)).await;
    let start = SystemTime::now() + Duration::from_secs(600);
    let draft = |id: String| Message::new(&of, id, "payload").not_before(start).check().unwrap();
    let (moved, bookings) = (AtomicBool::new(false), AtomicUsize::new(0));
    let book_all = async |task: usize| {
        let mut booked = vec![];
        while !moved.load(SeqCst) {
            let draft = draft(format!("{task}-{}", booked.len()));
            let booking = until("it is booked", async || match book(&rig.store, &draft).await {
                Ok(booking) => Some(booking),
                Err(error) => {
                    assert!(error.is_temporary(), "{error:?}");
                    None
                }
            });
            let slot = booking.await.slot;
            booked.push((draft, slot));
            bookings.fetch_add(1, SeqCst);
        }
        booked
    };
    let moves = async {
        let probe = draft("probe".to_owned());
        for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1)] {
            let more = bookings.load(SeqCst) + 100;
            until("bookings go on", async || (bookings.load(SeqCst) >= more).then_some(())).await;
            let moving = Move::begin(&rig, &of, from, to).await;
            assert!(moving.keys(20).await);
            assert_temporary(book(&rig.store, &probe).await);
            while moving.keys(20).await {}
            assert_temporary(book(&rig.store, &probe).await);
            moving.end().await;
            until("it is served again", async || book(&rig.store, &probe).await.ok()).await;
        }
        moved.store(true, SeqCst);
    };
    let (booked, ()) = tokio::join!(join_all((0..8).map(book_all)), moves);
    let mut slots = BTreeSet::from([book(&rig.store, &draft("probe".to_owned())).await.unwrap().slot]);
    let booked = booked.concat();
    for (draft, slot) in &booked {
        let booking = book(&rig.store, draft).await.unwrap();
        assert!(booking.existing && booking.seq == 1 && booking.slot == *slot, "nothing lost: {booking:?}");
        assert!(slots.insert(*slot), "{slot:?} was given twice");
    }
    let slots: Vec<(u32, u32)> = slots.into_iter().collect();
    for pair in slots.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        assert!(b == (a.0, a.1 + 1) || (a.1 == 3 && b == (a.0 + 1, 0)), "a position was lost between {a:?} and {b:?}");
    }
}
