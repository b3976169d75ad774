//! The provider over real connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::*;

/// One keep-alive connection.
struct Client(BufReader<TcpStream>);

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Client {
    fn new(provider: &StrictProvider) -> Self {
        let stream = TcpStream::connect(provider.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Self(BufReader::new(stream))
    }

    fn post(&mut self, id: &str, more: &str) -> std::io::Result<Reply> {
        let body = format!("to {id}");
        let length = body.len();
        let head = format!("POST /v3/mail HTTP/1.1\r\nhost: x\r\nidempotency-key: {id}\r\n{more}");
        write!(self.0.get_mut(), "{head}content-length: {length}\r\n\r\n{body}")?;
        self.read()
    }

    fn read(&mut self) -> std::io::Result<Reply> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        let status = head[9..12].parse().unwrap();
        Ok(Reply { status, head, body: String::from_utf8(body).unwrap() })
    }
}

fn start(options: ProviderOptions) -> StrictProvider {
    StrictProvider::start(options).unwrap()
}

#[test]
fn takes_up_to_the_limit_and_says_when_to_come_back() {
    let provider = start(ProviderOptions { body: BodyCapture::Bytes, ..ProviderOptions::new(3) });
    let mut client = Client::new(&provider);
    let replies: Vec<_> = ["a", "b", "c", "d"].map(|id| client.post(id, "").unwrap()).into();
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [200, 200, 200, 429]);
    assert_eq!(replies[0].body, r#"{"id":"prov-0"}"#);
    assert!(replies[3].head.contains("retry-after: 1\r\n"), "{replies:?}");
    let stats = provider.stats();
    assert_eq!((stats.arrivals, stats.accepted, stats.throttled, stats.max_units_in_window), (4, 3, 1, 3));
    let arrivals = provider.stop();
    assert_eq!(&*arrivals[1].send_id, "b");
    assert_eq!(arrivals[1].body, Body::Bytes(b"to b".as_slice().into()));
    assert!(arrivals.is_sorted_by_key(|arrival| arrival.at_us));
}

#[test]
fn counts_units_and_duplicates() {
    let provider = start(ProviderOptions::new(10));
    let mut client = Client::new(&provider);
    assert_eq!(client.post("a", "x-units: 4\r\n").unwrap().status, 200);
    assert_eq!(client.post("a", "x-units: 4\r\n").unwrap().status, 200);
    assert_eq!(client.post("a", "x-units: 4\r\n").unwrap().status, 429);
    assert_eq!(client.post("a", "x-units: none\r\n").unwrap().status, 400);
    let stats = provider.stats();
    assert_eq!((stats.duplicates, stats.in_last_window, stats.accepted), (1, 8, 2));
}

#[test]
fn a_changed_limit_holds_at_once() {
    let provider = start(ProviderOptions::new(1));
    let mut client = Client::new(&provider);
    assert_eq!(client.post("a", "").unwrap().status, 200);
    provider.set_limit(2, Duration::from_secs(1));
    assert_eq!(client.post("b", "").unwrap().status, 200);
    assert_eq!(client.post("c", "").unwrap().status, 429);
}

#[test]
fn scripted_answers_come_first_and_in_order() {
    let provider = start(ProviderOptions::new(1));
    let late = ScriptedReply::status(200).after(Duration::from_millis(50));
    provider.script("a", [ScriptedReply::status(429).header("Retry-After", "soon"), late]);
    let mut client = Client::new(&provider);
    let first = client.post("a", "").unwrap();
    assert!(first.status == 429 && first.head.contains("retry-after: soon"), "{first:?}");
    let asked = Instant::now();
    assert_eq!(client.post("a", "").unwrap().status, 200);
    assert!(asked.elapsed() >= Duration::from_millis(50));
    assert_eq!(client.post("a", "").unwrap().status, 429, "the scripted 200 was charged");
}

#[test]
fn a_dropped_connection_closes_without_a_byte_and_is_recorded() {
    let faults = Faults { drop_connection: 1.0, ..Faults::default() };
    let provider = start(ProviderOptions { faults, ..ProviderOptions::new(5) });
    assert!(Client::new(&provider).post("a", "").is_err());
    provider.set_faults(Faults::default());
    assert_eq!(Client::new(&provider).post("a", "").unwrap().status, 200);
    let stats = provider.stats();
    assert_eq!((stats.accepted, stats.unanswered, stats.duplicates), (2, 1, 1));
}

#[test]
fn a_timeout_that_was_refused_is_not_accepted_and_stop_does_not_wait_for_it() {
    let faults = Faults { timeout: 1.0, unanswered_are_refused: true, ..Faults::default() };
    let provider = start(ProviderOptions { faults, ..ProviderOptions::new(5) });
    let mut client = Client::new(&provider);
    client.0.get_mut().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(client.post("a", "").is_err());
    let arrivals = provider.stop();
    assert_eq!((arrivals.len(), arrivals[0].status, arrivals[0].accepted), (1, None, false));
}

#[test]
fn injected_errors_are_not_accepted_and_follow_the_seed() {
    let run = |seed| {
        let faults =
            Faults { server_error: 0.3, throttle: 0.3, retry_after: Some("7".to_owned()), ..Faults::default() };
        let provider = start(ProviderOptions { faults, seed, ..ProviderOptions::new(1_000) });
        let mut client = Client::new(&provider);
        let statuses: Vec<_> = (0..60).map(|n| client.post(&n.to_string(), "").unwrap().status).collect();
        let accepted = statuses.iter().filter(|status| **status == 200).count() as u64;
        assert_eq!(provider.stats().accepted, accepted);
        statuses
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    assert!(StrictProvider::start(ProviderOptions::new(0)).is_err());
    let faults = Faults { timeout: 2.0, ..Faults::default() };
    assert!(StrictProvider::start(ProviderOptions { faults, ..ProviderOptions::new(1) }).is_err());
}
