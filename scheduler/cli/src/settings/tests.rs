use super::shown::url_without_secrets;
use super::*;
use clap::CommandFactory as _;
use clap::FromArgMatches as _;
use serde::Deserialize;

use crate::args::Args;

fn file(text: &str) -> Result<ConfigFile, String> {
    ConfigFile::new("etc/sendslot.toml", text.to_owned())
}

fn resolve(line: &str, variables: &[(&str, &str)], text: &str) -> Result<Settings, String> {
    let matches = with_flags(Args::command()).try_get_matches_from(line.split(' ')).unwrap();
    Args::from_arg_matches(&matches).unwrap();
    let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    Settings::resolve(&flags(&matches), variable, Some(file(text)?))
}

#[test]
fn a_flag_goes_before_the_environment_before_the_file_before_the_default() {
    let text = "redis_url = 'redis://file'\nredis_policy = 'local:1'\nqueue_url = 'queue'\n";
    let variables = [("REDIS_URL", "redis://variable"), ("SENDSLOT_REDIS_POLICY", "local:2")];
    let all = resolve("sendslot status --redis-url redis://flag sms", &variables, text).unwrap();
    let found = |name: &str| all.find(name).map(|r| (r.value.as_deref(), r.source)).unwrap();
    assert_eq!(found("redis_url"), (Some("redis://flag"), Source::Flag));
    assert_eq!(found("redis_policy"), (Some("local:2"), Source::Environment));
    assert_eq!(found("queue_url"), (Some("queue"), Source::File));
    assert_eq!(found("log"), (Some("warn"), Source::Default));
    assert_eq!(found("dlq_url"), (None, Source::NotSet));
    assert_eq!((all.get("log"), all.given("log"), all.given("queue_url")), (Some("warn"), None, Some("queue")));
    let before = resolve("sendslot --redis-url redis://early budget list", &[], "").unwrap();
    assert_eq!(before.get("redis_url"), Some("redis://early"), "flags stand before the command as well");
}

