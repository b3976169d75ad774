//! `sendslot budget`: every setting round trips, and what cannot work is refused.

use sendslot_shared::budget;
use sendslot_shared::id::BudgetName;
use sendslot_shared::policy::Policy;
use sendslot_shared::policy_file::PolicyFile;
use sendslot_shared::store::Store;

use super::*;

/// Every setting, and none at its default.
const EVERYTHING: &str = "--limit 200 --per 2s --headroom 0.8125 --transit 300ms --lead 2s --horizon 48h --dedup-ttl 90m \
    --max-cost 7 --max-attempts 9 --on-unknown resend \
    --lane otp:reserved=20%,max-wait=30s,preempts --lane news:max-wait=1h30m --lane plain --lane default:reserved=12.5% \
    --quota 50000/24h@+1h --quota 20000/1h --quota 90000/24h@-5h30m --spacing 6s \
    --ramp 2026-12-01T00:00:00Z=100 --ramp 2026-12-02T01:00:00+01:00=150 --ramp 2026-12-03T01:00:00[Europe/Amsterdam]=200 \
    --adaptive 20..80";

impl Desk {
    async fn set(&self, name: &str, options: &str) -> Ran {
        let args: Vec<&str> = ["budget", "set", name].into_iter().chain(options.split_whitespace()).collect();
        self.run(&args).await
    }

    async fn policy(&self, name: &str) -> Policy {
        let store = Store::new(&self.redis.url()).expect("a store");
        let known = budget::get(&store, &BudgetName::new(name).expect("a name")).await.expect("Redis answers");
        known.expect("it has a policy").1
    }

    /// Pastes a line into a shell that finds `sendslot`.
    async fn paste(&self, line: &str) -> i32 {
        let line = line.replacen("sendslot", env!("CARGO_BIN_EXE_sendslot-under-test"), 1);
        let status =
            Command::new("sh").args(["-c", &line]).env("REDIS_URL", self.redis.url()).stdout(Stdio::null()).status();
        status.await.expect("sh runs").code().expect("no signal")
    }
}

#[tokio::test]
async fn what_budget_get_prints_can_be_pasted_into_a_shell() {
    let desk = Desk::open("cli-paste").await;
    let set = desk.set("sms", EVERYTHING).await;
    assert_eq!(set.code, 0, "{set:?}");
    let printed = desk.run(&["budget", "get", "sms"]).await.stdout;
    let line = printed.lines().next().unwrap().replacen(" sms ", " mail ", 1);
    // on a budget that has none, and on one that has others
    for before in [None, Some("--replace --limit 3 --lane old --quota 9/1h --max-cost 2")] {
        if let Some(options) = before {
            assert_eq!(desk.set("mail", options).await.code, 0);
        }
        assert_eq!(desk.paste(&line).await, 0, "{line}");
        assert_eq!(desk.policy("mail").await, desk.policy("sms").await, "{line}");
    }
    let listed = desk.run(&["budget", "list"]).await.stdout;
    assert_eq!(listed.lines().next(), Some(line.as_str()), "the list prints the same commands");
}

#[tokio::test]
async fn json_names_every_setting_with_its_unit() {
    let desk = Desk::open("cli-units").await;
    let set = desk.set("sms", &format!("{EVERYTHING} --json")).await.json();
    for (name, value) in [
        ("limit", json!(200)),
        ("per_ms", json!(2000)),
        ("headroom", json!(0.8125)),
        ("transit_ms", json!(300)),
        ("lead_ms", json!(2000)),
        ("horizon_s", json!(172_800)),
        ("dedup_ttl_s", json!(5400)),
        ("max_cost", json!(7)),
        ("max_cost_set", json!(7)),
        ("max_attempts", json!(9)),
        ("on_unknown", json!("resend")),
        (
            "quotas",
            json!([
                { "units": 50_000, "window_s": 86_400, "offset_s": 3600 },
                { "units": 20_000, "window_s": 3600, "offset_s": 0 },
                { "units": 90_000, "window_s": 86_400, "offset_s": -19_800 },
            ]),
        ),
        ("spacing_ms", json!(6000)),
        (
            "ramp",
            json!([
                { "from": "2026-12-01T00:00:00Z", "limit": 100 },
                { "from": "2026-12-02T00:00:00Z", "limit": 150 },
                { "from": "2026-12-03T00:00:00Z", "limit": 200 },
            ]),
        ),
        ("adaptive", json!({ "floor_units": 20, "ceiling_units": 80 })),
        ("scheduled_per_s", json!(81.25)),
    ] {
        assert_eq!(set[name], value, "{name}");
    }
    let lane = |lane: &str, reserved: f64, max_wait_s: Option<u64>, preempts: bool| json!({ "lane": lane, "reserved": reserved, "max_wait_s": max_wait_s, "preempts": preempts });
    let lanes = [
        lane("otp", 0.2, Some(30), true),
        lane("news", 0.0, Some(5400), false),
        lane("plain", 0.0, None, false),
        lane("default", 0.125, None, false),
    ];
    assert_eq!(set["lanes"], json!(lanes));
    assert_eq!(desk.run(&["budget", "get", "sms", "--json"]).await.json(), set);
    assert_eq!(desk.run(&["budget", "list", "--json"]).await.json(), json!([set]));
}

