//! The crash points of DESIGN's table and the traces of its model's report, A1 to A14, step by step on the scripts. A crash is
//! a step that is not made; a duplicate is a copy delivered again, with another nonce. What `verdicts`, `worker`, `faults` and
//! `conformance` show already is not repeated:
//!
//! | trace | tests |
//! |---|---|
//! | A1 | here; `verdicts::scheduling_again_never_overwrites_a_claimed_record`; `holes::of_cancel_and_claim_one_wins` |
//! | A2 | here; `verdicts::a_claim_whose_reply_was_lost_may_ask_again`; `faults::a_claim_whose_reply_is_lost_on_the_wire_sends_once` |
//! | A3 | `verdicts::a_worker_that_lost_its_lease_changes_nothing_but_sent_is_always_recorded`; the fence: `crashes::killed_or_stopped_before_its_call_a_worker_leaves_nothing_in_doubt` |
//! | A4 | here; `verdicts::what_two_callers_schedule_is_accepted_for_both` |
//! | A5 | here; `verdicts::the_copy_that_was_told_to_dead_letter_hears_it_again`; `crashes::killed_behind_its_settle_a_worker_leaves_nothing_lost_and_nothing_twice` |
//! | A6 | here; `verdicts::hops_do_not_multiply_copies`, `a_stale_copy_is_reissued_only_by_the_issuer` |
//! | A7 | here; `verdicts::a_resent_unknown_counts_and_is_capped` |
//! | A8 | `http_provider::a_provider_whose_5xx_are_ambiguous_is_not_asked_again`, `a_call_without_an_answer_is_unknown_and_one_without_a_connection_is_not` |
//! | A9 | here; `verdicts::a_send_that_redis_forgot_is_booked_with_a_higher_seq`, `a_lost_calendar_voids_its_bookings` |
//! | A10 | `verdicts::a_budget_without_policy_holds_its_sends`; `faults::a_redis_that_lost_everything_holds_until_the_policy_is_back_and_then_books_again` |
//! | A11 | here; `verdicts::another_content_under_the_same_id_is_a_conflict` |
//! | A12 | here; `verdicts::a_copy_older_than_the_records_is_parked` |
//! | A13 | here; `verdicts::a_sent_outcome_of_a_forgotten_send_is_remembered`; `worker::a_send_that_could_not_be_settled_is_settled_when_it_comes_back` |
//! | A14 | here; `holes::an_unknown_id_leaves_a_tombstone` |
//! | B1 to B5, B7 to B9 | `conformance::traces`; B5 also `preempting`, B7 and B8 also `quotas` and `spacing` |
//! | B6 | `properties::no_window_exceeds_the_limit_however_late_claims_are_and_everything_ends_once` |

use std::time::{Duration, UNIX_EPOCH};

use sendslot_shared::cancel::Cancelled;
use sendslot_shared::claim::{DeadReason, MoveReason, PutBack, Verdict};
use sendslot_shared::envelope::{Envelope, fresh_tag};
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::policy::{OnUnknown, Policy};
use sendslot_shared::reserve::Refusal;
use sendslot_shared::settle::{Action, Ending};
use sendslot_shared::status::SendState;
use sendslot_tests::engine::Engine as _;
use sendslot_tests::{Bench, LEASE, SECOND, START, costing, draft, on_each_redis, per_second};

use crate::verdicts::{assert_send, booked_at_slot, dead, go_to_slot, next, put_back};

fn policy() -> Policy {
    per_second(100, 0.9)
}

fn slot(copy: &Envelope) -> u64 {
    copy.at.unwrap().as_micros()
}

/// When a lease that began at `claimed` has ended.
fn lease_end(claimed: u64) -> u64 {
    claimed.div_ceil(1000) * 1000 + LEASE.as_micros() as u64
}

async fn state(bench: &Bench, draft: &Draft) -> SendState {
    bench.status(draft).await.unwrap().state
}

