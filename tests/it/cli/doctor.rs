//! `sendslot doctor` on real servers, each with one wrong setting.

mod servers;

use aws_sdk_sqs::types::QueueAttributeName;
use sendslot_shared::claim::{Claim, MoveReason, PutBack, Verdict, claim};
use sendslot_shared::envelope::Envelope;
use sendslot_shared::message::Message;
use sendslot_shared::reserve::reserve;
use sendslot_shared::settle::{Ending, Report, settle};
use sendslot_shared::store::Store;
use sendslot_tests::port::Port;

use super::*;

const TIMEOUT: &[&str] = &["--function-timeout", "30s"];

impl Desk {
    /// A deployment as it should be, but for the function: that is asked for elsewhere.
    async fn healthy(name: &str) -> Self {
        let redis = RedisServer::start_durable().await.expect("a redis-server starts");
        let mut desk = Self::open(name).await;
        desk.redis = redis;
        let (redis_url, dlq_url) = (desk.redis.url(), desk.queue.dlq_url.clone());
        let desk = desk.with("REDIS_URL", &redis_url).with("SENDSLOT_DLQ_URL", &dlq_url);
        desk.set_sms().await;
        desk.set_queue(&[("VisibilityTimeout", "180")]).await;
        desk
    }

    async fn set_queue(&self, attributes: &[(&str, &str)]) {
        self.set_attributes(&self.queue.url, attributes).await;
    }

    async fn set_attributes(&self, url: &str, attributes: &[(&str, &str)]) {
        let mut request = self.queue.sqs.set_queue_attributes().queue_url(url);
        for (name, value) in attributes {
            request = request.attributes(QueueAttributeName::from(*name), *value);
        }
        request.send().await.expect("SQS answers");
    }

    async fn arn(&self, url: &str) -> String {
        let request = self.queue.sqs.get_queue_attributes().queue_url(url);
        let answer = request.attribute_names(QueueAttributeName::QueueArn).send().await.expect("SQS answers");
        answer.attributes.unwrap()[&QueueAttributeName::QueueArn].clone()
    }