#[tokio::test]
async fn none_clears_a_setting_and_what_is_not_given_stays() {
    let desk = Desk::open("cli-none").await;
    assert_eq!(desk.set("sms", EVERYTHING).await.code, 0);
    let before = desk.policy("sms").await;
    assert_eq!(desk.set("sms", "--quota 70000/24h --lane otp:reserved=10%").await.code, 0);
    let after = desk.policy("sms").await;
    assert_eq!((after.quotas.len(), after.lanes.len()), (1, 1), "an option replaces the whole list");
    assert_eq!((after.ramp, after.spacing, after.adaptive), (before.ramp, before.spacing, before.adaptive));
    let none = "--quota none --lane none --ramp none --spacing none --adaptive none --max-cost none";
    assert_eq!(desk.set("sms", none).await.code, 0);
    let cleared = desk.policy("sms").await;
    assert_eq!((cleared.quotas.len(), cleared.lanes.len(), cleared.ramp.len()), (0, 0, 0));
    assert_eq!((cleared.spacing, cleared.adaptive, cleared.max_cost), (None, None, None));
    assert_eq!((cleared.limit, cleared.max_attempts), (200, 9));
    assert_eq!(desk.set("sms", "--replace --limit 200").await.code, 0);
    assert_eq!(desk.policy("sms").await, Policy::per_second(200));
}

