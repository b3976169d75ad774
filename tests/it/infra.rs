//! infra/template.yaml: what cfn-lint says of it, what it says itself, and a burst through the queues that it makes.

mod packaging;
mod parameters;
mod policies;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName;
use sendslot_localstack::provider::max_units_in_rolling_window;
use sendslot_localstack::{Queues, RedisServer, Servers, Services, Stack, StackOptions, cfn_lint, localstack_python};
use sendslot_shared::deployment;
use sendslot_shared::policy::Policy;
use sendslot_tests::per_second;
use sendslot_tests::pipeline::{Pipeline, Setup};
use serde_json::Value;

const WORKER: &str = env!("CARGO_BIN_EXE_sendslot-worker-under-test");
const SENDSLOT: &str = env!("CARGO_BIN_EXE_sendslot-under-test");
const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../infra/template.yaml");
const CLOUDFORMATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cloudformation.py");
const SECOND: Duration = Duration::from_secs(1);

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn lint(template: &Path) -> (bool, String) {
    let output = Command::new(cfn_lint().unwrap()).args(["--regions", "us-east-1", "--"]).arg(template).output();
    let output = output.unwrap();
    (output.status.success(), text(&output))
}

/// The template as JSON, as cfn-lint reads it: `!Ref` and `!GetAtt` are objects. That takes it seconds.
fn template() -> &'static Value {
    static READ: LazyLock<Value> = LazyLock::new(|| {
        let python = cfn_lint().unwrap().with_file_name("python");
        let program =
            "import json, sys, cfnlint.decode; print(json.dumps(cfnlint.decode.decode(sys.argv[1])[0], default=str))";
        let output = Command::new(python).args(["-c", program, TEMPLATE]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    });
    &READ
}

/// A parameter's default, as a number.
fn default(template: &Value, parameter: &str) -> u64 {
    let default = &template["Parameters"][parameter]["Default"];
    default.as_u64().or_else(|| default.as_str()?.parse().ok()).unwrap()
}

