//! Claim and settle: every row of the verdict table, and the traces that broke the first version of the protocol.

use std::time::{Duration, UNIX_EPOCH};

use sendslot_shared::claim::{DeadReason, MoveReason, NextSlot, PutBack, Verdict};
use sendslot_shared::envelope::{Envelope, fresh_tag};
use sendslot_shared::message::Message;
use sendslot_shared::policy::{OnUnknown, Policy};
use sendslot_shared::reserve::Refusal;
use sendslot_shared::settle::{Action, Cooldown, Ending, Scope};
use sendslot_shared::status::SendState;
use sendslot_shared::time::Instant;
use sendslot_tests::{Bench, LEASE, SECOND, START, costing, draft, most_in_window, on_each_redis, per_second};

/// Moves the clock to a copy's slot.
pub(crate) async fn go_to_slot(bench: &Bench, copy: &Envelope) {
    bench.set_clock(copy.at.unwrap().as_micros()).await;
}

pub(crate) async fn booked_at_slot(bench: &Bench, policy: Policy) -> Envelope {
    bench.policy(&policy).await;
    let copy = bench.copy(&draft("m")).await;
    go_to_slot(bench, &copy).await;
    copy
}

/// The copy that a worker puts on the queue for a verdict.
pub(crate) fn next(copy: &Envelope, slot: NextSlot) -> Envelope {
    Envelope { seq: slot.seq, tag: fresh_tag(), at: Some(slot.at), ..copy.clone() }
}

pub(crate) fn put_back(verdict: Verdict) -> (NextSlot, PutBack) {
    match verdict {
        Verdict::PutBack { slot, why } => (slot, why),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn assert_send(verdict: Verdict, attempt: u32) {
    assert!(matches!(verdict, Verdict::Send { attempt: a, .. } if a == attempt), "{verdict:?}");
}

/// Of a budget with a headroom of 0.9.
fn sends_at_once(lease: Duration) -> Verdict {
    let (delay, jitter) = (Duration::ZERO, Duration::from_millis(50));
    Verdict::Send { lease, delay, late: Duration::ZERO, jitter, attempt: 1, throttles: 0 }
}

pub(crate) fn dead(reason: DeadReason, attempts: u32) -> Verdict {
    Verdict::Dead { reason, attempts }
}

#[tokio::test]
async fn a_send_waits_for_its_slot_and_is_sent_once() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let copy = bench.copy(&draft("m")).await;
        let wait = Duration::from_micros(copy.at.unwrap().as_micros() - START);
        assert_eq!(bench.verdict(&copy, 1).await, Verdict::Wait { wait, moved: None });
        bench.set_clock(copy.at.unwrap().as_micros() - 1).await;
        assert_eq!(bench.verdict(&copy, 1).await, Verdict::Wait { wait: Duration::from_micros(1), moved: None });
        go_to_slot(&bench, &copy).await;
        assert_eq!(bench.verdict(&copy, 1).await, sends_at_once(LEASE));
        assert_eq!(bench.status(&copy.draft).await.unwrap().state, SendState::Claimed);
        assert_eq!(bench.settle(&copy, 1, Ending::Sent).await, Action::Acknowledge);
        assert_eq!(bench.status(&copy.draft).await.unwrap().state, SendState::Sent);
        assert_eq!(bench.verdict(&copy, 2).await, Verdict::Done);
        assert_eq!(bench.reserve(&copy.draft).await, Err(Refusal::AlreadySent));
        let ttl: i64 = bench.command(redis::cmd("TTL").arg("s{b}r:m")).await;
        assert!(ttl > 86_000, "the end is remembered");
    })
    .await;
}

#[tokio::test]
async fn delivered_thirty_seconds_early_it_hops() {
    // Q11, localstack#1207
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let at = START + 60 * SECOND;
        let late = Message::new("b", "m", "x").not_before(UNIX_EPOCH + Duration::from_micros(at)).check().unwrap();
        let copy = bench.copy(&late).await;
        bench.set_clock(at - 30 * SECOND).await;
        let (slot, why) = put_back(bench.verdict(&copy, 1).await);
        assert_eq!((slot.wait, slot.seq, slot.at, why), (Duration::from_secs(30), 2, copy.at.unwrap(), PutBack::Hop));
        let status = bench.status(&late).await.unwrap();
        assert_eq!((status.hops, status.attempts, status.seq), (1, 0, 2));
        // up to lead + 1 s ahead it waits instead
        let copy = next(&copy, slot);
        bench.set_clock(at - 2_500_000).await;
        assert!(matches!(bench.verdict(&copy, 2).await, Verdict::Wait { .. }));
    })
    .await;
}

