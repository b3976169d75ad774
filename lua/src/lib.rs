//! The Redis scripts of Sendslot and their registry.
//!
//! Redis picks every slot: a script reads Redis `TIME` once, checks everything and only then writes. Each script is one
//! text, joined at build time: `head` (constants), `clock`, the script's straight-line answer to its common case, and
//! behind it the general path (`header`, `grid`, `seconds`, `hints`, `search`, `rules`, `book`, `calendar`, `record`), whose functions are
//! only created when they are needed.
//!
//! | script | question |
//! |---|---|
//! | [`RESERVE`] | book a batch of sends |
//! | [`CLAIM`] | may this copy be sent now? |
//! | [`SETTLE`] | this is how the provider answered |
//! | [`POLICY`] | set a budget's policy |
//! | [`STATUS`] | what is known of a send |
//! | [`CANCEL`] | end a send that was not claimed |
//! | [`PAUSE`] | stop a budget, or let it go on |
//! | [`QUOTE`] | when would so many sends leave? |
//! | [`RECEIPT`] | this is what the provider says became of a send |
//! | [`PROVIDER_ID`] | the provider knows a send by this ID |
//! | [`VIEW`] | what does the calendar look like around now? |
//!
//! Adding a script is one file with a header, one entry in [`SCRIPTS`] and one typed caller in `sendslot-shared`.
//! A test reads the headers and holds them against the registry.

/// One script: its text and what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script {
    /// Name, and the stem of its file.
    pub name: &'static str,
    /// The whole text, as Redis gets it.
    pub source: &'static str,
    /// The keys it takes, in their order; the last may stand for several.
    pub keys: &'static [&'static str],
    /// The arguments it takes, in their order; the last may stand for several.
    pub args: &'static [&'static str],
}

macro_rules! joined {
    ($clock:literal, $($part:literal),+) => {
        concat!(include_str!("scripts/head.lua"), include_str!(concat!("scripts/", $clock, ".lua"))
            $(, include_str!(concat!("scripts/", $part, ".lua")))+)
    };
}

/// A script whose general path has the whole calendar, and perhaps more, between its two own parts.
macro_rules! calendar {
    ($clock:literal, $straight:literal, $($rest:literal),+) => {
        joined!($clock, $straight, "header", "grid", "seconds", "hints", "search", "heavy", "rules", "book", "calendar", $($rest),+)
    };
}

macro_rules! scripts {
    ($clock:literal) => {
        [
            Script {
                name: "reserve",
                source: calendar!($clock, "reserve", "record", "reserve_general"),
                keys: &["cal", "policy", "record"],
                args: &["send"],
            },
            Script {
                name: "claim",
                source: calendar!($clock, "claim", "record", "claim_general"),
                keys: &["cal", "policy", "record"],
                args: &["copy"],
            },
            Script {
                name: "settle",
                source: calendar!($clock, "settle", "record", "settle_general"),
                keys: &["cal", "policy", "record"],
                args: &["report"],
            },
            Script {
                name: "policy",
                source: calendar!($clock, "policy", "policy_general"),
                keys: &["cal", "policy"],
                args: &["compiled", "lanes", "quotas", "segments", "settings"],
            },
            Script {
                name: "status",
                source: joined!($clock, "status", "header", "grid", "seconds", "hints", "record", "status_general"),
                keys: &["cal", "policy", "record"],
                args: &[],
            },
            Script {
                name: "cancel",
                source: calendar!($clock, "cancel", "record", "cancel_general"),
                keys: &["cal", "policy", "record"],
                args: &[],
            },
            Script {
                name: "pause",
                source: calendar!($clock, "pause", "pause_general"),
                keys: &["cal", "policy"],
                args: &["pause"],
            },
            Script {
                name: "quote",
                source: calendar!($clock, "quote", "quote_general"),
                keys: &["cal", "policy"],
                args: &["question", "lane", "rest"],
            },
            Script {
                name: "receipt",
                source: joined!($clock, "receipt"),
                keys: &["cal", "policy", "record"],
                args: &["receipt"],
            },
            Script {
                name: "provider_id",
                source: joined!($clock, "provider_id"),
                keys: &["cal", "policy", "link"],
                args: &["id"],
            },
            Script {
                name: "view",
                source: joined!($clock, "view", "header", "grid", "seconds", "hints", "view_general"),
                keys: &["cal", "policy"],
                args: &[],
            },
        ]
    };
}

/// All scripts with the real clock, Redis `TIME`: the only ones that production can be given.
pub const SCRIPTS: [Script; 11] = scripts!("clock");

/// All scripts with a virtual clock: the instant (microseconds since 1970) stands in the key [`VIRTUAL_CLOCK_KEY`].
#[cfg(feature = "virtual-clock")]
pub const VIRTUAL_SCRIPTS: [Script; 11] = scripts!("clock_virtual");

/// All scripts with Redis' own clock, set forward or back by the microseconds in the key [`VIRTUAL_CLOCK_KEY`].
#[cfg(feature = "virtual-clock")]
pub const STEPPED_SCRIPTS: [Script; 11] = scripts!("clock_stepped");

