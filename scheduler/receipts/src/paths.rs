//! Where something stands in a webhook call.

use std::fmt;

use serde_json::Value;

/// A place: `/a/b` in a JSON body (RFC 6901), a field of a form, `query:name` in the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Path {
    Query(String),
    Field(String),
    Pointer(Vec<Segment>),
}

/// A step into JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    /// A member's name, or an element's number.
    Key(String),
    /// `*`: each element.
    Each,
    /// `name=value`: the elements whose member `name` is that text.
    Where(String, String),
}

/// A path that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoPath;

impl Path {
    pub(crate) fn parse(text: &str, in_form: bool) -> Result<Self, NoPath> {
        if let Some(name) = text.strip_prefix("query:") {
            return if name.is_empty() { Err(NoPath) } else { Ok(Self::Query(name.to_owned())) };
        }
        if in_form {
            return if text.is_empty() || text.starts_with('/') {
                Err(NoPath)
            } else {
                Ok(Self::Field(text.to_owned()))
            };
        }
        if text.is_empty() {
            return Ok(Self::Pointer(vec![]));
        }
        let segments = text.strip_prefix('/').ok_or(NoPath)?.split('/').map(segment);
        Ok(Self::Pointer(segments.collect()))
    }
}

fn segment(text: &str) -> Segment {
    let plain = |text: &str| text.replace("~1", "/").replace("~0", "~");
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Segment::Where(plain(name), plain(value)),
        _ if text == "*" => Segment::Each,
        _ => Segment::Key(plain(text)),
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Field(name) => f.write_str(name),
            Self::Pointer(_) => f.write_str("a pointer"),
        }
    }
}

/// All values at this place.
pub(crate) fn all<'a>(value: &'a Value, path: &[Segment]) -> Vec<&'a Value> {
    let Some((first, rest)) = path.split_first() else { return vec![value] };
    let next: Vec<&Value> = match (first, value) {
        (Segment::Key(key), Value::Object(members)) => members.get(key).into_iter().collect(),
        (Segment::Key(key), Value::Array(elements)) => {
            key.parse::<usize>().ok().and_then(|place| elements.get(place)).into_iter().collect()
        }
        (Segment::Each, Value::Array(elements)) => elements.iter().collect(),
        (Segment::Where(name, text), Value::Array(elements)) => {
            elements.iter().filter(|element| element.get(name).and_then(Value::as_str) == Some(text)).collect()
        }
        _ => vec![],
    };
    next.into_iter().flat_map(|value| all(value, rest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(value: &Value, path: &str) -> Vec<Value> {
        match Path::parse(path, false) {
            Ok(Path::Pointer(segments)) => all(value, &segments).into_iter().cloned().collect(),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn pointers_reach_members_elements_each_and_those_with_a_name() {
        let value = json!({ "a": [{ "b": 1 }, { "b": 2 }], "h": [{ "name": "X", "value": "v" }], "c/d": 3, "": 4 });
        for (path, values) in [
            ("/a/0/b", vec![json!(1)]),
            ("/a/*/b", vec![json!(1), json!(2)]),
            ("/h/name=X/value", vec![json!("v")]),
            ("/h/name=Y/value", vec![]),
            ("/c~1d", vec![json!(3)]),
            ("/a/2", vec![]),
            ("/a/b", vec![]),
            ("/", vec![json!(4)]),
        ] {
            assert_eq!(found(&value, path), values, "{path}");
        }
        assert_eq!(found(&value, ""), [value]);
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for (text, in_form) in [("a", false), ("query:", false), ("", true), ("/a", true)] {
            assert_eq!(Path::parse(text, in_form), Err(NoPath), "{text}");
        }
        assert_eq!(Path::parse("query:id", false), Ok(Path::Query("id".to_owned())));
        assert_eq!(Path::parse("MessageSid", true), Ok(Path::Field("MessageSid".to_owned())));
    }
}
