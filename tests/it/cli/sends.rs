//! What operators ask and order about sends: pause, cancel, quote, history, refusals.

use sendslot_shared::claim::{Claim, Verdict, claim};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::message::Message;
use sendslot_shared::reserve::reserve;
use sendslot_shared::settle::{Cooldown, Ending, Report, Scope, settle};
use sendslot_shared::store::Store;

use super::*;

/// A send that a worker holds.
pub(super) struct Held {
    store: Store,
    pub(super) envelope: Envelope,
}

const NONCE: u32 = 7;

impl Desk {
    /// Books a send of the budget `now`, which is made for it with room for lateness, and claims it at its slot.
    pub(super) async fn hold(&self, id: &str, options: &str) -> Held {
        let set = ["budget", "set", "now", "--limit", "100", "--transit", "0s", "--headroom", "0.5"]
            .into_iter()
            .chain(options.split_whitespace());
        assert_eq!(self.run(&set.collect::<Vec<_>>()).await.code, 0);
        let store = Store::new(&self.redis.url()).expect("a store");
        let draft = Message::new("now", id, "hello").check().expect("a message");
        let booking =
            reserve(&store, &draft.budget, &[&draft]).await.expect("Redis answers").remove(0).expect("it is booked");
        let envelope = Envelope::first(draft, booking.seq, booking.at);
        loop {
            let asked = Claim { envelope: &envelope, nonce: NONCE, lease: Duration::from_secs(15) };
            match claim(&store, asked).await.expect("Redis answers").verdict {
                Verdict::Send { .. } => return Held { store, envelope },
                // as a worker does
                Verdict::Wait { wait, .. } => tokio::time::sleep(wait).await,
                other => panic!("{other:?}"),
            }
        }
    }
}

impl Held {
    pub(super) async fn settle(&self, ending: Ending, rest: Option<Duration>) {
        let cooldown = rest.map(|rest| Cooldown { rest, scope: Scope::Account });
        let (envelope, delay, elapsed) = (&self.envelope, Duration::ZERO, Duration::from_millis(40));
        let report = Report { envelope, nonce: NONCE, ending, delay, cooldown, elapsed, held_up: Duration::ZERO };
        let _ = settle(&self.store, report).await.expect("Redis answers");
    }
}

#[tokio::test]
async fn a_budget_is_paused_and_resumed() {
    let desk = Desk::open("cli-pause").await;
    for command in ["pause", "resume"] {
        desk.run(&["budget", command, "sms"]).await.assert_fails(4, &["sms", "sendslot budget set sms --limit"]);
    }
    desk.set_sms().await;
    let paused = desk.run(&["budget", "pause", "sms", "--for", "10m", "--json"]).await;
    let until = paused.json()["paused_until"].as_str().unwrap().parse::<Timestamp>().unwrap();
    let ahead = until.duration_since(Timestamp::now()).as_secs();
    assert!((540..=600).contains(&ahead), "{paused:?}");
    let status = desk.run(&["status", "sms"]).await.stdout;
    assert!(status.contains(&format!("\npaused until {until}\n")), "{status}");
    assert_eq!(desk.run(&["status", "sms", "--json"]).await.json()["paused_until"], until.to_string());
    let paused = desk.run(&["budget", "pause", "sms"]).await;
    assert_eq!(paused.stdout, "sms: paused until `sendslot budget resume sms`\n");
    desk.run(&["budget", "pause", "sms", "--for", "0s"]).await.assert_fails(2, &["budget resume sms"]);
    let quote = desk.run(&["quote", "--budget", "sms", "5", "--json"]).await;
    quote.assert_says(&["paused until `sendslot budget resume sms`"]);
    assert_eq!(quote.json()["placed"], 5);
    let resumed = desk.run(&["budget", "resume", "sms", "--json"]).await.json();
    assert_eq!(resumed, json!({ "budget": "sms", "paused": false, "paused_until": null }));
    assert_eq!(desk.run(&["budget", "resume", "sms"]).await.stdout, "sms: goes on\n");
    assert!(!desk.run(&["status", "sms"]).await.stdout.contains("paused"));
}

