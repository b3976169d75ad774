//! What the parameters take, and what the template's rules refuse before anything is deployed.

use std::collections::BTreeMap;

use super::*;

/// Values as CloudFormation has them in rules: texts, and lists of them.
struct Given(BTreeMap<String, Value>);

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn is(parameter: &Value, kind: &str) -> bool {
    parameter["Type"] == kind
}

impl Given {
    /// Defaults, but for these.
    fn new(template: &Value, changed: &[(&str, &str)]) -> Self {
        let parameters = template["Parameters"].as_object().unwrap();
        assert!(changed.iter().all(|(name, _)| parameters.contains_key(*name)), "{changed:?}");
        let given = parameters.iter().map(|(name, parameter)| {
            let changed = changed.iter().find(|(changed, _)| changed == name).map(|(_, value)| (*value).to_owned());
            let text = changed.unwrap_or_else(|| text_of(&parameter["Default"]));
            let list = || Value::from(text.split(',').collect::<Vec<_>>());
            (name.clone(), if is(parameter, "CommaDelimitedList") { list() } else { text.into() })
        });
        Self(given.collect())
    }

    fn value(&self, expression: &Value) -> Value {
        match expression["Ref"].as_str() {
            Some(name) => self.0[name].clone(),
            None => expression.clone(),
        }
    }

    fn holds(&self, expression: &Value) -> bool {
        let (function, arguments) = expression.as_object().unwrap().iter().next().unwrap();
        let arguments = arguments.as_array().unwrap();
        let value = |i: usize| self.value(&arguments[i]);
        match function.as_str() {
            "Fn::Equals" => value(0) == value(1),
            "Fn::Not" => !self.holds(&arguments[0]),
            "Fn::Or" => arguments.iter().any(|argument| self.holds(argument)),
            "Fn::Contains" => value(0).as_array().unwrap().contains(&value(1)),
            "Fn::EachMemberEquals" => value(0).as_array().unwrap().iter().all(|member| *member == value(1)),
            other => panic!("{other}"),
        }
    }

    /// What CloudFormation says to these parameters: nothing, when it takes them.
    fn refusals(&self, template: &Value) -> Vec<String> {
        let mut said = vec![];
        for (name, parameter) in template["Parameters"].as_object().unwrap() {
            let given = &self.0[name];
            if let Some(allowed) = parameter["AllowedValues"].as_array()
                && !allowed.iter().any(|value| given.as_str() == Some(&text_of(value)))
            {
                said.push(format!("{name} is none of AllowedValues"));
            }
            let number = || given.as_str().unwrap().parse::<u64>().unwrap();
            let outside = |bound: &str, beyond: fn(u64, u64) -> bool| {
                parameter[bound].as_u64().is_some_and(|b| beyond(number(), b))
            };
            if outside("MinValue", |n, least| n < least) || outside("MaxValue", |n, most| n > most) {
                said.push(format!("{name} is out of range"));
            }
        }
        // rules come after
        if !said.is_empty() {
            return said;
        }
        for rule in template["Rules"].as_object().unwrap().values() {
            if rule.get("RuleCondition").is_none_or(|condition| self.holds(condition)) {
                let failed = rule["Assertions"].as_array().unwrap().iter().filter(|a| !self.holds(&a["Assert"]));
                said.extend(failed.map(|assertion| assertion["AssertDescription"].as_str().unwrap().to_owned()));
            }
        }
        said
    }
}