#[test]
fn cfn_lint_finds_nothing_and_finds_what_is_broken() {
    let (clean, told) = lint(Path::new(TEMPLATE));
    assert!(clean && told.trim().is_empty(), "{told}");
    assert_eq!(template()["Metadata"]["cfn-lint"]["config"]["ignore_checks"], serde_json::json!(["W1030"]));

    let mut broken = fs::read_to_string(TEMPLATE).unwrap();
    for (from, to) in [
        ("MaximumConcurrency: !Ref BulkMaximumConcurrency", "MaximumConcurrency: 1"),
        ("Handler: bootstrap", "Handlers: bootstrap"),
        // cfn-lint compares timeouts only where both are numbers: as CloudFormation puts them in
        ("VisibilityTimeout: !FindInMap [Timeouts, !Ref FunctionTimeout, Visibility]", "VisibilityTimeout: 20"),
        ("Timeout: !Ref FunctionTimeout", "Timeout: 30"),
    ] {
        assert!(broken.contains(from), "{from}");
        broken = broken.replace(from, to);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("template.yaml");
    fs::write(&path, broken).unwrap();
    let (clean, told) = lint(&path);
    assert!(!clean);
    for said in [
        "E3034 1 is less than the minimum of 2",
        "E3002 Additional properties are not allowed ('Handlers'",
        "E3505 Queue visibility timeout (20) is less than Function timeout (30) seconds",
    ] {
        assert!(told.contains(said), "{said}: {told}");
    }
}

/// What the code relies on, in every lane class.
#[test]
fn functions_mappings_and_queues_are_as_the_code_needs_them() {
    let template = template();
    let timeouts = &template["Mappings"]["Timeouts"];
    let longest_window = template["Parameters"]["BulkBatchWindow"]["MaxValue"].as_u64().unwrap();
    assert_eq!(template["Parameters"]["UrgentBatchWindow"]["MaxValue"], longest_window);
    let allowed = template["Parameters"]["FunctionTimeout"]["AllowedValues"].as_array().unwrap();
    assert_eq!(allowed.len(), timeouts.as_object().unwrap().len());
    for timeout in allowed {
        let timeout = timeout.as_str().unwrap();
        let visibility = timeouts[timeout]["Visibility"].as_u64().unwrap();
        let needed = deployment::visibility(Duration::from_secs(timeout.parse().unwrap()));
        assert!(visibility >= needed.as_secs() + longest_window, "{timeout}");
    }
    // a wait and a call fit into the function's timeout
    let lead = deployment::LEAD + SECOND * u32::try_from(default(template, "BulkBatchWindow")).unwrap();
    let call = Duration::from_millis(default(template, "ProviderTimeoutMs"));
    let needed = deployment::function_timeout(lead, call);
    assert!(Duration::from_secs(default(template, "FunctionTimeout")) >= needed, "{needed:?}");
    let receives = template["Parameters"]["MaxReceiveCount"]["MinValue"].as_u64().unwrap();
    assert!(receives >= deployment::MIN_RECEIVE_COUNT.into());
    for lanes in ["Bulk", "Urgent"] {
        let properties = |kind: &str| template["Resources"][format!("{lanes}{kind}")]["Properties"].clone();
        let mapping = properties("Mapping");
        assert_eq!(mapping["FunctionResponseTypes"], serde_json::json!([deployment::RESPONSE_TYPE]));
        assert_eq!(mapping["EventSourceArn"]["Fn::GetAtt"], serde_json::json!([format!("{lanes}Queue"), "Arn"]));
        let concurrency = format!("{lanes}MaximumConcurrency");
        assert_eq!(mapping["ScalingConfig"]["MaximumConcurrency"]["Ref"], concurrency);
        assert!(
            default(template, &format!("{lanes}BatchSize")) <= deployment::BATCH_WITHOUT_WINDOW.into()
                || default(template, &format!("{lanes}BatchWindow")) >= 1
        );
        let function = properties("Function");
        assert_eq!((&function["Runtime"], &function["Handler"]), (&"provided.al2023".into(), &"bootstrap".into()));
        let variables = &function["Environment"]["Variables"];
        // copies are put back on the queue that they came from
        assert_eq!(variables["SENDSLOT_QUEUE_URL"]["Ref"], format!("{lanes}Queue"));
        assert_eq!(variables["SENDSLOT_DLQ_URL"]["Ref"], format!("{lanes}DeadLetters"));
        let secret = variables["REDIS_URL"].to_string();
        assert!(secret.contains("{{resolve:secretsmanager:"), "{secret}");
        for name in variables.as_object().unwrap().keys() {
            assert!(include_str!("../../README.md").contains(&format!("`{name}`")), "the README does not know {name}");
        }
    }
    for (name, resource) in template["Resources"].as_object().unwrap() {
        if resource["Type"] == "AWS::SQS::Queue" {
            let properties = &resource["Properties"];
            assert!(properties["FifoQueue"].is_null(), "{name}");
            let dead = name.ends_with("DeadLetters");
            assert_eq!(properties["RedrivePolicy"].is_null(), dead, "{name}");
            let kept = Duration::from_secs(properties["MessageRetentionPeriod"].as_u64().unwrap());
            assert_eq!(kept >= deployment::DLQ_RETENTION, dead, "{name}: {kept:?}");
            assert_eq!(properties["MaximumMessageSize"], deployment::MAX_MESSAGE_BYTES, "{name}");
        }
    }
    assert_eq!(
        template["Resources"]["RedisSettings"]["Properties"]["Properties"],
        serde_json::json!({ "maxmemory-policy": deployment::EVICTION, "cluster-enabled": "yes" })
    );
}

/// The worked example of infra/README.md.
#[test]
fn plan_prints_parameters_of_the_template() {
    let plan = |window: &str| {
        let fixed = ["plan", "--burst", "10000", "--limit", "100", "--latency-ms", "250", "--batch-size", "100"];
        Command::new(SENDSLOT).args(fixed).args(["--batch-window", window, "--parameters"]).output().unwrap()
    };
    // 97/s x (2.5 + 1 + 0.25) s / 97 = 3.75, so 4, doubled; 97/s x 60 s x 0.8
    let expected = "BulkBatchSize=100\nBulkBatchWindow=1\nFunctionTimeout=30\nBulkMaximumConcurrency=8\nExpectedCallsPerMinute=4656\n";
    let told = String::from_utf8(plan("1s").stdout).unwrap();
    assert_eq!(told, expected);
    let template = template();
    for line in told.lines() {
        let parameter = line.split_once('=').unwrap().0;
        assert!(template["Parameters"][parameter].is_object(), "{parameter}");
    }
    let refused = plan("1500ms");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("whole seconds, 0 to 60"), "{}", text(&refused));
}

