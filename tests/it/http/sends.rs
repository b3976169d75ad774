//! Each route's work.

use super::*;
use sendslot_shared::envelope::Envelope;

#[tokio::test]
async fn each_route_does_its_work() {
    let front = Front::open("http-routes").await;
    assert_eq!((front.get("/healthz").await.status, front.readiness(true).await["sqs"].clone()), (200, json!(true)));
    let policy =
        json!({ "limit": 100, "headroom": 0.9, "transit_ms": 60_000, "lanes": [{ "lane": "otp", "reserved": 0.2 }] });
    let set = front.ask(Method::PUT, "/v1/budgets/sms", Some(policy.clone())).await;
    assert_eq!((set.status, &set.json()["version"], &set.json()["scheduled_per_s"]), (201, &json!(1), &json!(90.0)));
    let again = front.ask(Method::PUT, "/v1/budgets/sms", Some(set.json()["policy"].clone())).await;
    assert_eq!((again.status, &again.json()["policy"]), (200, &set.json()["policy"]), "what is shown can be set");
    let got = front.get("/v1/budgets/sms").await.json();
    assert_eq!((&got["policy"]["lanes"][0]["lane"], &got["backlog_s"]), (&json!("otp"), &json!(0.0)));
    assert_eq!(front.get("/v1/budgets").await.json()["budgets"][0]["budget"], "sms");

    let id = "order/42: ü%?#";
    let path = "/v1/budgets/sms/sends/order%2F42%3A%20%C3%BC%25%3F%23";
    let body =
        json!({ "id": id, "payload": { "to": "a", "b": [1, null] }, "lane": "otp", "cost": 2, "recipient": "+316" });
    let sent = front.send(body.clone()).await;
    let accepted = sent.json();
    assert_eq!((sent.status, sent.header("location")), (202, path), "{sent:?}");
    assert_eq!(
        (&accepted["state"], &accepted["seq"], &accepted["existing"]),
        (&json!("booked"), &json!(1), &json!(false))
    );
    assert!(
        accepted["wait_ms"].as_u64().unwrap() > 50_000 && accepted["at"].as_str().unwrap().ends_with('Z'),
        "{sent:?}"
    );
    let again = front.send(body).await;
    assert_eq!((again.status, &again.json()["at"], &again.json()["existing"]), (202, &accepted["at"], &json!(true)));

    let known = front.get(path).await;
    assert_eq!((known.status, &known.json()["id"], &known.json()["state"]), (200, &json!(id), &json!("booked")));
    assert_eq!(
        (&known.json()["at"], &known.json()["cost"], &known.json()["lane"]),
        (&accepted["at"], &json!(2), &json!("otp"))
    );
    assert_eq!(known.json()["history"][0]["event"], "booked");
    let cancelled = front.ask(Method::DELETE, path, None).await;
    assert_eq!((cancelled.status, &cancelled.json()["known"]), (200, &json!(true)));
    assert_eq!(front.ask(Method::DELETE, path, None).await.json()["state"], "cancelled");
    assert_eq!(front.get(path).await.json()["state"], "cancelled");
    let unknown = front.ask(Method::DELETE, "/v1/budgets/sms/sends/never", None).await;
    assert_eq!((unknown.status, &unknown.json()["known"]), (200, &json!(false)));
    front.send(message("never")).await.assert_problem(409, "cancelled", &["cancelled"]);
    front.get("/v1/budgets/sms/sends/other").await.assert_problem(404, "unknown-send", &[]);

    for id in ["batch", "batches", ".", "a;b=c"] {
        assert_eq!(front.send(message(id)).await.status, 202, "no ID is a route's name");
    }
    assert_eq!(front.get("/v1/budgets/sms/sends/batches").await.json()["state"], "booked");
    let quote = front.get("/v1/budgets/sms/quote?sends=180&cost=1&lane=otp").await;
    assert_eq!((quote.status, &quote.json()["placed"], &quote.json()["stopped"]), (200, &json!(180), &Value::Null));
    let paused = front.post("/v1/budgets/sms/pause", json!({ "for_s": 600 })).await;
    assert!(paused.json()["paused_until"].is_string(), "{paused:?}");
    let paused = front.ask(Method::POST, "/v1/budgets/sms/pause", None).await;
    assert!(paused.json()["paused_until"].as_str().unwrap() > "2100", "{paused:?}");
    let resumed = front.ask(Method::POST, "/v1/budgets/sms/resume", None).await;
    assert_eq!((resumed.status, &resumed.json()["paused_until"]), (200, &Value::Null));
    let metrics = front.get("/metrics").await;
    assert_eq!((metrics.status, metrics.header("content-type")), (200, "text/plain; version=0.0.4; charset=utf-8"));
    for series in [
        "sendslot_admitted_total{budget=\"sms\",lane=\"default\"}",
        "sendslot_booked_horizon_seconds{budget=\"sms\",lane=\"otp\"}",
        "sendslot_redis_up 1",
    ] {
        assert!(metrics.text.contains(series), "{series} in {metrics:?}");
    }
}

