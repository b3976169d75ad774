//! Whether scripts that write would run. INFO does not tell: it is answered too by a server that loads its data, has no memory left,
//! is a replica, or has lost its primary.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use sendslot_lua::Script;

use super::errand::Work;
use super::nodes::Table;
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
        let keys = keys_of_each(&table, nodes.primaries(&table).len());
        let mut asked: FuturesUnordered<_> = keys.into_iter().map(|key| self.probe_key(key)).collect();
        let (mut last, mut limited) = (None, asked.is_empty());
        while let Some(answer) = asked.next().await {
            let Err(error) = answer else { return Ok(()) };
            limited |= forbids_a_key(&error);
            last = Some(error);
        }
        match last {
            Some(error) if !limited => Err(error),
            _ => self.check().await,
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

/// The user may use other keys; one who may not run scripts books nothing.
fn forbids_a_key(error: &StoreError) -> bool {
    matches!(error, StoreError::Refused { source, .. } if source.code() == Some("NOPERM") && source.to_string().contains("access"))
}

/// One key for each of so many servers, as far as they serve slots.
fn keys_of_each(table: &Table, servers: usize) -> Vec<String> {
    let mut found = BTreeMap::new();
    for key in (0..MOST).map(|n| format!("s{{probe{n}}}cal")) {
        if !table.is_cluster() {
            return vec![key];
        }
        if let Some(link) = table.serving(slot(&key)) {
            found.entry(link.address.clone()).or_insert(key);
        }
        if found.len() == servers {
            break;
        }
    }
    found.into_values().collect()
}
