//! Checked names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// A budget or lane name is empty, too long, or has another character.
    #[error("{what} {given:?} is not a name: use 1 to 64 characters of a-z 0-9 . _ -")]
    Charset {
        /// What the name was for: "budget" or "lane".
        what: &'static str,
        /// What was given.
        given: String,
    },
    /// A send ID is empty.
    #[error("the send ID is empty: give each message an ID of its own, 1 to 256 bytes")]
    EmptyId,
    /// A send ID is over 256 bytes.
    #[error("the send ID has {bytes} bytes, 256 is the most: {start:?}…")]
    LongId {
        /// Its length in bytes.
        bytes: usize,
        /// How it starts.
        start: String,
    },
}

fn check_charset(what: &'static str, given: &str) -> Result<(), InvalidName> {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    if (1..=64).contains(&given.len()) && given.bytes().all(allowed) {
        return Ok(());
    }
    Err(InvalidName::Charset { what, given: given.chars().take(80).collect() })
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;
            fn try_from(given: String) -> Result<Self, InvalidName> {
                Self::new(given)
            }
        }

        impl std::str::FromStr for $type {
            type Err = InvalidName;
            fn from_str(given: &str) -> Result<Self, InvalidName> {
                Self::new(given)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }
    };
}

name! {
    /// The name of a budget: one provider limit that is shared by every sender. 1 to 64 characters of `a-z 0-9 . _ -`.
    BudgetName
}
name! {
    /// The name of a lane inside a budget. 1 to 64 characters of `a-z 0-9 . _ -`.
    LaneName
}
name! {
    /// The caller-chosen ID of a send, its idempotency key: any UTF-8, 1 to 256 bytes.
    SendId
}

impl BudgetName {
    /// Checks a budget's name.
    ///
    /// # Errors
    /// [`InvalidName::Charset`].
    pub fn new(given: impl Into<String>) -> Result<Self, InvalidName> {
        let given = given.into();
        check_charset("budget", &given).map(|()| Self(given))
    }
}

impl LaneName {
    /// The lane of a budget that names none: `default`.
    pub const DEFAULT: &'static str = "default";

    /// Checks a lane's name.
    ///
    /// # Errors
    /// [`InvalidName::Charset`].
    pub fn new(given: impl Into<String>) -> Result<Self, InvalidName> {
        let given = given.into();
        check_charset("lane", &given).map(|()| Self(given))
    }
}

impl Default for LaneName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl SendId {
    /// Checks a send ID.
    ///
    /// # Errors
    /// [`InvalidName::EmptyId`], [`InvalidName::LongId`].
    pub fn new(given: impl Into<String>) -> Result<Self, InvalidName> {
        let given = given.into();
        match given.len() {
            0 => Err(InvalidName::EmptyId),
            1..=256 => Ok(Self(given)),
            bytes => Err(InvalidName::LongId { bytes, start: given.chars().take(40).collect() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_names_are_short_and_plain() {
        for good in ["a", "sendgrid", "wa.31612345678", "x_y-z.0", &"a".repeat(64)] {
            assert_eq!(BudgetName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "A", "a b", "a{b}", "é", &"a".repeat(65)] {
            assert!(matches!(BudgetName::new(bad), Err(InvalidName::Charset { .. })), "{bad}");
        }
    }

    #[test]
    fn send_ids_are_any_utf8_up_to_256_bytes() {
        for good in ["order/42:a", "12345678901234567", &"x".repeat(81), &"é".repeat(128), "\u{0}", "a b{c}"] {
            assert_eq!(SendId::new(good).unwrap().as_str(), good);
        }
        assert_eq!(SendId::new(""), Err(InvalidName::EmptyId));
        assert!(matches!(SendId::new("é".repeat(129)), Err(InvalidName::LongId { bytes: 258, .. })));
    }
}
