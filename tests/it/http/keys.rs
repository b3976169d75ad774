//! Who may do what, how often; where the server starts without keys; and that no secret is logged.

use super::*;

struct MadeKey {
    secret: String,
    lines: String,
}

/// `sendslot key new` with these options.
async fn new_key(options: &[&str]) -> MadeKey {
    let output = program().args(["key", "new"]).args(options).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let secret = said.trim_end().rsplit(' ').next().unwrap().to_owned();
    MadeKey { secret, lines }
}

#[tokio::test]
async fn keys_open_their_budgets_for_their_roles_at_their_rate() {
    let shop = new_key(&["shop \"1\"", "--budget", "sms", "--budget", "wa.*", "--role", "send"]).await;
    let admin = new_key(&["admin", "--role", "send", "--role", "read", "--role", "manage"]).await;
    let slow = new_key(&["slow", "--role", "read", "--rate", "2"]).await;
    for key in [&shop, &admin, &slow] {
        assert!(key.lines.starts_with("[[keys]]\n") && !key.lines.contains(&key.secret), "{}", key.lines);
        assert!(key.secret.len() >= 43, "256 bits");
    }
    // the lines are taken as they are printed
    let config = [&shop, &admin, &slow].map(|key| key.lines.as_str()).join("\n");
    let mut front =
        Front::with("http-keys", Setup { config, key: Some(admin.secret.clone()), ..Setup::default() }).await;
    front.set_sms(json!({})).await;
    for name in ["wa.1", "mail"] {
        assert_eq!(
            front.ask(Method::PUT, &format!("/v1/budgets/{name}"), Some(json!({ "limit": 9 }))).await.status,
            201
        );
    }
    // nobody
    front.key = None;
    for path in ["/v1/budgets", "/v1/budgets/sms", "/v1/budgets/sms/sends/a", "/metrics"] {
        let answer = front.get(path).await;
        answer.assert_problem(401, "unauthenticated", &["Bearer"]);
        assert!(answer.header("www-authenticate").starts_with("Bearer"), "{answer:?}");
    }
    // a stranger is sent away before the body is looked at
    front.send(json!("no send at all")).await.assert_problem(401, "unauthenticated", &[]);
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(front.get(path).await.status, 200, "{path}");
    }
    front.key = Some(format!("{}x", shop.secret));
    front.send(message("a")).await.assert_problem(401, "unauthenticated", &["not known"]);
    // a shop
    front.key = Some(shop.secret.clone());
    assert_eq!(front.send(message("a")).await.status, 202);
    assert_eq!(front.post("/v1/budgets/wa.1/sends", message("a")).await.status, 202);
    front.post("/v1/budgets/mail/sends", message("a")).await.assert_problem(403, "forbidden", &["send", "mail"]);
    front.get("/v1/budgets/sms").await.assert_problem(403, "forbidden", &["read"]);
    front.get("/v1/budgets").await.assert_problem(403, "forbidden", &["read"]);
    front.ask(Method::POST, "/v1/budgets/sms/pause", None).await.assert_problem(403, "forbidden", &["manage"]);
    front.ask(Method::PUT, "/v1/budgets/sms", Some(json!({}))).await.assert_problem(403, "forbidden", &["manage"]);
    front.get("/metrics").await.assert_problem(403, "forbidden", &["all budgets"]);
    assert_eq!(front.ask(Method::DELETE, "/v1/budgets/sms/sends/a", None).await.status, 200);
    // too many requests
    front.key = Some(slow.secret.clone());
    let give_up = Instant::now() + Duration::from_secs(30);
    let refused = loop {
        let answer = front.get("/v1/budgets").await;
        if answer.status != 200 {
            break answer;
        }
        assert_eq!(answer.json()["budgets"].as_array().unwrap().len(), 3);
        assert!(Instant::now() < give_up, "two a second are the most");
    };
    refused.assert_problem(429, "rate-limited", &["batch"]);
    // the others go on
    front.key = Some(admin.secret.clone());
    assert_eq!(front.get("/v1/budgets/sms").await.status, 200);
}

