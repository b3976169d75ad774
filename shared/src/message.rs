//! A message to be sent, as a caller gives it.

use std::fmt;
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use crate::id::{BudgetName, InvalidName, LaneName, SendId};
use crate::time::Instant;

/// A message to be delivered once through a budget. Nothing is checked before it is scheduled. Payload and recipient are left
/// out when it is printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    budget: String,
    id: String,
    payload: Vec<u8>,
    lane: String,
    cost: u32,
    not_before: Option<SystemTime>,
    deadline: Option<SystemTime>,
    recipient: Option<String>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, id, payload, lane, cost, not_before, deadline, recipient } = self;
        f.debug_struct("Message")
            .field("budget", budget)
            .field("id", id)
            .field("payload_bytes", &payload.len())
            .field("lane", lane)
            .field("cost", cost)
            .field("not_before", not_before)
            .field("deadline", deadline)
            .field("has_recipient", &recipient.is_some())
            .finish()
    }
}

impl Message {
    /// A message of cost 1 in the budget's default lane, to be sent as soon as there is room.
    ///
    /// `id` is the caller's own, 1 to 256 bytes: the same ID is sent once, however often it is scheduled. `payload` is
    /// opaque: text or bytes, which the provider gets as they are.
    pub fn new(budget: impl Into<String>, id: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            budget: budget.into(),
            id: id.into(),
            payload: payload.into(),
            lane: LaneName::DEFAULT.to_owned(),
            cost: 1,
            not_before: None,
            deadline: None,
            recipient: None,
        }
    }

    /// The lane inside the budget.
    #[must_use]
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.lane = lane.into();
        self
    }

    /// What the send weighs in the limit's units (SMS: recipients x segments), at least 1.
    #[must_use]
    pub fn cost(mut self, units: u32) -> Self {
        self.cost = units;
        self
    }

    /// The earliest instant; rounded up to a whole second.
    #[must_use]
    pub fn not_before(mut self, at: SystemTime) -> Self {
        self.not_before = Some(at);
        self
    }

    /// The latest instant: a send that cannot be made by then is refused, or ends as expired.
    #[must_use]
    pub fn deadline(mut self, at: SystemTime) -> Self {
        self.deadline = Some(at);
        self
    }

    /// Who gets it, as a key of the caller's own (a phone number, an address, an account): sends to one recipient keep the
    /// policy's `spacing`, and a recipient's cooldown stops only them. It travels as a digest and is never logged.
    #[must_use]
    pub fn recipient(mut self, key: impl Into<String>) -> Self {
        self.recipient = Some(key.into());
        self
    }

    /// The caller's ID, unchecked.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The budget's name, unchecked.
    #[must_use]
    pub fn budget(&self) -> &str {
        &self.budget
    }

    /// Checks everything that can be checked without Redis.
    ///
    /// # Errors
    /// [`InvalidMessage`].
    pub fn check(self) -> Result<Draft, InvalidMessage> {
        if self.cost == 0 {
            return Err(InvalidMessage::ZeroCost);
        }
        if self.cost >= 1 << 24 {
            return Err(InvalidMessage::CostOutOfRange { cost: self.cost });
        }
        let not_before = self.not_before.map(Instant::from);
        let deadline = self.deadline.map(Instant::from);
        if let (Some(from), Some(to)) = (not_before, deadline)
            && to < from
        {
            return Err(InvalidMessage::DeadlineBeforeStart);
        }
        if self.recipient.as_deref() == Some("") {
            return Err(InvalidMessage::EmptyRecipient);
        }
        let recipient = self.recipient.as_deref().map(Recipient::new);
        let lane = LaneName::new(self.lane)?;
        let digest = digest(&self.payload, self.cost, lane.as_str(), not_before, deadline, recipient);
        Ok(Draft {
            budget: BudgetName::new(self.budget)?,
            id: SendId::new(self.id)?,
            lane,
            payload: self.payload,
            cost: self.cost,
            not_before,
            deadline,
            recipient,
            digest,
        })
    }
}

/// Why a message was refused before Redis was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// A name is not one.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Cost 0.
    #[error("cost 0 would pass every limit: give at least 1 unit")]
    ZeroCost,
    /// A cost that no policy can take.
    #[error("cost {cost} is out of range: 16,777,215 units is the most")]
    CostOutOfRange {
        /// The cost given.
        cost: u32,
    },
    /// The recipient is the empty text.
    #[error("the recipient is empty: name whom the message goes to, or leave it out")]
    EmptyRecipient,
    /// The deadline lies before `not_before`.
    #[error("the deadline lies before not_before: no instant satisfies both")]
    DeadlineBeforeStart,
}

/// What a send is made of, in 8 bytes: the same ID with another digest is a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; 8]);

