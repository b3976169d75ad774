//! Names of the keys in Redis. All keys of a budget carry its hash tag, so that one budget lives in one cluster slot.

use crate::id::{BudgetName, SendId};

pub(crate) fn calendar(budget: &BudgetName) -> String {
    format!("s{{{budget}}}cal")
}

pub(crate) fn policy(budget: &BudgetName) -> String {
    format!("s{{{budget}}}policy")
}

pub(crate) fn record(budget: &BudgetName, id: &SendId) -> String {
    format!("s{{{budget}}}r:{id}")
}

/// The set of all budgets that have a policy.
pub(crate) const BUDGETS: &str = "sendslot:budgets";
