//! cancel.lua: ending a send that no worker has claimed.

use crate::id::{BudgetName, SendId};
use crate::keys;
use crate::reply;
use crate::status::SendState;
use crate::store::{Call, Store, StoreError};

/// What became of a cancellation.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not be sent; its slot is free again. Also when it was cancelled before.
    Cancelled,
    /// Too late: a worker is sending it just now.
    TooLate,
    /// It was sent.
    AlreadySent,
    /// It had ended otherwise: failed, expired, or nobody knows.
    Ended(SendState),
    /// Redis does not know this ID: it was never scheduled, or it waits on SQS without a booking. It is remembered as cancelled
    /// and will not be sent.
    Unknown,
}

/// Cancels a send. Asked again, it answers the same.
///
/// # Errors
/// [`StoreError`]: the send may or may not be cancelled; asking again is safe.
pub async fn cancel(store: &Store, budget: &BudgetName, id: &SendId) -> Result<Cancelled, StoreError> {
    let keys = vec![keys::calendar(budget), keys::policy(budget), keys::record(budget, id)];
    let [before, _] =
        reply::integers::<2>("cancel", store.run(sendslot_lua::CANCEL, Call { keys, args: vec![] }).await?)?;
    if before == 0 {
        return Ok(Cancelled::Unknown);
    }
    Ok(match SendState::from_code(before).ok_or_else(|| reply::wrong("cancel", &before))? {
        SendState::Booked | SendState::Cancelled => Cancelled::Cancelled,
        SendState::Claimed => Cancelled::TooLate,
        SendState::Sent => Cancelled::AlreadySent,
        ended => Cancelled::Ended(ended),
    })
}
