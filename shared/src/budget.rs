//! policy.lua: setting a budget's policy, and reading it back.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;

use crate::id::BudgetName;
use crate::keys;
use crate::policy::{Compiled, InvalidPolicy, Policy, UnreadableSetting};
use crate::reply;
use crate::store::{Call, Store, StoreError};
use crate::time::micros_up;

/// Why a policy could not be set or read.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// Redis.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The policy was refused; nothing was changed.
    #[error(transparent)]
    Invalid(#[from] InvalidPolicy),
    /// What stands in Redis cannot be read.
    #[error(transparent)]
    Unreadable(#[from] UnreadableSetting),
}

/// Sets a budget's policy, for the next booking in every process and for what is already booked. Answers its version
/// and what was compiled.
///
/// # Errors
/// [`BudgetError`]; after [`BudgetError::Invalid`] nothing was changed.
pub async fn set(store: &Store, budget: &BudgetName, policy: &Policy) -> Result<(u64, Compiled), BudgetError> {
    write(store, budget, policy, false).await
}

/// Sets a budget's policy only if it has none; whether it was set.
///
/// # Errors
/// [`BudgetError`], as [`set`].
pub async fn seed(store: &Store, budget: &BudgetName, policy: &Policy) -> Result<bool, BudgetError> {
    Ok(write(store, budget, policy, true).await?.0 > 0)
}

async fn write(
    store: &Store,
    budget: &BudgetName,
    policy: &Policy,
    only_if_none: bool,
) -> Result<(u64, Compiled), BudgetError> {
    let compiled = policy.compile()?;
    let mut args = policy.tables(&compiled).to_vec();
    if only_if_none {
        args.extend([b"seed".to_vec(), vec![]]);
    }
    for (name, value) in policy.settings() {
        args.push(name.as_bytes().to_vec());
        args.push(value.into_bytes());
    }
    // listed first: a budget on the list without a policy is harmless, the other way round it would be hidden
    let listed = redis::cmd("SADD").arg(keys::BUDGETS).arg(budget.as_str()).clone();
    store.command("SADD", Some(keys::BUDGETS), &listed).await?;
    let call = Call { keys: vec![keys::calendar(budget), keys::policy(budget)], args };
    let [version, ..] = reply::integers::<3>("policy", store.run(sendslot_lua::POLICY, call).await?)?;
    Ok((u64::try_from(version).unwrap_or(0), compiled))
}

/// Stops a budget's sends for a while, or (`None`) lets them go on. What comes up meanwhile is put back, and is booked again
/// when the pause is over. Answers `false` for a budget without a policy.
///
/// # Errors
/// [`StoreError`].
pub async fn pause(store: &Store, budget: &BudgetName, rest: Option<Duration>) -> Result<bool, StoreError> {
    let arg = micros_up(rest.unwrap_or_default()).to_le_bytes().to_vec();
    let call = Call { keys: vec![keys::calendar(budget), keys::policy(budget)], args: vec![arg] };
    let [known, ..] = reply::integers::<3>("pause", store.run(sendslot_lua::PAUSE, call).await?)?;
    Ok(known == 1)
}

/// A pause without an end: until it is lifted.
pub const UNTIL_RESUMED: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A budget's policy and its version; `None` when it has none.
///
/// # Errors
/// [`BudgetError::Store`], [`BudgetError::Unreadable`].
pub async fn get(store: &Store, budget: &BudgetName) -> Result<Option<(u64, Policy)>, BudgetError> {
    let key = keys::policy(budget);
    let value = store.command("HGETALL", Some(&key), redis::cmd("HGETALL").arg(&key)).await?;
    let fields: HashMap<String, Vec<u8>> =
        redis::from_redis_value(value).map_err(|e| StoreError::Refused { script: "HGETALL", source: e.into() })?;
    // a calendar that lives on without its policy leaves a hash that is none
    if !fields.contains_key("compiled") {
        return Ok(None);
    }
    let text = |name: &str| fields.get(name).and_then(|v| std::str::from_utf8(v).ok());
    let version = text("version").and_then(|v| v.parse().ok()).unwrap_or(0);
    Ok(Some((version, Policy::from_settings(text)?)))
}

/// The names of all budgets that have a policy, sorted.
///
/// # Errors
/// [`StoreError`].
pub async fn list(store: &Store) -> Result<Vec<BudgetName>, StoreError> {
    let members = redis::cmd("SMEMBERS").arg(keys::BUDGETS).clone();
    let names = match store.command("SMEMBERS", Some(keys::BUDGETS), &members).await? {
        Value::Array(items) | Value::Set(items) => items,
        other => return Err(reply::wrong("SMEMBERS", &other)),
    };
    let mut names: Vec<BudgetName> = names
        .into_iter()
        .filter_map(|value| BudgetName::new(redis::from_redis_value::<String>(value).ok()?).ok())
        .collect();
    names.sort();
    Ok(names)
}