#[tokio::test]
async fn hops_do_not_multiply_copies() {
    // Q2, alpakka#257 and model A6: crash after the hop's SendMessage and before the acknowledgement
    on_each_redis(async |bench: Bench| {
        bench.policy(&Policy { horizon: Duration::from_secs(86_400), ..per_second(100, 0.9) }).await;
        let at = START + 20_000 * SECOND;
        let late = Message::new("b", "m", "x").not_before(UNIX_EPOCH + Duration::from_micros(at)).check().unwrap();
        let mut alive = vec![bench.copy(&late).await];
        let mut peak = 0;
        for step in 0..20_u64 {
            bench.set_clock(START + step * 890 * SECOND).await;
            // each copy is delivered twice: its first deliverer crashes before the acknowledgement
            let mut following: Vec<Envelope> = vec![];
            for copy in &alive {
                for nonce in [1, 2] {
                    match bench.verdict(copy, nonce).await {
                        Verdict::PutBack { slot, .. } => following.push(next(copy, slot)),
                        Verdict::Done => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
            peak = peak.max(following.len());
            alive = following;
        }
        assert_eq!(peak, 2);
    })
    .await;
}

#[tokio::test]
async fn a_stale_copy_is_reissued_only_by_the_issuer() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let at = START + 100 * SECOND;
        let late = Message::new("b", "m", "x").not_before(UNIX_EPOCH + Duration::from_micros(at)).check().unwrap();
        let copy = bench.copy(&late).await;
        let (slot, _) = put_back(bench.verdict(&copy, 1).await);
        // its own SendMessage may have failed: it comes back and puts the record's booking on the queue again
        let (again, why) = put_back(bench.verdict(&copy, 2).await);
        assert_eq!((again.seq, again.at, why), (slot.seq, slot.at, PutBack::Reissue));
        // any other copy of the old booking is done
        let stranger = Envelope { tag: copy.tag.wrapping_add(1), ..copy.clone() };
        assert_eq!(bench.verdict(&stranger, 3).await, Verdict::Done);
    })
    .await;
}

#[tokio::test]
async fn scheduling_again_never_overwrites_a_claimed_record() {
    // model A1: no fault at all, two accepted sends
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, per_second(100, 0.9)).await;
        assert_send(bench.verdict(&copy, 1).await, 1);
        bench.set_clock(copy.at.unwrap().as_micros() + 5 * SECOND).await;
        assert_eq!(bench.reserve(&copy.draft).await, Err(Refusal::InProgress));
        assert!(matches!(bench.verdict(&copy, 2).await, Verdict::Busy { .. }));
        assert_eq!(bench.settle(&copy, 1, Ending::Sent).await, Action::Acknowledge);
        assert_eq!(bench.reserve(&copy.draft).await, Err(Refusal::AlreadySent));
    })
    .await;
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_may_ask_again() {
    // model A2: the same delivery hears `send` again with the rest of the lease; another delivery does not
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, per_second(100, 0.9)).await;
        assert_send(bench.verdict(&copy, 1).await, 1);
        let ms = Duration::from_millis(50);
        bench.set_clock(copy.at.unwrap().as_micros() + 50_000).await;
        let Verdict::Send { lease, delay: Duration::ZERO, attempt: 1, .. } = bench.verdict(&copy, 1).await else {
            panic!("inside the jitter the claim holds")
        };
        // to the millisecond
        assert!((LEASE - ms..LEASE - ms + Duration::from_millis(1)).contains(&lease), "{lease:?}");
        assert_eq!(bench.verdict(&copy, 2).await, Verdict::Busy { wait: LEASE - ms });
        // later the call would come beside others that the guard did not count it with: the worker gives it back, and asks anew
        bench.set_clock(copy.at.unwrap().as_micros() + 5 * SECOND).await;
        let Verdict::Send { late, .. } = bench.verdict(&copy, 1).await else { panic!("the claim stands") };
        assert!((Duration::from_millis(4999)..=Duration::from_secs(5)).contains(&late), "{late:?}");
        assert_eq!(bench.settle(&copy, 1, Ending::NotStarted).await, Action::Again);
        assert_eq!(bench.verdict(&copy, 3).await, sends_at_once(LEASE));
        assert_eq!(bench.status(&copy.draft).await.unwrap().attempts, 1, "one charge per nonce");
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_changes_nothing_but_sent_is_always_recorded() {
    // model A3
    on_each_redis(async |bench: Bench| {
        let policy = Policy { on_unknown: OnUnknown::Resend, ..per_second(100, 0.9) };
        let copy = booked_at_slot(&bench, policy).await;
        assert_send(bench.verdict(&copy, 1).await, 1);
        let ended = copy.at.unwrap().as_micros() + LEASE.as_micros() as u64 + 1000;
        bench.set_clock(ended).await;
        let (slot, why) = put_back(bench.verdict(&copy, 2).await);
        assert_eq!(why, PutBack::Rebooked(MoveReason::LeaseEnded));
        let second = next(&copy, slot);
        go_to_slot(&bench, &second).await;
        assert_send(bench.verdict(&second, 3).await, 2);
        // the first worker wakes up: only `sent` counts
        for ending in [Ending::Rejected, Ending::Unavailable, Ending::Unknown, Ending::NotStarted, Ending::Throttled] {
            assert_eq!(bench.settle(&copy, 1, ending).await, Action::Again, "{ending:?}");
        }
        assert_eq!(bench.status(&copy.draft).await.unwrap().state, SendState::Claimed);
        assert_eq!(bench.settle(&copy, 1, Ending::Sent).await, Action::Acknowledge);
        assert_eq!(bench.status(&copy.draft).await.unwrap().state, SendState::Sent);
        assert_eq!(
            bench.settle(&second, 3, Ending::Unavailable).await,
            Action::Acknowledge,
            "nothing leaves an end state"
        );
        assert_eq!(bench.status(&copy.draft).await.unwrap().state, SendState::Sent);
    })
    .await;
}

