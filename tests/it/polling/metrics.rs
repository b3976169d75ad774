//! What a long-lived worker measures, and how it is asked.

use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, StatusCode};
use sendslot_shared::aws_sdk_sqs::types::MessageSystemAttributeName;
use sendslot_shared::metrics::{self as table, Kind};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::watch;

use super::*;
use crate::metrics::series;

const SCRAPED: [(&str, &str); 2] = [("SENDSLOT_METRICS", "prometheus"), ("SENDSLOT_METRICS_LISTEN", "127.0.0.1:0")];

/// A worker that is scraped, and what it logs.
struct Scraped {
    worker: Child,
    lines: Arc<Mutex<Vec<String>>>,
    address: String,
}

impl Scraped {
    async fn start(bench: &Bench, more: &[(&str, &str)]) -> Self {
        let mut worker = bench.worker(&[&SCRAPED[..], more].concat());
        let mut log = BufReader::new(worker.stderr.take().unwrap()).lines();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = lines.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = log.next_line().await {
                sink.lock().unwrap().push(line);
            }
        });
        let mut scraped = Self { worker, lines, address: String::new() };
        let line = scraped.logged("metrics at /metrics").await;
        scraped.address = line.split_once("address=").unwrap().1.trim().to_owned();
        scraped
    }

    /// The first line that has this text, when it is there.
    async fn logged(&self, text: &str) -> String {
        let give_up = Instant::now() + 60 * SECOND;
        loop {
            let found = self.lines.lock().unwrap().iter().find(|line| line.contains(text)).cloned();
            if let Some(line) = found {
                return line;
            }
            assert!(Instant::now() < give_up, "{text} in {:?}", self.lines.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn get(&self, path: &str) -> reqwest::Result<(StatusCode, HeaderMap, String)> {
        let answer = reqwest::get(format!("http://{}{path}", self.address)).await?;
        Ok((answer.status(), answer.headers().clone(), answer.text().await?))
    }

    async fn metrics(&self) -> String {
        let (status, headers, text) = self.get("/metrics").await.unwrap();
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        text
    }
}

/// What a scrape says when this series has come to `value`.
async fn when(scraped: &Scraped, name: &str, labels: &[(&str, &str)], value: f64) -> String {
    let give_up = Instant::now() + 60 * SECOND;
    loop {
        let text = scraped.metrics().await;
        if series(&text, name, labels) >= value {
            return text;
        }
        assert!(Instant::now() < give_up, "{name} {labels:?} in {text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_what_the_process_has_done() {
    let bench = Bench::start("polling-prometheus", Duration::from_millis(20)).await;
    let scraped = Scraped::start(&bench, &[]).await;
    let ids = bench.schedule(25).await;
    let deadline = std::time::SystemTime::now() + 600 * SECOND;
    for id in ["d1", "d2"] {
        bench.scheduler.schedule(Message::new(bench.budget, id, "x").deadline(deadline)).await.unwrap();
    }
    let queue = bench.queue(localstack().await.sqs());
    queue.sqs.send_message().queue_url(&queue.url).message_body("no envelope").send().await.unwrap();
    let lane = [("budget", bench.budget), ("lane", "default")];
    let with = |label: &'static str, value: &'static str| [&lane[..], &[(label, value)]].concat();
    when(&scraped, "sendslot_sends_total", &with("outcome", "sent"), 27.0).await;
    let malformed = [("budget", "unknown"), ("lane", "unknown"), ("reason", "malformed")];
    let text = when(&scraped, "sendslot_dead_letters_total", &malformed, 1.0).await;

    assert_eq!(series(&text, "sendslot_sends_total", &with("outcome", "sent")), 27.0);
    assert_eq!(series(&text, "sendslot_dead_letters_total", &malformed), 1.0);
    // a claim that was given back on a busy machine was one more
    let claims = 27.0 + series(&text, "sendslot_sends_total", &with("outcome", "not_started"));
    let by_verdict = |verdict| series(&text, "sendslot_lateness_seconds_count", &with("verdict", verdict));
    assert_eq!(by_verdict("send") + by_verdict("delayed"), claims, "{text}");
    for (metric, n) in [(&table::WAIT, 27.0), (&table::CALL_DELAY, claims), (&table::DEADLINE_USED, 2.0)] {
        let name = metric.name;
        assert!(text.contains(&format!("# TYPE {name} histogram")), "{text}");
        assert_eq!(series(&text, &format!("{name}_count"), &lane), n, "{name}");
        let Kind::Histogram(bounds) = metric.kind else { panic!("{name}") };
        let buckets: Vec<f64> = bounds
            .iter()
            .map(|bound| bound.to_string())
            .chain(["+Inf".to_owned()])
            .map(|le| series(&text, &format!("{name}_bucket"), &[&lane[..], &[("le", &*le)]].concat()))
            .collect();
        assert!(buckets.is_sorted() && *buckets.last().unwrap() == n, "{name}: {buckets:?}");
        assert_eq!(text.matches(&format!("{name}_bucket{{")).count(), buckets.len(), "{name}: {text}");
    }
    // each waited for the transit of 250 ms, of 600 s
    let waited = series(&text, "sendslot_wait_seconds_sum", &lane);
    assert!((27.0 * 0.2..27.0 * 120.0).contains(&waited), "{waited}");
    let used = series(&text, "sendslot_deadline_used_ratio_sum", &lane);
    assert!(used > 0.0 && used < 1.0, "{used}");
    assert!(!text.contains("sendslot_offered_total") && !text.contains("sendslot_redis_up"), "its own only: {text}");

    let (status, _, body) = scraped.get("/healthz").await.unwrap();
    assert_eq!((status, &*body), (StatusCode::OK, r#"{"status":"alive"}"#));
    for path in ["/", "/metrics/", "/readyz"] {
        assert_eq!(scraped.get(path).await.unwrap().0, StatusCode::NOT_FOUND, "{path}");
    }
    let url = format!("http://{}/metrics", scraped.address);
    let posted = reqwest::Client::new().post(url).body("x").send().await.unwrap();
    assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(posted.headers()["allow"], "GET, HEAD");
    assert!(stopped(scraped.worker).await.success());
    assert_eq!(bench.sent(&ids).await, 25);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_scraped_until_what_is_in_hand_has_ended() {
    let bench = Bench::start("polling-scraped-stop", Duration::ZERO).await;
    // a provider that answers when it may
    let (calls, mut called) = watch::channel(0);
    let (release, released) = watch::channel(false);
    let answer = move || {
        let mut released = released.clone();
        calls.send_modify(|n| *n += 1);
        async move { released.wait_for(|yes| *yes).await.map(drop).unwrap() }
    };
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let provider = format!("http://{}/", socket.local_addr().unwrap());
    let serving = tokio::spawn(axum::serve(socket, axum::Router::new().fallback(answer)).into_future());
    let patient = [
        ("SENDSLOT_HTTP_URL", &*provider),
        ("SENDSLOT_HTTP_TIMEOUT_MS", "120000"),
        ("SENDSLOT_POLL_BATCH_MS", "130000"),
        ("SENDSLOT_POLL_STOP_MS", "130000"),
    ];
    let mut scraped = Scraped::start(&bench, &patient).await;
    let ids = bench.schedule(5).await;
    tokio::time::timeout(60 * SECOND, called.wait_for(|n| *n == 5)).await.unwrap().unwrap();
    stop(&scraped.worker);
    scraped.logged("stopping").await;
    // long after all that does not wait for the provider
    tokio::time::sleep(SECOND).await;
    assert_eq!(scraped.get("/healthz").await.unwrap().0, StatusCode::OK);
    assert_eq!(
        series(
            &scraped.metrics().await,
            "sendslot_wait_seconds_count",
            &[("budget", bench.budget), ("lane", "default")]
        ),
        5.0
    );
    release.send(true).unwrap();
    let ended = tokio::time::timeout(60 * SECOND, scraped.worker.wait()).await.expect("it ends").unwrap();
    assert!(ended.success());
    assert_eq!(bench.sent(&ids).await, 5);
    assert!(scraped.get("/healthz").await.unwrap_err().is_connect());
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_ends_it_before_it_takes_anything() {
    let bench = Bench::start("polling-port", Duration::ZERO).await;
    bench.schedule(1).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (given, words) in [(&*address, "in use"), ("127.0.0.1", "HOST:PORT"), ("127.0.0.1:70000", "HOST:PORT")] {
        let worker = bench.worker(&[SCRAPED[0], ("SENDSLOT_METRICS_LISTEN", given)]);
        let output = worker.wait_with_output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let named = format!("SENDSLOT_METRICS_LISTEN={given} cannot be listened on");
        assert!(output.status.code() == Some(1) && said.contains(&named) && said.contains(words), "{said}");
    }
    assert_eq!(bench.provider.stats().arrivals, 0);
    let queue = bench.queue(localstack().await.sqs());
    let receives = MessageSystemAttributeName::ApproximateReceiveCount;
    let request = queue.sqs.receive_message().queue_url(&queue.url).wait_time_seconds(10);
    let received = request.message_system_attribute_names(receives.clone()).send().await.unwrap();
    assert_eq!(received.messages()[0].attributes().unwrap()[&receives], "1", "nobody had it before");

    // and a Lambda function cannot be scraped
    let output = bench.command(&[SCRAPED[0]]).output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("`prometheus` is for `sendslot-worker poll`"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_minute_of_embedded_metrics_is_written_at_a_stop() {
    let bench = Bench::start("polling-emf", Duration::ZERO).await;
    let settings = [("SENDSLOT_METRICS", "emf"), ("SENDSLOT_METRICS_NAMESPACE", "Polling")];
    let worker = bench.command(&settings).arg("poll").stdout(Stdio::piped()).spawn().unwrap();
    bench.schedule(25).await;
    bench.arrivals(25).await;
    stop(&worker);
    let output = tokio::time::timeout(60 * SECOND, worker.wait_with_output()).await.expect("it ends").unwrap();
    assert!(output.status.success());
    let written = String::from_utf8(output.stdout).unwrap();
    let documents: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers = |name: &str| -> Vec<f64> {
        let of = |document: &Value| match &document[name] {
            Value::Null => vec![],
            Value::Array(many) => many.iter().map(|n| n.as_f64().unwrap()).collect(),
            one => vec![one.as_f64().unwrap()],
        };
        documents.iter().flat_map(of).collect()
    };
    assert_eq!(numbers("sendslot_sends_total").iter().sum::<f64>(), 25.0, "{written}");
    assert_eq!(numbers("sendslot_wait_seconds").len(), 25);
    for name in ["sendslot_lateness_seconds", "sendslot_call_delay_seconds"] {
        assert!(numbers(name).len() >= 25, "{name}: {written}");
    }
    for document in &documents {
        assert_eq!(document["_aws"]["CloudWatchMetrics"][0]["Namespace"], "Polling");
    }
}
