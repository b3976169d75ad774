//! Region, account and name, read from a queue URL.

/// What a queue URL says about its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueueAddress {
    pub(super) region: String,
    account: String,
    name: String,
}

impl QueueAddress {
    /// Understands AWS's URLs and the three shapes of LocalStack; the region falls back to the client's.
    pub(super) fn of(url: &str, configured_region: Option<&str>) -> Self {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut parts = path.trim_end_matches('/').rsplit('/');
        let name = parts.next().unwrap_or_default().to_owned();
        let account = parts.next().unwrap_or("000000000000").to_owned();
        let in_path = parts.next();
        let region = host_region(host).or(in_path).or(configured_region).unwrap_or("us-east-1").to_owned();
        Self { region, account, name }
    }

    pub(super) fn queue_arn(&self) -> String {
        format!("arn:aws:sqs:{}:{}:{}", self.region, self.account, self.name)
    }

    pub(super) fn function_arn(&self, function: &str) -> String {
        format!("arn:aws:lambda:{}:{}:function:{function}", self.region, self.account)
    }
}

/// `sqs.<region>.amazonaws.com`, and LocalStack's imitation of it.
fn host_region(host: &str) -> Option<&str> {
    let (region, domain) = host.strip_prefix("sqs.")?.split_once('.')?;
    let known = ["amazonaws.", "localhost.localstack."];
    known.iter().any(|start| domain.starts_with(start)).then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_url_is_understood() {
        let cases = [
            ("https://sqs.eu-west-1.amazonaws.com/123456789012/q", "eu-west-1:123456789012"),
            ("http://sqs.eu-west-1.localhost.localstack.cloud:4566/000000000000/q", "eu-west-1:000000000000"),
            ("http://127.0.0.1:4566/queue/eu-west-1/000000000000/q", "eu-west-1:000000000000"),
            ("http://127.0.0.1:4566/000000000000/q", "ap-south-1:000000000000"),
        ];
        for (url, expected) in cases {
            let address = QueueAddress::of(url, Some("ap-south-1"));
            assert_eq!(address.queue_arn(), format!("arn:aws:sqs:{expected}:q"), "{url}");
        }
    }
}
