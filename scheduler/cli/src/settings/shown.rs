//! Settings as people see them: without secrets.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::file::ConfigFile;
use super::{Resolved, SECTIONS, Section, Settings, Source};

/// A setting as `sendslot config` shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) name: &'static str,
    /// Without its secrets; null when it is not set.
    pub(crate) value: Option<String>,
    pub(crate) source: Source,
    /// The flag, the variable or the file that gave it.
    pub(crate) given_by: Option<String>,
    pub(crate) environment: &'static str,
    pub(crate) flag: String,
    pub(crate) default: Option<String>,
    pub(crate) meaning: &'static str,
}

impl Settings {
    /// The file that was read.
    pub(crate) fn file(&self) -> Option<String> {
        self.file.as_ref().map(|file| file.path.display().to_string())
    }

    pub(crate) fn shown(&self) -> Vec<Shown> {
        self.all.iter().map(|resolved| self.row(resolved)).collect()
    }

    fn row(&self, resolved: &Resolved) -> Shown {
        let setting = resolved.setting;
        let flag = format!("--{}", setting.flag);
        let given_by = match resolved.source {
            Source::Flag => Some(flag.clone()),
            Source::Environment => Some(setting.variable.to_owned()),
            Source::File => self.file(),
            Source::Default | Source::NotSet => None,
        };
        let value = resolved.value.as_deref();
        Shown {
            name: setting.name,
            value: value.map(|value| if setting.secret { url_without_secrets(value) } else { value.to_owned() }),
            source: resolved.source,
            given_by,
            environment: setting.variable,
            flag,
            default: setting.default.map(|default| default()),
            meaning: setting.what,
        }
    }

    /// The typed sections that the file has.
    pub(crate) fn sections(&self) -> Result<Map<String, Value>, String> {
        let mut all = Map::new();
        for section in SECTIONS {
            let value = self.file.as_ref().map(|file| (section.shown)(file, section)).transpose()?.flatten();
            value.into_iter().for_each(|value| drop(all.insert(section.name.to_owned(), value)));
        }
        Ok(all)
    }
}

pub(super) fn section<T: DeserializeOwned + Serialize>(
    file: &ConfigFile,
    section: &Section,
) -> Result<Option<Value>, String> {
    let Some(read) = file.section::<T>(section.name)? else { return Ok(None) };
    let shown = serde_json::to_value(read);
    let mut value = shown.map_err(|error| format!("[{}] cannot be shown: {error}", section.name))?;
    hide(&mut value, section.secrets);
    Ok(Some(value))
}

/// The members with these names, however deep, do not show.
fn hide(value: &mut Value, secrets: &[&str]) {
    match value {
        Value::Object(members) => members.iter_mut().for_each(|(name, value)| match secrets.contains(&name.as_str()) {
            true => *value = Value::from("***"),
            false => hide(value, secrets),
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, secrets)),
        _ => {}
    }
}

/// A URL without its password and without those of its options. Rather too much is hidden than too little.
pub(super) fn url_without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "***".to_owned() };
    let (user, rest) = match rest.rsplit_once('@') {
        None => (None, rest),
        Some((user, rest)) => (Some(user.split_once(':').map_or(user, |(name, _)| name)), rest),
    };
    let options = rest.split_once('?').map(|(place, options)| {
        let hide = |option: &str| match option.split_once('=') {
            Some((name, _)) if name.contains("password") => format!("{name}=***"),
            _ => option.to_owned(),
        };
        (place, options.split('&').map(hide).collect::<Vec<_>>().join("&"))
    });
    let rest = options.map_or_else(|| rest.to_owned(), |(place, options)| format!("{place}?{options}"));
    match user {
        None => format!("{scheme}://{rest}"),
        Some(user) => format!("{scheme}://{user}:***@{rest}"),
    }
}