#[tokio::test]
async fn what_two_callers_schedule_is_accepted_for_both() {
    // model A4: the booking of a failed SendMessage is kept, so that it cannot take another caller's send away
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let a = bench.copy(&draft("m")).await;
        let b = bench.copy(&draft("m")).await;
        assert_eq!((a.seq, a.at), (b.seq, b.at));
        // a's SendMessage fails; b's copy is sent, and a's retry hears so
        go_to_slot(&bench, &b).await;
        assert_send(bench.verdict(&b, 1).await, 1);
        assert_eq!(bench.settle(&b, 1, Ending::Sent).await, Action::Acknowledge);
        assert_eq!(bench.reserve(&draft("m")).await, Err(Refusal::AlreadySent));
    })
    .await;
}

#[tokio::test]
async fn the_copy_that_was_told_to_dead_letter_hears_it_again() {
    // model A5: a crash between the terminal settle and the dead letter loses no payload
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, per_second(100, 0.9)).await;
        assert_send(bench.verdict(&copy, 1).await, 1);
        let told = Action::Dead { reason: DeadReason::Rejected, attempts: 1 };
        assert_eq!(bench.settle(&copy, 1, Ending::Rejected).await, told);
        assert_eq!(bench.verdict(&copy, 2).await, dead(DeadReason::FailedBefore, 1));
        let stranger = Envelope { tag: copy.tag.wrapping_add(1), ..copy.clone() };
        assert_eq!(bench.verdict(&stranger, 3).await, Verdict::Done);
        assert_eq!(bench.reserve(&copy.draft).await, Err(Refusal::Failed));
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_died_leaves_an_unknown_outcome() {
    // W1, powertools-python#738: parked by default, at the end of the lease and not before; W2: to the millisecond
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, per_second(100, 0.9)).await;
        assert_send(bench.verdict(&copy, 1).await, 1);
        let end = copy.at.unwrap().as_micros().div_ceil(1000) * 1000 + LEASE.as_micros() as u64;
        bench.set_clock(end - 1000).await;
        assert_eq!(bench.verdict(&copy, 2).await, Verdict::Busy { wait: Duration::from_millis(1) });
        bench.set_clock(end).await;
        assert_eq!(bench.verdict(&copy, 3).await, dead(DeadReason::UnknownOutcome, 1));
        assert_eq!(bench.status(&copy.draft).await.unwrap().state, SendState::Unknown);
        bench.set_clock(end + 1000).await;
        assert_eq!(bench.verdict(&copy, 4).await, dead(DeadReason::UnknownOutcome, 1));
        assert_eq!(bench.reserve(&copy.draft).await, Err(Refusal::Unknown));
    })
    .await;
}

#[tokio::test]
async fn a_resent_unknown_counts_and_is_capped() {
    // model A7: a worker that dies at each call does not loop for ever
    on_each_redis(async |bench: Bench| {
        let policy = Policy { on_unknown: OnUnknown::Resend, max_attempts: 3, ..per_second(100, 0.9) };
        let mut copy = booked_at_slot(&bench, policy).await;
        for attempt in 1..=3 {
            go_to_slot(&bench, &copy).await;
            assert_send(bench.verdict(&copy, attempt * 10).await, attempt);
            bench.set_clock(copy.at.unwrap().as_micros() + LEASE.as_micros() as u64 + 2000).await;
            match bench.verdict(&copy, attempt * 10 + 1).await {
                Verdict::PutBack { slot, .. } => copy = next(&copy, slot),
                verdict => assert_eq!((verdict, attempt), (dead(DeadReason::UnknownOutcome, 3), 3)),
            }
        }
        assert_eq!(bench.status(&copy.draft).await.unwrap().state, SendState::Unknown);
    })
    .await;
}

