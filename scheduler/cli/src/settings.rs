//! What the command is configured by: one table of settings, each from its flag, else its environment variable, else the TOML
//! file, else its default. `sendslot config` lists them.
//!
//! What is one value is a row of [`SETTINGS`]; a dotted name (`serve.listen`) stands in that table of the file. Lists and tables with
//! names of their own (`[[keys]]`, `[receipts.NAME]`) are of a [`Section`]: a struct with `deny_unknown_fields`, read by
//! [`Settings::section`]. AWS_* variables are the SDK's own.

mod file;
mod shown;
mod table;

use std::collections::BTreeMap;
use std::env;
use std::str::FromStr;

use clap::{Arg, ArgMatches, Command};
use sendslot_http::keys::KeyEntry;
use sendslot_receipts::config::ProviderConfig;
use sendslot_scheduler::{Scheduler, SchedulerBuilder};
use sendslot_shared::policy_file::PolicyFile;
use sendslot_shared::store::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exit::Failure;

use file::ConfigFile;
pub(crate) use table::SETTINGS;

/// What a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// A file; in the TOML file relative to that.
    Path,
    /// A whole number.
    Number,
    /// Seconds, whole or not, a day at most.
    Seconds,
    /// A flag without a value is `true`.
    Switch,
}

/// One setting: a row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// Also its key in the TOML file; with a dot, one inside that table.
    pub(crate) name: &'static str,
    /// Its environment variable.
    pub(crate) variable: &'static str,
    /// Its flag, without the dashes.
    pub(crate) flag: &'static str,
    /// What stands for its value in the help.
    pub(crate) value: &'static str,
    pub(crate) kind: Kind,
    /// As it would be given.
    pub(crate) default: Option<fn() -> String>,
    /// The only command that takes its flag; `None`: all do.
    pub(crate) command: Option<&'static str>,
    pub(crate) what: &'static str,
    /// What to give, with its article.
    pub(crate) give: &'static str,
    /// Shown with its passwords hidden.
    pub(crate) secret: bool,
}

/// A part of the TOML file that is read as a struct of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    /// Members that are shown as `***`.
    secrets: &'static [&'static str],
    /// Reads it, and gives it as `config` shows it.
    shown: fn(&ConfigFile, &Section) -> Result<Option<serde_json::Value>, String>,
}

impl Section {
    /// A section that is read as `T`.
    const fn of<T: DeserializeOwned + Serialize>(name: &'static str, secrets: &'static [&'static str]) -> Self {
        Self { name, secrets, shown: shown::section::<T> }
    }
}

/// All typed sections.
pub(crate) const SECTIONS: &[Section] = &[
    Section::of::<Vec<KeyEntry>>("keys", &["sha256"]),
    Section::of::<BTreeMap<String, ProviderConfig>>("receipts", &["sha256"]),
];

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    Flag,
    Environment,
    File,
    Default,
    NotSet,
}

/// A setting with its value.
#[derive(Debug)]
struct Resolved {
    setting: &'static Setting,
    value: Option<String>,
    source: Source,
}

impl Resolved {
    /// What people call it where they gave it.
    fn given_by(&self) -> String {
        match self.source {
            Source::Flag => format!("--{}", self.setting.flag),
            Source::Environment => self.setting.variable.to_owned(),
            Source::File | Source::Default | Source::NotSet => self.setting.name.to_owned(),
        }
    }
}

/// All settings with their values.
#[derive(Debug)]
pub(crate) struct Settings {
    all: Vec<Resolved>,
    file: Option<ConfigFile>,
}

const CONFIG: &str = "config";

/// The command line with a flag for each setting.
pub(crate) fn with_flags(command: Command) -> Command {
    let file = Arg::new(CONFIG).long(CONFIG).value_name("FILE");
    let file = file.help("The TOML file [env: SENDSLOT_CONFIG] [default: sendslot.toml, when there is one]");
    SETTINGS.iter().fold(command.arg(file.global(true).help_heading("Settings")), |command, setting| {
        let default = setting.default.map(|value| format!(" [default: {}]", value())).unwrap_or_default();
        let arg = Arg::new(setting.flag).long(setting.flag).value_name(setting.value);
        let arg = match setting.kind {
            Kind::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
            _ => arg,
        };
        let arg = arg.help(format!("{} [env: {}]{default}", setting.what, setting.variable)).help_heading("Settings");
        match setting.command {
            None => command.arg(arg.global(true)),
            Some(name) => command.mut_subcommand(name, |command| command.arg(arg)),
        }
    })
}

/// What the flags give, by their names.
fn flags(matches: &ArgMatches) -> BTreeMap<&'static str, String> {
    let mut given = BTreeMap::new();
    let mut level = Some(matches);
    while let Some(matches) = level {
        for flag in SETTINGS.iter().map(|setting| setting.flag).chain([CONFIG]) {
            if let Ok(Some(value)) = matches.try_get_one::<String>(flag) {
                given.insert(flag, value.clone());
            }
        }
        level = matches.subcommand().map(|(_, matches)| matches);
    }
    given
}