/// The key that a virtual clock reads, or a stepped one.
#[cfg(feature = "virtual-clock")]
pub const VIRTUAL_CLOCK_KEY: &str = "sendslot:clock";

/// Books a batch of sends.
pub const RESERVE: usize = 0;
/// Asks for one copy of a send whether it may be sent now.
pub const CLAIM: usize = 1;
/// Reports how the provider answered.
pub const SETTLE: usize = 2;
/// Sets a budget's policy.
pub const POLICY: usize = 3;
/// Reads what is known of a send and of its budget.
pub const STATUS: usize = 4;
/// Cancels a send.
pub const CANCEL: usize = 5;
/// Pauses a budget.
pub const PAUSE: usize = 6;
/// Says when sends would leave.
pub const QUOTE: usize = 7;
/// Records what the provider says became of a send.
pub const RECEIPT: usize = 8;
/// Remembers which send the provider knows by an ID of its own.
pub const PROVIDER_ID: usize = 9;
/// Shows the calendar around now.
pub const VIEW: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The header comment of a script: the lines of its own file up to the first line of code.
    fn header(script: &Script) -> Vec<String> {
        let path = format!("{}/src/scripts/{}.lua", env!("CARGO_MANIFEST_DIR"), script.name);
        let text = std::fs::read_to_string(path).expect("a script's file is named after it");
        text.lines().take_while(|l| l.starts_with("--")).map(|l| l.trim_start_matches('-').trim().to_owned()).collect()
    }

    fn named(header: &[String], kind: &str) -> Vec<String> {
        header
            .iter()
            .filter_map(|l| l.strip_prefix(kind)?.split_once("] ")?.1.split_once(':'))
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    #[test]
    fn headers_name_the_keys_and_arguments_of_the_registry_and_what_is_returned() {
        for script in &SCRIPTS {
            let header = header(script);
            assert!(header[0].starts_with(&format!("{}: ", script.name)), "{}: purpose", script.name);
            assert_eq!(named(&header, "KEYS["), script.keys, "{}: keys", script.name);
            assert_eq!(named(&header, "ARGV["), script.args, "{}: arguments", script.name);
            assert!(header.iter().any(|l| l.starts_with("Returns: ")), "{}: Returns", script.name);
            for line in header.iter().filter(|l| l.starts_with("KEYS[")) {
                assert!(line.contains("TTL"), "{}: type and TTL of {line}", script.name);
            }
        }
    }

    #[test]
    fn every_script_uses_all_its_keys_and_arguments() {
        for script in &SCRIPTS {
            for n in 1..=script.keys.len() {
                let direct = format!("KEYS[{n}");
                let batch = n == 3 && (script.source.contains("KEYS, 3") || script.source.contains("KEYS[i + 2]"));
                assert!(script.source.contains(&direct) || batch, "{} uses KEYS[{n}]", script.name);
            }
            let code: String = script.source.lines().filter(|l| !l.trim_start().starts_with("--")).collect();
            for n in 1..=script.args.len() {
                let batch = n > 1 && code.contains("ARGV[j]");
                assert!(code.contains(&format!("ARGV[{n}]")) || batch, "{} uses ARGV[{n}]", script.name);
            }
        }
    }

    #[test]
    fn every_file_is_part_of_a_registered_script() {
        let folder = format!("{}/src/scripts", env!("CARGO_MANIFEST_DIR"));
        for entry in std::fs::read_dir(folder).expect("the scripts' folder") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("a readable script");
            let used = SCRIPTS.iter().any(|s| s.source.contains(&text));
            let virtual_part = path.ends_with("clock_virtual.lua") || path.ends_with("clock_stepped.lua");
            assert!(used || virtual_part, "{} belongs to no script", path.display());
        }
    }

    #[test]
    fn names_are_unique_and_in_the_order_of_the_constants() {
        let names: BTreeSet<_> = SCRIPTS.iter().map(|s| s.name).collect();
        assert_eq!(names.len(), SCRIPTS.len());
        for (index, name) in [
            (RESERVE, "reserve"),
            (CLAIM, "claim"),
            (SETTLE, "settle"),
            (POLICY, "policy"),
            (STATUS, "status"),
            (CANCEL, "cancel"),
            (PAUSE, "pause"),
            (QUOTE, "quote"),
            (RECEIPT, "receipt"),
            (PROVIDER_ID, "provider_id"),
            (VIEW, "view"),
        ] {
            assert_eq!(SCRIPTS[index].name, name);
        }
    }

    #[test]
    fn scripts_start_with_the_shebang_and_call_time_once() {
        for script in &SCRIPTS {
            assert!(script.source.starts_with("#!lua\n"), "{}", script.name);
            assert_eq!(script.source.matches("'TIME'").count(), 1, "{}", script.name);
        }
    }

    #[test]
    fn production_scripts_cannot_be_given_a_time() {
        for script in &SCRIPTS {
            assert!(!script.source.contains("sendslot:clock"), "{}", script.name);
        }
    }
}
