//! `sendslot key new`.

use sendslot_http::keys::{KeyEntry, Keys, NewKey, Role};
use serde::Serialize;

use crate::args::KeyCommand;
use crate::exit::{Exit, Failure};
use crate::output;

/// A new key, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Shown {
    /// The key itself; it is kept nowhere.
    key: String,
    name: String,
    sha256: String,
    budgets: Vec<String>,
    roles: Vec<Role>,
    rate: Option<f64>,
}

pub(crate) fn run(command: KeyCommand) -> Result<Exit, Failure> {
    let KeyCommand::New { name, budget, role, rate, json } = command;
    let new = NewKey::generate()?;
    let budgets = if budget.is_empty() { vec!["*".to_owned()] } else { budget };
    let roles = if role.is_empty() { vec![Role::Send, Role::Read] } else { role };
    let entry = KeyEntry { name, sha256: new.sha256, budgets, roles, rate };
    Keys::new(vec![entry.clone()]).map_err(Failure::usage)?;
    let KeyEntry { name, sha256, budgets, roles, rate } = entry;
    if json {
        output::json(&Shown { key: new.secret, name, sha256, budgets, roles, rate })?;
        return Ok(Exit::Success);
    }
    // beside the lines, which go into a file
    output::note(&format!("the key, shown this once: {}", new.secret));
    output::line("[[keys]]");
    // a JSON string is one of TOML as well
    output::line(&format!("name = {}", serde_json::to_string(&name)?));
    output::line(&format!("sha256 = \"{sha256}\""));
    output::line(&format!("budgets = {}", serde_json::to_string(&budgets)?));
    output::line(&format!("roles = {}", serde_json::to_string(&roles)?));
    if let Some(rate) = rate {
        output::line(&format!("rate = {rate}"));
    }
    Ok(Exit::Success)
}
