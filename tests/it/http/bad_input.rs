//! What is not a request: each says what is wrong, and nothing is booked.

use super::*;

#[tokio::test]
async fn bodies_that_are_none_say_what_is_wrong() {
    let front = Front::open("http-bodies").await;
    front.set_sms(json!({})).await;
    let post = async |path: &str, kind: Option<&str>, body: &str| {
        let mut request = front.client.post(front.url(path)).body(body.to_owned());
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, text: response.text().await.unwrap() }
    };
    let sends = "/v1/budgets/sms/sends";
    for (body, status, slug, word) in [
        ("", 400, "malformed-json", "EOF"),
        ("{", 400, "malformed-json", "EOF"),
        ("\u{0}", 400, "malformed-json", "expected value"),
        (r#"{"id":"a","payload":1} x"#, 400, "malformed-json", "trailing"),
        (r#"{"id":"a","payload":1,}"#, 400, "malformed-json", "trailing comma"),
        ("null", 422, "invalid", "object"),
        ("[1]", 422, "invalid", "object"),
        ("\"text\"", 422, "invalid", "object"),
        ("{}", 422, "invalid", "`id`"),
        (r#"{"id":"a"}"#, 422, "invalid", "payload"),
        (r#"{"id":7,"payload":1}"#, 422, "invalid", "string"),
        (r#"{"id":"","payload":1}"#, 422, "invalid", "empty"),
        (r#"{"id":"a","payload":1,"paylaod":2}"#, 422, "invalid", "paylaod"),
        (r#"{"id":"a","payload":1,"cost":0}"#, 422, "invalid", "cost 0"),
        (r#"{"id":"a","payload":1,"cost":-1}"#, 422, "invalid", "u32"),
        (r#"{"id":"a","payload":1,"cost":1.5}"#, 422, "invalid", "u32"),
        (r#"{"id":"a","payload":1,"cost":16777216}"#, 422, "invalid", "16777216"),
        (r#"{"id":"a","payload":1,"lane":"NEWS"}"#, 422, "invalid", "lane"),
        (r#"{"id":"a","payload":1,"lane":"news"}"#, 422, "invalid", "no such lane"),
        (r#"{"id":"a","payload":1,"recipient":""}"#, 422, "invalid", "recipient"),
        (r#"{"id":"a","payload":1,"not_before":"soon"}"#, 422, "invalid", "not_before"),
        (r#"{"id":"a","payload":1,"deadline":7}"#, 422, "invalid", "string"),
        (r#"{"id":"a","payload":1,"payload_base64":"AA=="}"#, 422, "invalid", "one of them"),
        (r#"{"id":"a","payload_base64":"%"}"#, 422, "invalid", "base64"),
        (r#"{"id":"a","payload":1,"cost":101}"#, 422, "cost-too-large", "100"),
    ] {
        let answer = post(sends, Some("application/json"), body).await;
        let problem = answer.assert_problem(status, slug, &[word]);
        assert!(slug != "cost-too-large" || problem["max_cost"] == 100, "{body}: {problem}");
    }
    let long = format!(r#"{{"id":"{}","payload":1}}"#, "x".repeat(257));
    post(sends, Some("application/json; charset=utf-8"), &long).await.assert_problem(422, "invalid", &["257"]);
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("json")] {
        post(sends, kind, "{}").await.assert_problem(415, "unsupported-media-type", &["application/json"]);
    }
    for (path, body, status, slug, word) in [
        ("/v1/budgets/sms/batches", r#"{"sends":{}}"#, 422, "invalid", "sequence"),
        ("/v1/budgets/sms/batches", r#"{"sends":[],"more":1}"#, 422, "invalid", "more"),
        ("/v1/budgets/sms/batches", "{}", 422, "invalid", "sends"),
        ("/v1/budgets/sms/batches", r#"{"sends":[{]}"#, 400, "malformed-json", "column"),
        ("/v1/budgets/sms/pause", r#"{"for_s":0}"#, 422, "invalid", "resume"),
        ("/v1/budgets/sms/pause", r#"{"for_s":"1m"}"#, 422, "invalid", "f64"),
        ("/v1/budgets/sms/pause", r#"{"until":1}"#, 422, "invalid", "until"),
    ] {
        post(path, Some("application/json"), body).await.assert_problem(status, slug, &[word]);
    }
    assert_eq!(front.queue.len().await, 0);
    let records = front.get("/v1/budgets/sms").await.json();
    assert_eq!(records["booked_until"], Value::Null);
}

#[tokio::test]
async fn policies_that_are_none_say_what_is_wrong() {
    let front = Front::open("http-policies").await;
    for (policy, slug, word) in [
        (json!({}), "invalid", "limit"),
        (json!({ "limit": 0 }), "invalid-policy", "limit 0"),
        (json!({ "limit": 5_000_000_000_u64 }), "invalid", "u32"),
        (json!({ "limit": 5, "headroom": 2 }), "invalid-policy", "headroom"),
        (json!({ "limit": 5, "lead": 2 }), "invalid", "lead"),
        (json!({ "limit": 5, "horizon_s": 0 }), "invalid-policy", "horizon"),
        (json!({ "limit": 5, "horizon_s": u64::MAX }), "invalid-policy", "horizon"),
        (json!({ "limit": 5, "per_ms": u64::MAX }), "invalid-policy", "per"),
        (json!({ "limit": 5, "lanes": [{ "lane": "a b" }] }), "invalid-policy", "lane"),
        (json!({ "limit": 5, "lanes": [{ "lane": "a", "preempt": true }] }), "invalid", "preempt"),
        (json!({ "limit": 5, "ramp": [{ "from": "then", "limit": 1 }] }), "invalid-policy", "ramp"),
        (json!({ "limit": 5, "adaptive": { "floor_units": 9 } }), "invalid-policy", "adaptive"),
        (json!({ "limit": 5, "on_unknown": "guess" }), "invalid", "value"),
    ] {
        let answer = front.ask(Method::PUT, "/v1/budgets/sms", Some(policy)).await;
        answer.assert_problem(422, slug, &[word]);
    }
    front.get("/v1/budgets/sms").await.assert_problem(404, "unknown-budget", &["PUT"]);
    front.send(message("a")).await.assert_problem(404, "unknown-budget", &[]);
    front.ask(Method::POST, "/v1/budgets/sms/resume", None).await.assert_problem(404, "unknown-budget", &[]);
    front.get("/v1/budgets/sms/quote?sends=1").await.assert_problem(404, "unknown-budget", &[]);
    assert_eq!(front.get("/v1/budgets").await.json(), json!({ "budgets": [] }));
}

#[tokio::test]
async fn paths_methods_and_queries_that_are_none_are_problems_too() {
    let front = Front::open("http-paths").await;
    front.set_sms(json!({})).await;
    for path in ["/index.html", "/v1", "/v1/budget", "/v1/budgets/sms/sends/", "/v2/budgets", "/docs/none"] {
        front.get(path).await.assert_problem(404, "not-found", &["/docs"]);
    }
    for (method, path) in [
        (Method::POST, "/docs/none"),
        (Method::DELETE, "/docs/"),
        (Method::PUT, "/openapi.json"),
        (Method::POST, "/"),
        (Method::PATCH, "/receipts/mail"),
    ] {
        front.ask(method, path, None).await.assert_problem(405, "method-not-allowed", &["Allow"]);
    }
    front.get("/v1/nothing").await.assert_problem(404, "not-found", &["/docs"]);
    let answer = front.ask(Method::PATCH, "/v1/budgets/sms", None).await;
    answer.assert_problem(405, "method-not-allowed", &["Allow"]);
    assert!(answer.header("allow").contains("PUT") && answer.header("allow").contains("GET"), "{answer:?}");
    front.get("/v1/budgets/SMS").await.assert_problem(422, "invalid", &["SMS", "a-z"]);
    front.get("/v1/budgets/a%20b/quote?sends=1").await.assert_problem(422, "invalid", &["a-z"]);
    let long = format!("/v1/budgets/sms/sends/{}", "x".repeat(257));
    front.get(&long).await.assert_problem(422, "invalid", &["257"]);
    for (query, word) in [
        ("", "sends"),
        ("?sends=x", "sends"),
        ("?sends=0", "at least 1"),
        ("?sends=-1", "sends"),
        ("?sends=1000001", "1000000"),
        ("?sends=1&cost=0", "cost"),
        ("?sends=1&lanes=a", "lanes"),
        ("?sends=1&lane=a", "lane"),
        ("?sends=1&not_before=soon", "not_before"),
    ] {
        front.get(&format!("/v1/budgets/sms/quote{query}")).await.assert_problem(422, "invalid", &[word]);
    }
    // what a client would not let pass
    let line = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    for path in ["%", "%2", "%zz", "a%%20", "%C3%28", "%ff"] {
        let answer = front.raw(line(&format!("/v1/budgets/sms/sends/{path}")).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("/problems/malformed-path"), "{path}: {answer}");
    }
    // each member of each path, for each of its methods
    let document = front.get("/openapi.json").await.json();
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let members = path.split('/').filter(|part| part.starts_with('{'));
        for (member, method) in members.flat_map(|member| methods.as_object().unwrap().keys().map(move |m| (member, m)))
        {
            let path = path.replace(member, "%FF").replace("{budget}", "sms").replace("{id}", "a");
            let request = format!("{} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", method.to_uppercase());
            let answer = front.raw(request.as_bytes()).await;
            let is_problem = answer.starts_with("HTTP/1.1 400")
                && answer.contains("content-type: application/problem+json")
                && answer.contains("/problems/malformed-path");
            assert!(is_problem, "{request} {answer}");
            asked += 1;
        }
    }
    assert!(asked >= 13, "{asked}");
    let answer = front.raw(line("/v1/budgets/sms/sends/%00%7B%25zz").as_bytes()).await;
    assert!(answer.contains("/problems/unknown-send"), "a NUL is part of an ID like any other: {answer}");
    let answer = front.raw(b"nonsense\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[tokio::test]
async fn bodies_that_are_too_large_or_too_slow_are_refused_and_hold_up_nobody() {
    let config = "[serve]\nbody_timeout_s = 1\nheader_timeout_s = 2\nmax_requests = 1\n".to_owned();
    let front = Front::with("http-large", Setup { config, ..Setup::default() }).await;
    front.set_sms(json!({})).await;
    let head = |path: &str, more: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{more}\r\n\r\n")
    };
    // by what it says, before anything of it is sent
    let sends = "/v1/budgets/sms/sends";
    for (path, length) in [(sends, (2 << 20) + 1), ("/v1/budgets/sms/batches", (16 << 20) + 1)] {
        let answer = front.raw(head(path, &format!("content-length: {length}")).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("/problems/too-large"), "{answer}");
    }
    // by what comes
    let mut stream = TcpStream::connect(&front.process.address).await.unwrap();
    stream.write_all(head(sends, "transfer-encoding: chunked").as_bytes()).await.unwrap();
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..33 {
        // it may have closed by then
        let _ = stream.write_all(&chunk).await;
    }
    let answer = read_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // a payload that fits the body and not the queue
    let payload = "x".repeat(1 << 20);
    front.send(json!({ "id": "a", "payload": payload })).await.assert_problem(413, "too-large", &["1048576"]);
    assert_eq!(front.send(json!({ "id": "a", "payload": "x".repeat(1_000_000) })).await.status, 202);
    // a body that does not come; meanwhile there is no room for another request, but the process lives
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let mut slow = TcpStream::connect(&front.process.address).await.unwrap();
        slow.write_all(head(sends, "content-length: 20").as_bytes()).await.unwrap();
        slow.write_all(b"{\"id\":").await.unwrap();
        let other = front.get("/v1/budgets/sms").await;
        assert_eq!(front.get("/healthz").await.status, 200);
        let answer = read_answer(&mut slow).await;
        // else the other one was there first
        if answer.starts_with("HTTP/1.1 408") && other.status == 503 {
            assert!(answer.contains("/problems/request-timeout"), "{answer}");
            other.assert_problem(503, "overloaded", &["again"]);
            break;
        }
        assert!(Instant::now() < give_up, "{answer} {other:?}");
    }
    // a head that does not come
    let mut slow = TcpStream::connect(&front.process.address).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    let answer = read_answer(&mut slow).await;
    assert!(!answer.contains("200"), "it is closed: {answer}");
    assert_eq!(front.get("/v1/budgets/sms").await.status, 200);
}