#[test]
fn what_cannot_work_is_refused() {
    let template = template();
    let endpoint = |cidr| {
        vec![("VpcId", "vpc-1"), ("SubnetIds", "subnet-1,subnet-2"), ("CreateSqsEndpoint", "true"), ("VpcCidr", cidr)]
    };
    let created = |subnets| vec![("CreateRedis", "true"), ("VpcId", "vpc-1"), ("SubnetIds", subnets)];
    for (changed, said) in [
        (vec![], None),
        (vec![("CodeBucket", "b")], Some("give RedisUrlSecretArn, or CreateRedis=true")),
        (vec![("CodeBucket", "b"), ("RedisUrlSecretArn", "arn")], None),
        (vec![("ProviderTimeoutMs", "25000")], Some("ProviderTimeoutMs is none of AllowedValues")),
        (vec![("ProviderTimeoutMs", "20000")], None),
        (vec![("ProviderTimeoutMs", "30000")], Some("FunctionTimeout=30 is too short for this ProviderTimeoutMs")),
        (vec![("ProviderTimeoutMs", "30000"), ("FunctionTimeout", "60")], None),
        (vec![("BulkBatchWindow", "4")], Some("FunctionTimeout=30 is too short for this BulkBatchWindow")),
        (vec![("UrgentBatchWindow", "4")], Some("FunctionTimeout=30 is too short for this UrgentBatchWindow")),
        (vec![("BulkBatchWindow", "4"), ("FunctionTimeout", "60")], None),
        (vec![("BulkBatchWindow", "61"), ("FunctionTimeout", "300")], Some("BulkBatchWindow is out of range")),
        (vec![("VpcId", "vpc-1")], Some("VpcId needs SubnetIds")),
        (vec![("VpcId", "vpc-1"), ("SubnetIds", "subnet-1")], None),
        (created(""), Some("VpcId needs SubnetIds")),
        (created("subnet-1,subnet-2"), None),
        (vec![("CreateRedis", "true")], Some("CreateRedis needs VpcId")),
        (
            [created("subnet-1"), vec![("RedisUrlSecretArn", "arn")]].concat(),
            Some("give RedisUrlSecretArn or CreateRedis, not both"),
        ),
        (endpoint("10.0.0.0/16"), None),
        (endpoint(""), Some("CreateSqsEndpoint needs VpcCidr")),
        (
            vec![("CreateSqsEndpoint", "true"), ("VpcCidr", "10.0.0.0/16")],
            Some("CreateSqsEndpoint needs VpcId and SubnetIds"),
        ),
        (vec![("LogLevel", "WARN")], Some("LogLevel is none of AllowedValues")),
    ] {
        let refusals = Given::new(template, &changed).refusals(template);
        assert_eq!(refusals.len(), said.iter().len(), "{changed:?}: {refusals:?}");
        assert!(said.is_none_or(|said| refusals[0].starts_with(said)), "{changed:?}: {refusals:?}");
    }
}

/// A worker whose function is too short for its call fails every invocation, and SQS dead-letters what was accepted.
#[test]
fn whatever_timeouts_are_taken_hold_a_lead_and_a_call() {
    let template = template();
    let values = |name: &str| template["Parameters"][name]["AllowedValues"].as_array().unwrap().iter().map(text_of);
    let longest = template["Parameters"]["BulkBatchWindow"]["MaxValue"].as_u64().unwrap();
    for function in values("FunctionTimeout") {
        // what is taken alone is taken together, or less is
        let taken = |name, value: &str| {
            let given = [("FunctionTimeout", function.as_str()), (name, value)];
            Given::new(template, &given).refusals(template).is_empty()
        };
        let calls = values("ProviderTimeoutMs").filter(|call| taken("ProviderTimeoutMs", call));
        let call = Duration::from_millis(calls.map(|call| call.parse().unwrap()).max().unwrap());
        for lanes in ["BulkBatchWindow", "UrgentBatchWindow"] {
            let window = (0..=longest).filter(|window| taken(lanes, &window.to_string())).max().unwrap();
            let needed = deployment::function_timeout(deployment::LEAD + Duration::from_secs(window), call);
            let given = Duration::from_secs(function.parse().unwrap());
            assert!(given >= needed, "{given:?} for {call:?} and a window of {window} s: {needed:?}");
        }
    }
}