fn cloudformation(arguments: &[&str]) -> Value {
    let python = localstack_python(Services::CloudFormation).unwrap();
    let output = Command::new(python).arg(CLOUDFORMATION).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_goes_through_the_queues_that_the_template_makes() {
    let options = StackOptions { servers: Servers::Own, services: Services::CloudFormation, ..StackOptions::default() };
    let stack = Stack::start(options).await.unwrap();
    let made = cloudformation(&["create", stack.endpoint_url(), "infra-test", TEMPLATE]);
    let output = |name: &str| made["outputs"][name].as_str().unwrap().to_owned();
    let kinds: BTreeSet<&str> = made["resources"].as_object().unwrap().values().filter_map(Value::as_str).collect();
    assert!(kinds.contains("AWS::IAM::Role") && kinds.contains("AWS::CloudWatch::Alarm"), "{kinds:?}");
    assert!(!kinds.contains("AWS::Lambda::Function"), "without code there is no function: {kinds:?}");

    let template = template();
    let queues = Queues { queue_url: output("BulkQueueUrl"), dlq_url: output("BulkDeadLettersUrl") };
    queue_is_sound(&stack, &queues, template).await;
    let urgent = Queues { queue_url: output("UrgentQueueUrl"), dlq_url: output("UrgentDeadLettersUrl") };
    queue_is_sound(&stack, &urgent, template).await;

    // as a deployment's: it keeps what it has
    let redis = RedisServer::start_durable().await.unwrap();
    let window = SECOND * u32::try_from(default(template, "BulkBatchWindow")).unwrap();
    let base = per_second(100, 0.9);
    let setup = Setup {
        policy: Policy { lead: base.lead + window, transit: base.transit + window, ..base },
        queues: Some(queues.clone()),
        function_timeout: SECOND * u32::try_from(default(template, "FunctionTimeout")).unwrap(),
        batch_size: usize::try_from(default(template, "BulkBatchSize")).unwrap(),
        batch_window: window,
        max_environments: usize::try_from(default(template, "BulkMaximumConcurrency")).unwrap(),
        redis_url: Some(redis.url()),
        ..Setup::new("infra")
    };
    let pipeline = Pipeline::start(&stack, WORKER, setup).await;
    doctor_is_content(&stack, &redis.url(), &queues, default(template, "FunctionTimeout"));
    let ids = pipeline.schedule(300).await;
    pipeline.ended(&ids, Duration::from_secs(60)).await;
    pipeline.drained(Duration::from_secs(60)).await;
    assert_eq!(pipeline.dead_letter_count().await, 0);
    let arrivals = pipeline.stop().await;
    assert_eq!(arrivals.iter().filter(|arrival| arrival.accepted).count(), 300);
    let calls: Vec<(u64, u32)> = arrivals.iter().map(|arrival| (arrival.at_us, arrival.units)).collect();
    assert!(max_units_in_rolling_window(&calls, SECOND) <= 100);

    cloudformation(&["delete", stack.endpoint_url(), "infra-test"]);
    assert_eq!(stack.sqs().list_queues().send().await.unwrap().queue_urls(), [] as [&str; 0]);
    stack.stop().await;
}

/// Nothing to mend, and nothing to look at.
fn doctor_is_content(stack: &Stack, redis_url: &str, queues: &Queues, function_timeout_s: u64) {
    let mut doctor = Command::new(SENDSLOT);
    doctor
        .args(["doctor", "--json", "--function-timeout", &format!("{function_timeout_s}s")])
        .envs(stack.environment())
        .env("REDIS_URL", redis_url);
    doctor.env("SENDSLOT_QUEUE_URL", &queues.queue_url).env("SENDSLOT_DLQ_URL", &queues.dlq_url);
    let output = doctor.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    let findings = report["findings"].as_array().unwrap();
    let is = |finding: &&Value, what: &str| finding["check"].as_str().unwrap().starts_with(what);
    let of_queues: Vec<&Value> =
        findings.iter().filter(|finding| is(finding, "queue.") || is(finding, "dlq.")).collect();
    assert!(of_queues.len() >= 7, "{report}");
    assert!(of_queues.iter().all(|finding| finding["severity"] == "ok"), "{of_queues:?}");
    assert!(findings.iter().any(|finding| finding["check"] == "budgets.policies"), "{report}");
}

/// The attributes as SQS has them.
async fn queue_is_sound(stack: &Stack, queues: &Queues, template: &Value) {
    let attributes = async |url: &str| {
        let request = stack.sqs().get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All);
        request.send().await.unwrap().attributes.unwrap()
    };
    let (queue, dead) = (attributes(&queues.queue_url).await, attributes(&queues.dlq_url).await);
    let visibility: u64 = queue[&QueueAttributeName::VisibilityTimeout].parse().unwrap();
    assert!(visibility >= 6 * default(template, "FunctionTimeout") + default(template, "BulkBatchWindow"));
    assert_eq!(dead[&QueueAttributeName::MessageRetentionPeriod], "1209600");
    let redrive: Value = serde_json::from_str(&queue[&QueueAttributeName::RedrivePolicy]).unwrap();
    assert_eq!(redrive["deadLetterTargetArn"], dead[&QueueAttributeName::QueueArn].as_str());
    let most = &redrive["maxReceiveCount"];
    assert!(most.as_u64().or_else(|| most.as_str()?.parse().ok()).unwrap() >= 5, "{redrive}");
    for all in [&queue, &dead] {
        assert_eq!(all[&QueueAttributeName::SqsManagedSseEnabled], "true");
    }
}
