//! The TOML file. No error quotes a value: it may be a secret.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::{Kind, Section, Setting};

/// The file that is read when nobody names one.
const DEFAULT: &str = "sendslot.toml";

/// A file that is TOML.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    text: String,
}

impl ConfigFile {
    /// The file that is named, else the working directory's when there is one.
    pub(super) fn open(named: Option<&str>) -> Result<Option<Self>, String> {
        let path = Path::new(named.unwrap_or(DEFAULT));
        match std::fs::read_to_string(path) {
            Ok(text) => Self::new(path, text).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound && named.is_none() => Ok(None),
            Err(error) => Err(format!("the configuration file {} cannot be read: {error}", path.display())),
        }
    }

    pub(super) fn new(path: impl Into<PathBuf>, text: String) -> Result<Self, String> {
        let file = Self { path: path.into(), text };
        file.table()?;
        Ok(file)
    }

    fn table(&self) -> Result<DeTable<'_>, String> {
        let table = DeTable::parse(&self.text).map_err(|error| self.error(error.span(), error.message()))?;
        Ok(table.into_inner())
    }

    /// `sendslot.toml:3: …`
    fn error(&self, at: Option<Range<usize>>, message: &str) -> String {
        let line = at.and_then(|at| self.text.get(..at.start)).map(|before| before.matches('\n').count() + 1);
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{}{line}: {message}", self.path.display())
    }

    /// Refuses what is no setting, and values of another type.
    pub(super) fn check(&self, settings: &[Setting], sections: &[Section]) -> Result<(), String> {
        for (key, value) in &self.table()? {
            let (name, at) = (key.get_ref().as_ref(), key.span());
            let prefix = format!("{name}.");
            if let Some(section) = sections.iter().find(|section| section.name == name) {
                (section.shown)(self, section)?;
            } else if settings.iter().any(|setting| setting.name.starts_with(&prefix)) {
                let DeValue::Table(inner) = value.get_ref() else {
                    return Err(self.error(Some(at), &format!("{name} is not a table: write [{name}]")));
                };
                for key in inner.keys() {
                    self.known(&format!("{prefix}{}", key.get_ref()), key.span(), settings, sections)?;
                }
            } else {
                self.known(name, at, settings, sections)?;
            }
        }
        settings.iter().try_for_each(|setting| self.value(setting).map(|_| ()))
    }

    fn known(&self, name: &str, at: Range<usize>, settings: &[Setting], sections: &[Section]) -> Result<(), String> {
        if settings.iter().any(|setting| setting.name == name) {
            return Ok(());
        }
        let names: Vec<&str> = settings.iter().map(|s| s.name).chain(sections.iter().map(|s| s.name)).collect();
        let by_variable = settings.iter().find(|setting| setting.variable == name).map(|setting| setting.name);
        let nearest = by_variable.or_else(|| nearest(name, &names));
        let hint = nearest.map_or_else(|| format!("known are {}", names.join(", ")), |n| format!("did you mean {n}?"));
        Err(self.error(Some(at), &format!("there is no setting {name}: {hint}")))
    }

    /// A setting's value as text; `None` when the file does not give it.
    pub(super) fn value(&self, setting: &Setting) -> Result<Option<String>, String> {
        let table = self.table()?;
        let (outer, name) = setting.name.split_once('.').map_or((None, setting.name), |(o, n)| (Some(o), n));
        let table = match outer {
            None => Some(&table),
            Some(outer) => table.get(outer).and_then(|inner| inner.get_ref().as_table()),
        };
        let Some(value) = table.and_then(|table| table.get(name)) else { return Ok(None) };
        let text = match (setting.kind, value.get_ref()) {
            (Kind::Text, DeValue::String(text)) => Some(text.to_string()),
            (Kind::Path, DeValue::String(text)) => Some(self.beside(text)),
            (Kind::Number, DeValue::Integer(number)) => number.to_string().parse::<u64>().ok().map(|n| n.to_string()),
            (Kind::Seconds, DeValue::Integer(number)) => Some(number.to_string()),
            (Kind::Seconds, DeValue::Float(number)) => Some(number.to_string()),
            (Kind::Switch, DeValue::Boolean(on)) => Some(on.to_string()),
            _ => None,
        };
        let text = text.filter(|text| setting.kind.check(text).is_ok());
        text.map(Some).ok_or_else(|| {
            let (found, takes) = (value.get_ref().type_str(), setting.kind.in_file());
            let message = format!("{} takes {takes}, not this {found}: give {}", setting.name, setting.give);
            self.error(Some(value.span()), &message)
        })
    }

    fn beside(&self, path: &str) -> String {
        self.path.parent().map_or_else(|| PathBuf::from(path), |folder| folder.join(path)).display().to_string()
    }

    /// A typed section; `None` when the file has none.
    pub(super) fn section<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(value) = self.table()?.remove(name) else { return Ok(None) };
        T::deserialize(ValueDeserializer::from(value))
            .map(Some)
            .map_err(|error| self.error(error.span(), &format!("[{name}]: {}", without_value(error.message()))))
    }
}

impl Kind {
    fn in_file(self) -> &'static str {
        match self {
            Self::Text | Self::Path => "a string",
            Self::Number => "a whole number from 0 on",
            Self::Seconds => "a number of seconds",
            Self::Switch => "true or false",
        }
    }
}

/// `invalid type: string "hunter2", expected u16` quotes the value: only what is expected is kept.
fn without_value(message: &str) -> String {
    let quoting = ["invalid type", "invalid value", "invalid length"];
    let Some(kind) = quoting.iter().find(|kind| message.starts_with(**kind)) else { return message.to_owned() };
    match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("{kind}, expected {}", expected.lines().next().unwrap_or_default()),
        None => (*kind).to_owned(),
    }
}

/// The known name that is meant, as far as one can tell.
fn nearest<'a>(given: &str, names: &[&'a str]) -> Option<&'a str> {
    let given = given.to_lowercase().replace('-', "_");
    let distance = |name: &&str| strsim::damerau_levenshtein(&given, name);
    let (name, near) = names.iter().map(|name| (*name, distance(name))).min_by_key(|(_, near)| *near)?;
    (near <= 1 + name.len() / 3).then_some(name)
}
