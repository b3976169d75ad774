//! What is refused for now: when to come again.

use super::*;
use jiff::{SignedDuration, Timestamp};

fn in_seconds(s: i64) -> String {
    (Timestamp::now() + SignedDuration::from_secs(s)).to_string()
}

#[tokio::test]
async fn a_full_lane_says_when_to_come_again() {
    let front = Front::open("http-full").await;
    front.set_sms(json!({ "limit": 10, "transit_ms": 0, "lanes": [{ "lane": "otp", "max_wait_s": 2 }] })).await;
    let sends: Vec<_> = (0..60).map(|i| json!({ "id": format!("m{i}"), "payload": 1, "lane": "otp" })).collect();
    let batch = front.post("/v1/budgets/sms/batches", json!({ "sends": sends })).await.json();
    let refused: Vec<_> = batch["results"].as_array().unwrap().iter().filter(|item| item["status"] == 503).collect();
    assert!(refused.iter().all(|item| item["type"] == "/problems/full" && item["retry_after_s"].as_u64() >= Some(1)));
    assert!((20..60).contains(&refused.len()) && batch["refused"] == refused.len(), "{batch}");
    let refused = front.send(json!({ "id": "one", "payload": 1, "lane": "otp", "cost": 10 })).await;
    let problem = refused.assert_problem(503, "full", &["full"]);
    assert!((1..=10).contains(&problem["retry_after_s"].as_u64().unwrap()), "{problem}");
    // other lanes go on
    assert_eq!(front.send(message("two")).await.status, 202);
    assert_eq!(front.get("/v1/budgets/sms/sends/one").await.status, 404, "a refusal leaves no trace");
}

#[tokio::test]
async fn a_deadline_that_cannot_be_met_says_when_the_send_would_leave() {
    let front = Front::open("http-deadline").await;
    front.set_sms(json!({})).await;
    let refused = front.send(json!({ "id": "a", "payload": 1, "deadline": in_seconds(30) })).await;
    let problem = refused.assert_problem(503, "deadline-cannot-be-met", &["deadline"]);
    let at: Timestamp = problem["would_be_at"].as_str().unwrap().parse().unwrap();
    assert!(at > Timestamp::now() + SignedDuration::from_secs(50), "{problem}");
    assert!((50..=61).contains(&problem["retry_after_s"].as_u64().unwrap()), "{problem}");
    let passed = front.send(json!({ "id": "a", "payload": 1, "deadline": "2020-01-01T00:00:00Z" })).await;
    passed.assert_problem(503, "deadline-cannot-be-met", &[]);
    assert_eq!(front.send(json!({ "id": "a", "payload": 1, "deadline": in_seconds(300) })).await.status, 202);
    let order = json!({ "id": "b", "payload": 1, "not_before": in_seconds(90), "deadline": in_seconds(80) });
    front.send(order).await.assert_problem(422, "invalid", &["deadline"]);
    let far = front.send(json!({ "id": "b", "payload": 1, "not_before": in_seconds(3 * 86_400) })).await;
    far.assert_problem(503, "too-far", &["horizon"]);
}

#[tokio::test]
async fn a_send_that_has_ended_is_answered_by_how_it_ended() {
    use sendslot_shared::claim::{self, Claim, Verdict};
    use sendslot_shared::settle::{self, Ending, Report};
    use sendslot_shared::store::Store;
    let front = Front::open("http-ended").await;
    front.set_sms(json!({ "transit_ms": 0, "lead_ms": 5000 })).await;
    for id in ["failed", "sending", "sent"] {
        assert_eq!(front.send(message(id)).await.status, 202);
    }
    let store = Store::new(&front.redis.url()).unwrap();
    for copy in front.queue.receive(3).await {
        let lease = Duration::from_secs(300);
        loop {
            match claim::claim(&store, Claim { envelope: &copy, nonce: 7, lease }).await.unwrap().verdict {
                Verdict::Send { .. } => break,
                Verdict::Wait { wait, .. } => tokio::time::sleep(wait).await,
                other => panic!("{other:?}"),
            }
        }
        let ending = match copy.draft.id.as_str() {
            "sent" => Ending::Sent,
            "failed" => Ending::Rejected,
            _ => continue,
        };
        let times = (Duration::ZERO, Duration::ZERO);
        let report = Report {
            envelope: &copy,
            nonce: 7,
            ending,
            delay: times.0,
            cooldown: None,
            elapsed: times.1,
            held_up: Duration::ZERO,
        };
        let _ = settle::settle(&store, report).await.unwrap();
    }
    let sent = front.send(message("sent")).await;
    assert_eq!((sent.status, &sent.json()["state"], &sent.json()["existing"]), (200, &json!("sent"), &json!(true)));
    let sending = front.send(message("sending")).await;
    assert_eq!((sending.status, &sending.json()["state"]), (202, &json!("sending")));
    let failed = front.send(message("failed")).await.assert_problem(409, "failed", &["redrive"]);
    assert_eq!(failed["state"], "failed");
    for (id, state) in [("sent", "sent"), ("sending", "sending"), ("failed", "failed")] {
        let path = format!("/v1/budgets/sms/sends/{id}");
        assert_eq!(front.get(&path).await.json()["state"], state);
        let late = front.ask(Method::DELETE, &path, None).await.assert_problem(409, "too-late", &[]);
        assert_eq!(late["state"], state);
    }
}
