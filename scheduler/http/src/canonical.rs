//! JSON with the keys of its objects sorted and no white space between: one text for content that differs only in these.

/// Deeper JSON is refused, as serde_json does by default.
const MAX_DEPTH: usize = 128;

/// The canonical form of a JSON text that is known to be valid; `None` when it nests too deep. Strings and numbers keep the
/// characters that they were written with.
pub(crate) fn canonical(json: &str) -> Option<String> {
    let node = Reader { text: json, at: 0 }.value(MAX_DEPTH)?;
    let mut out = String::with_capacity(json.len());
    node.write(&mut out);
    Some(out)
}

enum Node<'a> {
    Scalar(&'a str),
    Array(Vec<Node<'a>>),
    Object(Vec<(&'a str, Node<'a>)>),
}

impl Node<'_> {
    fn write(&self, out: &mut String) {
        match self {
            Self::Scalar(text) => out.push_str(text),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (i, (key, value)) in fields.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    out.push_str(key);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<Node<'a>> {
        match self.peek()? {
            b'{' => self.object(depth.checked_sub(1)?),
            b'[' => self.array(depth.checked_sub(1)?),
            _ => Some(Node::Scalar(self.scalar())),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut fields = vec![];
        self.at += 1;
        while self.peek()? != b'}' {
            self.skip(b',')?;
            self.peek()?;
            let key = self.scalar();
            self.skip(b':')?;
            fields.push((key, self.value(depth)?));
        }
        self.at += 1;
        // stable: keys that are given twice keep their order
        fields.sort_by_key(|(key, _)| *key);
        Some(Node::Object(fields))
    }

    fn array(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut items = vec![];
        self.at += 1;
        while self.peek()? != b']' {
            self.skip(b',')?;
            items.push(self.value(depth)?);
        }
        self.at += 1;
        Some(Node::Array(items))
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes over a mark, if it comes next.
    fn skip(&mut self, mark: u8) -> Option<()> {
        if self.peek()? == mark {
            self.at += 1;
        }
        Some(())
    }

    /// A string, a number, true, false or null, as it is written.
    fn scalar(&mut self) -> &'a str {
        let bytes = self.text.as_bytes();
        let start = self.at;
        self.at += 1;
        if bytes[start] == b'"' {
            while bytes[self.at] != b'"' {
                self.at += if bytes[self.at] == b'\\' { 2 } else { 1 };
            }
            self.at += 1;
        } else {
            while bytes.get(self.at).is_some_and(|byte| !b",]}".contains(byte) && !byte.is_ascii_whitespace()) {
                self.at += 1;
            }
        }
        &self.text[start..self.at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_everything_else_stays() {
        for (json, expected) in [
            (r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
            (" [ 1 , 2.50 , -3e+2 , true , null , {} , [] ] ", "[1,2.50,-3e+2,true,null,{},[]]"),
            (
                r#"{ "k" : "a \" b \\" , "j{" : { "z" : [ { "y" : 1 , "x" : 2 } ] } }"#,
                r#"{"j{":{"z":[{"x":2,"y":1}]},"k":"a \" b \\"}"#,
            ),
            (r#"["\ud800","é,]}"]"#, r#"["\ud800","é,]}"]"#),
            (r#"{"a":1,"b":0,"a":2}"#, r#"{"a":1,"a":2,"b":0}"#),
            ("17", "17"),
        ] {
            assert_eq!(canonical(json).as_deref(), Some(expected));
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert_eq!(canonical(&nested(128)), Some(nested(128)));
        assert_eq!(canonical(&nested(129)), None);
        assert_eq!(canonical(&nested(500_000)), None);
    }
}
