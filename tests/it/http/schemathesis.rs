//! Schemathesis draws requests from the OpenAPI document and holds every answer against it.

use super::*;

/// What it takes for an answer as it should be; the reasons stand beside.
const CONFIG: &str = r#"
# a full lane, a deadline that cannot be met and a horizon are answers of this service
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503"]
# what a schema cannot say: a deadline before not_before, a lane that the budget has not, reservations above 100 %
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "413", "422", "503"]
checks.negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "413", "415", "422", "503"]
# a cancelled send is known as cancelled
checks.use_after_free.enabled = false

# a send that is none is refused at its place in the results
[[operations]]
include-operation-id = "schedule_batch"
checks.negative_data_rejection.expected-statuses = ["200", "400", "401", "403", "404", "405", "413", "415", "422", "503"]
"#;

/// The same, always with the budget that has a policy, and the provider that may bring receipts.
const PINNED: &str = "[parameters]\n\"path.budget\" = \"sms\"\n\"path.provider\" = \"mail\"\n";

#[tokio::test]
async fn every_answer_is_as_the_openapi_document_says() {
    let key = "ssk_schemathesis";
    let roles = r#"roles = ["send", "read", "manage"]"#;
    let config = format!("[[keys]]\nname = \"st\"\nsha256 = \"{}\"\nbudgets = [\"*\"]\n{roles}\n", sha256(key));
    // the same secret, so that one header opens both doors
    let receipts = format!("[receipts.mail]\npreset = \"sendgrid\"\nbudget = \"sms\"\nsha256 = \"{}\"\n", sha256(key));
    let queue = TestQueue::create("http-schemathesis-receipts").await;
    let env = vec![("SENDSLOT_RECEIPTS_QUEUE_URL", queue.url.clone())];
    let front =
        Front::with("http-schemathesis", Setup { config: config + &receipts, env, key: Some(key.to_owned()) }).await;
    front.set_sms(json!({})).await;
    let document = front.get("/openapi.json").await.json();
    let operations: usize =
        document["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len()).sum();
    let schemathesis = tokio::task::spawn_blocking(sendslot_localstack::schemathesis).await.unwrap().unwrap();
    for config in [CONFIG.to_owned(), CONFIG.to_owned() + PINNED] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("schemathesis.toml"), config).unwrap();
        let mut command = Command::new(&schemathesis);
        command.args(["--no-color", "run", &front.url("/openapi.json"), "--seed", "1", "--max-examples", "25"]);
        command.args(["--header", &format!("Authorization: Bearer {key}"), "--generation-database", "none"]);
        command.current_dir(folder.path()).kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(600), command.output()).await;
        let output = output.expect("it ends within ten minutes").unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains(&format!("Tested: {operations}\n")), "{text}");
    }
    assert!(!front.process.log().iter().any(|line| line.contains("panicked")), "{:?}", front.process.log());
}

fn sha256(text: &str) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
