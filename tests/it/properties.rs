//! Properties of the whole calendar under a virtual clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use sendslot_shared::claim::Verdict;
use sendslot_shared::envelope::{Envelope, fresh_tag};
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::{Headroom, PATIENCE, Policy};
use sendslot_shared::settle::{Action, Ending};
use sendslot_shared::status::SendState;
use sendslot_tests::{Bench, SECOND, START, most_in_window};
use tokio::runtime::Runtime;

fn policies() -> impl Strategy<Value = Policy> {
    let headroom = prop::sample::select(vec![0.5, 0.8, 0.9, 0.95, 0.975, 0.99, 1.0, 0.8333]);
    let per_ms = prop::sample::select(vec![1000_u64, 1000, 1000, 500, 3000, 60_000]);
    let policy = (1_u32..150, headroom, per_ms).prop_map(|(limit, headroom, per_ms)| Policy {
        per: Duration::from_millis(per_ms),
        headroom: Headroom::new(headroom).unwrap(),
        horizon: Duration::from_secs(14 * 86_400),
        ..Policy::per_second(limit)
    });
    policy.prop_filter("a policy", |policy| policy.compile().is_ok())
}

/// Messages offered at one moment: after a pause, so many of a cost, perhaps not before some seconds later.
#[derive(Debug, Clone)]
struct Offer {
    pause_us: u64,
    n: usize,
    cost_part: f64,
    not_before_s: Option<u64>,
}

fn offers() -> impl Strategy<Value = Vec<Offer>> {
    let cost_part = prop_oneof![3 => Just(0.0), 1 => 0.0..0.2_f64, 1 => 0.0..1.0_f64];
    let offer = (0_u64..3_000_000, 1_usize..40, cost_part, prop::option::weighted(0.2, 0_u64..60));
    let offer = offer.prop_map(|(pause_us, n, cost_part, not_before_s)| Offer { pause_us, n, cost_part, not_before_s });
    prop::collection::vec(offer, 1..10)
}

impl Offer {
    fn drafts(&self, prefix: &str, now: u64, max_cost: u32) -> Vec<Draft> {
        let cost = 1 + (self.cost_part * f64::from(max_cost - 1)) as u32;
        (0..self.n)
            .map(|i| {
                let mut message = Message::new("b", format!("{prefix}-{i}"), "x").cost(cost);
                if let Some(s) = self.not_before_s {
                    message = message.not_before(UNIX_EPOCH + Duration::from_micros(now + s * SECOND));
                }
                message.check().unwrap()
            })
            .collect()
    }
}

/// A failure is made smaller for no longer than this.
const SHRINK_MS: u32 = 20_000;