#[tokio::test]
async fn another_content_under_the_same_id_is_a_conflict() {
    // model A11
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let copy = bench.copy(&draft("m")).await;
        let other = Envelope { draft: costing("m", 2), ..copy.clone() };
        assert_eq!(bench.verdict(&other, 1).await, dead(DeadReason::Conflict, 0));
        go_to_slot(&bench, &copy).await;
        assert_send(bench.verdict(&copy, 2).await, 1);
        // also of one that has ended: an accepted payload never goes without a trace
        assert_eq!(bench.settle(&copy, 2, Ending::Sent).await, Action::Acknowledge);
        let unbooked = Envelope { seq: 0, tag: 9, at: None, ..other };
        assert_eq!(bench.verdict(&unbooked, 3).await, dead(DeadReason::Conflict, 1));
        assert_eq!(bench.verdict(&copy, 4).await, Verdict::Done);
    })
    .await;
}

#[tokio::test]
async fn a_missed_slot_is_not_a_permission() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.95)).await;
        let drafts: Vec<_> = (0..200).map(|i| draft(format!("m{i}"))).collect();
        let bookings = bench.reserve_all(&drafts).await;
        let copies: Vec<_> = drafts
            .iter()
            .zip(&bookings)
            .map(|(d, b)| Envelope::first(d.clone(), b.unwrap().seq, b.unwrap().at))
            .collect();
        // all in time but one, which is late by more than the patience while capacity is in use
        for copy in copies[..50].iter().chain(&copies[51..75]) {
            go_to_slot(&bench, copy).await;
            assert_send(bench.verdict(copy, 1).await, 1);
        }
        let late = &copies[10];
        let missed = Envelope { draft: draft("m50"), seq: 1, tag: 7, at: copies[50].at, accepted: None, report: None };
        let Verdict::Wait { wait, moved } = bench.verdict(&missed, 1).await else { panic!("it books anew") };
        assert_eq!(moved, Some(MoveReason::Missed));
        // it takes the place of the next one that waits: a tenth of a second is for sends like it
        let now = copies[74].at.unwrap().as_micros();
        assert_eq!(now + wait.as_micros() as u64, copies[75].at.unwrap().as_micros());
        let displaced = bench.verdict(&copies[75], 1).await;
        // and that one goes behind the backlog, close enough to wait for
        let Verdict::Wait { wait, moved: Some(MoveReason::Displaced) } = displaced else { panic!("{displaced:?}") };
        let end = bookings[199].unwrap().at.as_micros();
        assert!((end..end + 11_000).contains(&(now + wait.as_micros() as u64)));
        assert_eq!(bench.status(&missed.draft).await.unwrap().seq, 1, "a near re-booking keeps seq");
        assert!(matches!(bench.verdict(late, 9).await, Verdict::Busy { .. }));
    })
    .await;
}

#[tokio::test]
async fn a_late_send_passes_where_capacity_lies_idle() {
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, per_second(100, 0.95)).await;
        bench.set_clock(copy.at.unwrap().as_micros() + 60 * SECOND).await;
        let _: i64 = bench.command(redis::cmd("EXPIRE").arg("s{b}r:m").arg(120)).await;
        assert_send(bench.verdict(&copy, 1).await, 1);
        let ttl: i64 = bench.command(redis::cmd("TTL").arg("s{b}r:m")).await;
        assert!(ttl > 86_000, "its end is remembered from now on, not from its slot: {ttl} s");
    })
    .await;
}

#[tokio::test]
async fn a_far_rebooking_is_put_back_with_a_new_seq() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(10, 0.9)).await;
        let drafts: Vec<_> = (0..100).map(|i| draft(format!("m{i}"))).collect();
        let bookings = bench.reserve_all(&drafts).await;
        let first = |i: usize| Envelope::first(drafts[i].clone(), 1, bookings[i].unwrap().at);
        let copy = first(0);
        // the next ones are in time and leave no capacity idle for the late one
        for i in 1..6 {
            go_to_slot(&bench, &first(i)).await;
            assert_send(bench.verdict(&first(i), 1).await, 1);
        }
        // it takes the place of one that waits, in the second that has one for sends like it
        let moved = bench.verdict(&copy, 9).await;
        assert!(matches!(moved, Verdict::Wait { moved: Some(MoveReason::Missed), .. }), "{moved:?}");
        let taken = bench.status(&copy.draft).await.unwrap().slot;
        let displaced = (1..100).find(|i| bookings[*i].unwrap().slot == taken).unwrap();
        let (slot, why) = put_back(bench.verdict(&first(displaced), 9).await);
        assert_eq!((slot.seq, why), (2, PutBack::Rebooked(MoveReason::Displaced)));
        assert!(slot.wait > Duration::from_millis(2500), "too far to be waited for: {slot:?}");
    })
    .await;
}

