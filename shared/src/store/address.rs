//! `REDIS_URL`: one server, a primary behind Sentinel, or a cluster; with TLS, users and passwords.

use std::collections::HashMap;

use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisError, TlsCertificates,
    TlsMode,
};

/// Sentinel's own port.
const SENTINEL_PORT: u16 = 26379;

/// Whom to ask.
pub(super) enum Servers {
    /// One server; it may turn out to be a node of a cluster.
    One(Box<ConnectionInfo>),
    /// Some nodes of a cluster.
    Cluster(Vec<ConnectionInfo>),
    /// Whoever the sentinels call the primary.
    Sentinel(Box<SentinelClient>),
}

/// A `REDIS_URL` that was read.
pub(super) struct Address {
    pub(super) servers: Servers,
    /// Hosts and ports, and the primary's name: what messages may show.
    pub(super) shown: String,
}

/// The parts of a URL with several hosts, which no URL type knows.
struct Parts<'a> {
    /// `redis`, `rediss`, `valkey` or `valkeys`.
    scheme: &'a str,
    /// With its `@`, or empty.
    user: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: &'a str,
}

impl Address {
    /// Reads a URL. The error never quotes it: it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
        match scheme.split_once(['+', '-']) {
            Some((scheme, "cluster")) => Self::cluster(&Parts::of(scheme, rest)?),
            Some((scheme, "sentinel")) => Self::sentinel(&Parts::of(scheme, rest)?),
            _ => {
                let info = info(url)?;
                Ok(Self { shown: info.addr().to_string(), servers: Servers::One(Box::new(info)) })
            }
        }
    }

    fn cluster(parts: &Parts<'_>) -> Result<Self, String> {
        let nodes: Vec<ConnectionInfo> =
            parts.hosts.iter().map(|host| info(&parts.url_of(host, parts.path))).collect::<Result<_, _>>()?;
        let shown = shown(nodes.iter().map(ConnectionInfo::addr));
        Ok(Self { servers: Servers::Cluster(nodes), shown })
    }

    fn sentinel(parts: &Parts<'_>) -> Result<Self, String> {
        let (name, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
        if name.is_empty() {
            return Err("the name of the primary is missing behind the sentinels".to_owned());
        }
        let hosts: Vec<String> = parts.hosts.iter().map(|host| with_port(host, SENTINEL_PORT)).collect();
        let infos: Vec<ConnectionInfo> =
            hosts.iter().map(|host| info(&parts.url_of(host, db))).collect::<Result<_, _>>()?;
        let addresses: Vec<ConnectionAddr> = infos.iter().map(|info| info.addr().clone()).collect();
        let shown = format!("{}/{name}", shown(addresses.iter()));
        // all hosts share what stands behind them
        let (url, settings) = (parts.url_of(&hosts[0], db), infos[0].redis_settings());
        let options = options(&url);
        let secure = matches!(addresses[0], ConnectionAddr::TcpTls { .. });
        let mut client = SentinelClientBuilder::new(addresses, name, SentinelServerType::Master).map_err(reason)?;
        client = client.set_client_to_redis_db(settings.db()).set_client_to_redis_protocol(settings.protocol());
        client = client.set_client_to_redis_tcp_settings(no_delay()).set_client_to_sentinel_tcp_settings(no_delay());
        if let Some(user) = settings.username() {
            client = client.set_client_to_redis_username(user);
        }
        if let Some(password) = settings.password() {
            client = client.set_client_to_redis_password(password);
        }
        if let Some(user) = options.get("sentinel_username") {
            client = client.set_client_to_sentinel_username(user);
        }
        if let Some(password) = options.get("sentinel_password") {
            client = client.set_client_to_sentinel_password(password);
        }
        if secure {
            client = client.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        if let Some(certificates) = certificates(&options)?.filter(|_| secure) {
            client = client.set_client_to_redis_certificates(certificates);
        }
        let client = client.build().map_err(reason)?;
        Ok(Self { servers: Servers::Sentinel(Box::new(client)), shown })
    }
}

impl<'a> Parts<'a> {
    fn of(scheme: &'a str, rest: &'a str) -> Result<Self, String> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let at = authority.rfind('@').map_or(0, |at| at + 1);
        let (user, hosts) = authority.split_at(at);
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.contains(&"") {
            return Err("a host is missing".to_owned());
        }
        Ok(Self { scheme, user, hosts, path: path.trim_end_matches('/'), query })
    }

    /// The URL as if this host stood alone in it.
    fn url_of(&self, host: &str, path: &str) -> String {
        format!("{}://{}{host}/{path}?{}", self.scheme, self.user, self.query)
    }
}

/// What redis-rs makes of the URL of one server, with its certificates.
fn info(url: &str) -> Result<ConnectionInfo, String> {
    let info = url.into_connection_info().map_err(reason)?.set_tcp_settings(no_delay());
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        return Ok(info);
    }
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Err: another thread was faster
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    match certificates(&options(url))? {
        Some(certificates) => {
            Ok(Client::build_with_tls(info, certificates).map_err(reason)?.get_connection_info().clone())
        }
        None => Ok(info),
    }
}

