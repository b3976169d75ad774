//! TLS, users and passwords.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::tls_front::TlsFront;
use super::*;

/// A certificate authority with a certificate for this machine.
pub(super) struct Authority {
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let own_key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut own = CertificateParams::new(names).unwrap();
        // OpenSSL takes one with its issuer's name for self-signed
        own.distinguished_name.push(DnType::CommonName, "server");
        let own = own.signed_by(&own_key, &issuer).unwrap();
        let texts = [("ca", root.pem()), ("cert", own.pem()), ("key", own_key.serialize_pem())];
        for (name, text) in texts {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder }
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A server's options; `auth` tells whether clients show a certificate.
    fn options(&self, auth: &str) -> Vec<(String, String)> {
        let files = [("tls-ca-cert-file", "ca"), ("tls-cert-file", "cert"), ("tls-key-file", "key")];
        let files = files.map(|(option, name)| (option.to_owned(), self.path(name)));
        files.into_iter().chain([("tls-auth-clients".to_owned(), auth.to_owned())]).collect()
    }
}

fn borrowed(options: &[(String, String)]) -> Vec<(&str, &str)> {
    options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// The server program that is preferred, and whether it speaks TLS: the bundled one does not.
async fn program() -> (PathBuf, bool) {
    let program = programs().await.remove(0);
    let authority = Authority::new();
    let speaks = RedisServer::start_with_options(program.clone(), &borrowed(&authority.options("no"))).await.is_ok();
    (program, speaks)
}

/// A server with its TLS port, its own or one in front of it.
struct Secure {
    server: RedisServer,
    tls: u16,
    _front: Option<TlsFront>,
}

/// One that only `app` with the password `s@crt/9` may use.
async fn server(authority: &Authority, asks: bool) -> Secure {
    let (program, speaks) = program().await;
    let options = if speaks { authority.options(if asks { "yes" } else { "no" }) } else { vec![] };
    let server = RedisServer::start_with_options(program, &borrowed(&options)).await.expect("a redis-server starts");
    let _: () = on(&server, redis::cmd("ACL").arg(&["SETUSER", "app", "on", ">s@crt/9", "~*", "&*", "+@all"])).await;
    let _: () = on(&server, redis::cmd("ACL").arg(&["SETUSER", "default", "off"])).await;
    match server.tls_port() {
        Some(tls) => Secure { server, tls, _front: None },
        None => {
            let front = TlsFront::to(server.port(), authority, asks).await;
            Secure { server, tls: front.port(), _front: Some(front) }
        }
    }
}

const LOGIN: &str = "app:s%40crt%2F9@";

async fn check(url: &str) -> Result<(), StoreError> {
    let store = Store::new(url)?;
    let result = store.check().await;
    if let Err(error) = &result {
        let shown = format!("{error} {error:?} {error:#?} {store:?}");
        assert!(!shown.contains("crt") && !shown.contains("hunter2"), "{shown}");
    }
    result
}

#[tokio::test]
async fn a_server_with_tls_user_and_password_is_used_and_others_are_told_why_not() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let secure = server(&authority, false).await;
    let (plain, tls) = (secure.server.port(), secure.tls);
    let (ca, other) = (authority.path("ca"), stranger.path("ca"));
    for host in ["127.0.0.1", "localhost"] {
        let store = Store::new(&format!("rediss://{LOGIN}{host}:{tls}?ssl_ca_certs={ca}")).unwrap();
        store.check().await.unwrap();
        set(&store, "b", &per_second(100, 0.8)).await;
        book(&store, &draft("b", host)).await.unwrap();
    }
    check(&format!("redis://{LOGIN}127.0.0.1:{plain}")).await.unwrap();
    let errors = [
        (format!("rediss://{LOGIN}127.0.0.1:{tls}?ssl_ca_certs={other}"), "certificate"),
        (format!("rediss://{LOGIN}127.0.0.1:{tls}"), "certificate"),
        (format!("rediss://{LOGIN}127.0.0.1:{plain}?ssl_ca_certs={ca}"), "rediss:// for TLS"),
        (format!("redis://{LOGIN}127.0.0.1:{tls}"), "rediss:// for TLS"),
        (format!("rediss://app:hunter2@127.0.0.1:{tls}?ssl_ca_certs={ca}"), "refuses the user or password"),
        (format!("rediss://127.0.0.1:{tls}?ssl_ca_certs={ca}"), "refuses the user or password"),
        (format!("redis+cluster://app:hunter2@127.0.0.1:{plain}"), "refuses the user or password"),
    ];
    for (url, words) in errors {
        let error = check(&url).await.unwrap_err();
        let shown = error.to_string();
        assert!(shown.contains(words) && shown.contains("127.0.0.1:"), "{url}: {shown}");
        assert_eq!(matches!(error, StoreError::Login { .. }), words.contains("refuses"), "{error:?}");
        assert_eq!(error.is_temporary(), !words.contains("refuses"));
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_it() {
    let authority = Authority::new();
    let secure = server(&authority, true).await;
    let [ca, cert, key] = ["ca", "cert", "key"].map(|name| authority.path(name));
    let url = format!("rediss://{LOGIN}127.0.0.1:{}?ssl_ca_certs={ca}", secure.tls);
    let error = check(&url).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    check(&format!("{url}&ssl_certfile={cert}&ssl_keyfile={key}")).await.unwrap();
}

#[tokio::test]
async fn a_cluster_with_tls_and_password_is_found_by_one_of_its_nodes() {
    let authority = Authority::new();
    let (program, speaks) = program().await;
    let mut options = if speaks { authority.options("no") } else { vec![] };
    if speaks {
        options.push(("tls-cluster".to_owned(), "yes".to_owned()));
    }
    let cluster = RedisCluster::start(program, &borrowed(&options)).await.unwrap();
    let mut fronts = vec![];
    for node in cluster.nodes().iter().filter(|_| !speaks) {
        let front = TlsFront::to(node.port(), &authority, false).await;
        let announce = ["SET", "cluster-announce-port", &front.port().to_string()];
        let _: () = on(node, redis::cmd("CONFIG").arg(&announce)).await;
        fronts.push(front);
    }
    for node in cluster.nodes() {
        let _: () = on(node, redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("s@crt/9")).await;
    }
    let own = cluster.nodes().iter().filter_map(|node| node.tls_port());
    let ports: Vec<u16> = own.chain(fronts.iter().map(TlsFront::port)).collect();
    let (one, ca) = (ports[2], authority.path("ca"));
    // as ElastiCache gives it, and with the nodes named
    for (scheme, hosts) in [
        ("rediss", format!("localhost:{one}")),
        ("rediss+cluster", format!("127.0.0.1:{},127.0.0.1:{}", ports[0], ports[1])),
    ] {
        let store = Store::new(&format!("{scheme}://:s%40crt%2F9@{hosts}?ssl_ca_certs={ca}")).unwrap();
        for budget in super::cluster::budgets() {
            set(&store, &budget, &per_second(100, 0.8)).await;
            book(&store, &draft(&budget, scheme)).await.unwrap();
        }
        assert_eq!(budget::list(&store).await.unwrap().len(), super::cluster::BUDGETS);
        let error = check(&format!("{scheme}://:hunter2@{hosts}?ssl_ca_certs={ca}")).await.unwrap_err();
        assert!(matches!(error, StoreError::Login { .. }), "{error:?}");
    }
}
