//! Who may do what.

use std::collections::BTreeMap;

use super::*;

/// No action on everything, but those that know no resource.
#[test]
fn policies_name_their_resources() {
    let template = template();
    let mut everywhere = BTreeSet::new();
    for resource in template["Resources"].as_object().unwrap().values() {
        let policies = resource["Properties"]["Policies"].as_array().cloned().unwrap_or_default();
        let documents = policies.iter().map(|policy| &policy["PolicyDocument"]);
        for document in documents.chain([&resource["Properties"]["PolicyDocument"]]) {
            for statement in document["Statement"].as_array().into_iter().flatten() {
                let actions = statement["Action"].to_string();
                assert!(!actions.contains('*'), "{actions}");
                if statement["Resource"] == "*" && statement["Effect"] == "Allow" {
                    everywhere
                        .insert(actions.split(':').next().unwrap_or_default().trim_matches(['[', '"']).to_owned());
                    assert!(
                        actions.contains("NetworkInterface") || actions.contains("ListEventSourceMappings"),
                        "{actions}"
                    );
                }
            }
        }
    }
    assert_eq!(everywhere.into_iter().collect::<Vec<_>>(), ["ec2", "lambda"]);
}

/// The queues, parameters and secrets that are named, whatever the conditions.
fn resources(value: &Value) -> Vec<String> {
    if let Some(name) = value["Ref"].as_str() {
        return if name == "AWS::NoValue" { vec![] } else { vec![name.to_owned()] };
    }
    if let Some(path) = value["Fn::GetAtt"].as_array() {
        return vec![path[0].as_str().unwrap().to_owned()];
    }
    if let Some(either) = value["Fn::If"].as_array() {
        return either[1..].iter().flat_map(resources).collect();
    }
    match value {
        Value::Array(all) => all.iter().flat_map(resources).collect(),
        Value::String(text) => vec![text.clone()],
        other => vec![other["Fn::Sub"].as_str().unwrap().to_owned()],
    }
}

/// What the policy allows, by resource.
fn allowed(template: &Value, policy: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut allowed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let document = &template["Resources"][policy]["Properties"]["PolicyDocument"];
    for statement in document["Statement"].as_array().unwrap() {
        let statement = statement["Fn::If"].as_array().map_or(statement, |either| &either[1]);
        let actions = match &statement["Action"] {
            Value::String(action) => vec![action.clone()],
            actions => actions.as_array().unwrap().iter().map(|a| a.as_str().unwrap().to_owned()).collect(),
        };
        for resource in resources(&statement["Resource"]) {
            allowed.entry(resource).or_default().extend(actions.clone());
        }
    }
    allowed
}

/// What the code calls, and what a mapping calls in the worker's name (AWS: receive, delete, attributes).
#[test]
fn each_policy_allows_what_its_holder_does_and_no_more() {
    let template = template();
    let key = ("KmsKeyArn", "kms:Decrypt kms:GenerateDataKey");
    let url = |name| (name, "secretsmanager:GetSecretValue");
    let worker = "sqs:DeleteMessage sqs:GetQueueAttributes sqs:ReceiveMessage sqs:SendMessage";
    let reader = "sqs:ChangeMessageVisibility sqs:DeleteMessage sqs:GetQueueAttributes sqs:ReceiveMessage";
    let dead =
        "sqs:ChangeMessageVisibility sqs:DeleteMessage sqs:GetQueueAttributes sqs:GetQueueUrl sqs:ReceiveMessage";
    let service = "sqs:GetQueueAttributes sqs:SendMessage";
    let functions = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${AWS::StackName}-*";
    let secrets = [url("RedisUrl"), url("RedisUrlSecretArn")];
    for (policy, expected) in [
        ("BulkWorkerPolicy", vec![("BulkQueue", worker), ("BulkDeadLetters", "sqs:SendMessage"), key]),
        ("UrgentWorkerPolicy", vec![("UrgentQueue", worker), ("UrgentDeadLetters", "sqs:SendMessage"), key]),
        ("ServicePolicy", [&[("BulkQueue", service), ("UrgentQueue", service), key][..], &secrets].concat()),
        (
            "FrontDoorPolicy",
            vec![(
                "ReceiptsQueue",
                "sqs:ChangeMessageVisibility sqs:DeleteMessage sqs:GetQueueAttributes sqs:ReceiveMessage sqs:SendMessage",
            )],
        ),
        // it sends nothing
        ("ReceiptsPolicy", [&[("ReceiptsQueue", reader), ("KmsKeyArn", "kms:Decrypt")][..], &secrets].concat()),
        (
            "OperatorPolicy",
            vec![
                ("BulkDeadLetters", dead),
                ("UrgentDeadLetters", dead),
                ("ReceiptsDeadLetters", dead),
                (functions, "lambda:GetFunctionConfiguration"),
                ("*", "lambda:ListEventSourceMappings"),
            ],
        ),
    ] {
        let found = allowed(template, policy);
        let found: BTreeMap<&str, String> = found
            .iter()
            .map(|(resource, actions)| (resource.as_str(), actions.iter().cloned().collect::<Vec<_>>().join(" ")))
            .collect();
        let expected: BTreeMap<&str, String> =
            expected.into_iter().map(|(resource, actions)| (resource, actions.to_owned())).collect();
        assert_eq!(found, expected, "{policy}");
    }
}