/// Sends a copy at its slot and settles it.
async fn send(bench: &Bench, copy: &Envelope, nonce: u32, attempt: u32) {
    go_to_slot(bench, copy).await;
    assert_send(bench.verdict(copy, nonce).await, attempt);
    assert_eq!(bench.settle(copy, nonce, Ending::Sent).await, Action::Acknowledge);
}

/// Crash between reserve and SendMessage: the same ID gets the same booking, and a new one once its slot has passed.
#[tokio::test]
async fn a_booking_that_never_came_to_the_queue_is_enqueued_by_scheduling_again() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&policy()).await;
        for (id, from, later) in [("soon", START, 0), ("late", START + 10 * SECOND, 10 * SECOND)] {
            bench.set_clock(from).await;
            let lost = bench.reserve(&draft(id)).await.unwrap();
            bench.set_clock(from + later).await;
            let found = bench.reserve(&draft(id)).await.unwrap();
            assert_eq!((found.existing, found.seq), (later == 0, if later == 0 { 1 } else { 2 }));
            assert_eq!(found.at == lost.at, later == 0);
            send(&bench, &Envelope::first(draft(id), found.seq, found.at), 1, 1).await;
            assert_eq!(state(&bench, &draft(id)).await, SendState::Sent);
        }
    })
    .await;
}

/// Crash between SendMessage and its reply: two copies, and whichever asks first is sent.
#[tokio::test]
async fn of_two_copies_of_one_booking_one_is_sent() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&policy()).await;
        for (i, second_comes) in ["in the call", "after it", "to wait as well"].into_iter().enumerate() {
            let one = bench.copy(&draft(format!("m{i}"))).await;
            let two = bench.copy(&draft(format!("m{i}"))).await;
            assert!(one.tag != two.tag && one.seq == two.seq);
            if second_comes == "to wait as well" {
                for (nonce, copy) in [(1, &one), (2, &two)] {
                    let verdict = bench.verdict(copy, nonce).await;
                    assert!(matches!(verdict, Verdict::Wait { .. }), "{verdict:?}");
                }
            }
            go_to_slot(&bench, &one).await;
            assert_send(bench.verdict(&one, 1).await, 1);
            if second_comes != "after it" {
                assert_eq!(bench.verdict(&two, 2).await, Verdict::Busy { wait: LEASE }, "{second_comes}");
            }
            assert_eq!(bench.settle(&one, 1, Ending::Sent).await, Action::Acknowledge);
            assert_eq!(bench.verdict(&two, 3).await, Verdict::Done, "{second_comes}");
        }
    })
    .await;
}

/// Crash between arrival and claim, also while it waits: nothing is claimed, the copy comes back and is sent.
#[tokio::test]
async fn a_worker_that_died_waiting_leaves_nothing_in_doubt() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&policy()).await;
        let copy = bench.copy(&draft("m")).await;
        assert!(matches!(bench.verdict(&copy, 1).await, Verdict::Wait { .. }));
        let others: Vec<Draft> = (0..400).map(|i| draft(format!("other{i}"))).collect();
        let bookings = bench.reserve_all(&others).await;
        // late among others that are on time: it is booked again
        let busy = bookings[100..110].iter().zip(&others[100..]).map(|(b, d)| {
            let b = b.unwrap();
            Envelope::first(d.clone(), b.seq, b.at)
        });
        let mut now = 0;
        for copy in busy {
            now = slot(&copy);
            send(&bench, &copy, 9, 1).await;
        }
        assert_eq!(state(&bench, &copy.draft).await, SendState::Booked);
        let Verdict::Wait { wait, moved } = bench.verdict(&copy, 2).await else { panic!("it waits for a near slot") };
        assert_eq!(moved, Some(MoveReason::Missed));
        bench.set_clock(now + wait.as_micros() as u64).await;
        assert_send(bench.verdict(&copy, 2).await, 1);
        assert_eq!(bench.settle(&copy, 2, Ending::Sent).await, Action::Acknowledge);
    })
    .await;
}

const WAYS: [&str; 7] = ["hop", "pause", "lease", "lost", "throttled", "unavailable", "unknown"];

