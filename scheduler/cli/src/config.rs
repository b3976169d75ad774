//! `sendslot config`: all settings, and where each value comes from.

use serde_json::json;

use crate::args::ConfigArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings::{Settings, Source};

pub(crate) fn run(args: &ConfigArgs, settings: &Settings) -> Result<Exit, Failure> {
    let (file, all) = (settings.file(), settings.shown());
    let sections = settings.sections().map_err(anyhow::Error::msg)?;
    if args.json {
        output::json(&json!({ "file": file, "settings": all, "sections": sections }))?;
        return Ok(Exit::Success);
    }
    output::line(&format!("configuration file: {}", file.as_deref().unwrap_or("none")));
    let values: Vec<&str> = all.iter().map(|setting| setting.value.as_deref().unwrap_or("-")).collect();
    let name_width = all.iter().map(|setting| setting.name.len()).max().unwrap_or(0);
    let value_width = values.iter().map(|value| value.chars().count()).max().unwrap_or(0);
    for (setting, value) in all.iter().zip(values) {
        let source = match (setting.source, &setting.given_by) {
            (Source::Default, _) => "default".to_owned(),
            (_, Some(by)) => by.clone(),
            _ => format!("not set: {}, {}", setting.environment, setting.flag),
        };
        output::line(&format!("{:name_width$}  {value:value_width$}  {source}", setting.name));
    }
    for (name, value) in &sections {
        output::line(&format!("[{name}]  {value}"));
    }
    Ok(Exit::Success)
}
