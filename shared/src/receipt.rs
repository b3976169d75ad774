//! receipt.lua and provider_id.lua: what the provider says became of a send after it took it.

use redis::Value;

use crate::id::{BudgetName, SendId};
use crate::keys;
use crate::reply;
use crate::store::{Call, Store, StoreError};
use crate::time::Instant;

/// The longest of a provider's words that is kept, in bytes.
pub const MAX_WORD_BYTES: usize = 64;

/// What a receipt says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// It reached its recipient.
    Delivered,
    /// It did not and will not.
    Undelivered,
}

impl Delivery {
    /// As people and programs read it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Undelivered => "undelivered",
        }
    }
}

/// A provider's word on a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// What it says.
    pub delivery: Delivery,
    /// When that was, by the provider's clock; kept in whole milliseconds.
    pub at: Instant,
    /// The provider's own word for it, such as `bounce`; its first 64 bytes are kept.
    pub word: String,
}

/// A receipt that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The receipt.
    pub receipt: Receipt,
    /// When it was recorded, by Redis' clock.
    pub recorded: Instant,
}

/// What became of a receipt.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It stands.
    Recorded,
    /// A later one stands, or the same one.
    Older,
    /// Nothing is known of the send: not yet, or no longer.
    UnknownSend,
}

/// Records a receipt: the last by the provider's instant stands, whatever order they come in. Kept for the budget's `dedup_ttl`, and
/// as long as the send's record at least.
///
/// # Errors
/// [`StoreError`]: it may or may not have been recorded; it may be recorded again.
pub async fn record(
    store: &Store,
    budget: &BudgetName,
    id: &SendId,
    receipt: &Receipt,
) -> Result<Recorded, StoreError> {
    let keys = vec![keys::calendar(budget), keys::policy(budget), keys::record(budget, id)];
    let value = store.run(sendslot_lua::RECEIPT, Call { keys, args: vec![pack(receipt)] }).await?;
    let fields = reply::integers::<2>("receipt", value)?;
    match fields[0] {
        0 => Ok(Recorded::Recorded),
        1 => Ok(Recorded::Older),
        2 => Ok(Recorded::UnknownSend),
        _ => Err(reply::wrong("receipt", &fields)),
    }
}

/// Remembers which send the provider knows by an ID of its own, for the budget's `dedup_ttl`.
///
/// # Errors
/// [`StoreError`]; asking again is harmless.
pub async fn remember(store: &Store, budget: &BudgetName, provider_id: &str, id: &SendId) -> Result<(), StoreError> {
    let keys = vec![keys::calendar(budget), keys::policy(budget), keys::provider_id(budget, provider_id)];
    let call = Call { keys, args: vec![id.as_str().as_bytes().to_vec()] };
    let value = store.run(sendslot_lua::PROVIDER_ID, call).await?;
    reply::integers::<1>("provider_id", value).map(drop)
}

/// The send that the provider knows by this ID of its own, if a worker said so (`SENDSLOT_RECEIPTS`) and it is not forgotten.
///
/// # Errors
/// [`StoreError`].
pub async fn find(store: &Store, budget: &BudgetName, provider_id: &str) -> Result<Option<SendId>, StoreError> {
    let key = keys::provider_id(budget, provider_id);
    match store.command("GET", Some(&key), redis::cmd("GET").arg(&key)).await? {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(String::from_utf8(bytes).ok().and_then(|id| SendId::new(id).ok())),
        other => Err(reply::wrong("GET", &other)),
    }
}

/// '<BI6' delivered, instant (ms), and the word
fn pack(receipt: &Receipt) -> Vec<u8> {
    let mut arg = vec![u8::from(receipt.delivery == Delivery::Delivered)];
    arg.extend(&(receipt.at.as_micros() / 1000).to_le_bytes()[..6]);
    let end = (0..=receipt.word.len().min(MAX_WORD_BYTES)).rev().find(|end| receipt.word.is_char_boundary(*end));
    arg.extend(&receipt.word.as_bytes()[..end.unwrap_or(0)]);
    arg
}

/// '<BI6I6' delivered, instant, when it was recorded (ms), and the word
pub(crate) fn unpack(bytes: &[u8]) -> Option<Standing> {
    let mut fields = reply::Fields(bytes);
    let delivery = if fields.u8()? == 1 { Delivery::Delivered } else { Delivery::Undelivered };
    let mut millis = || fields.u48().map(|ms| Instant::from_micros(ms * 1000));
    let (at, recorded) = (millis()?, millis()?);
    let word = String::from_utf8_lossy(fields.0).into_owned();
    Some(Standing { receipt: Receipt { delivery, at, word }, recorded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_word_is_cut_between_characters() {
        let receipt = |word: &str| Receipt {
            delivery: Delivery::Delivered,
            at: Instant::from_micros(1_796_083_200_123_456),
            word: word.to_owned(),
        };
        for (word, kept) in
            [("", 0), ("bounce", 6), (&"x".repeat(70), 64), (&"é".repeat(40), 64), (&"€".repeat(40), 63)]
        {
            let packed = pack(&receipt(word));
            assert_eq!(packed.len(), 7 + kept, "{word}");
            let stored = [&packed[..7], &[9, 0, 0, 0, 0, 0], &packed[7..]].concat();
            let standing = unpack(&stored).unwrap();
            assert_eq!(standing.receipt.word, word[..kept]);
            assert_eq!(standing.receipt.at.as_micros(), 1_796_083_200_123_000);
            assert_eq!(standing.recorded.as_micros(), 9000);
        }
    }
}