#[tokio::test]
async fn a_policy_that_cannot_work_is_refused_with_what_would() {
    let desk = Desk::open("cli-policies").await;
    let bad: [(&str, &[&str]); 34] = [
        ("--limit 0", &["limit 0", "at least 1"]),
        ("--limit 100 --headroom 0", &["headroom 0", "above 0", "0.95"]),
        ("--limit 100 --headroom 1.5", &["headroom 1.5", "at most 1"]),
        ("--limit 100 --headroom 0.99 --jitter 11ms", &["headroom 0.99 buys", "10.101ms", "0.9891 at most"]),
        ("--limit 100 --headroom 1 --jitter 1ms", &["headroom 1 buys, 0ns", "0.999 at most"]),
        ("--headroom 0.9", &["--limit UNITS"]),
        ("--limit 100 --max-cost 0", &["max_cost 0", "1 to"]),
        ("--limit 100 --max-cost many", &["many", "whole number"]),
        ("--limit 100 --horizon 400h", &["horizon", "14 days"]),
        ("--limit 100 --horizon 15d", &["horizon", "14 days"]),
        ("--limit 100 --horizon 1500ms", &["whole seconds"]),
        ("--limit 100 --transit 100us", &["whole milliseconds"]),
        ("--limit 100 --lane OTP", &["OTP", "a-z"]),
        ("--limit 100 --lane otp:reserve=20%", &["reserve=20%", "reserved=20%, max-wait=30s, preempts"]),
        ("--limit 100 --lane otp:reserved=101%", &["reserved=101%", "0% to 100%"]),
        ("--limit 100 --lane a:reserved=60% --lane b:reserved=50%", &["110%", "100% is the most"]),
        ("--limit 100 --lane a:reserved=100%", &["default", "never send"]),
        ("--limit 1 --lane otp:reserved=50%", &["otp", "less than one unit", "preempts"]),
        ("--limit 100 --lane otp:max-wait=15d", &["otp", "14 days"]),
        ("--limit 100 --lane otp --lane otp:preempts", &["otp", "twice"]),
        ("--limit 100 --lane none --lane otp", &["--lane none", "alone"]),
        ("--limit 100 --quota 50000", &["50000/24h"]),
        ("--limit 100 --quota 0/24h", &["at least 1 unit"]),
        ("--limit 100 --quota 50000/32d", &["31 days"]),
        ("--limit 100 --quota 50000/24h@1h", &["+1h"]),
        ("--limit 100 --quota 50000/24h --quota 9/24h --max-cost 1", &["another one with this window"]),
        ("--limit 100 --quota 20/1h --max-cost 21", &["cost 21", "never fit"]),
        ("--limit 100 --spacing 25h", &["spacing", "24 hours"]),
        ("--limit 100 --ramp 2026-12-02T00:00:00Z=50 --ramp 2026-12-01T00:00:00Z=80", &["ramp", "in order"]),
        ("--limit 100 --ramp 2026-12-02T00:00:00Z=0", &["limit 0", "pause"]),
        ("--limit 100 --ramp tomorrow=5", &["tomorrow", "no instant"]),
        ("--limit 100 --adaptive 20..120", &["adaptive rate from 20 to 120", "100"]),
        ("--limit 100 --adaptive 0", &["floor from 1"]),
        ("--limit 100 --adaptive 20-80", &["20..80"]),
    ];
    for (options, words) in bad {
        desk.set("sms", options).await.assert_fails(2, words);
    }
    let keys: Vec<String> = redis::from_redis_value(desk.redis(&["KEYS", "*"]).await).unwrap();
    assert_eq!(keys, [""; 0]);
    desk.set_sms().await;
    let before = desk.run(&["budget", "get", "sms", "--json"]).await.json();
    desk.run(&["budget", "set", "sms", "--jitter", "31ms"]).await.assert_fails(2, &["0.9699"]);
    assert_eq!(desk.run(&["budget", "get", "sms", "--json"]).await.json(), before);
}

#[tokio::test]
async fn a_printed_policy_is_a_file_that_seeds_a_redis_that_lost_it_and_overwrites_none() {
    let desk = Desk::open("cli-seed").await;
    let set = [
        "budget set sms --limit 100 --per 500ms --headroom 0.8 --transit 300ms --lead 2s --horizon 2h --dedup-ttl 3h",
        "--max-attempts 7 --on-unknown resend --max-cost 30 --spacing 2s --lane otp:reserved=20%,max-wait=30s,preempts",
        "--lane news --quota 50000/24h@+1h --adaptive 20",
    ];
    let ran = desk.run(&set.join(" ").split(' ').collect::<Vec<_>>()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let get = ["budget", "get", "sms", "--json"];
    let printed = desk.run(&get).await.json();
    let file = PolicyFile::parse(&printed.to_string()).expect("a file");
    let store = Store::new(&desk.redis.url()).expect("a store");
    let name = BudgetName::new("sms").expect("a name");
    desk.redis(&["FLUSHALL"]).await;
    assert!(file.seed(&store, &name).await.expect("Redis answers"));
    assert_eq!(desk.run(&get).await.json(), printed);
    assert!(!file.seed(&store, &BudgetName::new("other").expect("a name")).await.expect("Redis answers"));
    assert_eq!(desk.run(&["budget", "set", "sms", "--limit", "50", "--adaptive", "none"]).await.code, 0);
    let changed = desk.run(&get).await.json();
    assert!(file.seed(&store, &name).await.expect("Redis answers"));
    assert_eq!(desk.run(&get).await.json(), changed, "what is there is not overwritten");
    // a list, and what is no file
    let list = format!("[{printed}, {printed}]");
    assert_eq!(PolicyFile::parse(&list).expect("a file"), file);
    let mut bad = printed.clone();
    bad["headroom"] = json!(1.5);
    for text in [bad.to_string(), "{}".to_owned(), "no file".to_owned()] {
        let error = PolicyFile::parse(&text).expect_err("no file").to_string();
        assert!(error.contains("SENDSLOT_POLICY_FILE"), "{error}");
    }
}