/// A recipient's key, in 8 bytes of its SHA-256; too few people have a number for that to be a secret, so it is not printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Recipient(pub [u8; 8]);

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recipient(…)")
    }
}

impl Recipient {
    fn new(key: &str) -> Self {
        let mut out = [0; 8];
        out.copy_from_slice(&Sha256::digest(key)[..8]);
        // all zero means none
        out[7] |= 1;
        Self(out)
    }
}

/// A checked message. Its payload is left out when it is printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Draft {
    /// The budget.
    pub budget: BudgetName,
    /// The send ID.
    pub id: SendId,
    /// The lane.
    pub lane: LaneName,
    /// Opaque.
    pub payload: Vec<u8>,
    /// Units.
    pub cost: u32,
    /// The earliest instant.
    pub not_before: Option<Instant>,
    /// The latest instant.
    pub deadline: Option<Instant>,
    /// Whom it goes to.
    pub recipient: Option<Recipient>,
    /// Of payload, cost, lane, not_before, deadline and recipient.
    pub digest: Digest,
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, id, lane, payload, cost, not_before, deadline, recipient, digest } = self;
        f.debug_struct("Draft")
            .field("budget", budget)
            .field("id", id)
            .field("lane", lane)
            .field("payload_bytes", &payload.len())
            .field("cost", cost)
            .field("not_before", not_before)
            .field("deadline", deadline)
            .field("recipient", recipient)
            .field("digest", digest)
            .finish()
    }
}

impl Draft {
    /// The digest of what the draft holds.
    pub(crate) fn own_digest(&self) -> Digest {
        digest(&self.payload, self.cost, self.lane.as_str(), self.not_before, self.deadline, self.recipient)
    }

    /// Whether scripts have to be told more than the fixed fields: a lane by name, a recipient, flags.
    pub(crate) fn extended(&self, flags: u8) -> bool {
        flags > 0 || self.recipient.is_some() || self.lane.as_str() != LaneName::DEFAULT
    }

    /// 'c8B' recipient, flags, and the lane's name, when there is anything to say.
    pub(crate) fn extend(&self, out: &mut Vec<u8>, flags: u8) {
        if self.extended(flags) {
            out.extend(self.recipient.map_or([0; 8], |Recipient(key)| key));
            out.push(flags);
            out.extend(self.lane.as_str().as_bytes());
        }
    }
}

fn digest(
    payload: &[u8],
    cost: u32,
    lane: &str,
    not_before: Option<Instant>,
    deadline: Option<Instant>,
    recipient: Option<Recipient>,
) -> Digest {
    let mut hash = Sha256::new();
    let micros = |at: Option<Instant>| at.map_or(0, Instant::as_micros).to_le_bytes();
    hash.update((payload.len() as u64).to_le_bytes());
    hash.update(payload);
    hash.update(cost.to_le_bytes());
    hash.update(micros(not_before));
    hash.update(micros(deadline));
    hash.update(lane);
    if let Some(Recipient(key)) = recipient {
        hash.update([0]);
        hash.update(key);
    }
    let mut out = [0; 8];
    out.copy_from_slice(&hash.finalize()[..8]);
    Digest(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn base() -> Message {
        Message::new("b", "id", "text")
    }

    #[test]
    fn the_digest_covers_payload_cost_and_times_but_not_the_id() {
        let of = |m: Message| m.check().unwrap().digest;
        let at = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
        assert_eq!(of(base()), of(Message::new("b", "other", "text")));
        let others = [
            base().cost(2),
            Message::new("b", "id", "texu"),
            base().not_before(at),
            base().deadline(at),
            base().not_before(at).deadline(at),
            base().lane("bulk"),
            base().recipient("+31612345678"),
            base().recipient("+31612345679"),
        ];
        for (i, a) in others.iter().enumerate() {
            assert_ne!(of(a.clone()), of(base()));
            for b in &others[i + 1..] {
                assert_ne!(of(a.clone()), of(b.clone()));
            }
        }
    }

    #[test]
    fn bad_messages_say_what_to_do() {
        let at = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
        assert_eq!(base().cost(0).check(), Err(InvalidMessage::ZeroCost));
        assert_eq!(base().cost(1 << 24).check(), Err(InvalidMessage::CostOutOfRange { cost: 1 << 24 }));
        assert!(matches!(base().lane("Bulk").check(), Err(InvalidMessage::Name(InvalidName::Charset { .. }))));
        assert_eq!(base().recipient("").check(), Err(InvalidMessage::EmptyRecipient));
        let early = at - Duration::from_secs(1);
        assert_eq!(base().not_before(at).deadline(early).check(), Err(InvalidMessage::DeadlineBeforeStart));
        assert!(matches!(Message::new("b", "", "x").check(), Err(InvalidMessage::Name(InvalidName::EmptyId))));
    }
}