#[tokio::test]
async fn secrets_are_not_logged() {
    let key = new_key(&["shop", "--role", "send", "--role", "manage"]).await;
    let env = vec![("RUST_LOG", "trace".to_owned())];
    let setup = Setup { config: key.lines.clone(), env, key: Some(key.secret.clone()) };
    let front = Front::with("http-secrets", setup).await;
    front.set_sms(json!({})).await;
    let secret = "hunter2-payload";
    let send = json!({ "id": "a", "payload": { "text": secret }, "recipient": "hunter2-recipient" });
    assert_eq!(front.send(send.clone()).await.status, 202);
    assert_eq!(front.post("/v1/budgets/sms/batches", json!({ "sends": [send] })).await.status, 200);
    for bad in [
        json!({ "id": "a", "payload": 1, "lane": 7, "recipient": "hunter2-recipient" }),
        json!({ "id": "a", "payload": 1, "recipient": ["hunter2-recipient"] }),
        json!({ "id": "a", "payload_base64": "hunter2!" }),
        json!({ "id": "a", "payload": "hunter2-other" }),
    ] {
        let answer = front.send(bad).await;
        assert!(answer.status >= 400 && !answer.text.contains("hunter2"), "{answer:?}");
    }
    let requests = |log: &[String]| log.iter().filter(|line| line.contains("request") && line.contains("shop")).count();
    let give_up = Instant::now() + Duration::from_secs(30);
    while requests(&front.process.log()) < 7 {
        assert!(Instant::now() < give_up, "{:?}", front.process.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let log = front.process.log().join("\n");
    assert!(!log.contains("hunter2") && !log.contains(&key.secret), "{log}");
}

/// Runs `sendslot serve` to its end: code and standard error.
async fn serve(env: &[(String, String)], args: &[&str]) -> (i32, String) {
    let mut command = program();
    command.envs(env.iter().cloned()).arg("serve").args(args);
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let output = output.expect("it ends within a minute").unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn what_keeps_it_from_starting_is_said() {
    let redis = RedisServer::start().await.unwrap();
    let queue = TestQueue::create("http-start").await;
    let env = variables(&redis.url(), &queue).await;
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join("sendslot.toml");
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let assert = |(code, stderr): (i32, String), expected: i32, words: &[&str]| {
        assert_eq!(code, expected, "{stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{words:?} in {stderr}");
    };
    // a port in use
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert(serve(&env, &["--listen", &address]).await, 1, &[&address, "cannot be listened on", "another address"]);
    // others reach it, and there are no keys
    assert(serve(&env, &["--listen", "0.0.0.0:0"]).await, 2, &["0.0.0.0:0", "key new", "--no-auth"]);
    // its file
    for (text, words) in [
        ("[serve]\nport = 1\n", ["sendslot.toml:2", "port"]),
        ("[serve\n", ["sendslot.toml:1", ""]),
        ("[[keys]]\nname = \"a\"\nsha256 = \"00\"\nbudgets = []\nroles = []\n", ["\"a\"", "SHA-256"]),
        ("[serve]\nbody_timeout_s = -1\n", ["body_timeout_s", "seconds"]),
    ] {
        let path = file(text);
        assert(serve(&env, &["--config", &path]).await, 2, &words);
    }
    assert(serve(&env, &["--config", "/none/sendslot.toml"]).await, 2, &["/none/sendslot.toml", "cannot be read"]);
    let listen = [env.clone(), vec![("SENDSLOT_LISTEN".to_owned(), "8080".to_owned())]].concat();
    assert(serve(&listen, &[]).await, 2, &["SENDSLOT_LISTEN", "127.0.0.1:8080"]);
    assert(serve(&env[..env.len() - 1], &[]).await, 2, &["SENDSLOT_QUEUE_URL"]);
    // a queue that SQS does not have is no outage
    let wrong = env
        .iter()
        .cloned()
        .map(|(name, value)| if name == "SENDSLOT_QUEUE_URL" { (name, value + "x") } else { (name, value) });
    assert(serve(&wrong.collect::<Vec<_>>(), &[]).await, 1, &["cannot be used"]);
}

#[tokio::test]
async fn settings_come_from_the_option_the_variable_and_the_file() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // the option of Process::start is before both of these, where it could not listen
    let config = format!("[serve]\nlisten = \"{address}\"\n");
    let env = vec![("SENDSLOT_LISTEN", address)];
    let front = Front::with("http-settings", Setup { config, env, key: None }).await;
    assert_eq!(front.get("/healthz").await.status, 200);
}
