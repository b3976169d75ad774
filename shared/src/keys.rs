//! Names of the keys in Redis. All keys of a budget carry its hash tag, so that one budget lives in one cluster slot.

use sha2::{Digest as _, Sha256};

use crate::id::{BudgetName, SendId};

pub(crate) fn calendar(budget: &BudgetName) -> String {
    format!("s{{{budget}}}cal")
}

pub(crate) fn policy(budget: &BudgetName) -> String {
    format!("s{{{budget}}}policy")
}

/// What all records of a budget begin with.
pub(crate) fn record_prefix(budget: &BudgetName) -> String {
    format!("s{{{budget}}}r:")
}

pub(crate) fn record(budget: &BudgetName, id: &SendId) -> String {
    format!("{}{id}", record_prefix(budget))
}

/// The calls of a minute, as settle.lua names it.
pub(crate) fn audit(budget: &BudgetName, minute: u64) -> String {
    format!("s{{{budget}}}au:{minute}")
}

/// How the calls of a minute ended that did not end as sent, as settle.lua names it.
pub(crate) fn endings(budget: &BudgetName, minute: u64) -> String {
    format!("s{{{budget}}}en:{minute}")
}

/// Which send the provider knows by this ID of its own.
pub(crate) fn provider_id(budget: &BudgetName, id: &str) -> String {
    let hash = Sha256::digest(id);
    let short = hash.iter().take(8).fold(0_u64, |short, byte| short << 8 | u64::from(*byte));
    format!("s{{{budget}}}p:{short:016x}")
}

/// The set of all budgets that have a policy.
pub(crate) const BUDGETS: &str = "sendslot:budgets";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn budgets() -> impl Strategy<Value = BudgetName> {
        "[a-z0-9._-]{1,64}".prop_map(|name| BudgetName::new(name).unwrap())
    }

    /// IDs that try to look like something else, and any others.
    fn ids() -> impl Strategy<Value = SendId> {
        let odd =
            prop::sample::select(vec!["{", "}", "s{b}", "{}", ":", "r:", " ", "\n", "cal", "policy", "é", "\0", "h:"]);
        let mixed = prop::collection::vec(odd, 1..40).prop_map(|parts| parts.concat());
        let text = prop_oneof![mixed, any::<String>(), Just("é".repeat(128))];
        text.prop_filter_map("an ID", |text| SendId::new(text).ok())
    }

    /// Redis Cluster: from the first `{` to the first `}` behind it, if anything is between.
    fn hash_tag(key: &str) -> &str {
        let inside = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(inside, _)| inside);
        inside.filter(|inside| !inside.is_empty()).unwrap_or(key)
    }

    /// All keys of a budget with these IDs, those that the scripts derive as well (ARCHITECTURE.md, Keys).
    fn keys(budget: &BudgetName, ids: &[SendId]) -> BTreeSet<String> {
        let prefix = calendar(budget).strip_suffix("cal").unwrap().to_owned();
        let mut keys = BTreeSet::from([calendar(budget), policy(budget), audit(budget, 0), endings(budget, 0)]);
        for id in ids {
            let record = record(budget, id);
            // as record.lua and receipt.lua do
            for kind in ["h", "d"] {
                keys.insert(format!("{prefix}{kind}:{}", &record[prefix.len() + 2..]));
            }
            keys.insert(provider_id(budget, id.as_str()));
            keys.insert(record);
        }
        keys.extend(
            ["lu:a", "holes", "pre", "q:0:0", "sp:12345678", "full:1/1:0:1", "hints"].map(|k| prefix.clone() + k),
        );
        keys
    }

    proptest! {
        #[test]
        fn no_id_reaches_another_key(a in budgets(), b in budgets(), ids in prop::collection::vec(ids(), 1..8)) {
            let ids: Vec<SendId> = ids.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
            let (of_a, of_b) = (keys(&a, &ids), keys(&b, &ids));
            prop_assert_eq!(of_a.len(), 4 + 4 * ids.len() + 7, "each is a key of its own");
            for key in &of_a {
                prop_assert_eq!(hash_tag(key), a.as_str());
                prop_assert!(key != BUDGETS);
            }
            prop_assert!(a == b || of_a.is_disjoint(&of_b));
        }
    }
}
