//! A cluster of three nodes.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use sendslot_shared::cancel::{Cancelled, cancel};
use sendslot_shared::id::LaneName;
use sendslot_shared::limits::{Lane, Quota, Share};
use sendslot_shared::quote::{QuoteRequest, quote};
use sendslot_shared::status::SendState;

use super::*;

/// A cluster with a store and twelve budgets of 100/s, `b0` to `b11`, some on each node. All slots are a minute ahead, so that no
/// booking passes during a test.
pub(super) struct Rig {
    pub(super) cluster: RedisCluster,
    pub(super) store: Store,
}

pub(super) const BUDGETS: usize = 12;

pub(super) fn budgets() -> impl Iterator<Item = String> {
    (0..BUDGETS).map(|i| format!("b{i}"))
}

impl Rig {
    pub(super) async fn start(program: PathBuf, options: &[(&str, &str)]) -> Self {
        let cluster = RedisCluster::start(program, options).await.expect("the cluster starts");
        let store = Store::new(&cluster.url()).expect("a store");
        for budget in budgets() {
            set(&store, &budget, &Policy { transit: Duration::from_secs(60), ..soon() }).await;
        }
        Self { cluster, store }
    }

    /// On the preferred server alone.
    pub(super) async fn preferred(options: &[(&str, &str)]) -> Self {
        Self::start(programs().await.remove(0), options).await
    }

    /// The node that serves a key, by its place.
    pub(super) async fn node_of(&self, key: &str) -> usize {
        let nodes = self.cluster.nodes();
        let slot: u16 = on(&nodes[0], redis::cmd("CLUSTER").arg("KEYSLOT").arg(key)).await;
        (usize::from(slot) / (16384 / 3)).min(2)
    }

    /// How many keys a budget has on this node.
    pub(super) async fn keys_on(&self, node: usize, budget: &str) -> usize {
        let keys: Vec<Vec<u8>> =
            on(&self.cluster.nodes()[node], redis::cmd("KEYS").arg(format!("s{{{budget}}}*"))).await;
        keys.len()
    }

    /// The first budget on this node.
    pub(super) async fn budget_on(&self, node: usize) -> String {
        for budget in budgets() {
            if self.node_of(&format!("s{{{budget}}}cal")).await == node {
                return budget;
            }
        }
        panic!("no budget on node {node}")
    }

    async fn on_all(&self, command: &mut Cmd) {
        for node in self.cluster.nodes() {
            let _: redis::Value = on(node, command).await;
        }
    }
}

pub(super) fn soon() -> Policy {
    per_second(100, 0.8)
}

/// A policy that makes the scripts use every kind of key.
fn with_everything() -> Policy {
    let lane = |name| Lane::new(LaneName::new(name).expect("a name"));
    Policy {
        lanes: vec![
            Lane { reserved: Share::new(0.5).expect("a share"), ..lane("otp") },
            Lane { preempts: true, ..lane("urgent") },
        ],
        quotas: vec![Quota::new(1000, Duration::from_secs(3600))],
        spacing: Some(Duration::from_secs(6)),
        ..per_second(5, 0.8)
    }
}

#[tokio::test]
async fn every_call_works_on_a_cluster() {
    for program in programs().await {
        let Rig { cluster, store } = &Rig::start(program, &[]).await;
        store.check().await.unwrap();
        let mut names: Vec<String> = budgets().collect();
        names.sort();
        let listed: Vec<String> = budget::list(store).await.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(listed, names);
        for node in cluster.nodes() {
            assert!(on::<usize>(node, &mut redis::cmd("DBSIZE")).await > 0, "budgets on every node");
        }
        join_all(budgets().map(async |budget| life_of_three(store, &budget).await)).await;
    }
}

