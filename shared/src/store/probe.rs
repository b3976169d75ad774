//! Whether scripts that write would run. INFO does not tell: it is answered too by a server that loads its data, has no memory left,
//! is a replica, or has lost its primary.

use futures_util::future::select_ok;
use sendslot_lua::Script;

use super::errand::Work;
use super::nodes::{Nodes, Table};
use super::slot::slot;
use super::{Call, Store, StoreError, errand, only};
use crate::id::BudgetName;
use crate::keys;

/// Redis refuses it before it begins where it would refuse a booking, and it leaves no trace.
pub(super) const SCRIPT: Script = Script { name: "probe", source: "#!lua\nreturn 1", keys: &["cal"], args: &[] };
/// So many keys are tried to find one of each node.
const MOST: usize = 4096;

impl Store {
    /// Whether anything can be booked. In a cluster each primary is asked, and one that takes writes is enough, since one that does
    /// not takes only its own budgets with it. A user who may not use the keys that it names is answered by [`Store::check`].
    ///
    /// # Errors
    /// [`StoreError`], as a booking would have it.
    pub async fn probe(&self) -> Result<(), StoreError> {
        let nodes = &self.0.nodes;
        let table = nodes.table().await?;
        let asked = keys_of_each(nodes, &table).into_iter().map(|key| Box::pin(self.probe_key(key)));
        match select_ok(asked).await {
            Ok(_) => Ok(()),
            Err(StoreError::Refused { source, .. }) if source.code() == Some("NOPERM") => self.check().await,
            Err(error) => Err(error),
        }
    }

    /// Whether sends of this budget can be booked.
    ///
    /// # Errors
    /// [`StoreError`], as a booking would have it.
    pub async fn probe_budget(&self, budget: &BudgetName) -> Result<(), StoreError> {
        self.probe_key(keys::calendar(budget)).await
    }

    async fn probe_key(&self, key: String) -> Result<(), StoreError> {
        let call = Call { keys: vec![key], args: vec![] };
        let work = std::iter::once(Work::Script(&self.0.probe, &call));
        only(SCRIPT.name, errand::run(&self.0.nodes, work).await).map(drop)
    }
}

/// One key for each server that serves bookings.
fn keys_of_each(nodes: &Nodes, table: &Table) -> Vec<String> {
    let mut left = nodes.primaries(table);
    let mut found = vec![];
    for key in (0..MOST).map(|n| format!("s{{probe{n}}}cal")) {
        if left.is_empty() {
            break;
        }
        let serves = nodes.link(table, Some(slot(&key)), 0);
        if let Some(place) = left.iter().position(|link| link.address == serves.address) {
            left.swap_remove(place);
            found.push(key);
        }
    }
    found
}