/// Plays one of the ways in which a copy is put back, at an hour of its own, up to its new copy, which is not on the queue yet.
async fn put_back_by(bench: &Bench, way: &str) -> (Envelope, Envelope) {
    let hour = WAYS.iter().position(|known| *known == way).unwrap() as u64;
    let from = START + (hour + 1) * 3600 * SECOND;
    bench.set_clock(from).await;
    let draft = draft(way);
    let far = Message::new("b", way, "payload").not_before(UNIX_EPOCH + Duration::from_micros(from + 60 * SECOND));
    let draft = if way == "hop" || way == "pause" { far.check().unwrap() } else { draft };
    let copy = bench.copy(&draft).await;
    let slot = match way {
        "hop" => put_back(bench.verdict(&copy, 1).await).0,
        "pause" => {
            bench.pause(Some(Duration::from_secs(3600))).await;
            go_to_slot(bench, &copy).await;
            let (slot, why) = put_back(bench.verdict(&copy, 1).await);
            assert_eq!(why, PutBack::Paused);
            bench.pause(None).await;
            slot
        }
        "lease" => {
            go_to_slot(bench, &copy).await;
            assert_send(bench.verdict(&copy, 1).await, 1);
            bench.set_clock(lease_end(self::slot(&copy))).await;
            put_back(bench.verdict(&copy, 2).await).0
        }
        "lost" => {
            let _: i64 = bench.command(redis::cmd("DEL").arg(format!("s{{b}}r:{way}"))).await;
            put_back(bench.verdict(&copy, 1).await).0
        }
        _ => {
            let ending = match way {
                "throttled" => Ending::Throttled,
                "unavailable" => Ending::Unavailable,
                _ => Ending::Unknown,
            };
            go_to_slot(bench, &copy).await;
            assert_send(bench.verdict(&copy, 1).await, 1);
            let Action::PutBack(slot) = bench.settle(&copy, 1, ending).await else {
                panic!("{way}: it is booked again")
            };
            slot
        }
    };
    assert_eq!(slot.seq, 2, "{way}");
    let new = next(&copy, slot);
    (copy, new)
}

/// Crash between a re-book or hop and its SendMessage: the old copy, issuer of the new seq, brings the booking back to the
/// queue without another one.
#[tokio::test]
async fn a_booking_whose_copy_was_never_put_back_is_reissued() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&Policy { on_unknown: OnUnknown::Resend, ..policy() }).await;
        for way in WAYS {
            let (old, never) = put_back_by(&bench, way).await;
            let (again, why) = put_back(bench.verdict(&old, 7).await);
            // behind a pause a slot is the record's, from now on
            let slot = if way == "pause" { again.at.max(old.at.unwrap()) } else { never.at.unwrap() };
            assert_eq!((again.seq, again.at, why), (2, slot, PutBack::Reissue), "{way}");
            let attempts = bench.status(&old.draft).await.unwrap().attempts;
            assert_eq!(attempts, u32::from(["lease", "unavailable", "unknown"].contains(&way)), "{way}");
            sent_sometime(&bench, next(&old, again), attempts + 1).await;
            assert_eq!(bench.verdict(&old, 8).await, Verdict::Done, "{way}");
        }
    })
    .await;
}

/// Follows a copy until it is sent.
async fn sent_sometime(bench: &Bench, mut copy: Envelope, attempt: u32) {
    let mut now = slot(&copy);
    for nonce in 100..120 {
        bench.set_clock(now).await;
        match bench.verdict(&copy, nonce).await {
            Verdict::Wait { wait, .. } => now += wait.as_micros() as u64,
            Verdict::PutBack { slot, .. } => {
                now += slot.wait.as_micros() as u64;
                copy = next(&copy, slot);
            }
            verdict => {
                assert_send(verdict, attempt);
                assert_eq!(bench.settle(&copy, nonce, Ending::Sent).await, Action::Acknowledge);
                return;
            }
        }
    }
    panic!("never sent");
}

