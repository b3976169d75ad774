//! Following each send to its end, by what Redis knows of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use sendslot_scheduler::{Scheduled, SendState, SendStatus};
use sendslot_shared::id::{BudgetName, SendId};
use sendslot_shared::status;
use sendslot_shared::store::{Store, StoreError};

/// An accepted send.
pub(crate) struct Accepted {
    pub(crate) id: SendId,
    /// Its slot at the first booking; `None` when Redis could not be asked.
    pub(crate) first_slot: Option<(u32, u32)>,
    /// What was last known of it.
    pub(crate) last: Option<SendStatus>,
}

/// All accepted sends and when each is worth a look.
pub(crate) struct Watch {
    store: Store,
    budget: BudgetName,
    pub(crate) sends: Vec<Accepted>,
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    pub(crate) ended: BTreeMap<&'static str, u64>,
    pub(crate) last_progress: Instant,
}

/// Looks in one round trip.
const LOOKS: usize = 500;
/// A send is looked at this long after its slot.
const AFTER_SLOT: Duration = Duration::from_millis(300);

impl Watch {
    pub(crate) fn new(store: Store, budget: BudgetName) -> Self {
        let (sends, due, ended) = (vec![], BinaryHeap::new(), BTreeMap::new());
        Self { store, budget, sends, due, ended, last_progress: Instant::now() }
    }

    pub(crate) fn add(&mut self, id: SendId, scheduled: Scheduled) {
        let wait = scheduled.wait().unwrap_or_default();
        self.due.push(Reverse((Instant::now() + wait + AFTER_SLOT, self.sends.len())));
        self.sends.push(Accepted { id, first_slot: scheduled.booked().map(|booked| booked.slot()), last: None });
        self.last_progress = Instant::now();
    }

    pub(crate) fn open(&self) -> usize {
        self.due.len()
    }

    /// Looks at the sends that are due; the ended ones are not looked at again.
    pub(crate) async fn look(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        let mut places = vec![];
        while let Some(Reverse((due, place))) = self.due.peek().copied()
            && due <= now
            && places.len() < LOOKS
        {
            self.due.pop();
            places.push(place);
        }
        let ids: Vec<&SendId> = places.iter().map(|place| &self.sends[*place].id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let known = status::status_all(&self.store, &self.budget, &ids).await?;
        for (place, status) in places.into_iter().zip(known) {
            match &status {
                Some(s) if !matches!(s.state, SendState::Booked | SendState::Claimed) => {
                    *self.ended.entry(s.state.as_str()).or_default() += 1;
                    self.last_progress = Instant::now();
                }
                other => {
                    let wait = other.as_ref().map_or(Duration::ZERO, |s| s.wait);
                    self.due.push(Reverse((Instant::now() + wait + AFTER_SLOT, place)));
                }
            }
            self.sends[place].last = status;
        }
        Ok(())
    }
}
