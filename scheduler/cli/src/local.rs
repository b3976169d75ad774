//! `sendslot local up|down`.

use std::collections::BTreeMap;

use sendslot_localstack::Tick;
use sendslot_localstack::detached::{self, DetachedOptions};

use crate::args::{LocalCommand, TickArg};
use crate::exit::{Exit, Failure};
use crate::output;

impl From<TickArg> for Tick {
    fn from(tick: TickArg) -> Self {
        match tick {
            TickArg::Fast => Tick::Fast,
            TickArg::Stock => Tick::Stock,
        }
    }
}

pub(crate) async fn run(command: LocalCommand) -> Result<Exit, Failure> {
    match command {
        LocalCommand::Up { tick, json } => {
            let running = detached::up(DetachedOptions { tick: tick.into(), ..DetachedOptions::default() }).await?;
            let exports = running.exports();
            if json {
                output::json(&exports.into_iter().collect::<BTreeMap<_, _>>())?;
            } else {
                output::note("The stack is up. Paste this, or run: eval \"$(sendslot local up)\"");
                exports.iter().for_each(|(name, value)| output::line(&format!("export {name}='{value}'")));
            }
        }
        LocalCommand::Down { json } => {
            let stopped = detached::down().await?;
            if json {
                output::json(&serde_json::json!({ "stopped": stopped }))?;
            } else {
                output::note(if stopped { "The stack is down." } else { "No stack was up." });
            }
        }
    }
    Ok(Exit::Success)
}