#[tokio::test]
async fn a_deadline_ends_a_send_wherever_it_passes() {
    // L5, kumomta#539
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let deadline = UNIX_EPOCH + Duration::from_micros(START + 2 * SECOND);
        let limited = |id: &str| Message::new("b", id, "x").deadline(deadline).check().unwrap();
        let (late, throttled, lost) = (limited("late"), limited("throttled"), limited("lost"));
        let copies = [bench.copy(&late).await, bench.copy(&throttled).await, bench.copy(&lost).await];
        go_to_slot(&bench, &copies[1]).await;
        assert_send(bench.verdict(&copies[1], 1).await, 1);
        let action = bench.settle_with(&copies[1], 1, Ending::Throttled, Duration::from_secs(9), None).await;
        assert_eq!(action, Action::Dead { reason: DeadReason::ExpiredCooldown, attempts: 0 });
        bench.set_clock(START + 2 * SECOND + 1).await;
        assert_eq!(bench.verdict(&copies[0], 2).await, dead(DeadReason::Expired, 0));
        let _: i64 = bench.command(redis::cmd("DEL").arg("s{b}r:lost")).await;
        assert_eq!(bench.verdict(&copies[2], 3).await, dead(DeadReason::Expired, 0));
        for draft in [&late, &throttled, &lost] {
            assert_eq!(bench.status(draft).await.unwrap().state, SendState::Expired);
            assert_eq!(bench.reserve(draft).await, Err(Refusal::Expired));
        }
    })
    .await;
}

#[tokio::test]
async fn a_send_that_redis_forgot_is_booked_with_a_higher_seq() {
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, per_second(100, 0.9)).await;
        let _: i64 = bench.command(redis::cmd("DEL").arg("s{b}r:m")).await;
        let (slot, why) = put_back(bench.verdict(&copy, 1).await);
        assert_eq!((slot.seq, why), (2, PutBack::Rebooked(MoveReason::Lost)));
        // rewound data: the record stands at a lower seq than the copy
        let ahead = Envelope { seq: 7, ..next(&copy, slot) };
        let (slot, why) = put_back(bench.verdict(&ahead, 2).await);
        assert_eq!((slot.seq, why), (8, PutBack::Rebooked(MoveReason::Lost)));
        // a copy that was never booked
        let unbooked = Envelope { draft: draft("new"), seq: 0, tag: 5, at: None, accepted: None, report: None };
        assert_eq!(put_back(bench.verdict(&unbooked, 3).await).0.seq, 1);
    })
    .await;
}

#[tokio::test]
async fn a_lost_calendar_voids_its_bookings() {
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, per_second(100, 0.9)).await;
        let _: i64 = bench.command(redis::cmd("DEL").arg("s{b}cal")).await;
        let (slot, why) = put_back(bench.verdict(&copy, 1).await);
        assert_eq!((slot.seq, why), (2, PutBack::Rebooked(MoveReason::Lost)));
        assert!(slot.wait >= Duration::from_secs(1), "what was just sent is unknown: a whole window of silence");
    })
    .await;
}

#[tokio::test]
async fn a_copy_older_than_the_records_is_parked() {
    // model A12
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, per_second(100, 0.9)).await;
        let _: i64 = bench.command(redis::cmd("DEL").arg("s{b}r:m")).await;
        bench.set_clock(copy.at.unwrap().as_micros() + 86_401 * SECOND).await;
        assert_eq!(bench.verdict(&copy, 1).await, dead(DeadReason::UnknownHistory, 0));
        assert_eq!(bench.status(&copy.draft).await.unwrap().state, SendState::Unknown);
    })
    .await;
}

#[tokio::test]
async fn a_budget_without_policy_holds_its_sends() {
    // model A10
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, per_second(100, 0.9)).await;
        let _: i64 = bench.command(redis::cmd("DEL").arg("s{b}cal").arg("s{b}policy")).await;
        assert_eq!(bench.verdict(&copy, 1).await, Verdict::Hold);
        let _: i64 = bench.command(redis::cmd("DEL").arg("s{b}r:m")).await;
        assert_eq!(bench.verdict(&copy, 1).await, Verdict::Hold);
    })
    .await;
}

