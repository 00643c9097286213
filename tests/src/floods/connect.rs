//! TLS connections from a chosen source address.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Opens connections to one server.
#[derive(Clone)]
pub(super) struct Connect {
    address: SocketAddr,
    source: Ipv4Addr,
    http1: TlsConnector,
    http2: TlsConnector,
}

/// Longest time that an attacker waits for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

// === impl Connect ===

impl Connect {
    pub(super) fn new(address: SocketAddr, source: Ipv4Addr, ca_bundle: &Path) -> Self {
        let ca = CertificateDer::from_pem_file(ca_bundle).expect("the server made a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(ca).expect("it is an authority");
        let connector = |protocol: &[u8]| {
            let provider = Arc::new(ring::default_provider());
            let mut config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("ring speaks TLS 1.2 and 1.3")
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsConnector::from(Arc::new(config))
        };
        Self {
            address,
            source,
            http1: connector(b"http/1.1"),
            http2: connector(b"h2"),
        }
    }

    /// Opens a connection for HTTP/1.1. Returns none if the server refuses it or takes too long.
    pub(super) async fn http1(&self) -> Option<TlsStream<TcpStream>> {
        self.tls(&self.http1).await
    }

    /// Opens a connection for HTTP/2, like `Connect::http1`.
    pub(super) async fn http2(&self) -> Option<TlsStream<TcpStream>> {
        self.tls(&self.http2).await
    }

    async fn tls(&self, connector: &TlsConnector) -> Option<TlsStream<TcpStream>> {
        let connected = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((self.source, 0)))?;
            let stream = socket.connect(self.address).await?;
            let name = ServerName::try_from("localhost").expect("it is a name");
            connector.connect(name, stream).await
        };
        timeout(PATIENCE, connected).await.ok()?.ok()
    }
}