/// One is sent, one cancelled, one looked at.
async fn life_of_three(store: &Store, of: &str) {
    set(store, of, &soon()).await;
    let (version, policy) = budget::get(store, &name(of)).await.unwrap().unwrap();
    assert_eq!((version, policy), (2, soon()));
    let [sent, cancelled, waiting] = ["sent", "cancelled", "waiting"].map(|id| draft(of, id));
    let copy = copy(store, sent.clone()).await;
    let mut booked = reserve::reserve(store, &name(of), &[&cancelled, &waiting]).await.unwrap();
    let (second, first) = (booked.pop().unwrap().unwrap(), booked.pop().unwrap().unwrap());
    assert_eq!((first.existing, second.existing, first.seq), (false, false, 1));
    let ask = QuoteRequest { sends: 5, lane: LaneName::new("default").unwrap(), cost: 1, not_before: None };
    assert_eq!(quote(store, &name(of), &ask).await.unwrap().placed, 5);
    assert_eq!(cancel(store, &name(of), &cancelled.id).await.unwrap(), Cancelled::Cancelled);
    assert!(matches!(claim_at_slot(store, &copy, 1).await, Verdict::Send { attempt: 1, .. }));
    assert_eq!(settle_sent(store, &copy, 1).await.unwrap(), Action::Acknowledge);
    let known = status::status_all(store, &name(of), &[&sent.id, &cancelled.id, &waiting.id]).await.unwrap();
    let states: Vec<_> = known.into_iter().map(|send| send.map(|send| send.state)).collect();
    assert_eq!(states, [SendState::Sent, SendState::Cancelled, SendState::Booked].map(Some));
    assert!(budget::pause(store, &name(of), Some(Duration::from_secs(60))).await.unwrap());
    assert!(status::budget_status(store, &name(of)).await.unwrap().paused_until.is_some());
    assert!(budget::pause(store, &name(of), None).await.unwrap());
}