#[tokio::test]
async fn a_throttle_rests_the_budget_once_for_all_late_replies() {
    // R7, inspect_ai#5137
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let drafts: Vec<_> = (0..100).map(|i| draft(format!("m{i}"))).collect();
        let mut claimed = vec![];
        for one in &drafts {
            let copy = bench.copy(one).await;
            go_to_slot(&bench, &copy).await;
            assert_send(bench.verdict(&copy, 1).await, 1);
            claimed.push(copy);
        }
        let start = claimed[99].at.unwrap().as_micros();
        let hint = Duration::from_secs(89);
        let mut slots = vec![];
        for (i, copy) in claimed.iter().enumerate() {
            let now = start + 50_000 * (i as u64 + 1);
            bench.set_clock(now).await;
            let report = sendslot_shared::settle::Report {
                envelope: copy,
                nonce: 1,
                ending: Ending::Throttled,
                delay: Duration::from_millis(10),
                cooldown: Some(Cooldown { rest: hint, scope: Scope::Account }),
                // all calls began before the first reply
                elapsed: Duration::from_micros(now - start + 1),
                held_up: Duration::ZERO,
            };
            match sendslot_shared::settle::settle(&bench.store, report).await.unwrap() {
                Action::PutBack(slot) => slots.push(slot.at.as_micros()),
                other => panic!("{other:?}"),
            }
        }
        let end = start + 50_000 + 89 * SECOND;
        assert_eq!(*slots.iter().min().unwrap(), slots[0]);
        assert!((end..end + 11_112).contains(&slots[0]), "one cooldown from the first reply on");
        // R3: no two share a slot
        slots.sort_unstable();
        assert!(slots.windows(2).all(|w| w[1] - w[0] >= 11_111));
        let status = bench.status(&drafts[5]).await.unwrap();
        assert_eq!((status.attempts, status.throttles), (0, 1), "R4: being made to wait is no failed attempt");
        // a call that began after the cooldown extends it
        let copy = bench.copy(&draft("new")).await;
        assert!(copy.at.unwrap().as_micros() > end);
    })
    .await;
}

#[tokio::test]
async fn a_cooldown_moves_the_whole_calendar_where_it_is_full_and_else_what_lies_in_it() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(10, 0.9)).await;
        let drafts: Vec<_> = (0..50).map(|i| draft(format!("m{i}"))).collect();
        let bookings = bench.reserve_all(&drafts).await;
        let copies: Vec<_> =
            drafts.iter().zip(&bookings).map(|(d, b)| Envelope::first(d.clone(), 1, b.unwrap().at)).collect();
        go_to_slot(&bench, &copies[0]).await;
        assert_send(bench.verdict(&copies[0], 1).await, 1);
        let rest = Some(Duration::from_secs(2));
        let _ = bench.settle_with(&copies[0], 1, Ending::Throttled, Duration::ZERO, rest).await;
        // 50 sends fill 5.5 s: all of them leave 2 s later, in their order
        for i in [2, 30] {
            let at = copies[i].at.unwrap().as_micros();
            bench.set_clock(at).await;
            let verdict = bench.verdict(&copies[i], 1).await;
            let Verdict::Wait { wait, moved: None } = verdict else { panic!("{i}: {verdict:?}") };
            assert!((Duration::from_millis(1_900)..=Duration::from_secs(2)).contains(&wait), "{i}: {wait:?}");
            bench.set_clock(at + 2 * SECOND).await;
            assert_send(bench.verdict(&copies[i], 1).await, 1);
        }
        // a cooldown behind which there is room moves what lies in it, and nothing else
        let later = START + 100 * SECOND;
        bench.set_clock(later).await;
        let few: Vec<_> = (0..10).map(|i| draft(format!("few{i}"))).collect();
        let bookings = bench.reserve_all(&few).await;
        let copies: Vec<_> =
            few.iter().zip(&bookings).map(|(d, b)| Envelope::first(d.clone(), 1, b.unwrap().at)).collect();
        go_to_slot(&bench, &copies[0]).await;
        assert_send(bench.verdict(&copies[0], 1).await, 1);
        let rest = Some(Duration::from_millis(2_100));
        let _ = bench.settle_with(&copies[0], 1, Ending::Throttled, Duration::ZERO, rest).await;
        let verdict = bench.verdict(&copies[1], 1).await;
        let Verdict::Wait { wait, moved: Some(MoveReason::Cooldown) } = verdict else { panic!("{verdict:?}") };
        assert!(wait >= Duration::from_millis(2_100), "behind the cooldown: {wait:?}");
    })
    .await;
}

#[tokio::test]
async fn a_lowered_rate_moves_what_stands_above_it() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let drafts: Vec<_> = (0..80).map(|i| draft(format!("m{i}"))).collect();
        let bookings = bench.reserve_all(&drafts).await;
        bench.policy(&per_second(10, 0.8)).await;
        let moved = |i: usize| Envelope::first(drafts[i].clone(), 1, bookings[i].unwrap().at);
        let (low, high) = (bookings.iter().position(|b| b.unwrap().slot.1 == 3).unwrap(), 10);
        assert!(bookings[high].unwrap().slot.1 >= 8);
        let verdict = bench.verdict(&moved(high), 1).await;
        let reason = match verdict {
            Verdict::Wait { moved, .. } => moved,
            Verdict::PutBack { why: PutBack::Rebooked(reason), .. } => Some(reason),
            other => panic!("{other:?}"),
        };
        assert_eq!(reason, Some(MoveReason::Capacity));
        assert!(matches!(bench.verdict(&moved(low), 1).await, Verdict::Wait { moved: None, .. }));
    })
    .await;
}