#[tokio::test]
async fn payloads_reach_the_queue_as_text_json_or_bytes() {
    let front = Front::open("http-payloads").await;
    front.set_sms(json!({ "transit_ms": 0, "lead_ms": 60_000 })).await;
    for (id, body) in [
        ("a", json!({ "id": "a", "payload": "héllo" })),
        ("b", json!({ "id": "b", "payload": { "z": [1, 2], "a": null } })),
        ("c", json!({ "id": "c", "payload_base64": "AP8=" })),
    ] {
        assert_eq!(front.send(body).await.status, 202, "{id}");
    }
    let payloads: Vec<Vec<u8>> =
        front.queue.receive(3).await.into_iter().map(|copy: Envelope| copy.draft.payload).collect();
    assert_eq!(payloads, ["héllo".as_bytes(), br#"{"a":null,"z":[1,2]}"#, &[0, 255]]);
}

#[tokio::test]
async fn the_same_id_is_the_same_send_whatever_the_order_of_keys_and_another_content_is_a_conflict() {
    // F1, novu#4531
    let front = Front::open("http-conflict").await;
    front.set_sms(json!({})).await;
    let raw = async |body: &str| {
        let request = front.client.post(front.url("/v1/budgets/sms/sends")).header("content-type", "application/json");
        let response = request.body(body.to_owned()).send().await.unwrap();
        (response.status().as_u16(), serde_json::from_str::<Value>(&response.text().await.unwrap()).unwrap())
    };
    let (status, first) = raw(r#"{"id":"a","payload":{"to":"x","text":{"b":1,"a":[2,3]}}}"#).await;
    assert_eq!(status, 202);
    let (status, again) = raw(r#"{"payload":{ "text" : {"a":[2,3],"b":1}, "to":"x" },"id":"a"}"#).await;
    assert_eq!((status, &again["at"], &again["existing"]), (202, &first["at"], &json!(true)));
    for other in [r#"{"id":"a","payload":{"to":"x","text":{"b":1,"a":[3,2]}}}"#, r#"{"id":"a","payload":"x"}"#] {
        let (status, problem) = raw(other).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/conflict")), "{problem}");
    }
    assert_eq!(front.queue.len().await, 2, "the copy, and that of the second call");
}

#[tokio::test]
async fn a_batch_has_a_result_for_each_send_in_their_order() {
    // F3, support-service-lambdas#660
    let front = Front::open("http-batch").await;
    front.set_sms(json!({ "limit": 1000 })).await;
    let batch = |sends: Value| json!({ "sends": sends });
    let path = "/v1/budgets/sms/batches";
    let bad = json!({ "id": "b", "payload": 1, "cost": 0 });
    let answer = front.post(path, batch(json!([message("a"), bad, message("c")]))).await;
    let json = answer.json();
    assert_eq!((answer.status, &json["accepted"], &json["refused"]), (200, &json!(2), &json!(1)));
    let results = json["results"].as_array().unwrap();
    let statuses: Vec<_> =
        results.iter().map(|result| (result["id"].as_str().unwrap(), result["status"].as_u64().unwrap())).collect();
    assert_eq!(statuses, [("a", 202), ("b", 422), ("c", 202)]);
    assert_eq!((&results[1]["type"], &results[2]["state"]), (&json!("/problems/invalid"), &json!("booked")));
    // what is no send, an ID twice, and one of another content
    let odd =
        json!([7, { "id": "d" }, message("e"), message("e"), json!({ "id": "e", "payload": "other" }), message("a")]);
    let results = front.post(path, batch(odd)).await.json()["results"].clone();
    let statuses: Vec<_> =
        results.as_array().unwrap().iter().map(|result| result["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [422, 422, 202, 202, 409, 202]);
    // a thousand, in arrival order
    let sends: Vec<_> = (0..1000).map(|i| message(&format!("m{i:04}"))).collect();
    let json = front.post(path, batch(json!(sends))).await.json();
    assert_eq!((&json["accepted"], &json["refused"]), (&json!(1000), &json!(0)));
    let results = json["results"].as_array().unwrap();
    assert!(results.iter().enumerate().all(|(i, result)| result["id"] == format!("m{i:04}")));
    let more: Vec<_> = (0..1001).map(|i| message(&format!("n{i}"))).collect();
    front.post(path, batch(json!(more))).await.assert_problem(422, "invalid", &["1001", "1000"]);
    assert_eq!(front.post(path, batch(json!([]))).await.json()["results"], json!([]));
}

#[tokio::test]
async fn the_openapi_document_lists_each_route_and_is_readable_without_another_host() {
    let front = Front::open("http-openapi").await;
    let document = front.get("/openapi.json").await.json();
    let paths: Vec<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
    for path in
        ["/v1/budgets/{budget}/sends", "/v1/budgets/{budget}/sends/{id}", "/v1/budgets/{budget}/quote", "/readyz"]
    {
        assert!(paths.contains(&path.to_owned()), "{path} in {paths:?}");
    }
    let schedule = &document["paths"]["/v1/budgets/{budget}/sends"]["post"];
    for status in ["202", "200", "400", "401", "403", "404", "409", "413", "415", "422", "429", "503"] {
        assert!(schedule["responses"][status].is_object(), "{status}");
    }
    // one payload, and not both: a null is one, and no base64
    let send = &document["components"]["schemas"]["Send"]["allOf"];
    assert_eq!((&send[0]["required"], &send[0]["additionalProperties"]), (&json!(["id"]), &json!(false)), "{send:#}");
    let text = json!({ "payload_base64": { "type": "string" } });
    assert_eq!(
        send[1]["oneOf"],
        json!([
            { "type": "object", "required": ["payload"] },
            { "type": "object", "required": ["payload_base64"], "properties": text },
        ])
    );
    let page = front.get("/docs/").await;
    assert_eq!((page.status, page.header("content-type").starts_with("text/html")), (200, true), "{page:?}");
    assert!(!page.text.contains("http://") && !page.text.contains("https://"), "{}", page.text);
    assert_eq!(front.get("/docs/swagger-ui-bundle.js").await.status, StatusCode::OK);
}

/// How often Redis was called with a script.
async fn script_calls(front: &Front) -> u64 {
    let client = redis::Client::open(front.redis.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut redis).await.unwrap();
    let calls = |line: &str| line.strip_prefix("cmdstat_evalsha:calls=")?.split_once(',')?.0.parse::<u64>().ok();
    stats.lines().find_map(calls).unwrap_or(0)
}

#[tokio::test]
async fn sends_that_come_together_share_calls_and_each_has_its_own_answer() {
    let config = "[serve]\nlinger_ms = 500\n".to_owned();
    let front = Front::with("http-share", Setup { config, ..Setup::default() }).await;
    front.set_sms(json!({})).await;
    assert_eq!(front.send(message("m00")).await.status, 202);
    let before = script_calls(&front).await;
    let other_content = json!({ "id": "m00", "payload": "another" });
    let too_late = json!({ "id": "late", "payload": "p", "deadline": "2020-01-01T00:00:00Z" });
    let mut all: Vec<Value> = (1..60).map(|i| message(&format!("m{i:02}"))).collect();
    all.extend([other_content, too_late]);
    let answers = futures_util::future::join_all(all.into_iter().map(|body| front.send(body))).await;
    for (i, answer) in answers[..59].iter().enumerate() {
        assert_eq!((answer.status, &answer.json()["id"]), (202, &json!(format!("m{:02}", i + 1))), "{answer:?}");
    }
    answers[59].assert_problem(409, "conflict", &[]);
    answers[60].assert_problem(503, "deadline-cannot-be-met", &[]);
    let calls = script_calls(&front).await - before;
    assert!(calls < 30, "{calls} calls for 61 sends");
    assert_eq!(front.queue.len().await, 60);
}
