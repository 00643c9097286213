//! An HTTP/1.1 connection over TLS.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A kept-alive connection.
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
}

/// The only request, which is sent repeatedly.
pub(super) struct Request {
    host: String,
    path: String,
    body: Body,
}

/// The reviews to send.
enum Body {
    /// One, again and again.
    Same(Bytes),
    /// Each with another value of the label `team`, at this place.
    Differing {
        text: Vec<u8>,
        place: usize,
        sent: Cell<u32>,
    },
}

/// The label that differs, in the reviews of [`crate::documents`].
const TEAM: &[u8] = br#""team":"blue""#;
/// The letters of its value.
const LETTERS: usize = 4;

// === impl Request ===

impl Request {
    pub(super) fn new(
        address: SocketAddr,
        path: &str,
        body: Vec<u8>,
        differ: bool,
    ) -> anyhow::Result<Self> {
        let body = match differ {
            false => Body::Same(body.into()),
            true => {
                let mut windows = body.windows(TEAM.len());
                let label = windows.position(|window| window == TEAM);
                let label =
                    label.context("the review has no label `team` with the value `blue`")?;
                Body::Differing {
                    place: label + TEAM.len() - 1 - LETTERS,
                    text: body,
                    sent: Cell::new(0),
                }
            }
        };
        Ok(Self {
            host: address.to_string(),
            path: format!("{path}?timeout=10s"),
            body,
        })
    }

    /// The next review.
    fn body(&self) -> Bytes {
        match &self.body {
            Body::Same(body) => body.clone(),
            Body::Differing { text, place, sent } => {
                let mut number = sent.replace(sent.get().wrapping_add(1));
                let mut body = text.clone();
                for letter in &mut body[*place..*place + LETTERS] {
                    *letter = b'a' + (number % 26) as u8;
                    number /= 26;
                }
                body.into()
            }
        }
    }
}

// === impl Client ===

impl Client {
    pub(super) async fn connect(
        connector: &TlsConnector,
        address: SocketAddr,
    ) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let stream = connector
            .connect(ServerName::from(address.ip()), stream)
            .await
            .with_context(|| format!("TLS handshake with {address} failed"))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::task::spawn_local(async move {
            // The sender gets the connection's errors too.
            let _: hyper::Result<()> = connection.await;
        });
        Ok(Self { sender })
    }

    /// Sends the request and reads the whole answer.
    pub(super) async fn send(&mut self, request: &Request) -> anyhow::Result<Bytes> {
        let message = http::Request::builder()
            .method(Method::POST)
            .uri(&request.path)
            .header(header::HOST, &request.host)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(request.body()))?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(message).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        anyhow::ensure!(
            status == StatusCode::OK,
            "POST {} was answered with HTTP {status}: {}",
            request.path,
            String::from_utf8_lossy(&body)
        );
        Ok(body)
    }
}

/// The cryptography of the client. It prefers the cipher that kube-apiserver prefers, as every client in Go on a processor with
/// AES. rustls prefers AES-256.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let preferred = CipherSuite::TLS13_AES_128_GCM_SHA256;
    let suites = &mut provider.cipher_suites;
    suites.sort_by_key(|suite| suite.suite() != preferred);
    provider
}

/// Creates a connector that trusts only one CA.
pub(super) fn connector(ca: &Path) -> anyhow::Result<TlsConnector> {
    let unreadable = || format!("{} is not a PEM certificate", ca.display());
    let certificate = CertificateDer::from_pem_file(ca).with_context(unreadable)?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).with_context(unreadable)?;
    let config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_prefers_the_cipher_of_kube_apiserver_and_offers_all_others() {
        let mut offered: Vec<_> = provider().cipher_suites;
        assert_eq!(
            offered.first().map(|suite| suite.suite()),
            Some(CipherSuite::TLS13_AES_128_GCM_SHA256)
        );
        let mut all = rustls::crypto::ring::default_provider().cipher_suites;
        let name = |suite: &rustls::SupportedCipherSuite| u16::from(suite.suite());
        offered.sort_by_key(name);
        all.sort_by_key(name);
        assert_eq!(offered, all);
    }
}