/// What stands behind the `?`.
fn options(url: &str) -> HashMap<String, String> {
    redis::parse_redis_url(url).map(|url| url.query_pairs().into_owned().collect()).unwrap_or_default()
}

/// The files that redis-py's URLs name: a certificate authority instead of the system's, and a client's own certificate.
fn certificates(options: &HashMap<String, String>) -> Result<Option<TlsCertificates>, String> {
    let file = |name: &str| {
        let read = |path| std::fs::read(path).map_err(|e| format!("the file of {name} cannot be read: {e}"));
        options.get(name).map(read).transpose()
    };
    let root_cert = file("ssl_ca_certs")?;
    if root_cert.as_ref().is_some_and(|pem| !pem.windows(10).any(|w| w == b"-----BEGIN")) {
        return Err("the file of ssl_ca_certs holds no certificate in PEM format".to_owned());
    }
    let client_tls = match (file("ssl_certfile")?, file("ssl_keyfile")?) {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig { client_cert, client_key }),
        (None, None) => None,
        _ => return Err("ssl_certfile and ssl_keyfile go together".to_owned()),
    };
    Ok((root_cert.is_some() || client_tls.is_some()).then_some(TlsCertificates { client_tls, root_cert }))
}

/// Where another node of the same cluster is, with the seed's way to connect.
pub(super) fn sibling(seed: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let host = host.to_owned();
    seed.clone().set_addr(match seed.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    })
}

fn with_port(host: &str, port: u16) -> String {
    let bare = host.rsplit_once(':').is_none_or(|(_, tail)| tail.ends_with(']'));
    if bare { format!("{host}:{port}") } else { host.to_owned() }
}

fn shown<'a>(addresses: impl Iterator<Item = &'a ConnectionAddr>) -> String {
    addresses.map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn no_delay() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// In redis-rs' words, without what it quotes.
fn reason(error: RedisError) -> String {
    let text = error.to_string();
    error.detail().map_or(text.clone(), |quoted| text.replace(quoted, "…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        Address::parse(url).map(|address| address.shown).unwrap_or_else(|reason| panic!("{url}: {reason}"))
    }

    #[test]
    fn every_form_is_understood() {
        assert_eq!(shown("redis://localhost"), "localhost:6379");
        assert_eq!(shown("rediss://user:p%40ss@db:7000/2"), "db:7000");
        assert_eq!(shown("valkeys://db"), "db:6379");
        assert_eq!(shown("redis+cluster://a:1,b,[::1]:3"), "a:1,b:6379,::1:3");
        assert_eq!(shown("rediss+cluster://:secret@a,b"), "a:6379,b:6379");
        assert_eq!(shown("redis-cluster://a"), "a:6379");
        assert_eq!(shown("redis+sentinel://a,b:9,[::1]/main"), "a:26379,b:9,::1:26379/main");
        assert_eq!(shown("rediss+sentinel://u:p@a/main/3?sentinel_password=x"), "a:26379/main");
    }

    #[test]
    fn users_and_passwords_reach_every_host() {
        let Ok(Address { servers: Servers::Cluster(nodes), .. }) = Address::parse("redis+cluster://u:p%2Fw@a,b/")
        else {
            panic!("no cluster")
        };
        for node in nodes {
            let settings = node.redis_settings();
            assert_eq!((settings.username(), settings.password()), (Some("u"), Some("p/w")));
            let other = sibling(&node, "c", 7);
            assert_eq!(other.addr().to_string(), "c:7");
            assert_eq!(other.redis_settings().password(), Some("p/w"));
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_url() {
        let wrong = [
            ("hunter2@localhost", "no scheme"),
            ("http://u:hunter2@localhost", "did not parse"),
            ("redis://u:hunter2@a:1,b:2", "did not parse"),
            ("redis://u:hunter2@a/hunter2", "database number"),
            ("redis://u:hun/ter2@a", "did not parse"),
            ("redis://a?protocol=hunter2", "Invalid protocol version"),
            ("redis+cluster://u:hunter2@a,,b", "host is missing"),
            ("redis+cluster://u:hunter2@", "host is missing"),
            ("redis+hunter2://a", "did not parse"),
            ("redis+sentinel://u:hunter2@a", "name of the primary"),
            ("redis+sentinel://u:hunter2@a/", "name of the primary"),
            ("rediss://u:hunter2@a?ssl_ca_certs=/no/such/file", "ssl_ca_certs cannot be read"),
            ("rediss://u:hunter2@a?ssl_ca_certs=/dev/null", "no certificate"),
            ("rediss://u:hunter2@a?ssl_certfile=/dev/null", "go together"),
        ];
        for (url, words) in wrong {
            let Err(reason) = Address::parse(url) else { panic!("{url} is taken") };
            assert!(reason.contains(words), "{url}: {reason}");
            assert!(!reason.contains("hunter2") && !reason.contains("ter2"), "{reason}");
        }
    }
}
