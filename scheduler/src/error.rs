use sendslot_shared::envelope::{BodyTooLarge, InvalidEnvelope};
use sendslot_shared::message::InvalidMessage;
use sendslot_shared::queue::QueueError;
use sendslot_shared::reserve::Refusal;
use sendslot_shared::store::StoreError;

/// Why a message was not scheduled. In every case nothing is lost: the caller still has the message, and giving it again
/// with the same ID is safe.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The message is not one. Nothing was booked; giving it again fails again.
    #[error(transparent)]
    Invalid(#[from] InvalidMessage),
    /// The message is too large for SQS. Nothing was booked.
    #[error(transparent)]
    TooLarge(#[from] BodyTooLarge),
    /// It was not booked, and says why and when. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Redis could not be asked, or refused the question. It may be booked; schedule it again.
    #[error(transparent)]
    Redis(#[from] StoreError),
    /// The body is not a dead letter of Sendslot. Nothing was booked.
    #[error("this body cannot be booked again: {0}")]
    DeadLetter(#[source] InvalidEnvelope),
    /// It is booked but not on the queue. The booking is kept; schedule it again with the same ID.
    #[error("booked, but not on the queue: {0}. Schedule it again with the same ID")]
    Queue(#[from] QueueError),
    /// Neither Redis nor SQS could be asked. It may be booked; schedule it again.
    #[error("neither booked nor on the queue: {redis}; {queue}. Schedule it again with the same ID")]
    Nowhere {
        /// Why it was not booked.
        redis: StoreError,
        /// Why it is not on the queue.
        queue: QueueError,
    },
}
