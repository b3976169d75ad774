//! `sendslot dlq list|show|redrive|purge`: what could not be sent.

mod args;
mod letter;
mod list;
mod purge;
mod redrive;
mod shelf;
mod show;

pub(crate) use args::DlqCommand;

use crate::exit::{Exit, Failure};
use crate::settings::Settings;

pub(crate) async fn run(command: DlqCommand, settings: &Settings) -> Result<Exit, Failure> {
    match command {
        DlqCommand::List(args) => list::run(args, settings).await,
        DlqCommand::Show(args) => show::run(args, settings).await,
        DlqCommand::Redrive(args) => redrive::run(args, settings).await,
        DlqCommand::Purge(args) => purge::run(args, settings).await,
    }
}