/// Crash between a put-back's SendMessage and the acknowledgement: the stale copy is answered `reissue` while the new
/// booking waits, else `done`; of all copies one is sent.
#[tokio::test]
async fn a_stale_copy_comes_back_at_any_time_and_one_is_sent() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&Policy { on_unknown: OnUnknown::Resend, ..policy() }).await;
        for way in WAYS {
            let (old, new) = put_back_by(&bench, way).await;
            let (slot, why) = put_back(bench.verdict(&old, 7).await);
            assert_eq!((slot.seq, why), (2, PutBack::Reissue), "{way}");
            let twin = next(&old, slot);
            let attempt = bench.status(&old.draft).await.unwrap().attempts + 1;
            let mut now = new.at.unwrap().as_micros();
            bench.set_clock(now).await;
            let mut verdict = bench.verdict(&new, 8).await;
            if let Verdict::Wait { wait, .. } = verdict {
                now += wait.as_micros() as u64;
                bench.set_clock(now).await;
                verdict = bench.verdict(&new, 8).await;
            }
            assert_send(verdict, attempt);
            assert_eq!(bench.verdict(&old, 9).await, Verdict::Done, "{way}: stale, and it is being sent");
            assert!(matches!(bench.verdict(&twin, 10).await, Verdict::Busy { .. }), "{way}");
            assert_eq!(bench.settle(&new, 8, Ending::Sent).await, Action::Acknowledge);
            for (copy, nonce) in [(&old, 11), (&twin, 12), (&new, 13)] {
                assert_eq!(bench.verdict(copy, nonce).await, Verdict::Done, "{way}");
            }
        }
    })
    .await;
}

/// A5, and the crash between a terminal settle and the dead letter: whichever way it ended, the copy that was told hears it
/// again, at its claim and at its settle, and another one does not.
#[tokio::test]
async fn whoever_was_told_to_dead_letter_hears_it_until_it_is_done() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&Policy { max_attempts: 1, ..policy() }).await;
        for (i, end) in ["rejected", "attempts", "unknown", "died", "expired"].into_iter().enumerate() {
            let from = START + i as u64 * 60 * SECOND;
            bench.set_clock(from).await;
            let deadline = UNIX_EPOCH + Duration::from_micros(from + 30 * SECOND);
            let limited = Message::new("b", end, "payload").deadline(deadline).check().unwrap();
            let copy = bench.copy(&if end == "expired" { limited } else { draft(end) }).await;
            go_to_slot(&bench, &copy).await;
            let ending = match end {
                "rejected" => Some((Ending::Rejected, DeadReason::Rejected)),
                "attempts" => Some((Ending::Unavailable, DeadReason::Attempts)),
                "unknown" => Some((Ending::Unknown, DeadReason::UnknownOutcome)),
                _ => None,
            };
            let reason = match end {
                "expired" => DeadReason::Expired,
                "rejected" | "attempts" => DeadReason::FailedBefore,
                _ => DeadReason::UnknownOutcome,
            };
            let attempts = u32::from(end != "expired");
            if let Some((ending, told)) = ending {
                assert_send(bench.verdict(&copy, 1).await, 1);
                assert_eq!(bench.settle(&copy, 1, ending).await, Action::Dead { reason: told, attempts });
                assert_eq!(
                    bench.settle(&copy, 1, ending).await,
                    Action::Dead { reason, attempts },
                    "its reply was lost"
                );
            } else {
                if end == "died" {
                    assert_send(bench.verdict(&copy, 1).await, 1);
                }
                bench.set_clock(from + 31 * SECOND).await;
                assert_eq!(bench.verdict(&copy, 2).await, dead(reason, attempts), "{end}");
            }
            for nonce in 3..5 {
                assert_eq!(bench.verdict(&copy, nonce).await, dead(reason, attempts), "{end}");
                let stranger = Envelope { tag: fresh_tag(), ..copy.clone() };
                assert_eq!(bench.verdict(&stranger, nonce).await, Verdict::Done, "{end}: one dead letter, not two");
                assert_eq!(bench.settle(&stranger, nonce, Ending::Unavailable).await, Action::Acknowledge, "{end}");
            }
        }
    })
    .await;
}

