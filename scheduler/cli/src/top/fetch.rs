//! Asks Redis beside the drawing, so that keys work while it is slow or away.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::join_all;
use sendslot_shared::id::BudgetName;
use sendslot_shared::store::{Store, StoreError};
use sendslot_shared::{budget, status, view};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::REFRESH;
use super::app::{Picture, Row};

/// What is to be done before the next picture.
#[derive(Debug)]
struct Order {
    budget: BudgetName,
    pause: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Fetcher {
    chosen: watch::Sender<Option<BudgetName>>,
    orders: mpsc::UnboundedSender<Order>,
    news: mpsc::Receiver<Result<Picture, String>>,
    task: JoinHandle<()>,
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fetcher {
    pub(super) fn start(store: Store, named: Vec<BudgetName>) -> Self {
        let (chosen, choice) = watch::channel(named.first().cloned());
        let (orders, to_do) = mpsc::unbounded_channel();
        let (sender, news) = mpsc::channel(1);
        let task = tokio::spawn(run(store, named, choice, to_do, sender));
        Self { chosen, orders, news, task }
    }

    pub(super) async fn next(&mut self) -> anyhow::Result<Result<Picture, String>> {
        self.news.recv().await.context("asking Redis stopped")
    }

    pub(super) fn choose(&self, name: BudgetName) {
        self.chosen.send_replace(Some(name));
    }

    /// Pauses for so long, or (`None`) resumes.
    pub(super) fn pause(&self, budget: BudgetName, pause: Option<Duration>) {
        // the picture tells what became of it
        let _ = self.orders.send(Order { budget, pause });
    }
}

async fn run(
    store: Store,
    named: Vec<BudgetName>,
    mut chosen: watch::Receiver<Option<BudgetName>>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    news: mpsc::Sender<Result<Picture, String>>,
) {
    let mut order = None;
    loop {
        let name = chosen.borrow_and_update().clone();
        let picture = match order.take() {
            None => picture(&store, &named, name).await,
            Some(Order { budget, pause }) => match budget::pause(&store, &budget, pause).await {
                Ok(_) => picture(&store, &named, name).await,
                Err(error) => Err(format!("{budget} was neither paused nor resumed: {error}")),
            },
        };
        let failed = picture.is_err();
        if news.send(picture).await.is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(if failed { 2 * REFRESH } else { REFRESH }) => {}
            // another choice and an order are served at once
            _ = chosen.changed() => {}
            asked = orders.recv() => match asked {
                Some(asked) => order = Some(asked),
                None => return,
            },
        }
    }
}

/// The list and one budget's view; of the first one while none is chosen.
pub(super) async fn picture(
    store: &Store,
    named: &[BudgetName],
    chosen: Option<BudgetName>,
) -> Result<Picture, String> {
    let text = |error: StoreError| error.to_string();
    let names = if named.is_empty() { budget::list(store).await.map_err(text)? } else { named.to_vec() };
    let chosen = chosen.filter(|name| names.contains(name)).or_else(|| names.first().cloned());
    let view = match &chosen {
        Some(name) => view::view(store, name).await.map_err(text)?,
        None => None,
    };
    let all = join_all(names.iter().map(|name| status::budget_status(store, name))).await;
    let mut rows = vec![];
    for (name, known) in names.into_iter().zip(all) {
        let known = known.map_err(text)?;
        let ahead = known.booked_until.map_or(0, |until| until.as_micros() - known.now.as_micros());
        rows.push(Row {
            name,
            backlog: Duration::from_micros(ahead),
            paused: known.paused_until.is_some(),
            resting: known.cooldown_until.is_some(),
        });
    }
    Ok(Picture { rows, chosen, view })
}
