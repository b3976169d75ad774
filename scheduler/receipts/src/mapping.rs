//! From a webhook call to receipts. No I/O.

use std::borrow::Cow;
use std::collections::HashMap;

use jiff::Timestamp;
use sendslot_shared::id::{BudgetName, SendId};
use sendslot_shared::receipt::{Delivery, Receipt};
use sendslot_shared::time::Instant;
use serde_json::Value;

use crate::config::{Format, ProviderConfig};
use crate::paths::{Path, Segment, all};
use crate::raw::RawReceipt;

/// How a provider's calls are read.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    format: Format,
    unwrap: Option<Vec<Segment>>,
    events: Vec<Segment>,
    budget: Option<BudgetName>,
    budget_at: Vec<Path>,
    id: Vec<Path>,
    provider_id: Vec<Path>,
    provider_id_until: Vec<String>,
    status: Vec<Path>,
    at: Vec<Path>,
    /// `None`: a word that is no receipt.
    words: HashMap<String, Option<Delivery>>,
    ignores_others: bool,
}

/// What one event of a call says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// The send's budget.
    pub budget: BudgetName,
    /// Whom it is about.
    pub send: Named,
    /// What it says.
    pub receipt: Receipt,
}

/// How an event names its send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// By our ID.
    Ours(SendId),
    /// By the provider's.
    Theirs(String),
}

/// Why a call cannot be read; without anything that it carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The body is not JSON.
    #[error("the body is not JSON")]
    Json,
    /// There are no events where they should be.
    #[error("the body has no events where `events` says")]
    Events,
    /// SNS wants to know whether the topic is wanted.
    #[error("SNS asks whether to confirm a subscription, with a SubscribeURL that is not SNS' own: do not open it")]
    Subscription,
    /// An event says less than it must.
    #[error("event {index}: {what}")]
    Event {
        /// Which one, from 0.
        index: usize,
        /// What is missing or cannot be read.
        what: &'static str,
    },
}

/// An event, and what it came with.
struct Event<'a> {
    query: &'a [(Cow<'a, str>, Cow<'a, str>)],
    form: &'a [(Cow<'a, str>, Cow<'a, str>)],
    json: &'a Value,
}

impl Mapping {
    pub(crate) fn new(table: &ProviderConfig) -> Result<Self, String> {
        let format = table.format.ok_or(
            "has neither preset nor format: give preset = \"sendgrid\", \"twilio\", \"whatsapp\" or \
                                         \"ses\", or format = \"json\" or \"form\"",
        )?;
        let in_form = format == Format::Form;
        let paths = |name: &str, texts: &Option<Vec<String>>| -> Result<Vec<Path>, String> {
            let what = if in_form { "the name of a field" } else { "a JSON pointer such as /a/b" };
            let path = |text: &String| {
                Path::parse(text, in_form)
                    .map_err(|_| format!("{name} = {text:?} is no place: give {what}, or query:name"))
            };
            texts.iter().flatten().map(path).collect()
        };
        let pointer = |name: &str, text: &Option<String>| -> Result<Option<Vec<Segment>>, String> {
            match text.as_deref().map(|text| Path::parse(text, false)) {
                None => Ok(None),
                Some(Ok(Path::Pointer(segments))) if !in_form => Ok(Some(segments)),
                Some(_) => Err(format!("{name} is no JSON pointer such as /a/b, or the format is form")),
            }
        };
        let mut words = HashMap::new();
        let lists = [
            (&table.delivered, Some(Delivery::Delivered)),
            (&table.undelivered, Some(Delivery::Undelivered)),
            (&table.ignored, None),
        ];
        for (list, meaning) in lists {
            for word in list.iter().flatten().filter(|word| *word != "*") {
                if words.insert(word.clone(), meaning).is_some_and(|other| other != meaning) {
                    return Err(format!("gives the word {word:?} two meanings"));
                }
            }
        }
        let budget =
            table.budget.clone().map(BudgetName::new).transpose().map_err(|error| format!("budget: {error}"))?;
        let mapping = Self {
            format,
            unwrap: pointer("unwrap", &table.unwrap)?,
            events: pointer("events", &table.events)?.unwrap_or_default(),
            budget,
            budget_at: paths("budget_at", &table.budget_at)?,
            id: paths("id", &table.id)?,
            provider_id: paths("provider_id", &table.provider_id)?,
            provider_id_until: table.provider_id_until.clone().unwrap_or_default(),
            status: paths("status", &table.status)?,
            at: paths("at", &table.at)?,
            words,
            ignores_others: table.ignored.iter().flatten().any(|word| word == "*"),
        };
        for (missing, what) in [
            (mapping.budget.is_none() && mapping.budget_at.is_empty(), "no budget: give budget, or budget_at"),
            (mapping.id.is_empty() && mapping.provider_id.is_empty(), "neither id nor provider_id"),
            (mapping.status.is_empty(), "no status"),
            (!mapping.words.values().any(Option::is_some), "no words: give delivered and undelivered"),
        ] {
            if missing {
                return Err(format!("has {what}"));
            }
        }
        Ok(mapping)
    }

