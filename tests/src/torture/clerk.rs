//! Offers the load to the scheduler process and hears its answers; what is not answered is offered again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::asks::{Answer, Ask, Offer};
use super::journal::{Journal, now_us};
use super::ledger::{Ledger, Next};
use super::load::Load;
use super::scheduler_process::{Program, SchedulerProcess};

const STEP: Duration = Duration::from_millis(50);
/// What failed is offered again after this.
const AGAIN: Duration = Duration::from_millis(800);

enum Order {
    /// Draw the load from now on, or draw nothing.
    Draw(bool),
    /// So many plain sends at once, in a budget's default lane.
    Backlog(&'static str, usize),
    KillScheduler(oneshot::Sender<Result<()>>),
}

/// The run's end of the clerk.
#[derive(Debug)]
pub(super) struct Clerk {
    orders: mpsc::UnboundedSender<Order>,
    ledger: Arc<Mutex<Ledger>>,
    task: JoinHandle<()>,
}

impl Clerk {
    pub(super) fn start(program: Program, load: Load, journal: Arc<Journal>) -> Result<Self> {
        let (answering, answers) = mpsc::unbounded_channel();
        let scheduler = SchedulerProcess::start(program, answering)?;
        let (orders, ordered) = mpsc::unbounded_channel();
        let ledger = Arc::default();
        let desk = Desk { ledger: Arc::clone(&ledger), scheduler, load, journal, due: BinaryHeap::new(), draws: false };
        let task = tokio::spawn(desk.run(answers, ordered));
        Ok(Self { orders, ledger, task })
    }

    pub(super) fn draw(&self, draws: bool) {
        let _ = self.orders.send(Order::Draw(draws));
    }

    pub(super) fn backlog(&self, budget: &'static str, sends: usize) {
        let _ = self.orders.send(Order::Backlog(budget, sends));
    }

    pub(super) async fn kill_scheduler(&self) -> Result<()> {
        let (done, killed) = oneshot::channel();
        let _ = self.orders.send(Order::KillScheduler(done));
        killed.await.context("the clerk")?
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// When, and what: sorted by time.
type Due = Reverse<(u64, String, bool)>;

struct Desk {
    ledger: Arc<Mutex<Ledger>>,
    scheduler: SchedulerProcess,
    load: Load,
    journal: Arc<Journal>,
    /// Send IDs, to be cancelled or to be offered again.
    due: BinaryHeap<Due>,
    draws: bool,
}

impl Desk {
    async fn run(mut self, mut answers: mpsc::UnboundedReceiver<Answer>, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut tick = tokio::time::interval(STEP);
        loop {
            tokio::select! {
                answer = answers.recv() => match answer {
                    Some(answer) => self.hear(answer),
                    None => return,
                },
                order = orders.recv() => match order {
                    Some(Order::Draw(draws)) => self.draws = draws,
                    Some(Order::Backlog(budget, n)) => {
                        for _ in 0..n {
                            let offer = self.load.plain(budget, "default");
                            self.offer(offer, None);
                        }
                    }
                    Some(Order::KillScheduler(done)) => {
                        let killed = self.scheduler.kill_and_restart().await;
                        while let Ok(answer) = answers.try_recv() {
                            self.hear(answer);
                        }
                        self.ask_again();
                        let _ = done.send(killed);
                    }
                    None => return,
                },
                _ = tick.tick() => self.step(),
            }
        }
    }

    fn step(&mut self) {
        let now = now_us();
        if self.draws {
            for (offer, cancel_after) in self.load.step(STEP, now) {
                self.offer(offer, cancel_after);
            }
        }
        while let Some(Reverse((at, id, cancel))) = self.due.peek().cloned()
            && at <= now
        {
            self.due.pop();
            let Some(offer) = lock(&self.ledger).sends.get(&id).map(|send| send.offer.clone()) else { continue };
            if cancel { self.cancel(offer.budget, id) } else { self.offer(offer, None) }
        }
    }

    fn offer(&self, offer: Offer, cancel_after: Option<Duration>) {
        self.journal.note(&offer.id, format!("caller offers {}, cost {}", offer.lane, offer.cost));
        lock(&self.ledger).offered(&offer, cancel_after, now_us());
        self.ask(&Ask::Send(offer));
    }

    fn cancel(&self, budget: String, id: String) {
        self.journal.note(&id, "caller cancels");
        lock(&self.ledger).asked_to_cancel(&id, now_us());
        self.ask(&Ask::Cancel { budget, id });
    }

    fn ask(&self, ask: &Ask) {
        if let Err(error) = self.scheduler.ask(ask) {
            tracing::error!(%error, "a question cannot be written");
        }
    }

    fn hear(&mut self, Answer { id, said }: Answer) {
        let now = now_us();
        self.journal.note(&id, format!("caller hears {said:?}"));
        let next = lock(&self.ledger).heard(&id, &said, now);
        let after = |wait: Duration| now + wait.as_micros() as u64;
        match next {
            Next::Nothing => {}
            Next::OfferAgain => self.due.push(Reverse((after(AGAIN), id, false))),
            Next::CancelIn(wait) => self.due.push(Reverse((after(wait), id, true))),
        }
    }

    /// What a dead process was asked, but for what is due to be asked again anyway.
    fn ask_again(&self) {
        let (offers, cancels) = lock(&self.ledger).unanswered();
        let due: Vec<&String> = self.due.iter().map(|Reverse((_, id, _))| id).collect();
        for offer in offers.into_iter().filter(|offer| !due.contains(&&offer.id)) {
            self.offer(offer, None);
        }
        cancels.into_iter().for_each(|(budget, id)| self.cancel(budget, id));
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}