/// Runs a property on one private Redis that is emptied before each case.
fn check<S: Strategy>(cases: u32, strategy: &S, body: impl AsyncFn(&Bench, S::Value) -> Result<(), TestCaseError>) {
    let runtime = Runtime::new().unwrap();
    let bench = runtime.block_on(Bench::start());
    let config = Config { cases, failure_persistence: None, max_shrink_time: SHRINK_MS, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let result = runner.run(strategy, |value| {
        runtime.block_on(async {
            let _: () = bench.command(redis::cmd("FLUSHALL").arg("SYNC")).await;
            bench.set_clock(START).await;
            body(&bench, value).await
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// The first of a send's places, when they are not simply its units at its slot: they stand behind the 44 bytes of its record.
async fn first_place(bench: &Bench, id: &str) -> Option<(u32, u32)> {
    let record: Vec<u8> = bench.command(redis::cmd("GET").arg(format!("s{{b}}r:{id}"))).await;
    let place = record.get(44..51)?;
    let second = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
    Some((second, u32::from_le_bytes([place[4], place[5], place[6], 0])))
}

#[test]
fn bookings_never_share_a_position_and_never_exceed_a_second() {
    check(60, &(policies(), offers()), async |bench, (policy, offers)| {
        bench.policy(&policy).await;
        let compiled = policy.compile().unwrap();
        let (num, den) = (u128::from(compiled.num), u128::from(compiled.den));
        let mut taken: BTreeMap<u128, u128> = BTreeMap::new();
        let mut sends = vec![];
        let mut now = START;
        for (i, offer) in offers.iter().enumerate() {
            now += offer.pause_us;
            bench.set_clock(now).await;
            let drafts = offer.drafts(&format!("m{i}"), now, compiled.max_cost);
            for (draft, booking) in drafts.iter().zip(bench.reserve_all(&drafts).await) {
                let booking = booking.map_err(|e| TestCaseError::fail(format!("{e}")))?;
                let (second, position) = (u128::from(booking.slot.0), u128::from(booking.slot.1));
                let first = (second * num).div_ceil(den) + position;
                prop_assert!(first * den < (second + 1) * num, "the slot lies inside its second");
                let at = (first * den * u128::from(SECOND)).div_ceil(num);
                prop_assert_eq!(u128::from(booking.at.as_micros()), at, "the instant is the slot's grid point");
                prop_assert!(booking.at.as_micros() >= now + 250_000);
                if let Some(s) = offer.not_before_s {
                    prop_assert!(booking.at.as_micros() >= now + s * SECOND);
                }
                // from its positions in front, which the record has, to its last unit
                let begins = first_place(bench, draft.id.as_str()).await;
                let begins = begins.map_or(first, |(s, p)| (u128::from(s) * num).div_ceil(den) + u128::from(p));
                prop_assert!(begins <= first && first - begins <= u128::from(draft.cost.saturating_sub(compiled.u0)));
                taken.insert(begins, first + u128::from(draft.cost));
                sends.push((booking.at.as_micros(), draft.cost));
            }
        }
        let spans: Vec<_> = taken.into_iter().collect();
        prop_assert_eq!(spans.len(), sends.len(), "no position twice");
        prop_assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "no two overlap");
        let most = most_in_window(sends, policy.per.as_micros() as u64);
        prop_assert!(most <= policy.limit, "{} of {}", most, policy.limit);
        Ok(())
    });
}

/// How late the worker asks at a slot.
#[derive(Debug, Clone, Copy)]
enum Late {
    Never,
    ByPatience,
    Up(u64),
}

/// One in each list is on time: where each claim is late beyond the patience, heavy sends in a full calendar find capacity
/// that lies idle only by chance, and go round.
fn lateness() -> impl Strategy<Value = Vec<Late>> {
    let one = prop_oneof![
        4 => Just(Late::Never),
        4 => Just(Late::ByPatience),
        2 => (0_u64..5_000_000).prop_map(Late::Up),
    ];
    prop::collection::vec(one, 1..40).prop_map(|list| [vec![Late::Never], list].concat())
}

/// How provider calls end, over and over. Only the first GIVEN_BACK attempts are given back, later ones end well: else a list
/// of nothing but such endings would never end, and each throttle moves the whole backlog.
#[derive(Debug, Clone)]
struct Endings {
    list: Vec<Ending>,
    calls: usize,
    given_back: usize,
}

const GIVEN_BACK: usize = 40;

impl Endings {
    fn next(&mut self) -> Ending {
        let ending = self.list[self.calls % self.list.len()];
        self.calls += 1;
        if !matches!(ending, Ending::Throttled | Ending::NotStarted) {
            return ending;
        }
        self.given_back += 1;
        if self.given_back <= GIVEN_BACK { ending } else { Ending::Sent }
    }
}

/// Mostly well.
fn endings() -> impl Strategy<Value = Endings> {
    let one = prop_oneof![
        12 => Just(Ending::Sent),
        1 => Just(Ending::Throttled),
        1 => Just(Ending::Unavailable),
        1 => Just(Ending::NotStarted),
    ];
    prop::collection::vec(one, 1..30).prop_map(|list| Endings { list, calls: 0, given_back: 0 })
}

/// One run: everything offered is followed through claims, sends and settles to its end.
struct Run<'a> {
    bench: &'a Bench,
    queue: BTreeMap<(u64, usize), (Envelope, u32)>,
    serial: usize,
    endings: Endings,
    sends: Vec<(u64, u32)>,
    accepted: HashMap<String, u32>,
    ended: BTreeSet<String>,
}

impl Run<'_> {
    fn put(&mut self, at: u64, copy: Envelope, nonce: u32) {
        self.serial += 1;
        self.queue.insert((at, self.serial), (copy, nonce));
    }

    /// The copy asks at `now`.
    async fn step(&mut self, now: u64, copy: Envelope, nonce: u32, late: u64) {
        self.bench.set_clock(now).await;
        match self.bench.verdict(&copy, nonce).await {
            Verdict::Wait { wait, .. } => self.put(now + wait.as_micros() as u64 + late, copy, nonce),
            Verdict::PutBack { slot, .. } => {
                let next = Envelope { seq: slot.seq, tag: fresh_tag(), at: Some(slot.at), ..copy };
                let lead = slot.wait.saturating_sub(Duration::from_secs(1));
                self.put(now + lead.as_micros() as u64, next, fresh_tag());
            }
            Verdict::Done | Verdict::Dead { .. } => {
                self.ended.insert(copy.draft.id.to_string());
            }
            Verdict::Busy { wait } => self.put(now + wait.as_micros() as u64, copy, fresh_tag()),
            Verdict::Send { delay, .. } => {
                let ending = self.endings.next();
                if ending != Ending::NotStarted {
                    self.sends.push((now + delay.as_micros() as u64, copy.draft.cost));
                }
                self.settle(now, copy, nonce, ending).await;
            }
            Verdict::Hold => panic!("the budget has a policy"),
        }
    }

    async fn settle(&mut self, now: u64, copy: Envelope, nonce: u32, ending: Ending) {
        if ending == Ending::Sent {
            *self.accepted.entry(copy.draft.id.to_string()).or_default() += 1;
        }
        let rest = (ending == Ending::Throttled).then_some(Duration::from_millis(1500));
        match self.bench.settle_with(&copy, nonce, ending, Duration::from_millis(700), rest).await {
            Action::Acknowledge | Action::Dead { .. } => {
                self.ended.insert(copy.draft.id.to_string());
            }
            Action::PutBack(slot) => {
                let next = Envelope { seq: slot.seq, tag: fresh_tag(), at: Some(slot.at), ..copy };
                let wait = slot.wait.saturating_sub(Duration::from_secs(1));
                self.put(now + wait.as_micros() as u64, next, fresh_tag());
            }
            Action::Again => self.put(now, copy, fresh_tag()),
        }
    }
}

#[test]
fn no_window_exceeds_the_limit_however_late_claims_are_and_everything_ends_once() {
    let changes = prop::collection::vec((0_usize..300, 1_u32..120), 0..4);
    let strategy = (policies(), offers(), lateness(), endings(), changes);
    check(40, &strategy, async |bench, (policy, offers, lateness, endings, changes)| {
        let window = policy.per.as_micros() as u64;
        let mut limits = vec![policy.limit];
        let mut policy = policy;
        bench.policy(&policy).await;
        let patience = PATIENCE.as_micros() as u64;
        let mut run = Run {
            bench,
            queue: BTreeMap::new(),
            serial: 0,
            endings,
            sends: vec![],
            accepted: HashMap::new(),
            ended: BTreeSet::new(),
        };
        let mut now = START;
        let mut offered = 0;
        for (i, offer) in offers.iter().enumerate() {
            now += offer.pause_us;
            bench.set_clock(now).await;
            let max_cost = policy.compile().unwrap().max_cost;
            let drafts = Offer { n: offer.n.min(25), ..offer.clone() }.drafts(&format!("m{i}"), now, max_cost);
            for (draft, booking) in drafts.iter().zip(bench.reserve_all(&drafts).await) {
                let booking = booking.map_err(|e| TestCaseError::fail(format!("{e}")))?;
                offered += 1;
                let early = booking.at.as_micros().saturating_sub(1_200_000).max(now);
                run.put(early, Envelope::first(draft.clone(), booking.seq, booking.at), fresh_tag());
            }
        }
        let mut changes: BTreeMap<usize, u32> = changes.into_iter().collect();
        let mut steps = 0;
        while let Some(((at, _), (copy, nonce))) = run.queue.pop_first() {
            now = now.max(at);
            if let Some(limit) = changes.remove(&steps) {
                bench.set_clock(now).await;
                policy = Policy { limit, max_cost: Some(150), ..policy };
                limits.push(limit);
                bench.policy(&policy).await;
            }
            let late = match lateness[steps % lateness.len()] {
                Late::Never => 0,
                Late::ByPatience => patience,
                Late::Up(us) => us,
            };
            run.step(now, copy, nonce, late).await;
            steps += 1;
            prop_assert!(steps < 20_000, "it ends");
        }
        prop_assert_eq!(run.ended.len(), offered, "everything that was accepted ends");
        prop_assert!(run.accepted.values().all(|n| *n == 1), "nothing is sent twice");
        for id in &run.ended {
            let draft = Message::new("b", id, "x").check().unwrap();
            let state = bench.status(&draft).await.unwrap().state;
            let terminal = !matches!(state, SendState::Booked | SendState::Claimed);
            prop_assert!(terminal && (state == SendState::Sent) == run.accepted.contains_key(id), "{id}: {state:?}");
        }
        // never more than the largest limit in force, or one send's cost
        let allowed = limits.into_iter().chain(run.sends.iter().map(|s| s.1)).max().unwrap_or(0);
        let most = most_in_window(run.sends, window);
        prop_assert!(most <= allowed, "{} of {}", most, allowed);
        Ok(())
    });
}
