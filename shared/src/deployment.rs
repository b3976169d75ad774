//! What the code relies on in a deployment: the settings of Redis, of the queues and of the function, in one place. `sendslot doctor`
//! checks a deployment against them, and a template has to set them.

use std::time::Duration;

/// Redis' `maxmemory-policy`. Any other drops bookings when memory runs short.
pub const EVICTION: &str = "noeviction";
/// The part of `maxmemory` above which bookings will soon be refused.
pub const MEMORY_PART: f64 = 0.8;
/// The queue's visibility timeout is at least so many times the function's timeout: a batch may be tried again while Lambda is
/// throttled (AWS).
pub const VISIBILITY_FACTOR: u32 = 6;
/// The queue's `maxReceiveCount`, at least: below that SQS moves messages that were only unlucky (AWS).
pub const MIN_RECEIVE_COUNT: u32 = 5;
/// How long the dead-letter queue keeps messages: as long as SQS can.
pub const DLQ_RETENTION: Duration = Duration::from_secs(14 * 86_400);
/// What each queue's `MaximumMessageSize` is: the largest body that a scheduler makes.
pub const MAX_MESSAGE_BYTES: usize = crate::envelope::MAX_BODY_BYTES;
/// The mapping's function response type: each message succeeds or fails alone.
pub const RESPONSE_TYPE: &str = "ReportBatchItemFailures";
/// Messages of a batch without a window (AWS).
pub const BATCH_WITHOUT_WINDOW: u32 = 10;
/// The function's timeout is at least the longest lead, the provider call's timeout and this: the rest of a wait, the start window, the
/// settle, and putting a copy back.
pub const FUNCTION_MARGIN: Duration = Duration::from_millis(5100);
/// A budget's lead is at least this and the batch window: messages show up so long before their slots.
pub const LEAD: Duration = Duration::from_millis(1500);
/// A budget's transit is at least this and the batch window: the earliest slot offered.
pub const TRANSIT: Duration = Duration::from_millis(250);
/// The call's timeout that the ready-made worker has when `SENDSLOT_HTTP_TIMEOUT_MS` is not set.
pub const HTTP_TIMEOUT: Duration = Duration::from_secs(10);

/// The least timeout of a function.
#[must_use]
pub fn function_timeout(longest_lead: Duration, call_timeout: Duration) -> Duration {
    longest_lead + call_timeout + FUNCTION_MARGIN
}

/// The least visibility timeout of a queue.
#[must_use]
pub fn visibility(function_timeout: Duration) -> Duration {
    function_timeout * VISIBILITY_FACTOR
}