#[tokio::test]
async fn a_batch_over_many_budgets_is_answered_in_its_order() {
    let Rig { store, .. } = &Rig::preferred(&[]).await;
    let mut copies = vec![];
    for budget in budgets() {
        set(store, &budget, &soon()).await;
    }
    for i in 0..5 {
        for budget in budgets() {
            copies.push(copy(store, draft(&budget, format!("m{i}"))).await);
        }
    }
    let never = Envelope::first(draft("unset", "m"), 1, copies[0].at.unwrap());
    copies.insert(7, never);
    let claims: Vec<Claim> = copies.iter().map(|copy| question(copy, 1)).collect();
    let answers = claim::claim_all(store, &claims).await;
    assert_eq!(answers.len(), copies.len());
    for (i, (copy, answer)) in copies.iter().zip(answers).enumerate() {
        let Answer { verdict, now } = answer.unwrap();
        let early = copy.at.unwrap().as_micros().saturating_sub(now.as_micros());
        match verdict {
            Verdict::Hold => assert_eq!(i, 7, "a budget without a policy"),
            Verdict::Wait { wait, moved: None } => assert_eq!(wait.as_micros() as u64, early, "{i}: another's answer"),
            Verdict::Send { .. } | Verdict::Wait { .. } | Verdict::PutBack { .. } => assert_eq!(early, 0, "{i}"),
            other => panic!("{i}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn all_keys_of_a_budget_are_in_one_slot() {
    // D4
    for program in programs().await {
        let rig = Rig::start(program, &[]).await;
        for of in budgets() {
            // no slot passes meanwhile: a cancelled send leaves a hole
            let ahead = Policy { transit: Duration::from_secs(30), ..with_everything() };
            set(&rig.store, &of, &ahead).await;
            // braces in what callers choose are no hash tags
            let message = |id: String| Message::new(&of, id, "x").recipient("{to}");
            let message = |i: usize, lane: &str| message(format!("{{m{i}}}{lane}")).lane(lane).check().unwrap();
            for i in 0..8 {
                for lane in ["default", "otp", "urgent"] {
                    let other =
                        Message::new(&of, format!("{i}{lane}"), "x").lane(lane).recipient(format!("r{i}{lane}"));
                    for draft in [message(i, lane), other.check().unwrap()] {
                        book(&rig.store, &draft).await.unwrap();
                    }
                }
            }
            for id in ["0default", "1otp", "2default"] {
                assert_eq!(cancel(&rig.store, &name(&of), &draft(&of, id).id).await.unwrap(), Cancelled::Cancelled);
            }
        }
        let mut slots: BTreeMap<Vec<u8>, BTreeSet<u16>> = BTreeMap::new();
        let mut parts: BTreeSet<String> = BTreeSet::new();
        for node in rig.cluster.nodes() {
            let keys: Vec<Vec<u8>> = on(node, redis::cmd("KEYS").arg("*")).await;
            for key in keys {
                let slot: u16 = on(node, redis::cmd("CLUSTER").arg("KEYSLOT").arg(&key)).await;
                let end = key.iter().position(|byte| *byte == b'}').map_or(key.len(), |end| end + 1);
                let part: String = key[end..].iter().map(|byte| char::from(*byte)).collect();
                parts.insert(part.split([':', '~']).next().unwrap().to_owned());
                assert!(!key.ends_with(b"~"), "the key that never exists");
                slots.entry(key[..end].to_vec()).or_default().insert(slot);
            }
        }
        assert_eq!(slots.len(), BUDGETS + 1, "the budgets and their list: {slots:?}");
        assert!(slots.values().all(|slots| slots.len() == 1), "{slots:?}");
        for part in ["cal", "policy", "r", "h", "lu", "holes", "pre", "q", "sp", "full", "hints"] {
            // a history begins with a move, which this test makes none of
            assert!(part == "h" || parts.contains(part), "{part} in {parts:?}");
        }
    }
}

#[tokio::test]
async fn scripts_flushed_on_all_nodes_all_the_time_book_everything_once() {
    // D1
    let rig = Rig::preferred(&[]).await;
    let drafts: Vec<Draft> = (0..60).map(|i| draft(&format!("b{}", i % BUDGETS), format!("m{i}"))).collect();
    let mut first: Vec<Booking> = vec![];
    for round in 0..3 {
        let books = join_all(drafts.iter().map(|draft| book(&rig.store, draft)));
        let flush = async {
            for _ in 0..20 {
                rig.on_all(redis::cmd("SCRIPT").arg("FLUSH")).await;
            }
        };
        let (booked, ()) = tokio::join!(books, flush);
        let booked: Vec<Booking> = booked.into_iter().map(Result::unwrap).collect();
        assert!(booked.iter().all(|booking| booking.existing == (round > 0)));
        if round == 0 {
            first = booked;
        } else {
            assert!(first.iter().zip(&booked).all(|(a, b)| a.slot == b.slot), "the same slots");
        }
    }
    let all: BTreeSet<_> = drafts.iter().zip(&first).map(|(draft, booking)| (&draft.budget, booking.slot)).collect();
    assert_eq!(all.len(), 60, "no slot twice");
}

#[tokio::test]
async fn bookings_whose_connections_are_cut_all_the_time_are_booked_once() {
    let rig = Rig::preferred(&[]).await;
    let drafts: Vec<Draft> = (0..300).map(|i| draft(&format!("b{}", i % BUDGETS), format!("m{i}"))).collect();
    let mut cuts = 0;
    let mut slots = vec![];
    for chunk in drafts.chunks(30) {
        let cut = async {
            let mut n = 0;
            for node in rig.cluster.nodes() {
                n += on::<u32>(node, redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal")).await;
            }
            n
        };
        let (booked, n) = tokio::join!(join_all(chunk.iter().map(|draft| book(&rig.store, draft))), cut);
        cuts += n;
        for (draft, booking) in chunk.iter().zip(booked) {
            // whose second try was cut as well is told so, and asks again
            let booking = match booking {
                Ok(booking) => booking,
                Err(StoreError::Unreachable { .. }) => book(&rig.store, draft).await.unwrap(),
                Err(other) => panic!("{other:?}"),
            };
            slots.push((draft.budget.clone(), booking.slot));
        }
    }
    assert!(cuts >= 10, "{cuts} connections were cut");
    assert_eq!(slots.iter().collect::<BTreeSet<_>>().len(), 300, "no slot twice");
    for draft in &drafts {
        assert!(book(&rig.store, draft).await.unwrap().existing, "nothing lost");
    }
}

#[tokio::test]
async fn a_url_of_one_node_leads_to_the_whole_cluster() {
    let rig = Rig::preferred(&[]).await;
    let node = &rig.cluster.nodes()[1];
    let store = Store::new(&node.url()).unwrap();
    store.check().await.unwrap();
    for budget in budgets() {
        assert!(!book(&store, &draft(&budget, "m")).await.unwrap().existing);
    }
    assert_eq!(budget::list(&store).await.unwrap().len(), BUDGETS);
    // one that may not ask INFO asks otherwise, and one that may not ask at all finds out by MOVED
    for forbidden in ["-info", "-cluster|info"] {
        let user = ["SETUSER", "limited", "on", ">secret", "~*", "+@all", "-info", forbidden];
        rig.on_all(redis::cmd("ACL").arg(&user)).await;
        let limited = Store::new(&format!("redis://limited:secret@127.0.0.1:{}", node.port())).unwrap();
        limited.check().await.unwrap();
        for budget in budgets() {
            assert!(book(&limited, &draft(&budget, "m")).await.unwrap().existing);
        }
    }
}

#[tokio::test]
async fn a_cluster_takes_writes_while_one_of_its_nodes_does() {
    let rig = Rig::preferred(&[]).await;
    let store = &rig.store;
    store.probe().await.unwrap();
    let memory = async |node: usize, bytes: u32| {
        let set: String =
            on(&rig.cluster.nodes()[node], redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes)).await;
        assert_eq!(set, "OK");
    };
    for node in 0..3 {
        store.probe().await.unwrap();
        memory(node, 1).await;
        let error = store.probe_budget(&name(&rig.budget_on(node).await)).await.unwrap_err();
        assert!(error.to_string().contains("OOM"), "{error}");
    }
    // INFO is answered
    store.check().await.unwrap();
    assert!(store.probe().await.unwrap_err().to_string().contains("OOM"));
    memory(2, 0).await;
    store.probe().await.unwrap();
    // one who may use the keys of some budgets alone
    rig.on_all(redis::cmd("ACL").arg(&["SETUSER", "limited", "on", ">secret", "~s{b0}*", "+@all"])).await;
    let limited = Store::new(&format!("redis://limited:secret@127.0.0.1:{}", rig.cluster.nodes()[2].port())).unwrap();
    limited.probe().await.unwrap();
    let user = ["SETUSER", "mute", "on", ">secret", "~*", "+@all", "-eval", "-evalsha"];
    rig.on_all(redis::cmd("ACL").arg(&user)).await;
    let mute = Store::new(&format!("redis://mute:secret@127.0.0.1:{}", rig.cluster.nodes()[2].port())).unwrap();
    let error = mute.probe().await.unwrap_err();
    assert!(error.to_string().contains("evalsha"), "who may run no script books nothing: {error}");
    for node in rig.cluster.nodes() {
        let keys: Vec<String> = on(node, redis::cmd("KEYS").arg("*probe*")).await;
        assert!(keys.is_empty(), "{keys:?}");
    }
}

#[tokio::test]
async fn a_node_that_is_killed_takes_only_its_own_budgets_with_it() {
    let mut rig = Rig::preferred(&[("appendonly", "yes"), ("appendfsync", "always")]).await;
    let gone = 1;
    let (mut homes, mut copies) = (vec![], vec![]);
    for budget in budgets() {
        copies.push(copy(&rig.store, draft(&budget, "before")).await);
        homes.push(rig.node_of(&format!("s{{{budget}}}cal")).await);
    }
    rig.cluster.node_mut(gone).kill();
    // a store that knows the cluster, and one that finds the node dead
    for store in [rig.store.clone(), Store::new(&rig.cluster.url()).unwrap()] {
        for round in 0..3 {
            let drafts: Vec<Draft> = budgets().map(|budget| draft(&budget, format!("during{round}"))).collect();
            let answers = join_all(drafts.iter().map(|draft| book(&store, draft))).await;
            for (home, answer) in homes.iter().zip(answers) {
                match answer {
                    Ok(_) => assert_ne!(*home, gone),
                    Err(error) => assert!(*home == gone && error.is_temporary(), "{home}: {error:?}"),
                }
            }
        }
    }
    let claims: Vec<Claim> = copies.iter().map(|copy| question(copy, 1)).collect();
    let answers = claim::claim_all(&rig.store, &claims).await;
    for (home, answer) in homes.iter().zip(answers) {
        assert_eq!(answer.is_err(), *home == gone, "in one batch too: {answer:?}");
    }
    rig.cluster.node_mut(gone).restart().await.unwrap();
    let mut budgets = budgets();
    let budget = homes.iter().position(|home| *home == gone).and_then(|i| budgets.nth(i)).unwrap();
    let after = until("its budgets are back", async || match book(&rig.store, &draft(&budget, "after")).await {
        Ok(booking) => Some(booking),
        Err(error) => {
            assert!(error.is_temporary(), "{error:?}");
            None
        }
    });
    assert_eq!(after.await.seq, 1);
    assert!(book(&rig.store, &draft(&budget, "before")).await.unwrap().existing, "with all they had");
}

#[tokio::test]
async fn a_node_that_hangs_does_not_hold_up_the_others() {
    let rig = Rig::preferred(&[]).await;
    let (hung, other) = (rig.budget_on(0).await, rig.budget_on(2).await);
    for budget in [&hung, &other] {
        book(&rig.store, &draft(budget, "before")).await.unwrap();
    }
    let process = process_id(&rig.cluster.nodes()[0]).await;
    signal(&process, "STOP").await;
    let stuck = tokio::spawn({
        let (store, draft) = (rig.store.clone(), draft(&hung, "stuck"));
        async move { book(&store, &draft).await }
    });
    let mut booked = 0;
    while !stuck.is_finished() {
        book(&rig.store, &draft(&other, format!("m{booked}"))).await.unwrap();
        booked += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answer = stuck.await.unwrap();
    signal(&process, "CONT").await;
    assert!(matches!(answer, Err(StoreError::Unreachable { .. })), "{answer:?}");
    assert!(booked > 20, "{booked} bookings on the other node meanwhile");
    let back = until("the node is back", async || book(&rig.store, &draft(&hung, "stuck")).await.ok());
    assert_eq!(back.await.seq, 1);
}

#[tokio::test]
async fn a_url_that_names_the_wrong_kind_of_server_is_told_so() {
    let server = RedisServer::start().await.unwrap();
    let host = format!("127.0.0.1:{}", server.port());
    let error = Store::new(&format!("redis+cluster://{host}")).unwrap().check().await.unwrap_err();
    assert!(error.to_string().contains("cluster support disabled"), "{error}");
    assert!(!error.is_temporary());
    let error = Store::new(&format!("redis+sentinel://{host}/main")).unwrap().check().await.unwrap_err();
    assert!(error.to_string().contains("sentinel"), "{error}");
}

/// How far a server's replication has come.
async fn replicated(server: &RedisServer) -> Option<u64> {
    let info: String = on(server, redis::cmd("INFO").arg("replication")).await;
    info.lines().find_map(|line| line.strip_prefix("master_repl_offset:")?.trim().parse().ok())
}

#[tokio::test]
async fn a_promoted_replica_goes_on_where_its_primary_ended() {
    for program in programs().await {
        let mut rig = Rig::start(program, &[]).await;
        let replica = rig.cluster.start_replica(1).await.unwrap();
        let budget = rig.budget_on(1).await;
        let before = book(&rig.store, &draft(&budget, "before")).await.unwrap();
        until("the replica has it", async || {
            let primary = replicated(&rig.cluster.nodes()[1]).await;
            (primary == replicated(&replica).await).then_some(())
        })
        .await;
        rig.cluster.node_mut(1).kill();
        let () = on(&replica, redis::cmd("CLUSTER").arg("FAILOVER").arg("TAKEOVER")).await;
        let again = until("bookings go on", async || match book(&rig.store, &draft(&budget, "before")).await {
            Ok(booking) => Some(booking),
            Err(error) => {
                assert!(error.is_temporary(), "{error:?}");
                None
            }
        });
        let again = again.await;
        assert!(again.existing && again.slot == before.slot, "{again:?}");
        let next = book(&rig.store, &draft(&budget, "next")).await.unwrap();
        assert!(!next.existing && next.slot != before.slot, "{next:?}");
        // the old primary comes back as a replica; who knows only the old addresses is led on
        rig.cluster.node_mut(1).restart().await.unwrap();
        let late = Store::new(&rig.cluster.url()).unwrap();
        let known = until("a new store finds it", async || book(&late, &draft(&budget, "next")).await.ok());
        assert_eq!(known.await.slot, next.slot);
    }
}
