//! `sendslot completions` and `sendslot man`.

use std::io::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Args, ManArgs};
use crate::exit::{Exit, Failure};
use crate::settings;

fn command() -> Command {
    let mut command = settings::with_flags(Args::command()).disable_help_subcommand(true);
    command.build();
    command
}

pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "sendslot", &mut text);
    print(&text)
}

pub(crate) fn man(args: &ManArgs) -> Result<Exit, Failure> {
    match &args.dir {
        Some(folder) => pages(folder),
        None => print(&page()?),
    }
}

/// A reader that went away is not an error.
fn print(text: &[u8]) -> Result<Exit, Failure> {
    let _ = std::io::stdout().lock().write_all(text);
    Ok(Exit::Success)
}

/// A page for each command.
fn pages(folder: &Path) -> Result<Exit, Failure> {
    let named = |error: std::io::Error| anyhow::anyhow!("{} cannot be written: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(named)?;
    clap_mangen::generate_to(command(), folder).map_err(named)?;
    Ok(Exit::Success)
}

/// One page with all commands: the options of each stand in a section of its own.
fn page() -> Result<Vec<u8>, Failure> {
    let (command, mut text) = (command(), Vec::new());
    let main = Man::new(command.clone());
    main.render_title(&mut text)?;
    main.render_name_section(&mut text)?;
    main.render_synopsis_section(&mut text)?;
    main.render_description_section(&mut text)?;
    main.render_options_section(&mut text)?;
    sections(&command, "", &mut text)?;
    main.render_extra_section(&mut text)?;
    main.render_version_section(&mut text)?;
    Ok(text)
}

fn sections(command: &Command, above: &str, text: &mut Vec<u8>) -> Result<(), Failure> {
    for sub in command.get_subcommands() {
        let path = format!("{above}{}", sub.get_name());
        writeln!(text, ".SH \"{}\"", path.to_uppercase())?;
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(text, "{}\n.PP", roff(&about))?;
        // the settings stand above, once for all
        let hidden = sub.get_arguments().filter(|arg| arg.is_global_set()).map(|arg| arg.get_id().clone());
        let own = hidden.collect::<Vec<_>>().into_iter().fold(sub.clone(), |c, id| c.mut_arg(id, |arg| arg.hide(true)));
        let man = Man::new(own.clone());
        let (mut synopsis, mut options) = (Vec::new(), Vec::new());
        man.render_synopsis_section(&mut synopsis)?;
        man.render_options_section(&mut options)?;
        for part in [synopsis, options] {
            let part = String::from_utf8_lossy(&part);
            text.extend(part.replace(".SH SYNOPSIS\n", "").replace(".SH OPTIONS\n", ".PP\n").into_bytes());
        }
        sections(sub, &format!("{path} "), text)?;
    }
    Ok(())
}

/// Text that roff takes as it is.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