#[test]
fn names_variables_and_flags_are_each_one_settings() {
    for column in [|s: &Setting| s.name, |s: &Setting| s.variable, |s: &Setting| s.flag] {
        let names: std::collections::BTreeSet<_> = SETTINGS.iter().map(column).collect();
        assert_eq!(names.len(), SETTINGS.len());
    }
    with_flags(Args::command()).debug_assert();
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_one_that_is_meant() {
    for (text, message) in [
        (
            "log = 'warn'\nredis_ulr = 'x'",
            "etc/sendslot.toml:2: there is no setting redis_ulr: did you mean redis_url?",
        ),
        ("queue-url = 'x'", "etc/sendslot.toml:1: there is no setting queue-url: did you mean queue_url?"),
        ("SENDSLOT_DLQ_URL = 'x'", "there is no setting SENDSLOT_DLQ_URL: did you mean dlq_url?"),
        ("colour = 1", "there is no setting colour: known are redis_url, queue_url, dlq_url"),
    ] {
        let error = resolve("sendslot config", &[], text).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_wrong_type_says_what_to_give_and_repeats_no_value() {
    for (text, parts) in [
        (
            "\nredis_url = 6379",
            ["etc/sendslot.toml:2: redis_url takes a string, not this integer", "redis://host:port"],
        ),
        ("[redis_url]\nhost = 'hunter2'", ["redis_url takes a string, not this table", "give redis://"]),
        ("redis_url = 'redis://u:hunter2@h", ["etc/sendslot.toml:1: ", ""]),
        ("log = 'warn'\nlog = 'hunter2'", ["etc/sendslot.toml:2: duplicate key", ""]),
    ] {
        let error = resolve("sendslot config", &[], text).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn numbers_and_switches_are_checked_wherever_they_come_from() {
    let setting = |kind| Setting { name: "other.port", kind, ..SETTINGS[0] };
    let value = |kind, text: &str| file(text).unwrap().value(&setting(kind));
    assert_eq!(value(Kind::Number, "[other]\nport = 8_080"), Ok(Some("8080".to_owned())));
    assert_eq!(value(Kind::Switch, "other.port = true"), Ok(Some("true".to_owned())));
    assert_eq!(value(Kind::Number, "[other]"), Ok(None));
    for (kind, text) in [(Kind::Number, "-1"), (Kind::Number, "'80'"), (Kind::Switch, "1"), (Kind::Text, "2026-12-01")]
    {
        let error = value(kind, &format!("[other]\nport = {text}")).unwrap_err();
        assert!(error.starts_with("etc/sendslot.toml:2: other.port takes "), "{error}");
    }
    assert!(
        Kind::Number.check("80").is_ok() && Kind::Number.check("8 0").is_err() && Kind::Switch.check("yes").is_err()
    );
    let known = file("[other]\nport = 1\nlisten = 2").unwrap().check(&[setting(Kind::Number)], &[]).unwrap_err();
    assert_eq!(known, "etc/sendslot.toml:3: there is no setting other.listen: known are other.port");
}

#[test]
fn a_path_in_the_file_is_relative_to_it() {
    let all = resolve("sendslot config", &[], "policy_file = 'policies.json'").unwrap();
    assert_eq!(all.get("policy_file"), Some("etc/policies.json"));
    let all = resolve("sendslot config", &[], "policy_file = '/policies.json'").unwrap();
    assert_eq!(all.get("policy_file"), Some("/policies.json"));
}

/// As another part of the command would have one.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Key {
    name: String,
    hash: String,
    rate: Option<u32>,
}

#[test]
fn a_typed_section_is_read_shown_without_secrets_and_refused_by_line() {
    let sections = [Section::of::<Vec<Key>>("keys", &["hash"])];
    let good = file("[[keys]]\nname = 'a'\nhash = 'hunter2'\n[[keys]]\nname = 'b'\nhash = 'c'\nrate = 5\n").unwrap();
    good.check(SETTINGS, &sections).unwrap();
    let shown = (sections[0].shown)(&good, &sections[0]).unwrap().unwrap();
    let settings = Settings { all: vec![], file: Some(good) };
    let keys: Vec<Key> = settings.section("keys").unwrap().unwrap();
    assert_eq!((keys.len(), keys[1].rate), (2, Some(5)));
    assert_eq!(shown[0], serde_json::json!({ "name": "a", "hash": "***", "rate": null }));
    assert_eq!(file("").unwrap().section::<Vec<Key>>("keys"), Ok(None));
    for (text, message) in [
        (
            "[[keys]]\nname = 'a'\nhsah = 'hunter2'",
            "etc/sendslot.toml:3: [keys]: unknown field `hsah`, expected one of `name`",
        ),
        (
            "[[keys]]\nname = 'a'\nhash = 'b'\nrate = 'hunter2'",
            "etc/sendslot.toml:4: [keys]: invalid type, expected u32",
        ),
        ("[keys]\nname = 'hunter2'", "[keys]: invalid type, expected a sequence"),
        ("[[keys]]\nname = 'hunter2'", "etc/sendslot.toml:1: [keys]: missing field `hash`"),
    ] {
        let error = file(text).unwrap().check(SETTINGS, &sections).unwrap_err();
        assert!(error.contains(message) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn passwords_of_a_url_are_hidden() {
    for (url, shown) in [
        ("redis://localhost:6379", "redis://localhost:6379"),
        ("redis://u:hunter2@h:1/2", "redis://u:***@h:1/2"),
        ("rediss://:hunter2@h", "rediss://:***@h"),
        ("redis+cluster://u:hunter2@h:1,h:2?ssl_ca_certs=ca.pem", "redis+cluster://u:***@h:1,h:2?ssl_ca_certs=ca.pem"),
        (
            "redis+sentinel://u:hun@ter2@h/m?sentinel_username=s&sentinel_password=hunter2",
            "redis+sentinel://u:***@h/m?sentinel_username=s&sentinel_password=***",
        ),
        ("redis://u:hun/ter2?@h", "redis://u:***@h"),
        ("hunter2", "***"),
    ] {
        assert_eq!(url_without_secrets(url), shown);
    }
}

#[test]
fn a_table_of_the_file_holds_settings() {
    let text = "[serve]\nlisten = '127.0.0.1:1'\nno_auth = true\nbody_timeout_s = 0.5\nheader_timeout_s = 7\n";
    let all = resolve("sendslot serve", &[], text).unwrap();
    assert_eq!((all.get("serve.listen"), all.get("serve.no_auth")), (Some("127.0.0.1:1"), Some("true")));
    assert_eq!(["serve.body_timeout_s", "serve.header_timeout_s"].map(|name| all.get(name)), [Some("0.5"), Some("7")]);
    let all =
        resolve("sendslot serve --listen 127.0.0.1:2 --no-auth", &[("SENDSLOT_LISTEN", "127.0.0.1:3")], "").unwrap();
    assert_eq!(all.parsed::<std::net::SocketAddr>("serve.listen").unwrap(), "127.0.0.1:2".parse().unwrap());
    assert!(all.parsed::<bool>("serve.no_auth").unwrap());
    let error = resolve("sendslot serve", &[("SENDSLOT_NO_AUTH", "perhaps")], "").unwrap_err();
    assert_eq!(error, "SENDSLOT_NO_AUTH cannot be used: give true or false");
    for seconds in ["-1", "86401", "NaN", "inf", "1s"] {
        let error = resolve("sendslot serve", &[("SENDSLOT_SERVE_DRAIN_S", seconds)], "").unwrap_err();
        assert_eq!(error, "SENDSLOT_SERVE_DRAIN_S cannot be used: give seconds, at most 86,400");
    }
    for (text, message) in [
        ("[serve]\nlistn = 'x'", "etc/sendslot.toml:2: there is no setting serve.listn: did you mean serve.listen?"),
        ("[serve]\nno_auth = 'hunter2'", "etc/sendslot.toml:2: serve.no_auth takes true or false, not this string"),
        ("[serve]\nbody_timeout_s = 'hunter2'", "etc/sendslot.toml:2: serve.body_timeout_s takes a number of seconds"),
        ("[serve]\nmax_requests = -1", "etc/sendslot.toml:2: serve.max_requests takes a whole number from 0 on"),
        ("serve = 'hunter2'", "etc/sendslot.toml:1: serve is not a table: write [serve]"),
    ] {
        let error = resolve("sendslot config", &[], text).unwrap_err();
        assert!(error.contains(message) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn all_of_serve_is_given_by_flag_variable_or_file_and_listed_with_its_default() {
    let given = |all: &Settings| crate::serve::config(all).unwrap();
    let rows: Vec<_> = SETTINGS.iter().filter(|setting| setting.name.starts_with("serve.")).collect();
    let bounds = || rows.iter().filter(|setting| matches!(setting.kind, Kind::Number | Kind::Seconds));
    let members = serde_json::to_value(sendslot_http::config::ServeConfig::default()).unwrap();
    let mut members: Vec<_> = members.as_object().unwrap().keys().map(|name| format!("serve.{name}")).collect();
    members.sort_unstable();
    let mut names: Vec<_> = rows.iter().map(|setting| setting.name).collect();
    names.sort_unstable();
    assert_eq!(names, members, "each member of [serve] is a setting");
    let by_default = resolve("sendslot serve", &[], "").unwrap();
    assert_eq!(given(&by_default), sendslot_http::config::Config::default());
    let limits = sendslot_http::config::Limits::default();
    assert_eq!(by_default.parsed::<f64>("serve.request_timeout_s").unwrap(), limits.request_timeout.as_secs_f64());
    let flags: String = bounds().map(|setting| format!(" --{} 9", setting.flag)).collect();
    let variables: Vec<_> = bounds().map(|setting| (setting.variable, "9")).collect();
    let file: String = bounds().map(|setting| format!("{} = 9\n", &setting.name["serve.".len()..])).collect();
    for all in [
        resolve(&format!("sendslot serve{flags}"), &[], ""),
        resolve("sendslot serve", &variables, ""),
        resolve("sendslot serve", &[], &format!("[serve]\n{file}")),
    ] {
        let shown = serde_json::to_value(given(&all.unwrap()).serve).unwrap();
        let numbers: Vec<_> = shown.as_object().unwrap().values().filter(|value| value.as_f64() == Some(9.0)).collect();
        assert_eq!(numbers.len(), bounds().count(), "{shown}");
    }
}