#[tokio::test]
async fn work_that_can_never_fit_any_more_ends_with_that_reason() {
    // B4, governor#9
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.8)).await;
        let copy = bench.copy(&costing("big", 60)).await;
        bench.policy(&per_second(10, 0.8)).await;
        bench.set_clock(copy.at.unwrap().as_micros()).await;
        assert_eq!(bench.verdict(&copy, 1).await, dead(DeadReason::Cost, 0));
        assert_eq!(bench.status(&copy.draft).await.unwrap().state, SendState::Failed);
    })
    .await;
}

#[tokio::test]
async fn failures_are_capped_and_each_settle_can_be_repeated() {
    on_each_redis(async |bench: Bench| {
        let mut copy = booked_at_slot(&bench, Policy { max_attempts: 3, ..per_second(100, 0.9) }).await;
        for attempt in 1..=3 {
            go_to_slot(&bench, &copy).await;
            assert_send(bench.verdict(&copy, attempt).await, attempt);
            let first = bench.settle(&copy, attempt, Ending::Unavailable).await;
            let again = bench.settle(&copy, attempt, Ending::Unavailable).await;
            match (first, again) {
                (Action::PutBack(slot), Action::PutBack(same)) => {
                    assert_eq!((slot.seq, slot.at), (same.seq, same.at));
                    assert!(slot.wait >= Duration::from_millis(250), "transit");
                    copy = next(&copy, slot);
                }
                (first, again) => {
                    assert_eq!(first, Action::Dead { reason: DeadReason::Attempts, attempts: 3 });
                    assert_eq!(again, Action::Dead { reason: DeadReason::FailedBefore, attempts: 3 });
                    assert_eq!(attempt, 3);
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn waiting_a_hundred_times_is_no_attempt() {
    // R4, laravel#36250
    on_each_redis(async |bench: Bench| {
        let mut copy = booked_at_slot(&bench, per_second(100, 0.9)).await;
        for turn in 0..100 {
            go_to_slot(&bench, &copy).await;
            assert_send(bench.verdict(&copy, turn + 1).await, 1);
            if turn % 2 == 1 {
                assert_eq!(bench.settle(&copy, turn + 1, Ending::NotStarted).await, Action::Again);
                continue;
            }
            let Action::PutBack(slot) = bench.settle(&copy, turn + 1, Ending::Throttled).await else { panic!() };
            copy = next(&copy, slot);
        }
        let status = bench.status(&copy.draft).await.unwrap();
        assert_eq!((status.attempts, status.throttles), (0, 50));
    })
    .await;
}

#[tokio::test]
async fn a_sent_outcome_of_a_forgotten_send_is_remembered() {
    // model A13
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, per_second(100, 0.9)).await;
        assert_send(bench.verdict(&copy, 1).await, 1);
        let _: () = bench.command(redis::cmd("FLUSHALL").arg("SYNC")).await;
        bench.set_clock(copy.at.unwrap().as_micros()).await;
        assert_eq!(bench.settle(&copy, 1, Ending::Sent).await, Action::Acknowledge);
        assert_eq!(bench.verdict(&copy, 2).await, Verdict::Done);
    })
    .await;
}

#[tokio::test]
async fn a_clock_that_is_set_back_freezes_nothing_and_sends_nothing_faster() {
    // T2, rocksdb#401
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let book = async |id: &str| bench.reserve(&draft(id)).await.unwrap().at.as_micros();
        for jump in [-120_i64, 3600] {
            let now = START.strict_add_signed(jump * SECOND as i64) + 7200 * SECOND;
            let home = START + 7200 * SECOND;
            bench.set_clock(home).await;
            let before = book(&format!("before{jump}")).await;
            bench.set_clock(now).await;
            let copy = bench.copy(&draft(format!("there{jump}"))).await;
            go_to_slot(&bench, &copy).await;
            assert_send(bench.verdict(&copy, 1).await, 1);
            let rest = Some(Duration::from_secs(3));
            let _ = bench.settle_with(&copy, 1, Ending::Throttled, Duration::ZERO, rest).await;
            bench.set_clock(home + 2 * SECOND).await;
            let copy = bench.copy(&draft(format!("after{jump}"))).await;
            let after = copy.at.unwrap().as_micros();
            assert!(after < home + 10 * SECOND, "no frozen hour: {} s", (after - home) / SECOND);
            assert_ne!(after, before, "no position twice");
            bench.set_clock(after).await;
            let mut verdict = bench.verdict(&copy, 2).await;
            if let Verdict::Wait { wait, .. } = verdict {
                assert!(wait < Duration::from_secs(3), "{wait:?}");
                bench.set_clock(after + wait.as_micros() as u64).await;
                verdict = bench.verdict(&copy, 2).await;
            }
            assert_send(verdict, 1);
        }
    })
    .await;
}

#[tokio::test]
async fn the_reply_carries_the_clock_and_not_the_callers() {
    // T1: nothing that a caller sends is a "now"
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let copy = bench.copy(&draft("m")).await;
        assert_eq!(bench.claim(&copy, 1).await.now, Instant::from_micros(START));
    })
    .await;
}

