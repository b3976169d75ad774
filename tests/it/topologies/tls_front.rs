//! TLS in front of a server that has none of its own.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sendslot_tests::port::Port;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::tls::Authority;

/// Forwards a free loopback port, behind TLS, to a port of a server. Dropping it ends it.
pub(super) struct TlsFront(Port);

impl TlsFront {
    /// `asks`: clients have to show a certificate.
    pub(super) async fn to(port: u16, authority: &Authority, asks: bool) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let config = config.expect("the usual versions");
        let config = if asks {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(authority.path("ca")).expect("a certificate")).expect("a root");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            config.with_client_cert_verifier(verifier.expect("a verifier"))
        } else {
            config.with_no_client_auth()
        };
        let own = CertificateDer::from_pem_file(authority.path("cert")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(authority.path("key")).expect("a key");
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![own], key).expect("they fit")));
        let served = Port::serve(move |client| {
            let acceptor = acceptor.clone();
            async move {
                let mut client = acceptor.accept(client).await?;
                let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            }
        });
        Self(served.await.expect("a free port"))
    }

    pub(super) fn port(&self) -> u16 {
        self.0.number()
    }
}