impl Settings {
    /// From the command line, the environment and the file.
    pub(crate) fn load(matches: &ArgMatches) -> Result<Self, Failure> {
        let given = flags(matches);
        // an empty variable is none
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let named = given.get(CONFIG).cloned().or_else(|| variable("SENDSLOT_CONFIG"));
        let file = ConfigFile::open(named.as_deref()).map_err(usage)?;
        Self::resolve(&given, variable, file).map_err(usage)
    }

    fn resolve(
        flags: &BTreeMap<&'static str, String>,
        variable: impl Fn(&str) -> Option<String>,
        file: Option<ConfigFile>,
    ) -> Result<Self, String> {
        if let Some(file) = &file {
            file.check(SETTINGS, SECTIONS)?;
        }
        let one = |setting: &'static Setting| {
            let in_file = || file.as_ref().map(|file| file.value(setting)).transpose().map(Option::flatten);
            let found = |value: String, source, by: &str| {
                setting.kind.check(&value).map_err(|_| format!("{by} cannot be used: give {}", setting.give))?;
                Ok(Resolved { setting, value: Some(value), source })
            };
            if let Some(value) = flags.get(setting.flag) {
                return found(value.clone(), Source::Flag, &format!("--{}", setting.flag));
            }
            if let Some(value) = variable(setting.variable) {
                return found(value, Source::Environment, setting.variable);
            }
            Ok(match (in_file()?, setting.default) {
                (Some(value), _) => Resolved { setting, value: Some(value), source: Source::File },
                (None, Some(default)) => Resolved { setting, value: Some(default()), source: Source::Default },
                (None, None) => Resolved { setting, value: None, source: Source::NotSet },
            })
        };
        let all = SETTINGS.iter().map(one).collect::<Result<_, String>>()?;
        Ok(Self { all, file })
    }

    fn find(&self, name: &str) -> Option<&Resolved> {
        self.all.iter().find(|resolved| resolved.setting.name == name)
    }

    /// A setting's value, or its default.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.find(name)?.value.as_deref()
    }

    /// A setting's value that somebody gave.
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        self.find(name).filter(|resolved| resolved.source != Source::Default)?.value.as_deref()
    }

    /// A setting that must be there.
    pub(crate) fn need(&self, name: &str) -> Result<&str, Failure> {
        self.get(name).ok_or_else(|| {
            let missing = |setting: &Setting| {
                let Setting { name, variable, flag, give, .. } = setting;
                format!("{variable} is not set: give {give} (or --{flag}, or {name} in sendslot.toml)")
            };
            usage(self.find(name).map_or_else(|| format!("{name} is no setting"), |r| missing(r.setting)))
        })
    }

    /// What a setting's value came from, as people would look for it.
    pub(crate) fn given_by(&self, name: &str) -> String {
        self.find(name).map_or_else(|| name.to_owned(), Resolved::given_by)
    }

    /// A setting's value as a type.
    pub(crate) fn parsed<T: FromStr>(&self, name: &str) -> Result<T, Failure> {
        let value = self.need(name)?;
        value.parse().map_err(|_| {
            let give = self.find(name).map_or("", |r| r.setting.give);
            usage(format!("{} cannot be used: give {give}", self.given_by(name)))
        })
    }

    /// A setting's value as a type, if somebody gave it.
    pub(crate) fn given_as<T: FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        self.given(name).map(|_| self.parsed(name)).transpose()
    }

    /// A typed section of the file; `None` when the file has none.
    pub(crate) fn section<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        self.file.as_ref().map_or(Ok(None), |file| file.section(name)).map_err(usage)
    }

    /// The store that `redis_url` names, once it has answered.
    pub(crate) async fn store(&self) -> Result<Store, Failure> {
        let store = Store::new(self.need("redis_url")?).map_err(Failure::usage)?;
        store.check().await?;
        Ok(store)
    }

    /// A scheduler's settings.
    pub(crate) fn scheduler(&self) -> Result<SchedulerBuilder, Failure> {
        let mut builder = Scheduler::builder().redis_url(self.need("redis_url")?).queue_url(self.need("queue_url")?);
        if let Some(text) = self.given("redis_policy") {
            builder = builder.redis_policies(text.parse().map_err(Failure::usage)?);
        }
        if let Some(path) = self.given("policy_file") {
            builder = builder.policy_file(PolicyFile::read(path).map_err(Failure::usage)?);
        }
        Ok(builder)
    }
}

impl Kind {
    fn check(self, value: &str) -> Result<(), ()> {
        match self {
            Self::Text | Self::Path => Ok(()),
            Self::Number => value.parse::<u64>().map(|_| ()).map_err(|_| ()),
            Self::Seconds => value.parse().ok().filter(|s| (0.0..=86_400.0).contains(s)).map(|_: f64| ()).ok_or(()),
            Self::Switch => value.parse::<bool>().map(|_| ()).map_err(|_| ()),
        }
    }
}

fn usage(message: String) -> Failure {
    Failure::usage(anyhow::Error::msg(message))
}

#[cfg(test)]
mod tests;