#[tokio::test]
async fn raising_the_time_that_ends_are_remembered_sends_nothing_twice() {
    on_each_redis(async |bench: Bench| {
        let short = Policy { dedup_ttl: Duration::from_secs(3600), ..per_second(100, 0.9) };
        let copy = booked_at_slot(&bench, short.clone()).await;
        assert_send(bench.verdict(&copy, 1).await, 1);
        assert_eq!(bench.settle(&copy, 1, Ending::Sent).await, Action::Acknowledge);
        // its record ended by the shorter time, and then the time is raised, twice
        let _: i64 = bench.command(redis::cmd("DEL").arg("s{b}r:m")).await;
        bench.set_clock(copy.at.unwrap().as_micros() + 7_200 * SECOND).await;
        for days in [7, 14] {
            bench.policy(&Policy { dedup_ttl: Duration::from_secs(days * 86_400), ..short.clone() }).await;
        }
        assert_eq!(bench.verdict(&copy, 2).await, dead(DeadReason::UnknownHistory, 0));
        // one whose slot is less than an hour ago was never sent: its record would be there
        let at = Some(Instant::from_micros(copy.at.unwrap().as_micros() + 5_000 * SECOND));
        let other = Envelope { draft: draft("other"), at, ..copy.clone() };
        assert!(matches!(
            bench.verdict(&other, 3).await,
            Verdict::PutBack { why: PutBack::Rebooked(MoveReason::Lost), .. }
        ));
    })
    .await;
}

#[tokio::test]
async fn a_question_that_arrives_late_takes_no_claim_from_its_worker() {
    // model any-order: asked on a connection that broke, and again on a new one; the first one arrives while the call is made
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.9)).await;
        let copies = [bench.copy(&draft("m")).await, bench.copy(&draft("n")).await];
        for copy in &copies {
            go_to_slot(&bench, copy).await;
            assert_send(bench.verdict(copy, 1).await, 1);
        }
        bench.set_clock(copies[1].at.unwrap().as_micros() + 400_000).await;
        let rest = Some(Duration::from_secs(30));
        let _ = bench.settle_with(&copies[1], 1, Ending::Throttled, Duration::ZERO, rest).await;
        assert_send(bench.verdict(&copies[0], 1).await, 1);
        assert_eq!(bench.status(&copies[0].draft).await.unwrap().state, SendState::Claimed, "nobody cancels it now");
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_is_given_back_late_gives_back_no_time_that_has_passed() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&per_second(100, 0.97)).await;
        let drafts: Vec<_> = (0..500).map(|i| draft(format!("m{i}"))).collect();
        let bookings = bench.reserve_all(&drafts).await;
        let copies: Vec<Envelope> = drafts
            .into_iter()
            .zip(&bookings)
            .map(|(draft, booking)| Envelope::first(draft, booking.unwrap().seq, booking.unwrap().at))
            .collect();
        let at = |i: usize| copies[i].at.unwrap().as_micros();
        let mut calls = vec![];
        // these are claimed at their slots, by workers that do not hear of it
        for (i, copy) in copies[..30].iter().enumerate() {
            bench.set_clock(at(i)).await;
            assert_send(bench.verdict(copy, 1).await, 1);
        }
        // 3 s later all that has come due within a quarter of a second is asked for at once; then the 30 are given back
        for i in 300..500 {
            let now = at(i).max(at(323));
            bench.set_clock(now).await;
            if i == 324 {
                for copy in &copies[..30] {
                    assert_eq!(bench.settle(copy, 1, Ending::NotStarted).await, Action::Again);
                }
            }
            if let Verdict::Send { delay, .. } = bench.verdict(&copies[i], 1).await {
                calls.push((now + delay.as_micros() as u64, 1));
            }
        }
        let most = most_in_window(calls, SECOND);
        assert!(most <= 100, "{most} of 100 in a second");
    })
    .await;
}
