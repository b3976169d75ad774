//! The generic HTTP provider against a real server: what each answer means, and that one attempt is one call.

use std::time::Duration;

use sendslot_localstack::provider::{Body, BodyCapture, ProviderOptions, ScriptedReply, StrictProvider};
use sendslot_worker::{HttpConfig, HttpProvider, Outcome, Outgoing, Provider, Scope};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

fn outgoing(id: &str) -> Outgoing {
    Outgoing::new(id, "sendgrid", b"{\"to\":[]}".to_vec())
}

/// A provider that gives these answers to the first calls of the send `m`.
fn server(replies: Vec<ScriptedReply>) -> StrictProvider {
    let mut options = ProviderOptions { body: BodyCapture::Bytes, ..ProviderOptions::new(1000) };
    options.scripted.insert("m".into(), replies);
    StrictProvider::start(options).unwrap()
}

fn provider(url: &str) -> HttpProvider {
    HttpProvider::new(HttpConfig { timeout: Duration::from_millis(500), ..HttpConfig::new(url) }).unwrap()
}

/// The outcome of one call that is answered so, and how many calls the server saw.
async fn answered(reply: ScriptedReply) -> (Outcome, usize) {
    let server = server(vec![reply]);
    let outcome = provider(&server.url()).send(&outgoing("m")).await;
    (outcome, server.stop().len())
}

#[tokio::test]
async fn each_status_has_its_meaning_and_one_attempt_is_one_call() {
    // R6, corsair#1445
    let unavailable = |status| format!("HTTP {status} (no)");
    let no = r#"{"error":"no"}"#;
    for status in [200, 201, 202, 204] {
        assert_eq!(answered(ScriptedReply::status(status)).await, (Outcome::Sent { provider_id: None }, 1));
    }
    for status in [500, 502, 503, 504, 401, 408] {
        let expected = Outcome::Unavailable { retry_after: None, error: unavailable(status) };
        assert_eq!(answered(ScriptedReply::status(status).body(no)).await, (expected, 1), "{status}");
    }
    for status in [301, 307, 400, 403, 404, 413, 422] {
        let moved = ScriptedReply::status(status).header("location", "/elsewhere").body(no);
        assert_eq!(answered(moved).await, (Outcome::Rejected { reason: unavailable(status) }, 1), "{status}");
    }
}

#[tokio::test]
async fn retry_after_is_heard_on_429_and_503() {
    let s = |n| Some(Duration::from_secs(n));
    for (header, hint) in [("7", s(7)), ("0", None), ("soon", None), ("1.5", s(2)), ("60000", s(3600))] {
        let throttled = Outcome::Throttled { retry_after: hint, scope: Scope::Account };
        assert_eq!(
            answered(ScriptedReply::status(429).header("retry-after", header)).await,
            (throttled, 1),
            "{header}"
        );
    }
    let (outcome, _) = answered(ScriptedReply::status(503).header("retry-after", "9")).await;
    assert!(matches!(outcome, Outcome::Unavailable { retry_after, .. } if retry_after == s(9)), "{outcome:?}");
    // a date counts from the response's own clock
    let dated = ScriptedReply::status(429).header("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT");
    let (outcome, _) = answered(dated.header("date", "Sun, 06 Nov 1994 08:50:07 GMT")).await;
    assert!(matches!(outcome, Outcome::Throttled { retry_after, .. } if retry_after == s(30)), "{outcome:?}");
}

#[tokio::test]
async fn a_call_without_an_answer_is_unknown_and_one_without_a_connection_is_not() {
    for reply in [
        ScriptedReply::hang(),
        ScriptedReply::drop_connection(),
        ScriptedReply::status(200).after(Duration::from_secs(2)),
    ] {
        let (outcome, calls) = answered(reply).await;
        assert!(matches!(outcome, Outcome::Unknown { .. }) && calls == 1, "{outcome:?}, {calls} calls");
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let outcome = provider(&format!("http://{closed}")).send(&outgoing("m")).await;
    assert!(matches!(outcome, Outcome::Unavailable { .. }), "{outcome:?}");
    let outcome = provider("http://no-such-host.invalid").send(&outgoing("m")).await;
    assert!(matches!(outcome, Outcome::Unavailable { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_429_concerns_whom_the_configuration_says() {
    // R8, check-api#1679
    let server = server(vec![ScriptedReply::status(429).header("retry-after", "7")]);
    let config = HttpConfig { throttle_scope: Scope::Recipient, ..HttpConfig::new(server.url()) };
    let outcome = HttpProvider::new(config).unwrap().send(&outgoing("m")).await;
    let expected = Outcome::Throttled { retry_after: Some(Duration::from_secs(7)), scope: Scope::Recipient };
    assert_eq!(outcome, expected);
}

#[tokio::test]
async fn a_provider_whose_5xx_are_ambiguous_is_not_asked_again() {
    let server = server(vec![ScriptedReply::status(502)]);
    let config = HttpConfig { ambiguous_5xx: true, ..HttpConfig::new(server.url()) };
    let outcome = HttpProvider::new(config).unwrap().send(&outgoing("m")).await;
    assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
}

#[tokio::test]
async fn the_payload_the_id_and_the_headers_arrive_as_configured() {
    let server = server(vec![]);
    let mut config = HttpConfig::new(server.url());
    config.headers.insert("x-units".into(), "{cost}".into());
    let provider = HttpProvider::new(config).unwrap();
    assert_eq!(provider.send(&outgoing("m")).await, Outcome::Sent { provider_id: None });
    // what a header cannot carry is percent-encoded, so that no two IDs become one key
    for id in ["line\nbreak", "é", "a ", "100%"] {
        assert_eq!(provider.send(&outgoing(id)).await, Outcome::Sent { provider_id: None }, "{id:?}");
    }
    let arrivals = server.stop();
    let ids: Vec<&str> = arrivals[1..].iter().map(|a| &*a.send_id).collect();
    assert_eq!(ids, ["line%0Abreak", "%C3%A9", "a%20", "100%25"]);
    assert_eq!((&*arrivals[0].send_id, arrivals[0].units), ("m", 1));
    assert_eq!(arrivals[0].body, Body::Bytes(b"{\"to\":[]}".as_slice().into()));
}

#[tokio::test]
async fn settings_that_are_none_are_refused() {
    for url in ["", "localhost", "ftp://localhost", "http://"] {
        assert!(HttpProvider::new(HttpConfig::new(url)).is_err(), "{url}");
    }
    let mut config = HttpConfig::new("http://localhost");
    config.headers.insert("bad header".into(), "x".into());
    assert!(HttpProvider::new(config).unwrap_err().to_string().contains("SENDSLOT_HTTP_HEADERS"));
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_replaced_without_an_unknown_outcome() {
    // W8, aws-sdk-rust#1106
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let provider = provider(&format!("http://{}", listener.local_addr().unwrap()));
    let (closed, idle) = tokio::sync::oneshot::channel();
    let server = tokio::spawn(async move {
        answer_and_close(&listener).await;
        closed.send(()).unwrap();
        answer_and_close(&listener).await;
    });
    assert_eq!(provider.send(&outgoing("a")).await, Outcome::Sent { provider_id: None });
    idle.await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await; // idle for a while: this is the case, not a synchronisation
    assert_eq!(provider.send(&outgoing("b")).await, Outcome::Sent { provider_id: None });
    server.await.unwrap();
}

/// Answers one request and closes the connection, although it said nothing of the kind.
async fn answer_and_close(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = vec![];
    while !request.ends_with(b"{\"to\":[]}") {
        assert!(stream.read_buf(&mut request).await.unwrap() > 0);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
}