/// Lambda takes a line of JSON without a level for INFO and drops what is below the function's: the worker's metrics have none.
#[test]
fn no_log_level_drops_the_metrics() {
    let template = template();
    let allowed = template["Parameters"]["LogLevel"]["AllowedValues"].as_array().unwrap();
    assert_eq!(*allowed, ["TRACE", "DEBUG", "INFO"]);
    for lanes in ["Bulk", "Urgent"] {
        let logging = &template["Resources"][format!("{lanes}Function")]["Properties"]["LoggingConfig"];
        assert_eq!(
            (&logging["LogFormat"], &logging["ApplicationLogLevel"]["Ref"]),
            (&"JSON".into(), &"LogLevel".into())
        );
    }
}

/// CloudFormation resolves a secret again only when it updates the resource that names it.
#[test]
fn whatever_holds_a_secret_changes_with_secrets_revision() {
    let template = template();
    let (mut changing, mut fixed) = (vec![], vec![]);
    for (name, resource) in template["Resources"].as_object().unwrap() {
        let text = resource.to_string();
        if text.contains("{{resolve:secretsmanager:") {
            if text.contains("${SecretsRevision}") { &mut changing } else { &mut fixed }.push(name.as_str());
        }
    }
    changing.sort_unstable();
    assert_eq!(changing, ["BulkFunction", "RedisUrl", "UrgentFunction"]);
    // its token is rotated by hand, with both passwords valid for a while
    assert_eq!(fixed, ["Redis"]);
}

/// With private DNS an endpoint is the whole VPC's way to the service.
#[test]
fn all_of_the_vpc_may_use_the_endpoint() {
    let template = template();
    assert_eq!(template["Resources"]["SqsInterface"]["Properties"]["PrivateDnsEnabled"], true);
    let ingress = &template["Resources"]["EndpointSecurityGroup"]["Properties"]["SecurityGroupIngress"];
    let of_vpc = |rule: &&Value| rule["CidrIp"]["Ref"] == "VpcCidr" && rule["FromPort"] == 443 && rule["ToPort"] == 443;
    assert!(ingress.as_array().unwrap().iter().any(|rule| of_vpc(&rule)), "{ingress}");
}

/// Each queue has an alarm for its age, and stands on the dashboard with its age, its depth and its dead letters.
#[test]
fn each_queue_is_watched() {
    let template = template();
    let resources = template["Resources"].as_object().unwrap();
    let dashboard = resources["Dashboard"]["Properties"]["DashboardBody"].to_string();
    for queue in ["Bulk", "Urgent", "Receipts"] {
        let alarm = &resources[&format!("{queue}Oldest")]["Properties"];
        assert_eq!(alarm["MetricName"], "ApproximateAgeOfOldestMessage");
        let name = queue.to_lowercase();
        for (metric, name) in [
            ("ApproximateAgeOfOldestMessage", name.clone()),
            ("ApproximateNumberOfMessagesVisible", name.clone()),
            ("ApproximateNumberOfMessagesVisible", format!("{name}-dlq")),
        ] {
            let shown = format!(r#"\"{metric}\", \"QueueName\", \"${{AWS::StackName}}-{name}\""#);
            assert!(dashboard.contains(&shown), "{shown}");
        }
    }
}

#[test]
fn what_plan_prints_is_taken() {
    let template = template();
    for (window, timeout) in [("0s", "30"), ("3s", "30"), ("4s", "60"), ("20s", "60"), ("21s", "120"), ("58s", "120")] {
        let arguments = ["plan", "--burst", "10000", "--limit", "100", "--batch-window", window, "--parameters"];
        let output = Command::new(SENDSLOT).args(arguments).output().unwrap();
        assert!(output.status.success(), "{window}: {output:?}");
        let told = String::from_utf8(output.stdout).unwrap();
        let parameters: Vec<(&str, &str)> = told.lines().filter_map(|line| line.split_once('=')).collect();
        assert!(parameters.contains(&("FunctionTimeout", timeout)), "{window}: {told}");
        assert_eq!(Given::new(template, &parameters).refusals(template), [""; 0], "{window}: {told}");
    }
}