/// A1, literally: scheduled again between the call and its settle; and a cancel does not say that it came in time.
#[tokio::test]
async fn a_send_under_way_is_neither_booked_again_nor_cancelled() {
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, policy()).await;
        assert_send(bench.verdict(&copy, 1).await, 1);
        // the provider has accepted it; its slot has passed, also its lease
        for later in [0, SECOND, LEASE.as_micros() as u64 + SECOND] {
            bench.set_clock(slot(&copy) + later).await;
            assert_eq!(bench.reserve(&copy.draft).await, Err(Refusal::InProgress));
            assert_eq!(bench.redrive(&copy.draft).await, Err(Refusal::InProgress));
            assert_eq!(bench.cancel(&copy.draft).await, Cancelled::TooLate);
        }
        assert_eq!(bench.settle(&copy, 1, Ending::Sent).await, Action::Acknowledge);
        assert_eq!(bench.status(&copy.draft).await.unwrap().seq, 1);
        assert_eq!(bench.cancel(&copy.draft).await, Cancelled::AlreadySent);
    })
    .await;
}

/// A2: two deliveries of one SQS message are two nonces. One hears `send`, and its lost reply parks nothing.
#[tokio::test]
async fn of_two_deliveries_of_one_message_one_may_call() {
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, policy()).await;
        assert_send(bench.verdict(&copy, 1).await, 1);
        let again = copy.clone();
        assert_eq!(bench.verdict(&again, 2).await, Verdict::Busy { wait: LEASE });
        // the first one's reply was lost: it asks again, and the second one waits on
        assert_send(bench.verdict(&copy, 1).await, 1);
        assert_eq!(bench.settle(&copy, 1, Ending::Sent).await, Action::Acknowledge);
        // the second one, put back unchanged, comes at the end of the lease
        bench.set_clock(lease_end(slot(&copy))).await;
        assert_eq!(bench.verdict(&again, 3).await, Verdict::Done);
        assert_eq!(state(&bench, &copy.draft).await, SendState::Sent);
    })
    .await;
}

/// A4: a caller whose SendMessage failed keeps the booking, and takes nothing from the other caller, before or after the call.
#[tokio::test]
async fn a_failed_enqueue_takes_nothing_from_another_caller() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&policy()).await;
        let failed = bench.reserve(&draft("m")).await.unwrap();
        let accepted = bench.copy(&draft("m")).await;
        assert_eq!((accepted.seq, accepted.at.unwrap()), (failed.seq, failed.at));
        // CASES F2: the first caller tries again, and has the same booking
        let retried = bench.reserve(&draft("m")).await.unwrap();
        assert_eq!((retried.existing, retried.at), (true, failed.at));
        send(&bench, &accepted, 1, 1).await;
        let late = Envelope::first(draft("m"), retried.seq, retried.at);
        assert_eq!(bench.verdict(&late, 2).await, Verdict::Done);
    })
    .await;
}

/// A6, and N1 of the model: two deliveries of one message that hops. The second one takes over nothing: both bring seq 2 to
/// the queue, one of these goes on, the other is done.
#[tokio::test]
async fn a_reissue_does_not_advance_the_booking() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&policy()).await;
        let far = Message::new("b", "m", "x").not_before(UNIX_EPOCH + Duration::from_micros(START + 600 * SECOND));
        let copy = bench.copy(&far.check().unwrap()).await;
        let hop = next(&copy, put_back(bench.verdict(&copy, 1).await).0);
        let reissued = next(&copy, put_back(bench.verdict(&copy, 2).await).0);
        assert_eq!((hop.seq, reissued.seq), (2, 2));
        let third = next(&hop, put_back(bench.verdict(&hop, 3).await).0);
        assert_eq!(third.seq, 3);
        assert_eq!(bench.verdict(&reissued, 4).await, Verdict::Done, "it did not raise seq to 3");
        assert_eq!(bench.verdict(&copy, 5).await, Verdict::Done);
        send(&bench, &third, 6, 1).await;
    })
    .await;
}

