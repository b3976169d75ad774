//! Single sends of one budget that arrive together share a booking call and a SendMessageBatch.
//!
//! A send that finds no call of its budget under way goes at once; behind one it waits a little for others to come along.
//! A request waits for its own send's result alone. Nothing is answered before SQS has taken it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use sendslot_scheduler::{Message, ScheduleError, Scheduled, Scheduler};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::app::Coalescing;

/// The most sends of one call: what `schedule_all` books at once.
const MOST: usize = 100;
/// A budget's task ends when nothing has come for so long.
const IDLE: Duration = Duration::from_secs(30);

type Outcome = Result<Scheduled, ScheduleError>;
type Waiting = (Message, oneshot::Sender<Outcome>);
type Budgets = Arc<Mutex<HashMap<String, mpsc::UnboundedSender<Waiting>>>>;

/// Gathers sends by budget.
#[derive(Debug)]
pub(crate) struct Coalescer {
    scheduler: Scheduler,
    settings: Coalescing,
    // as many wait as there are requests: the server bounds these
    budgets: Budgets,
}

impl Coalescer {
    pub(crate) fn new(scheduler: Scheduler, settings: Coalescing) -> Self {
        Self { scheduler, settings, budgets: Budgets::default() }
    }

    /// Schedules one send, together with others. `None`: the task is gone, which only a panic does.
    pub(crate) async fn schedule(&self, message: Message) -> Option<Outcome> {
        let (answer, outcome) = oneshot::channel();
        self.hand_over((message, answer));
        outcome.await.ok()
    }

    fn hand_over(&self, waiting: Waiting) {
        let name = waiting.0.budget().to_owned();
        let mut budgets = lock(&self.budgets);
        // a task ends only under this lock, with nothing in hand
        let sent = match budgets.get(&name) {
            Some(task) => task.send(waiting),
            None => Err(mpsc::error::SendError(waiting)),
        };
        if let Err(mpsc::error::SendError(waiting)) = sent {
            let (task, sends) = mpsc::unbounded_channel();
            let _ = task.send(waiting);
            budgets.insert(name.clone(), task);
            tokio::spawn(gather(self.scheduler.clone(), self.settings, self.budgets.clone(), (name, sends)));
        }
    }
}

/// One budget's task: takes what has come, and schedules it while the next is gathered.
async fn gather(
    scheduler: Scheduler,
    settings: Coalescing,
    budgets: Budgets,
    (name, mut sends): (String, mpsc::UnboundedReceiver<Waiting>),
) {
    let calls = Arc::new(Semaphore::new(settings.calls.max(1)));
    let mut chunk = Vec::with_capacity(MOST);
    loop {
        if tokio::time::timeout(IDLE, sends.recv_many(&mut chunk, MOST)).await.is_err() {
            let mut budgets = lock(&budgets);
            if sends.is_empty() {
                budgets.remove(&name);
                return;
            }
            continue;
        }
        if chunk.is_empty() {
            return;
        }
        let alone = calls.available_permits() == settings.calls.max(1);
        if !alone && !settings.linger.is_zero() && chunk.len() < MOST {
            tokio::time::sleep(settings.linger).await;
        }
        // what comes while all calls are busy goes with this one
        let Ok(call) = calls.clone().acquire_owned().await else { return };
        while chunk.len() < MOST
            && let Ok(waiting) = sends.try_recv()
        {
            chunk.push(waiting);
        }
        let (scheduler, chunk) = (scheduler.clone(), std::mem::replace(&mut chunk, Vec::with_capacity(MOST)));
        tokio::spawn(async move {
            let _call = call;
            schedule(&scheduler, chunk).await;
        });
    }
}

async fn schedule(scheduler: &Scheduler, chunk: Vec<Waiting>) {
    let (messages, answers): (Vec<Message>, Vec<_>) = chunk.into_iter().unzip();
    let outcomes: Vec<Outcome> = scheduler.schedule_all(stream::iter(messages)).collect().await;
    for (answer, outcome) in answers.into_iter().zip(outcomes) {
        // the caller may have gone
        let _ = answer.send(outcome);
    }
}

fn lock(budgets: &Budgets) -> MutexGuard<'_, HashMap<String, mpsc::UnboundedSender<Waiting>>> {
    budgets.lock().unwrap_or_else(PoisonError::into_inner)
}
