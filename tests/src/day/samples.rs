//! Samples of what must hold for every call: (g) asked twice it answers the same, and a refusal leaves no trace.

use anyhow::Result;
use redis::Value;
use sendslot_shared::claim::{Answer, DeadReason, PutBack, Verdict, claim};
use sendslot_shared::message::{Draft, Message};
use sendslot_shared::reserve::{Booking, Refusal};
use sendslot_shared::settle::{Action, settle};

use super::worker::{Ended, Question};
use super::world::World;
use crate::SECOND;

/// Header and body of `cal` apart from what a look may leave: the cooldown and tat, and the seconds.
const KEPT: [(u32, i32); 2] = [(24, 39), (232, -1)];

impl World {
    /// The answer to a batch was lost: the caller asks again and gets the bookings that stand.
    pub(super) async fn same_bookings(
        &mut self,
        drafts: &[(usize, Draft)],
        answers: &[Result<Booking, Refusal>],
    ) -> Result<()> {
        let booked: Vec<_> = drafts.iter().zip(answers).filter(|(_, answer)| answer.is_ok()).collect();
        let again: Vec<(usize, Draft)> = booked.iter().map(|(draft, _)| (*draft).clone()).collect();
        let second = self.reserve(&again).await?;
        for (((send, _), first), second) in booked.into_iter().zip(second) {
            let same = match (first, &second) {
                (Ok(a), Ok(b)) => b.existing && (a.seq, a.slot, a.at) == (b.seq, b.slot, b.at),
                _ => false,
            };
            self.ledger.tally.one("checked", "(g) a booking asked for twice");
            if !same {
                self.ledger.violation(self.now, &format!("(g) asked twice: send {send}: {first:?}, then {second:?}"));
            }
        }
        Ok(())
    }

    pub(super) async fn same_verdict(&mut self, question: &Question, answer: &Answer) -> Result<()> {
        if matches!(answer.verdict, Verdict::Wait { wait, .. } if wait.is_zero()) {
            return Ok(()); // by then it is over
        }
        let second = claim(&self.store, question.claim()).await?.verdict;
        let same = match (answer.verdict, second) {
            (Verdict::Wait { wait: a, .. }, Verdict::Wait { wait: b, moved: None }) => a == b,
            // the copy is put back by then
            (
                Verdict::PutBack { slot: a, why: PutBack::Paused },
                Verdict::PutBack { slot: b, why: PutBack::Reissue },
            ) => a.seq == b.seq,
            (Verdict::PutBack { slot: a, .. }, Verdict::PutBack { slot: b, why: PutBack::Reissue }) => {
                (a.seq, a.at) == (b.seq, b.at)
            }
            (a, b) => a == b,
        };
        self.ledger.tally.one("checked", "(g) a claim asked twice");
        if !same {
            let what = format!("(g) asked twice: send {}: {:?}, then {second:?}", question.copy.send, answer.verdict);
            self.ledger.violation(self.now, &what);
        }
        Ok(())
    }

    pub(super) async fn same_action(&mut self, ended: &Ended, action: Action) -> Result<()> {
        let second = settle(&self.store, ended.report(self.now)).await?;
        self.ledger.tally.one("checked", "(g) a report made twice");
        // a dead letter's reason is not kept, that it failed is
        let dead =
            |action| matches!(action, Action::Dead { reason: DeadReason::FailedBefore | DeadReason::Rejected, .. });
        if action != second && !(dead(action) && dead(second)) {
            let what = format!("(g) reported twice: send {}: {action:?}, then {second:?}", ended.copy.send);
            self.ledger.violation(self.now, &what);
        }
        Ok(())
    }

    /// Offers a send that is likely to be refused, and compares all keys before and after.
    pub(super) async fn refusal_without_a_trace(&mut self) -> Result<()> {
        let kind = self.rng.u32(0..4);
        let (soon, far) = (self.system_time(1000), self.system_time(15 * 86_400 * SECOND));
        let most = self.policy.largest_cost();
        let (send, draft) = self.draft(kind == 3, |message: Message| match kind {
            0 => message.not_before(soon).deadline(soon),
            1 => message.cost(most + 1),
            2 => message.not_before(far).deadline(far),
            _ => message,
        })?;
        let before = self.traces(send, &draft).await?;
        let offered = vec![(send, draft)];
        let answers = self.reserve(&offered).await?;
        if let Err(refusal) = &answers[0] {
            let after = self.traces(send, &offered[0].1).await?;
            self.ledger.tally.one("checked", "(g) a refusal leaves no trace");
            // cutting off the past is none
            if before.0 == after.0 && before.1 != after.1 {
                let changed = before.1.iter().zip(&after.1).position(|(a, b)| a != b);
                let what = format!("(g) trace: send {send}, {refusal:?}, key {changed:?} of traces()");
                self.ledger.violation(self.now, &what);
            }
        }
        self.take(offered, answers);
        Ok(())
    }

    /// The calendar's base, and all that a booking writes.
    async fn traces(&mut self, send: usize, draft: &Draft) -> Result<(Vec<u8>, Vec<Value>)> {
        let prefix = format!("s{{{}}}", self.budget);
        let head: Vec<u8> =
            redis::cmd("GETRANGE").arg(prefix.clone() + "cal").arg(4).arg(7).query_async(&mut self.redis).await?;
        let epoch = head.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let page = self.now / 1_000_000 / 4096;
        let mut pipe = redis::pipe();
        pipe.getrange(prefix.clone() + "cal", 0, 3);
        for (from, to) in KEPT {
            pipe.cmd("GETRANGE").arg(prefix.clone() + "cal").arg(from).arg(to);
        }
        for lane in 0..8 {
            for page in page..page + 3 {
                pipe.get(format!("{prefix}lu:{lane}:{epoch}:{page}"));
            }
        }
        pipe.cmd("ZRANGE").arg(prefix.clone() + "holes").arg(0).arg(-1).cmd("HGETALL").arg(prefix.clone() + "pre");
        for quota in &self.policy.quotas {
            let key = format!("{prefix}q:{}:{}", quota.window.as_secs(), quota.offset_s);
            pipe.cmd("GETRANGE").arg(key).arg(12).arg(-1);
        }
        let recipient = draft.recipient.map_or([0; 8], |recipient| recipient.0);
        pipe.get([format!("{prefix}sp:").as_bytes(), recipient.as_slice()].concat());
        pipe.exists(self.record_key(send)).exists(format!("{prefix}h:{}", self.id(send)));
        let mut values: Vec<Value> = pipe.query_async(&mut self.redis).await?;
        let base = redis::from_redis_value(values.remove(0))?;
        Ok((base, values))
    }
}