    async fn redrive_policy(&self, target: &str, receives: u32) {
        let policy = format!(r#"{{"deadLetterTargetArn":"{target}","maxReceiveCount":"{receives}"}}"#);
        self.set_queue(&[("RedrivePolicy", &policy)]).await;
    }

    async fn config(&self, name: &str, value: &str) {
        self.redis(&["CONFIG", "SET", name, value]).await;
    }

    async fn doctor(&self) -> Ran {
        self.run(&[&["doctor", "--json"], TIMEOUT].concat()).await
    }

    /// It says this of this check, with a remedy, and of nothing else anything as bad.
    async fn finds(&self, severity: &str, check: &str, words: &[&str]) {
        let ran = self.doctor().await;
        let report = ran.json();
        let of = |finding: &&Value| finding["severity"] == severity;
        let found: Vec<&Value> = report["findings"].as_array().unwrap().iter().filter(of).collect();
        assert_eq!(found.iter().map(|finding| &finding["check"]).collect::<Vec<_>>(), [check], "{report:#}");
        let said = found[0].to_string();
        for word in words {
            assert!(said.contains(word), "{word:?} in {said}");
        }
        assert!(found[0]["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{said}");
        assert_eq!(report["worst"], severity);
        let code = if severity == "error" { 1 } else { 3 };
        assert_eq!(ran.code, code, "{ran:?}");
    }
}

#[tokio::test]
async fn a_healthy_deployment_has_no_warnings() {
    let desk = Desk::healthy("doctor-healthy").await;
    let ran = desk.doctor().await;
    let report = ran.json();
    assert_eq!(ran.code, 0, "{report:#}");
    let checks: Vec<&str> =
        report["findings"].as_array().unwrap().iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    for check in [
        "redis.answers",
        "redis.version",
        "redis.eviction",
        "redis.memory",
        "redis.persistence",
        "redis.replicas",
        "redis.cluster",
        "redis.clock",
        "budgets.policies",
        "budgets.headroom",
        "queue.exists",
        "queue.standard",
        "queue.receives",
        "queue.dead_letters",
        "queue.visibility",
        "dlq.exists",
        "dlq.standard",
        "dlq.retention",
    ] {
        assert!(checks.contains(&check), "{check}: {checks:?}");
    }
    // for people; without the worker's timeout that rule is not checked, and said to be so
    let table = desk.run(&["doctor"]).await;
    assert_eq!(table.code, 0, "{table:?}");
    assert!(table.stdout.contains("not checked: give --function"), "{table:?}");
    assert!(table.stdout.contains("0 errors, 0 warnings"), "{table:?}");
}

#[tokio::test]
async fn each_wrong_setting_of_redis_is_found() {
    let desk = Desk::healthy("doctor-redis").await;
    desk.config("maxmemory-policy", "allkeys-lru").await;
    desk.finds("error", "redis.eviction", &["allkeys-lru", "noeviction"]).await;
    desk.config("maxmemory-policy", "noeviction").await;
    desk.config("min-replicas-to-write", "1").await;
    desk.finds("error", "redis.replicas", &["NOREPLICAS"]).await;
    desk.config("min-replicas-to-write", "0").await;
    desk.config("appendonly", "no").await;
    desk.finds("warning", "redis.persistence", &["appendonly yes"]).await;
    desk.config("appendonly", "yes").await;
    let used: String = redis::from_redis_value(desk.redis(&["INFO", "memory"]).await).unwrap();
    let used: u64 = used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap();
    desk.config("maxmemory", &(used + used / 10).to_string()).await;
    desk.finds("warning", "redis.memory", &["MiB used", "maxmemory"]).await;
    desk.config("maxmemory", "0").await;
    desk.redis(&["SADD", "sendslot:budgets", "ghost"]).await;
    desk.finds("warning", "budgets.policies", &["ghost", "budget set ghost"]).await;
    desk.redis(&["SREM", "sendslot:budgets", "ghost"]).await;
    desk.redis(&["HSET", "s{sms}policy", "limit", "many"]).await;
    desk.finds("error", "budgets.policies", &["sms", "--replace"]).await;
    desk.set_sms_again().await;
    assert_eq!(desk.doctor().await.code, 0);
    // what a managed Redis forbids is not an error
    desk.redis(&["ACL", "SETUSER", "plain", "on", ">secret9", "~*", "+@all", "-config"]).await;
    let url = desk.redis.url().replace("redis://", "redis://plain:secret9@");
    let ran = run(&with(&desk.env, "REDIS_URL", &url), &[&["doctor", "--json"], TIMEOUT].concat(), b"").await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("min-replicas-to-write could not be checked"), "{ran:?}");
    assert!(!format!("{ran:?}").contains("secret9"));
}

impl Desk {
    async fn set_sms_again(&self) {
        let set = self.run(&["budget", "set", "sms", "--replace", "--limit", "100", "--transit", "60s"]).await;
        assert_eq!(set.code, 0, "{set:?}");
    }
}

#[tokio::test]
async fn a_redis_that_is_away_or_refuses_is_found_and_the_queues_are_checked_all_the_same() {
    let desk = Desk::healthy("doctor-away").await;
    desk.config("requirepass", "hunter2").await;
    let wrong = desk.redis.url().replace("redis://", "redis://:hunter3@");
    let desk = desk.with("REDIS_URL", &wrong);
    desk.finds("error", "redis.answers", &["user or password"]).await;
    let ran = desk.doctor().await;
    assert!(ran.stdout.contains("queue.visibility"), "{ran:?}");
    assert!(!format!("{ran:?}").contains("hunter"), "{ran:?}");
    let desk = desk.with("REDIS_URL", &format!("redis://127.0.0.1:{}", closed_port().await));
    desk.finds("error", "redis.answers", &["cannot be reached", "start it"]).await;
    let desk = desk.with("REDIS_URL", &old_redis().await);
    desk.finds("error", "redis.version", &["6.2.19", "upgrade"]).await;
    let desk = desk.without("REDIS_URL");
    desk.finds("error", "redis.answers", &["REDIS_URL is not set"]).await;
}

#[tokio::test]
async fn each_wrong_setting_of_the_queues_is_found() {
    let desk = Desk::healthy("doctor-queues").await;
    let dead = desk.arn(&desk.queue.dlq_url).await;
    desk.set_queue(&[("VisibilityTimeout", "179")]).await;
    desk.finds("error", "queue.visibility", &["179s", "180"]).await;
    desk.set_queue(&[("VisibilityTimeout", "180")]).await;
    desk.redrive_policy(&dead, 4).await;
    desk.finds("error", "queue.receives", &["maxReceiveCount is 4"]).await;
    desk.redrive_policy(&dead, 5).await;
    desk.set_attributes(&desk.queue.dlq_url, &[("MessageRetentionPeriod", "345600")]).await;
    desk.finds("warning", "dlq.retention", &["4.0 days", "1209600"]).await;
    desk.set_attributes(&desk.queue.dlq_url, &[("MessageRetentionPeriod", "1209600")]).await;
    let other = TestQueue::create("doctor-other").await;
    desk.redrive_policy(&desk.arn(&other.dlq_url).await, 5).await;
    desk.finds("warning", "queue.dead_letters", &["doctor-other-dlq"]).await;
    desk.set_queue(&[("RedrivePolicy", "")]).await;
    desk.finds("error", "queue.dead_letters", &["no redrive policy"]).await;
    desk.redrive_policy(&dead, 5).await;
    assert_eq!(desk.doctor().await.code, 0);
    let (own, dlq) = (desk.queue.url.clone(), desk.queue.dlq_url.clone());
    let desk = desk.with("SENDSLOT_DLQ_URL", &own);
    desk.finds("error", "dlq.exists", &["the queue itself"]).await;
    let desk = desk.with("SENDSLOT_DLQ_URL", &dlq.replace("doctor-queues-dlq", "doctor-queues-none"));
    desk.finds("error", "dlq.exists", &["doctor-queues-none"]).await;
    let desk =
        desk.with("SENDSLOT_DLQ_URL", &dlq).with("SENDSLOT_QUEUE_URL", &own.replace("doctor-queues", "doctor-none"));
    desk.finds("error", "queue.exists", &["doctor-none"]).await;
    let fifo =
        desk.queue.sqs.create_queue().queue_name("doctor.fifo").attributes(QueueAttributeName::FifoQueue, "true");
    let fifo = fifo.send().await.unwrap().queue_url.unwrap();
    let desk = desk.with("SENDSLOT_QUEUE_URL", &fifo);
    let ran = desk.doctor().await;
    let standard = ran.json()["findings"]
        .as_array()
        .unwrap()
        .iter()
        .any(|f| f["check"] == "queue.standard" && f["severity"] == "error");
    assert!(standard && ran.code == 1, "{ran:?}");
}

#[tokio::test]
async fn a_redrive_policy_to_a_deleted_queue_is_found() {
    let desk = Desk::healthy("doctor-redrive").await;
    let other = TestQueue::create("doctor-gone").await;
    desk.redrive_policy(&desk.arn(&other.dlq_url).await, 5).await;
    other.sqs.delete_queue().queue_url(&other.dlq_url).send().await.unwrap();
    desk.finds("error", "queue.dead_letters", &["doctor-gone-dlq", "does not exist", "SENDSLOT_DLQ_URL"]).await;
    // that of the workers is the deleted one
    let desk = desk.with("SENDSLOT_DLQ_URL", &other.dlq_url);
    let ran = desk.doctor().await;
    let report = ran.json();
    let errors: Vec<_> = report["findings"].as_array().unwrap().iter().filter(|f| f["severity"] == "error").collect();
    assert_eq!(
        errors.iter().map(|f| &f["check"]).collect::<Vec<_>>(),
        ["dlq.exists", "queue.dead_letters"],
        "{report:#}"
    );
    assert!(errors.iter().all(|f| f["found"].as_str().unwrap().contains("doctor-gone-dlq")), "{report:#}");
    assert_eq!(ran.code, 1);
}

impl Desk {
    /// Sends of the budget `late` that were sent; these calls were held up.
    async fn sent(&self, held_up: impl IntoIterator<Item = Duration>) {
        let store = Store::new(&self.redis.url()).unwrap();
        let run: String = std::iter::repeat_with(fastrand::alphanumeric).take(8).collect();
        for (i, held_up) in held_up.into_iter().enumerate() {
            let draft = Message::new("late", format!("{run}{i}"), "x").check().unwrap();
            let booked = reserve(&store, &draft.budget.clone(), &[&draft]).await.unwrap().remove(0).unwrap();
            let envelope = Envelope::first(draft, booked.seq, booked.at);
            let (delay, cooldown, elapsed) = (Duration::ZERO, None, Duration::ZERO);
            let report =
                Report { envelope: &envelope, nonce: 1, ending: Ending::Sent, delay, cooldown, elapsed, held_up };
            let _ = settle(&store, report).await.unwrap();
        }
    }