/// A7: attempts are the record's. A crash behind each settle, and a copy that was never put back, forget none.
#[tokio::test]
async fn a_crash_forgets_no_attempt() {
    on_each_redis(async |bench: Bench| {
        let mut copy = booked_at_slot(&bench, Policy { max_attempts: 3, ..policy() }).await;
        for attempt in 1..=3 {
            go_to_slot(&bench, &copy).await;
            assert_send(bench.verdict(&copy, attempt).await, attempt);
            let action = bench.settle(&copy, attempt, Ending::Unavailable).await;
            if attempt == 3 {
                assert_eq!(action, Action::Dead { reason: DeadReason::Attempts, attempts: 3 });
                break;
            }
            assert!(matches!(action, Action::PutBack(_)), "{action:?}");
            // the worker dies here; the old envelope comes back
            let (slot, why) = put_back(bench.verdict(&copy, 90 + attempt).await);
            assert_eq!(why, PutBack::Reissue);
            copy = next(&copy, slot);
        }
        assert_eq!(bench.verdict(&copy, 99).await, dead(DeadReason::FailedBefore, 3));
    })
    .await;
}

/// Everything in Redis, to be restored.
async fn snapshot(bench: &Bench) -> Vec<(Vec<u8>, Vec<u8>)> {
    let keys: Vec<Vec<u8>> = bench.command(redis::cmd("KEYS").arg("*")).await;
    let mut all = vec![];
    for key in keys {
        let value = bench.command(redis::cmd("DUMP").arg(&key)).await;
        all.push((key, value));
    }
    all
}

/// Redis comes back with older data; the clock goes on.
async fn rewind(bench: &Bench, snapshot: &[(Vec<u8>, Vec<u8>)], now: u64) {
    let _: () = bench.command(redis::cmd("FLUSHALL").arg("SYNC")).await;
    for (key, value) in snapshot {
        let _: () = bench.command(redis::cmd("RESTORE").arg(key).arg(0).arg(value)).await;
    }
    bench.set_clock(now).await;
}

/// A9: the epoch is in the snapshot as well. A copy ahead of its record shows the loss and is booked anew, and the slot that
/// it remembers is not used: somebody else may have it by now.
#[tokio::test]
async fn a_copy_from_before_a_rewind_is_booked_anew_and_never_at_the_slot_that_it_remembers() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&policy()).await;
        let old = snapshot(&bench).await;
        let forgotten = bench.copy(&draft("forgotten")).await;
        rewind(&bench, &old, START).await;
        let other = bench.copy(&draft("other")).await;
        assert_eq!(other.at, forgotten.at, "sold again");
        go_to_slot(&bench, &other).await;
        assert_send(bench.verdict(&other, 1).await, 1);
        let (slot, why) = put_back(bench.verdict(&forgotten, 2).await);
        assert_eq!((slot.seq, why), (2, PutBack::Rebooked(MoveReason::Lost)));
        assert!(slot.at > other.at.unwrap());

        // seq 2 of the copy, 1 of the record: booked with 3, above both
        bench.set_clock(START + 10 * SECOND).await;
        let copy = bench.copy(&draft("m")).await;
        let old = snapshot(&bench).await;
        go_to_slot(&bench, &copy).await;
        assert_send(bench.verdict(&copy, 3).await, 1);
        let Action::PutBack(slot) = bench.settle(&copy, 3, Ending::Unavailable).await else {
            panic!("it is booked again")
        };
        let ahead = next(&copy, slot);
        rewind(&bench, &old, ahead.at.unwrap().as_micros()).await;
        let (slot, why) = put_back(bench.verdict(&ahead, 4).await);
        assert_eq!((slot.seq, why), (3, PutBack::Rebooked(MoveReason::Lost)));
        // the copy from before is behind the record again, and no issuer
        assert_eq!(bench.verdict(&copy, 5).await, Verdict::Done);
        sent_sometime(&bench, next(&ahead, slot), 1).await;
    })
    .await;
}