#[tokio::test]
async fn status_tells_a_rate_that_is_not_the_policys() {
    let desk = Desk::open("cli-rate").await;
    desk.set_sms().await;
    assert!(!desk.run(&["status", "sms"]).await.stdout.contains("rate"));
    desk.run(&["budget", "set", "sms", "--ramp", "2020-01-01T00:00:00Z=50", "--ramp", "2200-01-01T00:00:00Z=90"]).await;
    let ramp = "rate 48.500 units/s now (ramp), the policy's is 97.000\n";
    let idle = desk.run(&["status", "sms"]).await.stdout;
    assert!(idle.ends_with(ramp), "{idle}");
    assert_eq!(desk.send(&[message("a")], &[]).await.code, 0);
    let booked = desk.run(&["status", "sms"]).await.stdout;
    assert!(booked.ends_with(ramp), "{booked}");
    let held = desk.hold("a", "--adaptive 20").await;
    held.settle(Ending::Throttled, Some(Duration::from_secs(60))).await;
    let status = desk.run(&["status", "now"]).await.stdout;
    assert!(status.contains("\ncooldown until 20"), "{status}");
    // down to three quarters
    assert!(status.ends_with("rate 37.500 units/s now (adaptive), the policy's is 50.000\n"), "{status}");
    let json = desk.run(&["status", "now", "--json"]).await.json();
    assert_eq!((&json["rate_per_s"], &json["scheduled_per_s"]), (&json!(37.5), &json!(50.0)));
}

#[tokio::test]
async fn cancel_tells_what_became_of_the_send() {
    let desk = Desk::open("cli-cancel").await;
    desk.set_sms().await;
    assert_eq!(desk.send(&[message("a")], &[]).await.code, 0);
    let cancel = async |budget: &str, id: &str| {
        let ran = desk.run(&["cancel", budget, id]).await;
        assert_eq!(ran.stderr, "");
        (ran.code, ran.stdout)
    };
    for _ in 0..2 {
        assert_eq!(cancel("sms", "a").await, (0, "a: cancelled\n".to_owned()));
    }
    let remembered = "b: unknown ID: it is remembered as cancelled and will not be sent\n";
    for _ in 0..2 {
        assert_eq!(cancel("sms", "b").await, (4, remembered.to_owned()));
    }
    let sent = desk.send(&[message("b")], &["--json"]).await;
    assert_eq!((sent.code, &sent.json()["refused_by"]), (3, &json!({ "cancelled": 1 })));

    let held = desk.hold("c", "").await;
    assert_eq!(cancel("now", "c").await, (3, "c: too late: a worker is sending it just now\n".to_owned()));
    held.settle(Ending::Sent, None).await;
    assert_eq!(cancel("now", "c").await, (3, "c: already sent\n".to_owned()));
    desk.hold("d", "").await.settle(Ending::Rejected, None).await;
    assert_eq!(cancel("now", "d").await, (3, "d: ended as failed, and dead-lettered\n".to_owned()));

    let ended = desk.run(&["cancel", "now", "d", "--json"]).await;
    let expected = json!({ "budget": "now", "id": "d", "result": "ended", "ended_as": "failed" });
    assert_eq!((ended.code, ended.json()), (3, expected));
    let unknown = desk.run(&["cancel", "sms", "nobody", "--json"]).await;
    assert_eq!((unknown.code, &unknown.json()["result"]), (4, &json!("unknown_id")));
    desk.run(&["cancel", "SMS", "a"]).await.assert_fails(2, &["SMS", "a-z"]);
}