    async fn set_late(&self, options: &[&str]) {
        let set = self.run(&[&["budget", "set", "late"], options].concat()).await;
        assert_eq!(set.code, 0, "{set:?}");
    }

    /// The finding of this check that speaks of the budget `late`.
    async fn of_late(&self, check: &str) -> Value {
        let report = self.doctor().await.json();
        let of =
            |f: &&Value| f["check"] == check && f["found"].as_str().is_some_and(|found| found.starts_with("late:"));
        report["findings"].as_array().unwrap().iter().find(of).unwrap_or_else(|| panic!("{check}: {report:#}")).clone()
    }
}

#[tokio::test]
async fn calls_that_are_held_up_for_longer_than_the_jitter_ask_for_more_of_it() {
    let ms = Duration::from_millis;
    let desk = Desk::healthy("doctor-late").await;
    desk.set_late(&["--limit", "100"]).await;
    desk.sent([ms(900); 5]).await;
    let few = desk.of_late("budgets.headroom").await;
    assert_eq!(few["severity"], "info", "{few}");
    assert!(few["found"].as_str().unwrap().contains("5 of the sends"), "{few}");
    // 0.97 buys 30.9 ms, and takes 18.6 of them
    desk.redis(&["FLUSHALL"]).await;
    desk.set_sms_again().await;
    desk.set_late(&["--limit", "100"]).await;
    desk.sent([ms(18); 25]).await;
    let fine = desk.of_late("budgets.headroom").await;
    assert_eq!(fine["severity"], "ok", "{fine}");
    assert!(fine["found"].as_str().unwrap().contains("p99 of 25 calls was held up for 18 ms"), "{fine}");
    desk.sent([ms(25)]).await;
    let words = ["p99 of 26 calls was held up for 25 ms", "jitter is 18.6 ms", "budget set late --jitter 26ms"];
    desk.finds("warning", "budgets.headroom", &words).await;
    desk.set_late(&["--jitter", "26ms"]).await;
    assert_eq!(desk.of_late("budgets.headroom").await["severity"], "ok", "what it said helps");
    // more than the headroom buys
    desk.sent([ms(40)]).await;
    let words = ["more CPU", "budget set late --headroom 0.9606 --jitter 41ms", "0.95 buys 52.6 ms"];
    desk.finds("warning", "budgets.headroom", &words).await;
    desk.set_late(&["--headroom", "0.9606", "--jitter", "41ms"]).await;
    assert_eq!(desk.of_late("budgets.headroom").await["severity"], "ok", "what it said helps");
    // more than any headroom is worth
    desk.sent([ms(400)]).await;
    desk.finds("warning", "budgets.headroom", &["more CPU", "no headroom is worth 401ms"]).await;
}

#[tokio::test]
async fn sends_that_missed_their_slots_are_found_though_none_was_sent() {
    let desk = Desk::healthy("doctor-missed").await;
    desk.set_late(&["--limit", "10", "--transit", "0s"]).await;
    let store = Store::new(&desk.redis.url()).unwrap();
    // a backlog, so that no capacity lies idle
    let drafts: Vec<_> = (0..40).map(|i| Message::new("late", format!("m{i}"), "x").check().unwrap()).collect();
    let booked = reserve(&store, &drafts[0].budget, &drafts.iter().collect::<Vec<_>>()).await.unwrap();
    let copies = drafts.into_iter().zip(booked).map(|(draft, booking)| {
        let booking = booking.unwrap();
        Envelope::first(draft, booking.seq, booking.at)
    });
    let copies: Vec<_> = copies.collect();
    let ask = async |copy: &Envelope, nonce| {
        let lease = Duration::from_secs(30);
        claim(&store, Claim { envelope: copy, nonce, lease }).await.unwrap().verdict
    };
    // others are called at their slots meanwhile: three come half a second late
    for (copy, nonce) in copies[3..10].iter().zip(1..) {
        while let Verdict::Wait { wait, .. } = ask(copy, nonce).await {
            tokio::time::sleep(wait).await;
        }
    }
    let mut missed = 0;
    for (copy, nonce) in copies[..3].iter().zip(100..) {
        match ask(copy, nonce).await {
            Verdict::PutBack { why: PutBack::Rebooked(MoveReason::Missed), .. }
            | Verdict::Wait { moved: Some(MoveReason::Missed), .. } => missed += 1,
            Verdict::Send { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(missed >= 2, "{missed} of 3 that came half a second late");
    desk.finds("warning", "budgets.slots", &[&*format!("late: {missed} of 40 sends missed their slots"), "--lead"])
        .await;
}

fn with(env: &[(String, String)], name: &str, value: &str) -> Vec<(String, String)> {
    let mut env: Vec<_> = env.iter().filter(|(n, _)| n != name).cloned().collect();
    env.push((name.to_owned(), value.to_owned()));
    env
}

/// What LocalStack 4.13.1 with its Lambda answered to GetFunctionConfiguration, but for the state, that no function reaches without Docker,
/// and its error; the one of these tests has no Lambda, which would take moto and more.
fn function() -> Value {
    json!({
        "FunctionName": "worker", "FunctionArn": "arn:aws:lambda:us-east-1:000000000000:function:worker",
        "Runtime": "provided.al2023", "Role": "arn:aws:iam::000000000000:role/r", "Handler": "bootstrap", "CodeSize": 126,
        "Description": "", "Timeout": 30, "MemorySize": 128, "LastModified": "2026-11-30T16:18:06.224718+0000",
        "CodeSha256": "N+ybGKRJxNMXYiRjoqGK/mDIaVrS8hrRuFL8+yiRpdY=", "Version": "$LATEST",
        "Environment": { "Variables": { "REDIS_URL": "redis://:hunter2@cache" } }, "TracingConfig": { "Mode": "PassThrough" },
        "RevisionId": "68592a96-79e3-45c3-90a5-417122d8a975", "State": "Active", "LastUpdateStatus": "Successful",
        "PackageType": "Zip", "Architectures": ["x86_64"], "EphemeralStorage": { "Size": 512 },
        "SnapStart": { "ApplyOn": "None", "OptimizationStatus": "Off" },
        "LoggingConfig": { "LogFormat": "Text", "LogGroup": "/aws/lambda/worker" },
    })
}

/// One of ListEventSourceMappings, from there as well.
fn mapping(arn: &str) -> Value {
    json!({
        "EventSourceArn": arn, "BatchSize": 10, "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": { "MaximumConcurrency": 40 }, "UUID": "71f30588-3632-4a33-87f3-e83da91df3b0",
        "EventSourceMappingArn": "arn:aws:lambda:us-east-1:000000000000:event-source-mapping:71f30588-3632-4a33-87f3-e83da91df3b0",
        "StateTransitionReason": "USER_INITIATED", "MaximumBatchingWindowInSeconds": 0,
        "FunctionArn": "arn:aws:lambda:us-east-1:000000000000:function:worker", "LastModified": 1_796_055_486.380_028,
        "State": "Enabled",
    })
}

/// Answers like the Lambda API, to signed questions.
async fn lambda(function: Option<Value>, mappings: Vec<Value>) -> Port {
    let serve = move |stream: TcpStream| {
        let (function, mappings) = (function.clone(), mappings.clone());
        async move {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            let mut head = String::new();
            while let Ok(Some(line)) = lines.next_line().await {
                if line.is_empty() {
                    break;
                }
                head += &line.to_lowercase();
                head.push('\n');
            }
            let signed = head.contains("/us-east-1/lambda/aws4_request");
            let (status, body) = match head.split(' ').nth(1) {
                _ if !signed => (403, json!({ "message": "Missing Authentication Token" })),
                Some("/2015-03-31/functions/worker/configuration") => match function {
                    Some(function) => (200, function),
                    None => (404, json!({ "Type": "User", "Message": "Function not found: worker" })),
                },
                Some(path)
                    if path.starts_with("/2015-03-31/event-source-mappings?eventsourcearn=arn%3aaws%3asqs%3a") =>
                {
                    (200, json!({ "EventSourceMappings": mappings }))
                }
                _ => (400, json!({ "message": "another question" })),
            };
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let _ = write.write_all((head + &body).as_bytes()).await;
        }
    };
    Port::serve(serve).await.expect("a port")
}

impl Desk {
    /// It says this of a function and its mapping.
    async fn finds_of(
        &self,
        function: Option<Value>,
        mappings: Vec<Value>,
        severity: &str,
        check: &str,
        words: &[&str],
    ) {
        let port = lambda(function, mappings).await;
        let env = with(&self.env, "AWS_ENDPOINT_URL_LAMBDA", &format!("http://127.0.0.1:{}", port.number()));
        let ran = run(&env, &["doctor", "--function", "worker", "--json"], b"").await;
        let report = ran.json();
        let bad = |finding: &&Value| {
            finding["severity"] == "error" || finding["severity"] == "warning" || finding["check"] == check
        };
        let found: Vec<&Value> = report["findings"].as_array().unwrap().iter().filter(bad).collect();
        assert_eq!(
            found.iter().map(|finding| (&finding["check"], &finding["severity"])).collect::<Vec<_>>(),
            [(&json!(check), &json!(severity))],
            "{report:#}"
        );
        let said = found[0].to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
        assert!(!format!("{ran:?}").contains("hunter2"));
        assert_eq!(
            ran.code,
            match severity {
                "error" => 1,
                "warning" => 3,
                _ => 0,
            },
            "{ran:?}"
        );
    }
}

#[tokio::test]
async fn each_wrong_setting_of_the_function_and_its_mapping_is_found() {
    let desk = Desk::healthy("doctor-function").await;
    let (url, dlq_url) = (desk.queue.url.clone(), desk.queue.dlq_url.clone());
    let arn = desk.arn(&url).await;
    let good = || {
        let mut function = function();
        function["Environment"]["Variables"]["SENDSLOT_QUEUE_URL"] = json!(url);
        function["Environment"]["Variables"]["SENDSLOT_DLQ_URL"] = json!(dlq_url);
        function
    };
    let changed = |name: &str, value: Value| {
        let mut function = good();
        function[name] = value;
        Some(function)
    };
    let with_variable = |name: &str, value: Value| {
        let mut function = good();
        let variables = function["Environment"]["Variables"].as_object_mut().unwrap();
        if value.is_null() {
            variables.remove(name)
        } else {
            variables.insert(name.to_owned(), value)
        };
        Some(function)
    };
    let mapped = |name: &str, value: Value| {
        let mut mapping = mapping(&arn);
        mapping[name] = value;
        vec![mapping]
    };
    let whole = || vec![mapping(&arn)];
    // 97/s x (1.5 + 1 + 0.05) s in batches of 10
    let at_most = |n: u32| mapped("ScalingConfig", json!({ "MaximumConcurrency": n }));
    for (n, severity, words) in
        [(40, "ok", "need 25"), (25, "ok", "need 25"), (24, "warning", "set MaximumConcurrency to 50")]
    {
        let words = [format!("at most {n} environments"), words.to_owned()];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        desk.finds_of(Some(good()), at_most(n), severity, "mapping.concurrency", &words).await;
    }
    let logging = |format: &str, level: &str| {
        changed("LoggingConfig", json!({ "LogFormat": format, "ApplicationLogLevel": level }))
    };
    desk.finds_of(logging("JSON", "WARN"), whole(), "warning", "function.log", &["WARN", "metrics", "INFO"]).await;
    desk.finds_of(logging("JSON", "DEBUG"), whole(), "ok", "function.log", &[]).await;
    desk.finds_of(logging("Text", "WARN"), whole(), "ok", "function.log", &[]).await;
    // 1.5 s lead, 10 s for a call, 5.1 s
    desk.finds_of(changed("Timeout", json!(16)), whole(), "error", "function.timeout", &["16s", "17 s"]).await;
    desk.finds_of(
        with_variable("SENDSLOT_HTTP_TIMEOUT_MS", json!("24000")),
        whole(),
        "error",
        "function.timeout",
        &["31 s"],
    )
    .await;
    desk.finds_of(changed("Timeout", json!(31)), whole(), "error", "queue.visibility", &["186"]).await;
    desk.finds_of(with_variable("REDIS_URL", Value::Null), whole(), "error", "function.variables", &["REDIS_URL"])
        .await;
    desk.finds_of(
        with_variable("SENDSLOT_DLQ_URL", json!("http://other")),
        whole(),
        "warning",
        "function.variables",
        &["SENDSLOT_DLQ_URL"],
    )
    .await;
    desk.finds_of(changed("State", json!("Failed")), whole(), "error", "function.exists", &["Failed"]).await;
    desk.finds_of(Some(good()), vec![], "error", "mapping.exists", &["not mapped"]).await;
    desk.finds_of(Some(good()), mapped("State", json!("Disabled")), "error", "mapping.exists", &["Disabled"]).await;
    desk.finds_of(
        Some(good()),
        mapped("FunctionResponseTypes", json!([])),
        "error",
        "mapping.responses",
        &["ReportBatchItemFailures"],
    )
    .await;
    desk.finds_of(Some(good()), mapped("ScalingConfig", json!({})), "info", "mapping.concurrency", &["twice"]).await;
    desk.finds_of(Some(good()), mapped("BatchSize", json!(100)), "error", "mapping.batch", &["window"]).await;
    // sms has a transit of a minute, and the usual lead
    desk.finds_of(
        Some(good()),
        mapped("MaximumBatchingWindowInSeconds", json!(1)),
        "warning",
        "mapping.batch",
        &["sms", "--lead 2500ms"],
    )
    .await;
    desk.finds_of(None, whole(), "error", "function.exists", &["404", "Function not found"]).await;
}
