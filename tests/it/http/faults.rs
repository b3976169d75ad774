//! Redis or SQS away, at the start and later; a stop under load.

use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use sendslot_tests::port::Port;
use tokio::sync::watch;

/// A port that leads to LocalStack while its switch is on, and breaks connections while it is off.
struct Switch {
    port: Port,
    on: watch::Sender<bool>,
}

impl Switch {
    async fn to_localstack(on: bool) -> Self {
        let endpoint = localstack().await.endpoint_url().to_owned();
        let address = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let (on, switch) = watch::channel(on);
        let serve = move |mut client: TcpStream| {
            let (mut switch, address) = (switch.clone(), address.clone());
            async move {
                let mut server = TcpStream::connect(address).await.unwrap();
                tokio::select! {
                    // looked at first: nothing passes once it is off
                    biased;
                    _ = switch.wait_for(|on| !on) => {}
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                }
            }
        };
        Self { port: Port::serve(serve).await.unwrap(), on }
    }

    fn turn(&self, on: bool) {
        self.on.send_replace(on);
    }

    fn setup(&self) -> Setup {
        let url = format!("http://127.0.0.1:{}", self.port.number());
        Setup { env: vec![("AWS_ENDPOINT_URL", url)], ..Setup::default() }
    }
}

#[tokio::test]
async fn sends_are_accepted_unbooked_while_redis_is_away_and_booked_when_it_is_back() {
    let mut front = Front::open("http-redis-away").await;
    front.set_sms(json!({})).await;
    front.redis.kill();
    let not_ready = front.readiness(false).await;
    assert_eq!((&not_ready["redis"], &not_ready["sqs"]), (&json!(false), &json!(true)));
    let sent = front.send(message("a")).await;
    assert_eq!((sent.status, &sent.json()["state"]), (202, &json!("accepted")), "{sent:?}");
    assert!(sent.json().get("at").is_none(), "{sent:?}");
    let batch = front.post("/v1/budgets/sms/batches", json!({ "sends": [message("b"), message("c")] })).await.json();
    assert_eq!((&batch["accepted"], &batch["results"][1]["state"]), (&json!(2), &json!("accepted")));
    for (method, path) in [
        (Method::GET, "/v1/budgets"),
        (Method::GET, "/v1/budgets/sms"),
        (Method::GET, "/v1/budgets/sms/quote?sends=1"),
        (Method::GET, "/v1/budgets/sms/sends/a"),
        (Method::DELETE, "/v1/budgets/sms/sends/a"),
        (Method::POST, "/v1/budgets/sms/pause"),
    ] {
        let answer = front.ask(method, path, None).await;
        answer.assert_problem(503, "redis-unavailable", &["again"]);
        assert!(!answer.text.contains("127.0.0.1"), "hosts are the server's own business: {answer:?}");
    }
    assert_eq!(front.get("/healthz").await.status, 200);
    assert_eq!(front.queue.len().await, 3);
    front.redis.restart().await.unwrap();
    front.readiness(true).await;
    front.set_sms(json!({})).await;
    let give_up = Instant::now() + Duration::from_secs(30);
    loop {
        let sent = front.send(message("d")).await;
        assert_eq!(sent.status, 202, "{sent:?}");
        if sent.json()["state"] == "booked" {
            break;
        }
        assert!(Instant::now() < give_up, "{sent:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn it_is_not_ready_while_redis_answers_and_takes_no_writes() {
    let front = Front::open("http-no-writes").await;
    front.set_sms(json!({})).await;
    front.readiness(true).await;
    let client = redis::Client::open(front.redis.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    for (cause, end) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    ] {
        let mut command = async |line: &str| {
            let mut words = line.split(' ');
            let mut command = redis::cmd(words.next().unwrap());
            words.for_each(|word| _ = command.arg(word));
            let _: () = command.query_async(&mut redis).await.unwrap();
        };
        command(cause).await;
        let known = front.readiness(false).await;
        assert_eq!((&known["redis"], &known["sqs"]), (&json!(false), &json!(true)), "{cause}");
        if cause.contains("maxmemory") {
            front.send(message("a")).await.assert_problem(503, "redis-unavailable", &[]);
        }
        command(end).await;
        front.readiness(true).await;
    }
    assert_eq!(front.send(message("a")).await.status, 202);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*probe*").query_async(&mut redis).await.unwrap();
    assert!(keys.is_empty(), "{keys:?}");
}

#[tokio::test]
async fn what_sqs_did_not_take_is_not_accepted_and_is_taken_when_it_is_given_again() {
    // F2, twenty#22895
    let switch = Switch::to_localstack(true).await;
    let front = Front::with("http-sqs-away", switch.setup()).await;
    front.set_sms(json!({})).await;
    front.readiness(true).await;
    switch.turn(false);
    let refused = front.send(message("a")).await;
    refused.assert_problem(503, "queue-unavailable", &["booked", "same ID"]);
    let batch = front.post("/v1/budgets/sms/batches", json!({ "sends": [message("b"), message("c")] })).await.json();
    assert_eq!((&batch["accepted"], &batch["results"][0]["type"]), (&json!(0), &json!("/problems/queue-unavailable")));
    assert_eq!(front.readiness(false).await["sqs"], false);
    assert_eq!(front.queue.len().await, 0);
    let booked = front.get("/v1/budgets/sms/sends/a").await.json();
    switch.turn(true);
    front.readiness(true).await;
    let again = front.send(message("a")).await;
    assert_eq!((again.status, &again.json()["at"], &again.json()["existing"]), (202, &booked["at"], &json!(true)));
    assert_eq!(front.queue.len().await, 1, "enqueued, once");
    assert_eq!(front.post("/v1/budgets/sms/batches", json!({ "sends": [message("b")] })).await.json()["accepted"], 1);
    assert_eq!(front.queue.len().await, 2);
}

#[tokio::test]
async fn it_starts_without_redis_and_sqs_and_accepts_nothing_until_sqs_is_there() {
    let switch = Switch::to_localstack(false).await;
    let mut redis = RedisServer::start().await.unwrap();
    redis.kill();
    let queue = TestQueue::create("http-start-away").await;
    let mut command = program();
    command.envs(variables(&redis.url(), &queue).await).envs(switch.setup().env);
    let process = Process::start(command, None).await;
    let folder = tempfile::tempdir().unwrap();
    let front = Front { redis, queue, process, client: reqwest::Client::new(), key: None, _folder: folder };
    let known = front.readiness(false).await;
    assert_eq!((&known["redis"], &known["sqs"]), (&json!(false), &json!(false)));
    front.send(message("a")).await.assert_problem(503, "queue-unavailable", &["neither booked", "same ID"]);
    switch.turn(true);
    let mut front = front;
    front.redis.restart().await.unwrap();
    front.readiness(true).await;
    front.set_sms(json!({})).await;
    assert_eq!(front.send(message("a")).await.status, 202);
    assert_eq!(front.queue.len().await, 1);
}

#[tokio::test]
async fn a_stop_under_load_loses_nothing_that_was_accepted() {
    let mut front = Front::open("http-stop").await;
    front.set_sms(json!({ "limit": 1000 })).await;
    let (accepted, count) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(AtomicUsize::new(0)));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..20 {
        let (client, url) = (front.client.clone(), front.url("/v1/budgets/sms/sends"));
        let (accepted, count) = (accepted.clone(), count.clone());
        callers.spawn(async move {
            // until the server is gone
            for i in 0.. {
                let id = format!("c{caller:02}-{i:05}");
                let request =
                    client.post(&url).header("content-type", "application/json").body(message(&id).to_string());
                let Ok(response) = request.send().await else { return };
                if response.status() == 202 && response.bytes().await.is_ok() {
                    accepted.lock().unwrap().insert(id);
                    count.fetch_add(1, SeqCst);
                }
            }
        });
    }
    let give_up = Instant::now() + Duration::from_secs(60);
    while count.load(SeqCst) < 200 {
        assert!(Instant::now() < give_up);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    front.process.signal("TERM");
    assert_eq!(front.process.ended().await, 0, "{:?}", front.process.log());
    callers.join_all().await;
    let accepted = accepted.lock().unwrap().clone();
    let on_queue = front.queue.len().await;
    assert!(
        accepted.len() >= 200 && on_queue >= accepted.len(),
        "{} accepted, {on_queue} on the queue",
        accepted.len()
    );
    // each of them is known to Redis as well
    let client = redis::Client::open(front.redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let records: Vec<String> = redis::cmd("KEYS").arg("s{sms}r:*").query_async(&mut connection).await.unwrap();
    let records: BTreeSet<_> = records.iter().map(|key| key.trim_start_matches("s{sms}r:").to_owned()).collect();
    assert!(accepted.is_subset(&records), "{:?}", accepted.difference(&records).collect::<Vec<_>>());
    assert!(TcpStream::connect(&front.process.address).await.is_err());
}

#[tokio::test]
async fn a_stop_lets_a_load_balancer_see_it_first() {
    // longer than the test: a second signal ends it
    let config =
        "[serve]\ndrain_s = 600\nmax_requests = 9223372036854775807\nmax_body_memory_mib = 4294967295\n".to_owned();
    let mut front = Front::with("http-drain", Setup { config, ..Setup::default() }).await;
    front.set_sms(json!({})).await;
    front.readiness(true).await;
    front.process.signal("TERM");
    let known = front.readiness(false).await;
    assert_eq!((&known["stopping"], &known["redis"], &known["sqs"]), (&json!(true), &json!(true), &json!(true)));
    // on connections of their own
    for id in ["a", "b"] {
        let body = message(id).to_string();
        let head =
            "POST /v1/budgets/sms/sends HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length:";
        let answer = front.raw(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    }
    assert!(front.process.child.try_wait().unwrap().is_none());
    front.process.signal("TERM");
    assert_eq!(front.process.ended().await, 1, "{:?}", front.process.log());
    assert_eq!(front.queue.len().await, 2);

    let env = vec![("SENDSLOT_SERVE_DRAIN_S", "0.2".to_owned())];
    let mut front = Front::with("http-drained", Setup { env, ..Setup::default() }).await;
    front.process.signal("TERM");
    assert_eq!(front.process.ended().await, 0, "{:?}", front.process.log());
}

#[tokio::test]
async fn a_stop_answers_what_is_in_hand_and_gives_up_after_its_time() {
    let config = "[serve]\nshutdown_timeout_s = 5\nbody_timeout_s = 300\nrequest_timeout_s = 300\n".to_owned();
    let mut front = Front::with("http-cut", Setup { config, ..Setup::default() }).await;
    front.set_sms(json!({})).await;
    let body = message("a").to_string();
    let head = format!(
        "POST /v1/budgets/sms/sends HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    // two have begun; the server waits for the rest of their bodies
    let mut begun = vec![];
    for _ in 0..2 {
        let mut stream = TcpStream::connect(&front.process.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).await.unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        begun.push(stream);
    }
    front.process.signal("TERM");
    let give_up = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(&front.process.address).await.is_ok() {
        assert!(Instant::now() < give_up);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun[0].write_all(body.as_bytes()).await.unwrap();
    let answer = read_answer(&mut begun[0]).await;
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    assert_eq!(front.process.ended().await, 1, "the other one never came");
    assert!(front.process.log().iter().any(|line| line.contains("not answered")), "{:?}", front.process.log());
    assert_eq!(front.queue.len().await, 1);
}
