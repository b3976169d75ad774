//! `sendslot audit`: whether the limit held.

use std::process::Stdio;

use sendslot_localstack::provider::ScriptedReply;
use sendslot_shared::settle::Ending;
use sendslot_tests::pipeline::{Pipeline, Setup};

use super::*;

/// Whole minutes since 1970, half an hour ago.
fn recently() -> u64 {
    u64::try_from(Timestamp::now().as_second()).unwrap() / 60 - 30
}

fn instant(minute: u64, ms: u64) -> String {
    Timestamp::from_millisecond(i64::try_from(minute * 60_000 + ms).unwrap()).unwrap().to_string()
}

impl Desk {
    /// Notes calls as settle does: (ms within the minute, cost).
    async fn plant(&self, minute: u64, calls: impl IntoIterator<Item = (u16, u32)>) {
        let mut bytes = vec![];
        for (ms, cost) in calls {
            if cost == 1 {
                bytes.extend(ms.to_le_bytes());
            } else {
                bytes.extend(u16::MAX.to_le_bytes().into_iter().chain(ms.to_le_bytes()).chain(cost.to_le_bytes()));
            }
        }
        let client = redis::Client::open(self.redis.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let key = format!("s{{sms}}au:{minute}");
        let _: i64 = redis::cmd("APPEND").arg(key).arg(bytes).query_async(&mut connection).await.unwrap();
    }

    async fn set_limit(&self, limit: &str) {
        assert_eq!(self.run(&["budget", "set", "sms", "--limit", limit]).await.code, 0);
    }
}

/// Every 10 ms of so many seconds of a minute.
fn even(seconds: std::ops::Range<u16>) -> impl Iterator<Item = (u16, u32)> {
    (seconds.start * 100..seconds.end * 100).map(|i| (i * 10, 1))
}

/// As a browser reads it: XML, with these texts.
async fn assert_svg(file: &Path, texts: &[&str]) {
    let svg = std::fs::read_to_string(file).unwrap();
    let code = "import sys, xml.dom.minidom as m; t = m.parse(sys.argv[1]).documentElement; \
                print(t.tagName, *[c.data for e in t.getElementsByTagName('text') for c in e.childNodes], sep='\\n')";
    let mut python = Command::new("python3");
    let ran = python.args(["-c", code]).arg(file).stderr(Stdio::inherit()).output().await.unwrap();
    let told = String::from_utf8(ran.stdout).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.first(), Some(&"svg"), "{svg}");
    for text in texts {
        assert!(lines.contains(text), "{text:?} in {told}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[tokio::test]
async fn an_audit_of_known_calls_gives_exact_numbers() {
    let desk = Desk::open("cli-audit").await;
    desk.run(&["audit", "sms"]).await.assert_fails(4, &["sms", "sendslot budget set sms --limit"]);
    desk.set_limit("100").await;
    let none = desk.run(&["audit", "sms", "--json"]).await;
    assert_eq!((none.code, &none.json()["verdict"], &none.json()["calls"]), (0, &json!("no_calls"), &json!(0)));
    // 95 units a second on either side of a minute's end, and one call of 4 on top
    let minute = recently();
    desk.plant(minute, even(58..60).filter(|(ms, _)| ms % 1000 < 950)).await;
    desk.plant(minute + 1, even(0..2).filter(|(ms, _)| ms % 1000 < 950).chain([(1_100, 4)])).await;
    let plot = desk.folder.path().join("plot.svg");
    let ran = desk.run(&["audit", "sms", "--json", "--plot", plot.to_str().unwrap()]).await;
    let json = ran.json();
    assert_eq!(ran.code, 0, "{ran:?}");
    for (name, value) in [
        ("verdict", json!("held")),
        ("limit", json!(100)),
        ("calls", json!(381)),
        ("units", json!(384)),
        ("first_call", json!(instant(minute, 58_000))),
        ("last_call", json!(instant(minute + 1, 1_940))),
        ("largest", json!({ "units": 99, "from": instant(minute + 1, 100), "to": instant(minute + 1, 1_100) })),
        ("above_limit", json!([])),
        ("endings", json!({})),
    ] {
        assert_eq!(json[name], value, "{name}: {json}");
    }
    assert_eq!(json["largest_at_most"]["units"], 100, "a window of 1001 ms: {json}");
    let part = json["utilisation"].as_f64().unwrap();
    assert!((part - 384.0 / 394.0).abs() < 1e-9, "{json}");
    let summary = format!(
        "381 calls, 384 units, {} to {}; largest window 99 of 100: the limit held",
        instant(minute, 58_000),
        instant(minute + 1, 1_940)
    );
    let texts =
        ["sms: units in any rolling 1s", "limit 100", "scheduled 97", "time (UTC)", "units in the last 1s", &summary];
    assert_svg(&plot, &texts).await;

    let told = desk.run(&["audit", "sms"]).await.stdout;
    for row in
        ["calls  381, 384 units", "limit  100 in any 1s: held", "utilisation  97.46% of the limit (97% is scheduled)"]
    {
        assert!(told.lines().any(|line| line.trim_start() == row), "{row:?} in {told}");
    }
    // a part of it: the second's end, where the limit of 95 per second is told from what a millisecond may hide
    let (from, to) = (instant(minute, 59_000), instant(minute + 1, 1_000));
    let part = desk.run(&["audit", "sms", "--from", &from, "--to", &to, "--json"]).await.json();
    assert_eq!((&part["calls"], &part["last_call"]), (&json!(190), &json!(instant(minute + 1, 940))));
    desk.set_limit("95").await;
    let part = desk.run(&["audit", "sms", "--from", &from, "--to", &to, "--json"]).await;
    assert_eq!((part.code, &part.json()["verdict"]), (0, &json!("undecided")), "{part:?}");
    desk.run(&["audit", "sms", "--from", &to, "--to", &from]).await.assert_fails(2, &["--from", "not before"]);
    desk.run(&["audit", "sms", "--from", &to, "--since", "1h"]).await.assert_fails(2, &["--since"]);
}

#[tokio::test]
async fn a_planted_violation_is_found() {
    let desk = Desk::open("cli-audit-2").await;
    desk.set_limit("100").await;
    let minute = recently();
    desk.plant(minute, even(0..30).chain((0..20).map(|i| (20_005 + i, 1)))).await;
    desk.plant(minute + 2, [(500, 101)]).await;
    let plot = desk.folder.path().join("plot.svg");
    let ran = desk.run(&["audit", "sms", "--plot", plot.to_str().unwrap(), "--json"]).await;
    let json = ran.json();
    assert_eq!((ran.code, &json["verdict"]), (3, &json!("exceeded")), "{json}");
    assert_eq!(json["largest"]["units"], 120, "{json}");
    // one call of 101 is one send, alone in its second
    let above =
        json!([{ "from": instant(minute, 19_020), "to": instant(minute, 21_020), "most": 120, "allowed": 100 }]);
    let found = &json["above_limit"];
    assert_eq!(
        (found.as_array().unwrap().len(), &found[0]["most"], &found[0]["allowed"]),
        (1, &above[0]["most"], &above[0]["allowed"]),
        "{json}"
    );
    let at = |name: &str| found[0][name].as_str().unwrap().parse::<Timestamp>().unwrap();
    let second = |ms| instant(minute, ms).parse::<Timestamp>().unwrap();
    assert!(second(19_000) <= at("from") && at("from") <= second(19_020), "{json}");
    assert!(second(20_990) <= at("to") && at("to") <= second(21_030), "{json}");
    assert_svg(&plot, &["limit 100"]).await;
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(svg.contains("the limit was exceeded") && svg.matches("<circle").count() == 1, "{svg}");
    let told = desk.run(&["audit", "sms"]).await;
    assert_eq!(told.code, 3);
    assert!(
        told.stdout.contains("EXCEEDED") && told.stdout.contains("above it  120 units in 1s where 100 may be"),
        "{told:?}"
    );
    // a raised limit makes it right
    desk.set_limit("120").await;
    assert_eq!(desk.run(&["audit", "sms"]).await.code, 0);
    let missing = desk.folder.path().join("no/plot.svg");
    desk.run(&["audit", "sms", "--plot", missing.to_str().unwrap()]).await.assert_fails(1, &["no/plot.svg"]);
}

#[tokio::test]
async fn calls_through_the_real_worker_are_those_that_the_provider_saw() {
    const WORKER: &str = env!("CARGO_BIN_EXE_sendslot-worker-under-test");
    let stack = localstack().await;
    let setup = Setup::new("cli-audit-e2e");
    let pipeline = Pipeline::start(stack, WORKER, setup).await;
    pipeline.provider.script("m00003", [ScriptedReply::status(500)]);
    let ids = pipeline.schedule(120).await;
    pipeline.scheduler.schedule(pipeline.message("heavy").cost(3)).await.unwrap();
    let all: Vec<String> = ids.into_iter().chain(["heavy".to_owned()]).collect();
    pipeline.ended(&all, Duration::from_secs(60)).await;
    let env = [("REDIS_URL".to_owned(), stack.redis_url())];
    let json = run(&env, &["audit", pipeline.budget, "--json"], b"").await.json();
    let arrivals = pipeline.stop().await;
    let units: u32 = arrivals.iter().map(|a| a.units).sum();
    assert_eq!((&json["calls"], &json["units"]), (&json!(arrivals.len()), &json!(units)), "{json}");
    assert_eq!((arrivals.len(), &json["endings"]), (122, &json!({ "unavailable": 1 })), "{json}");
}

#[tokio::test]
async fn a_held_send_is_in_the_audit_once_it_is_settled() {
    let desk = Desk::open("cli-audit-3").await;
    let held = desk.hold("a", "").await;
    let calls = async || desk.run(&["audit", "now", "--json"]).await.json()["calls"].clone();
    assert_eq!(calls().await, 0);
    for _ in 0..2 {
        held.settle(Ending::Sent, None).await;
        assert_eq!(calls().await, 1);
    }
}