#[tokio::test]
async fn status_tells_a_sends_history() {
    let desk = Desk::open("cli-history").await;
    let held = desk.hold("a", "").await;
    let status = desk.run(&["status", "now", "a"]).await.stdout;
    assert!(status.starts_with("a: sending since 20"), "{status}");
    assert!(
        status.contains("cost 1, lane default\n  booked 20") && status.contains("\n  claimed, lease ends 20"),
        "{status}"
    );
    held.settle(Ending::Throttled, Some(Duration::from_secs(60))).await;
    let status = desk.run(&["status", "now", "a"]).await.stdout;
    let moved: Vec<&str> = status.lines().filter(|line| line.starts_with("  moved 20")).collect();
    assert_eq!(moved.len(), 1, "{status}");
    assert!(moved[0].contains(" because the provider refused it for the rate, from 20"), "{status}");
    assert!(moved[0].ends_with(" because of cooldown: the provider asked for a rest"), "{status}");
    let json = desk.run(&["status", "now", "a", "--json"]).await.json();
    assert_eq!((&json["lane"], &json["throttles"]), (&json!("default"), &json!(1)));
    assert_eq!(json["history"][0]["event"], "booked");
    let moved = &json["history"][1];
    for (name, value) in [("event", "moved"), ("why", "throttled"), ("bound_by", "cooldown")] {
        assert_eq!(moved[name], value, "{json}");
    }
    let at = |name: &str| moved[name].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert!(at("from") <= at("at") && at("at") < at("to"), "{json}");

    desk.set_sms().await;
    let other = Desk::open("cli-history-2").await;
    other.hold("a", "").await.settle(Ending::Sent, None).await;
    let status = other.run(&["status", "now", "a"]).await.stdout;
    let events: Vec<&str> = status.lines().skip(2).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(events, ["booked", "called", "sent"], "{status}");
    let json = other.run(&["status", "now", "a", "--json"]).await.json();
    assert_eq!((&json["history"][2]["event"], &json["history"][2]["state"]), (&json!("settled"), &json!("sent")));
}

#[tokio::test]
async fn quote_tells_first_last_and_the_number_by_hour() {
    let desk = Desk::open("cli-quote").await;
    let ask = async |options: &str| {
        desk.run(&["quote", "--budget", "sms"].into_iter().chain(options.split_whitespace()).collect::<Vec<_>>()).await
    };
    ask("5").await.assert_fails(4, &["sms", "sendslot budget set sms --limit"]);
    let set = "budget set sms --limit 10 --headroom 0.8 --horizon 14d --lane otp:reserved=25%,max-wait=30s";
    assert_eq!(desk.run(&set.split(' ').collect::<Vec<_>>()).await.code, 0);
    // 6 of 8 units of a second are left to the lane `default`
    let day = Timestamp::now() + Duration::from_secs(86_400);
    let hour = Timestamp::from_second(day.as_second() / 3600 * 3600).unwrap();
    let next = hour + Duration::from_secs(3600);
    let quote = ask(&format!("43200 --not-before {hour} --json")).await.json();
    for (name, value) in [
        ("lane", json!("default")),
        ("sends", json!(43_200)),
        ("placed", json!(43_200)),
        ("not_placed", json!(0)),
        ("stopped", Value::Null),
        ("first", json!(hour.to_string())),
        ("bound_by", json!("lanes")),
        (
            "hours",
            json!([
                { "hour": hour.to_string(), "sends": 21_600 },
                { "hour": next.to_string(), "sends": 21_600 },
            ]),
        ),
    ] {
        assert_eq!(quote[name], value, "{name}: {quote}");
    }
    let lasts = quote["lasts_s"].as_f64().unwrap();
    assert!((7200.0 + 82_800.0..7200.0 + 86_400.0).contains(&lasts), "{quote}");
    let told = ask(&format!("43200 --not-before {hour}")).await.stdout;
    let rows = [
        "sms: 43200 sends of cost 1 in the lane default".to_owned(),
        format!("       first  {hour}"),
        "    bound by  lanes: earlier slots are reserved for other lanes".to_owned(),
        format!("     by hour  {hour}  21600"),
        format!("              {next}  21600"),
    ];
    for row in rows {
        assert!(told.lines().any(|line| line == row), "{row:?} in {told}");
    }
    assert!(told.lines().any(|line| line.starts_with("        last  20") && line.ends_with(")")), "{told}");
    assert_eq!(desk.booked_and_enqueued().await, (0, 0), "nothing is booked");
}