/// A9: a copy of the record's seq, of whose booking Redis knows another slot: the record's counts.
#[tokio::test]
async fn of_two_slots_of_one_seq_the_records_is_used() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&policy()).await;
        let old = snapshot(&bench).await;
        let before = bench.copy(&draft("m")).await;
        rewind(&bench, &old, START).await;
        bench.copy(&draft("other")).await;
        let after = bench.copy(&draft("m")).await;
        assert!(before.seq == after.seq && before.at < after.at);
        go_to_slot(&bench, &before).await;
        let wait = Duration::from_micros(slot(&after) - slot(&before));
        assert_eq!(bench.verdict(&before, 1).await, Verdict::Wait { wait, moved: None });
        send(&bench, &after, 2, 1).await;
        assert_eq!(bench.verdict(&before, 3).await, Verdict::Done);
    })
    .await;
}

/// A11: a copy that travels unbooked, and another content scheduled under its ID: one is sent, the other is dead-lettered as a
/// conflict and not dropped as done.
#[tokio::test]
async fn an_unbooked_copy_of_another_content_is_dead_lettered() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&policy()).await;
        let unbooked =
            Envelope { draft: costing("m", 2), seq: 0, tag: fresh_tag(), at: None, accepted: None, report: None };
        let booked = bench.copy(&draft("m")).await;
        for nonce in 1..3 {
            assert_eq!(bench.verdict(&unbooked, nonce).await, dead(DeadReason::Conflict, 0));
        }
        send(&bench, &booked, 3, 1).await;
        // the other way round: what comes first is booked, the caller hears of the conflict
        let unbooked =
            Envelope { draft: costing("n", 2), seq: 0, tag: fresh_tag(), at: None, accepted: None, report: None };
        put_back(bench.verdict(&unbooked, 4).await);
        assert_eq!(bench.reserve(&draft("n")).await, Err(Refusal::Conflict));
    })
    .await;
}

/// Crash while an unbooked copy is booked: it is the issuer of its own booking, and scheduling it finds that booking.
#[tokio::test]
async fn an_unbooked_copy_is_booked_once() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&policy()).await;
        let unbooked = |tag| Envelope { draft: draft("m"), seq: 0, tag, at: None, accepted: None, report: None };
        let (slot, _) = put_back(bench.verdict(&unbooked(7), 1).await);
        let (again, why) = put_back(bench.verdict(&unbooked(7), 2).await);
        assert_eq!((slot.seq, again.seq, again.at, why), (1, 1, slot.at, PutBack::Reissue));
        assert_eq!(bench.verdict(&unbooked(8), 3).await, Verdict::Done, "scheduled twice while Redis was away");
        let booked = bench.reserve(&draft("m")).await.unwrap();
        assert_eq!((booked.existing, booked.seq, booked.at), (true, 1, slot.at));
        send(&bench, &next(&unbooked(7), slot), 4, 1).await;
    })
    .await;
}

/// A12: a duplicate that outlives the record of a send that was sent, or cancelled: it is parked, not sent.
#[tokio::test]
async fn a_duplicate_older_than_the_records_is_not_sent() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&policy()).await;
        let (sent, cancelled) = (bench.copy(&draft("sent")).await, bench.copy(&draft("cancelled")).await);
        assert_eq!(bench.cancel(&cancelled.draft).await, Cancelled::Cancelled);
        send(&bench, &sent, 1, 1).await;
        let day = bench.command::<i64>(redis::cmd("TTL").arg("s{b}r:sent")).await;
        assert!(day >= 86_400, "kept for a day past its slot: {day} s");
        bench.set_clock(slot(&cancelled) + 86_401 * SECOND).await;
        for copy in [&sent, &cancelled] {
            let _: i64 = bench.command(redis::cmd("DEL").arg(format!("s{{b}}r:{}", copy.draft.id))).await;
            assert_eq!(bench.verdict(copy, 2).await, dead(DeadReason::UnknownHistory, 0));
        }
    })
    .await;
}

