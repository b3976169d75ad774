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

pub(crate) async fn run(command: DlqCommand) -> Result<Exit, Failure> {
    match command {
        DlqCommand::List(args) => list::run(args).await,
        DlqCommand::Show(args) => show::run(args).await,
        DlqCommand::Redrive(args) => redrive::run(args).await,
        DlqCommand::Purge(args) => purge::run(args).await,
    }
}