#[tokio::test]
async fn quote_tells_what_does_not_fit_and_why() {
    let desk = Desk::open("cli-quote-2").await;
    let set = "budget set sms --limit 10 --headroom 0.8 --horizon 60s --lane otp:max-wait=30s";
    assert_eq!(desk.run(&set.split(' ').collect::<Vec<_>>()).await.code, 0);
    let ask = async |options: &str| {
        desk.run(&["quote", "--budget", "sms"].into_iter().chain(options.split(' ')).collect::<Vec<_>>()).await
    };
    for (options, why, sentence, fit) in [
        ("1000", "too_far", "raise the horizon", 472..=480),
        ("1000 --cost 2", "too_far", "raise the horizon", 236..=240),
        ("1000 --lane otp", "full", "longer than the lane's max-wait", 232..=241),
        ("1000 --not-before 2200-01-01T00:30:00+01:00", "too_far", "raise the horizon", 0..=0),
    ] {
        let quote = ask(&format!("{options} --json")).await;
        let json = quote.json();
        assert_eq!((quote.code, &json["stopped"]), (0, &json!(why)), "{quote:?}");
        let placed = json["placed"].as_u64().unwrap();
        assert!(fit.contains(&placed) && json["not_placed"] == 1000 - placed, "{options}: {quote:?}");
        let told = ask(options).await.stdout;
        assert!(told.lines().last().unwrap().starts_with("does not fit  ") && told.contains(sentence), "{told}");
    }
    let bad: [(&str, &[&str]); 5] = [
        ("0", &["at least 1 send"]),
        ("5 --cost 0", &["cost of 1"]),
        ("5 --cost 11", &["above 10 units"]),
        ("5 --lane vip", &["no such lane", "budget get"]),
        ("5 --not-before tomorrow", &["tomorrow", "no instant"]),
    ];
    for (options, words) in bad {
        ask(options).await.assert_fails(2, words);
    }
}

#[tokio::test]
async fn send_tells_what_was_refused_and_why() {
    let desk = Desk::open("cli-refused").await;
    let set = "budget set sms --limit 1 --headroom 0.8 --horizon 60s --spacing 1s --lane brief:max-wait=10s --lane otp";
    assert_eq!(desk.run(&set.split(' ').collect::<Vec<_>>()).await.code, 0);
    let line = |id: String, lane: &str, more: Value| {
        let mut line = json!({ "id": id, "payload": "x", "lane": lane, "recipient": id });
        line.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        line.to_string()
    };
    let soon = (Timestamp::now() + Duration::from_secs(1)).to_string();
    let mut lines: Vec<String> = (0..30).map(|i| line(format!("a{i}"), "brief", json!({}))).collect();
    lines.push(line("late".to_owned(), "otp", json!({ "deadline": soon })));
    lines.push(line("vip".to_owned(), "vip", json!({})));
    lines.push(line("big".to_owned(), "otp", json!({ "cost": 2 })));
    lines.push(message("nobody"));
    let told = desk.send(&lines, &[]).await.stdout;
    let refused = told.lines().find(|line| line.contains(" refused: ")).unwrap();
    assert!(refused.contains(" full (send the file again in ") && refused.contains(", 1 past deadline"), "{told}");
    // the same again, and more than the horizon has room for
    lines.extend((0..60).map(|i| line(format!("b{i}"), "otp", json!({}))));
    let ran = desk.send(&lines, &["--json"]).await;
    let report = ran.json();
    assert_eq!(ran.code, 3, "{ran:?}");
    let by = |name: &str| report["refused_by"][name].as_u64().unwrap_or(0);
    assert_eq!(["past_deadline", "unknown_lane", "cost_too_large", "no_recipient"].map(by), [1, 1, 1, 1], "{report}");
    assert!((15..=30).contains(&by("full")) && (8..=24).contains(&by("too_far")), "{report}");
    let all: u64 = report["refused_by"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(report["refused"], all);
    assert!(report["retry_after_s"].as_u64().is_some_and(|s| (1..=3).contains(&s)), "{report}");
}