/// A13: `sent` that could not be told comes late, to a record that was parked, booked again, or claimed by another delivery.
#[tokio::test]
async fn a_late_sent_is_recorded_wherever_the_record_stands() {
    on_each_redis(async |bench: Bench| {
        for (i, found) in ["parked", "booked", "claimed"].into_iter().enumerate() {
            let on_unknown = if found == "parked" { OnUnknown::Park } else { OnUnknown::Resend };
            let from = START + (i as u64 + 1) * 100 * SECOND;
            bench.set_clock(from).await;
            bench.policy(&Policy { on_unknown, ..policy() }).await;
            let copy = bench.copy(&draft(found)).await;
            go_to_slot(&bench, &copy).await;
            assert_send(bench.verdict(&copy, 1).await, 1);
            bench.set_clock(lease_end(slot(&copy))).await;
            let mut others = vec![copy.clone()];
            if found == "parked" {
                assert_eq!(bench.verdict(&copy, 2).await, dead(DeadReason::UnknownOutcome, 1));
            } else {
                others.push(next(&copy, put_back(bench.verdict(&copy, 2).await).0));
            }
            if found == "claimed" {
                go_to_slot(&bench, &others[1]).await;
                assert_send(bench.verdict(&others[1], 3).await, 2);
            }
            for _ in 0..2 {
                assert_eq!(bench.settle(&copy, 1, Ending::Sent).await, Action::Acknowledge, "{found}");
                assert_eq!(state(&bench, &copy.draft).await, SendState::Sent, "{found}");
            }
            for (copy, nonce) in others.iter().zip(4..) {
                assert_eq!(bench.verdict(copy, nonce).await, Verdict::Done, "{found}");
            }
        }
    })
    .await;
}

/// A claim that a stalled Redis ran after its worker had given up: `not started` gives it back, also twice, and says nothing to
/// what others claimed since.
#[tokio::test]
async fn a_claim_that_ran_too_late_is_given_back_and_only_by_its_own_delivery() {
    on_each_redis(async |bench: Bench| {
        let copy = booked_at_slot(&bench, policy()).await;
        assert_send(bench.verdict(&copy, 1).await, 1);
        for told in 1..=2 {
            assert_eq!(bench.settle(&copy, 1, Ending::NotStarted).await, Action::Again, "told {told} times");
            assert_eq!(state(&bench, &copy.draft).await, SendState::Booked, "it stands where it stood");
        }
        // an older copy that comes back is not put on the queue once more: this one is there
        let older = Envelope { seq: 0, tag: fresh_tag(), ..copy.clone() };
        assert_eq!(bench.verdict(&older, 3).await, Verdict::Done);
        assert_send(bench.verdict(&copy, 2).await, 1);
        assert_eq!(bench.settle(&copy, 1, Ending::NotStarted).await, Action::Again);
        assert_eq!(state(&bench, &copy.draft).await, SendState::Claimed);
        assert_eq!(bench.settle(&copy, 2, Ending::Sent).await, Action::Acknowledge);
    })
    .await;
}

/// A14: what is cancelled while it travels unbooked is never sent, and what is cancelled while its slot comes is not claimed.
#[tokio::test]
async fn what_was_cancelled_is_never_sent_booked_or_not() {
    on_each_redis(async |bench: Bench| {
        bench.policy(&policy()).await;
        let unbooked =
            Envelope { draft: draft("unbooked"), seq: 0, tag: fresh_tag(), at: None, accepted: None, report: None };
        assert_eq!(bench.cancel(&unbooked.draft).await, Cancelled::Unknown);
        assert_eq!(bench.verdict(&unbooked, 1).await, Verdict::Done);
        let copy = bench.copy(&draft("m")).await;
        assert!(matches!(bench.verdict(&copy, 2).await, Verdict::Wait { .. }));
        assert_eq!(bench.cancel(&copy.draft).await, Cancelled::Cancelled);
        go_to_slot(&bench, &copy).await;
        for nonce in [2, 3] {
            assert_eq!(bench.verdict(&copy, nonce).await, Verdict::Done, "the waiting worker and a duplicate");
        }
        // a stalled worker's report does not bring it back
        assert_eq!(bench.settle(&copy, 2, Ending::NotStarted).await, Action::Acknowledge);
        assert_eq!(state(&bench, &copy.draft).await, SendState::Cancelled);
    })
    .await;
}