    /// What a call says; an event that is no receipt is left out.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn read(&self, raw: &RawReceipt) -> Result<Vec<Mapped>, Unreadable> {
        let query: Vec<_> = form_urlencoded::parse(raw.query.as_bytes()).collect();
        if self.format == Format::Form {
            let form: Vec<_> = form_urlencoded::parse(&raw.body).collect();
            let event = Event { query: &query, form: &form, json: &Value::Null };
            return Ok(self.event(0, &event, raw.received)?.into_iter().collect());
        }
        let body = self.unwrapped(serde_json::from_slice(&raw.body).map_err(|_| Unreadable::Json)?)?;
        // an array may be empty, and what a provider has nothing to say about is left out; but something must be there
        if self.events.first().is_some_and(|first| !stands_in(&body, first)) {
            return Err(Unreadable::Events);
        }
        let mut mapped = vec![];
        for (index, json) in all(&body, &self.events).into_iter().enumerate() {
            mapped.extend(self.event(index, &Event { query: &query, form: &[], json }, raw.received)?);
        }
        Ok(mapped)
    }

    fn unwrapped(&self, body: Value) -> Result<Value, Unreadable> {
        let Some(path) = &self.unwrap else { return Ok(body) };
        let Some(Value::String(inner)) = all(&body, path).first() else { return Ok(body) };
        let wants = |kind| body.get("Type").and_then(Value::as_str) == Some(kind);
        if wants("SubscriptionConfirmation") || wants("UnsubscribeConfirmation") {
            return Err(Unreadable::Subscription);
        }
        serde_json::from_str(inner).map_err(|_| Unreadable::Json)
    }

    fn event(&self, index: usize, event: &Event<'_>, received: Instant) -> Result<Option<Mapped>, Unreadable> {
        let wrong = |what| Unreadable::Event { index, what };
        let word = event.first(&self.status).ok_or(wrong("it has no status"))?;
        let delivery = match self.words.get(&*word) {
            Some(Some(delivery)) => *delivery,
            Some(None) => return Ok(None),
            None if self.ignores_others => return Ok(None),
            None => return Err(wrong("its status is none of the configured words")),
        };
        let budget = match &self.budget {
            Some(budget) => budget.clone(),
            None => {
                let name = event.first(&self.budget_at).ok_or(wrong("it names no budget"))?;
                BudgetName::new(name.into_owned()).map_err(|_| wrong("its budget is no name of one"))?
            }
        };
        let send = match event.first(&self.id) {
            Some(id) => Named::Ours(SendId::new(id.into_owned()).map_err(|_| wrong("its send ID is none"))?),
            None => {
                let id = event.first(&self.provider_id).ok_or(wrong("it names no send"))?;
                let end = self.provider_id_until.iter().find_map(|until| id.find(until.as_str()));
                Named::Theirs(id[..end.unwrap_or(id.len())].to_owned())
            }
        };
        let at = match event.first(&self.at) {
            Some(text) => instant(&text).ok_or(wrong("its instant cannot be read"))?,
            None => received,
        };
        Ok(Some(Mapped { budget, send, receipt: Receipt { delivery, at, word: word.into_owned() } }))
    }
}

fn stands_in(body: &Value, first: &Segment) -> bool {
    match first {
        Segment::Key(_) => !all(body, std::slice::from_ref(first)).is_empty(),
        Segment::Each | Segment::Where(..) => body.is_array(),
    }
}

impl Event<'_> {
    /// The first of these places that holds some text or a number.
    fn first(&self, paths: &[Path]) -> Option<Cow<'_, str>> {
        paths.iter().find_map(|path| self.text(path))
    }

    fn text(&self, path: &Path) -> Option<Cow<'_, str>> {
        fn field<'a>(fields: &'a [(Cow<'a, str>, Cow<'a, str>)], name: &str) -> Option<&'a str> {
            fields.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| &**value)
        }
        match path {
            Path::Query(name) => field(self.query, name).map(Cow::Borrowed),
            Path::Field(name) => field(self.form, name).map(Cow::Borrowed),
            Path::Pointer(segments) => match *all(self.json, segments).first()? {
                Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
                Value::Number(number) => Some(Cow::Owned(number.to_string())),
                _ => None,
            },
        }
    }
}

/// Seconds (with a fraction or without), milliseconds or microseconds since 1970, or RFC 3339.
fn instant(text: &str) -> Option<Instant> {
    let micros = match text.parse::<f64>() {
        Ok(number) if !(number.is_finite() && number >= 0.0) => return None,
        Ok(number) if number < 1e11 => number * 1e6,
        Ok(number) if number < 1e14 => number * 1e3,
        Ok(number) => number,
        Err(_) => text.parse::<Timestamp>().ok()?.as_microsecond() as f64,
    };
    let at = Instant::from_micros(micros.max(0.0) as u64);
    (at <= Instant::MAX).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_of_all_kinds_are_read() {
        let at = 1_750_857_384_500_000;
        for text in [
            "1750857384.5",
            "1750857384500",
            "1750857384500000",
            "2025-06-25T13:16:24.5Z",
            "2025-06-25T15:16:24.500+02:00",
        ] {
            assert_eq!(instant(text), Some(Instant::from_micros(at)), "{text}");
        }
        for text in ["", "yesterday", "-1", "NaN", "inf", "1e300", "2025-06-25"] {
            assert_eq!(instant(text), None, "{text}");
        }
    }
}
