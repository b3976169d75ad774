//! One SQS message as a record of the event that Lambda hands to a function.

use std::collections::BTreeMap;

use aws_sdk_sqs::types::{Message, MessageAttributeValue};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;

use super::EventSourceOptions;

/// A received message: its handles, and its record in JSON.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) message_id: String,
    pub(super) receipt_handle: String,
    pub(super) json: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    message_id: &'a str,
    receipt_handle: &'a str,
    body: &'a str,
    attributes: BTreeMap<&'a str, &'a str>,
    message_attributes: BTreeMap<&'a str, Attribute<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    md5_of_message_attributes: Option<&'a str>,
    md5_of_body: &'a str,
    event_source: &'static str,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: &'a str,
    aws_region: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Attribute<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    string_value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_value: Option<String>,
    string_list_values: [&'a str; 0],
    binary_list_values: [&'a str; 0],
    data_type: &'a str,
}

impl Record {
    /// `None`, when the message has no ID or no receipt handle, or cannot be written as JSON: none of it happens on SQS.
    pub(super) fn new(message: &Message, options: &EventSourceOptions) -> Option<Self> {
        let (message_id, receipt_handle) = (message.message_id()?, message.receipt_handle()?);
        let system = message.attributes().into_iter().flatten();
        let own = message.message_attributes().into_iter().flatten();
        let fields = Fields {
            message_id,
            receipt_handle,
            body: message.body().unwrap_or_default(),
            attributes: system.map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            message_attributes: own.map(|(name, value)| (name.as_str(), Attribute::new(value))).collect(),
            md5_of_message_attributes: message.md5_of_message_attributes(),
            md5_of_body: message.md5_of_body().unwrap_or_default(),
            event_source: "aws:sqs",
            event_source_arn: &options.queue_arn,
            aws_region: &options.region,
        };
        let json = serde_json::to_string(&fields).ok()?;
        Some(Self { message_id: message_id.to_owned(), receipt_handle: receipt_handle.to_owned(), json })
    }
}

impl<'a> Attribute<'a> {
    fn new(value: &'a MessageAttributeValue) -> Self {
        Self {
            string_value: value.string_value(),
            binary_value: value.binary_value().map(|blob| STANDARD.encode(blob.as_ref())),
            string_list_values: [],
            binary_list_values: [],
            data_type: value.data_type(),
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_sqs::primitives::Blob;
    use aws_sdk_sqs::types::MessageSystemAttributeName;
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test]
    async fn a_record_has_the_shape_that_lambda_sends() {
        let text = MessageAttributeValue::builder().data_type("String").string_value("x").build().unwrap();
        let blob = MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new("foo")).build().unwrap();
        let message = Message::builder()
            .message_id("m1")
            .receipt_handle("r1")
            .body("{\"a\":1}")
            .md5_of_body("d41d")
            .attributes(MessageSystemAttributeName::ApproximateReceiveCount, "1")
            .message_attributes("t", text)
            .message_attributes("b", blob)
            .build();
        let config = aws_sdk_sqs::Config::builder().behavior_version_latest().build();
        let sqs = aws_sdk_sqs::Client::from_conf(config);
        let url = "https://sqs.eu-west-1.amazonaws.com/123456789012/q";
        let record = Record::new(&message, &EventSourceOptions::new(sqs, url, "/bin/sh")).unwrap();
        let expected = json!({
            "messageId": "m1", "receiptHandle": "r1", "body": "{\"a\":1}",
            "attributes": {"ApproximateReceiveCount": "1"},
            "messageAttributes": {
                "t": {"stringValue": "x", "stringListValues": [], "binaryListValues": [], "dataType": "String"},
                "b": {"binaryValue": "Zm9v", "stringListValues": [], "binaryListValues": [], "dataType": "Binary"},
            },
            "md5OfBody": "d41d", "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:q", "awsRegion": "eu-west-1",
        });
        assert_eq!(serde_json::from_str::<Value>(&record.json).unwrap(), expected);
    }
}
