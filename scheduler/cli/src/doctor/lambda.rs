//! Two questions to the Lambda API. Signed here, since the SDK for Lambda takes longer to compile than the rest of the command.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, anyhow};
use aws_credential_types::provider::ProvideCredentials as _;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sendslot_shared::queue;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;

/// A function, as far as it is checked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Function {
    pub(super) state: Option<String>,
    pub(super) state_reason: Option<String>,
    /// In seconds.
    pub(super) timeout: u64,
    #[serde(default)]
    environment: Environment,
    #[serde(default)]
    logging_config: Logging,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Logging {
    log_format: Option<String>,
    application_log_level: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Environment {
    #[serde(default)]
    variables: HashMap<String, String>,
}

impl Function {
    /// A variable of it.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.variables.get(name).map(String::as_str)
    }

    /// The level below which Lambda itself drops lines. It reads levels in JSON alone.
    pub(super) fn drops_below(&self) -> Option<&str> {
        let json = self.logging_config.log_format.as_deref() == Some("JSON");
        self.logging_config.application_log_level.as_deref().filter(|_| json)
    }
}

/// A mapping of a queue to a function.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Mapping {
    #[serde(default)]
    pub(super) state: String,
    #[serde(default)]
    pub(super) batch_size: u32,
    #[serde(default)]
    pub(super) maximum_batching_window_in_seconds: u32,
    #[serde(default)]
    pub(super) function_response_types: Vec<String>,
    #[serde(default)]
    scaling_config: Scaling,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Scaling {
    maximum_concurrency: Option<u32>,
}

impl Mapping {
    pub(super) fn maximum_concurrency(&self) -> Option<u32> {
        self.scaling_config.maximum_concurrency
    }
}

/// A client, from the usual AWS environment variables.
pub(super) struct Lambda {
    config: aws_config::SdkConfig,
    http: reqwest::Client,
}

impl Lambda {
    pub(super) async fn from_env() -> Result<Self, anyhow::Error> {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(15)).build()?;
        Ok(Self { config: queue::config_from_env().await, http })
    }

    /// GetFunctionConfiguration.
    pub(super) async fn function(&self, name: &str) -> Result<Function, anyhow::Error> {
        self.get(&format!("/2015-03-31/functions/{}/configuration", encoded(name))).await
    }

    /// ListEventSourceMappings.
    pub(super) async fn mappings(&self, function: &str, queue_arn: &str) -> Result<Vec<Mapping>, anyhow::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct All {
            #[serde(default)]
            event_source_mappings: Vec<Mapping>,
        }
        let (function, queue) = (encoded(function), encoded(queue_arn));
        let path = format!("/2015-03-31/event-source-mappings?EventSourceArn={queue}&FunctionName={function}");
        Ok(self.get::<All>(&path).await?.event_source_mappings)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, anyhow::Error> {
        let region = self.config.region().context("AWS_REGION is not set")?.to_string();
        let default = || format!("https://lambda.{region}.amazonaws.com");
        let own = std::env::var("AWS_ENDPOINT_URL_LAMBDA").ok().filter(|url| !url.is_empty());
        let endpoint = own.or_else(|| self.config.endpoint_url().map(str::to_owned)).unwrap_or_else(default);
        let url = format!("{}{path}", endpoint.trim_end_matches('/'));
        let provider = self.config.credentials_provider().context("no AWS credentials")?;
        let identity = provider.provide_credentials().await?.into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&region)
            .name("lambda")
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()?;
        let request = SignableRequest::new("GET", &url, std::iter::empty(), SignableBody::Bytes(&[]))?;
        let (signed, _) = sign(request, &params.into())?.into_parts();
        let mut request = self.http.get(&url);
        for (name, value) in signed.headers() {
            request = request.header(name, value);
        }
        let answer = request.send().await?;
        let (status, body) = (answer.status(), answer.bytes().await?);
        if status.is_success() {
            return Ok(serde_json::from_slice(&body)?);
        }
        // `{"Type":"User","Message":"Function not found: …"}`
        let said: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = said["Message"].as_str().or_else(|| said["message"].as_str()).unwrap_or("no message");
        Err(anyhow!("{status}: {message}"))
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
