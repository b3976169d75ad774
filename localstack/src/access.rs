//! What a client needs to reach a stack.

use std::env;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};

/// The key that LocalStack takes: any will do.
const TEST_KEY: &str = "test";
const REGION: &str = "us-east-1";

/// Endpoint, region and key of SQS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SqsAccess {
    endpoint_url: String,
    region: String,
    key_id: String,
    secret_key: String,
    session_token: Option<String>,
}

impl SqsAccess {
    /// For a LocalStack of our own.
    pub(crate) fn local(endpoint_url: String) -> SqsAccess {
        SqsAccess {
            endpoint_url,
            region: REGION.to_owned(),
            key_id: TEST_KEY.to_owned(),
            secret_key: TEST_KEY.to_owned(),
            session_token: None,
        }
    }

    /// What the AWS variables give, if they give an endpoint.
    pub(crate) fn from_environment() -> Option<SqsAccess> {
        Self::from_variables(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<SqsAccess> {
        let endpoint_url = variable("AWS_ENDPOINT_URL_SQS").or_else(|| variable("AWS_ENDPOINT_URL"))?;
        let region =
            variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION")).unwrap_or_else(|| REGION.to_owned());
        let local = SqsAccess { region, ..Self::local(endpoint_url) };
        Some(match (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
            (Some(key_id), Some(secret_key)) => {
                SqsAccess { key_id, secret_key, session_token: variable("AWS_SESSION_TOKEN"), ..local }
            }
            _ => local,
        })
    }

    pub(crate) fn endpoint_url(&self) -> &str {
        &self.endpoint_url
    }

    pub(crate) fn client(&self) -> Client {
        let token = self.session_token.clone();
        let credentials = Credentials::new(&self.key_id, &self.secret_key, token, None, "sendslot");
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(self.region.clone()))
            .endpoint_url(&self.endpoint_url)
            .credentials_provider(credentials);
        Client::from_conf(config.build())
    }

    /// As variables for another process.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let mut variables = vec![
            ("AWS_ENDPOINT_URL", self.endpoint_url.clone()),
            ("AWS_REGION", self.region.clone()),
            ("AWS_ACCESS_KEY_ID", self.key_id.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.secret_key.clone()),
        ];
        variables.extend(self.session_token.clone().map(|token| ("AWS_SESSION_TOKEN", token)));
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(variables: &[(&str, &str)]) -> Option<SqsAccess> {
        SqsAccess::from_variables(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_key_without_an_endpoint_reaches_nothing() {
        assert_eq!(given(&[("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")]), None);
    }

    #[test]
    fn an_endpoint_alone_gets_the_test_key() {
        let access = given(&[("AWS_ENDPOINT_URL", "http://h:1")]);
        assert_eq!(access, Some(SqsAccess::local("http://h:1".to_owned())));
    }

    #[test]
    fn the_variables_round_trip() {
        let variables = [
            ("AWS_ENDPOINT_URL", "http://h:1"),
            ("AWS_REGION", "eu-west-1"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_SESSION_TOKEN", "c"),
        ];
        let access = given(&variables).unwrap();
        assert_eq!(access.variables(), variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
