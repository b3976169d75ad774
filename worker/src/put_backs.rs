//! Copies on their way back to the queue, together. After an outage of the workers all that is overdue comes at once and moves:
//! one call for each would hold up what is due now.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sendslot_shared::queue::{Entry, MAX_ENTRIES, Queue, QueueError, pack};
use tokio::sync::oneshot;

/// How long the first one waits for others. The messages of a batch ask Redis side by side.
const TOGETHER: Duration = Duration::from_millis(3);

#[derive(Debug)]
struct Waiting {
    entry: Entry,
    told: oneshot::Sender<Result<(), QueueError>>,
}

/// What waits for the next call.
#[derive(Debug, Default)]
pub(crate) struct PutBacks(Mutex<Vec<Waiting>>);

impl PutBacks {
    /// Puts it on the queue, with what else is put back at this moment.
    pub(crate) async fn put(self: &Arc<Self>, queue: &Queue, entry: Entry) -> Result<(), QueueError> {
        let (told, result) = oneshot::channel();
        let waiting = {
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(Waiting { entry, told });
            waiting.len()
        };
        if waiting == 1 || waiting == MAX_ENTRIES {
            let (this, queue) = (self.clone(), queue.clone());
            // in a task of its own: others count on it when this caller gives up
            tokio::spawn(async move {
                if waiting == 1 {
                    tokio::time::sleep(TOGETHER).await;
                }
                this.flush(&queue).await;
            });
        }
        let ended = || QueueError::Unreachable { reason: "the process ends".to_owned() };
        result.await.unwrap_or_else(|_| Err(ended()))
    }

    async fn flush(&self, queue: &Queue) {
        let waiting = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let (entries, told): (Vec<Entry>, Vec<_>) = waiting.into_iter().map(|w| (w.entry, w.told)).unzip();
        let sizes: Vec<usize> = entries.iter().map(|entry| entry.body.len()).collect();
        let mut told = told.into_iter();
        for range in pack(&sizes) {
            for result in queue.send_batch(&entries[range]).await {
                // Err: its caller has given up
                let _ = told.next().map(|told| told.send(result));
            }
        }
    }
}
