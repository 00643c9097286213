//! HTTP/1.1 written by hand, for clients that behave as no library does.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, crypto::ring};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn connector(ca_pem: &str, version: &'static SupportedProtocolVersion) -> TlsConnector {
    TlsConnector::from(Arc::new(client_config(ca_pem, version)))
}

fn client_config(ca_pem: &str, version: &'static SupportedProtocolVersion) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).expect("a certificate");
    roots.add(ca).expect("an authority");
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .expect("a supported version")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

pub(crate) async fn connect(connector: &TlsConnector, address: SocketAddr) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    handshake(connector, stream).await
}

/// TLS over a connection that is there already.
pub(crate) async fn connect_over(ca_pem: &str, stream: TcpStream) -> TlsStream<TcpStream> {
    handshake(&connector(ca_pem, &rustls::version::TLS13), stream).await
}

/// A connection on which HTTP/2 has been agreed.
pub(crate) async fn connect_h2(ca_pem: &str, address: SocketAddr) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let mut config = client_config(ca_pem, &rustls::version::TLS13);
    config.alpn_protocols = vec![b"h2".to_vec()];
    handshake(&TlsConnector::from(Arc::new(config)), stream).await
}

async fn handshake(connector: &TlsConnector, stream: TcpStream) -> TlsStream<TcpStream> {
    let name = ServerName::try_from("localhost").expect("a name");
    connector.connect(name, stream).await.expect("a handshake")
}

/// A POST up to the end of its head, and the start of its body.
pub(crate) fn head(path: &str, framing: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{framing}\r\n\r\n{body}"
    )
}

pub(crate) async fn send(stream: &mut TlsStream<TcpStream>, text: &str) {
    send_bytes(stream, text.as_bytes()).await;
}

pub(crate) async fn send_bytes(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) {
    let sent = async {
        stream.write_all(bytes).await.expect("no reset");
        stream.flush().await.expect("no reset");
    };
    timeout(PATIENCE, sent).await.expect("the server reads");
}

/// The head and body of one answer that has a Content-Length.
pub(crate) async fn read_answer(stream: &mut TlsStream<TcpStream>) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    let whole = |text: &str| {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))?;
        let length: usize = length.parse().ok()?;
        (body.len() >= length).then_some(())
    };
    while whole(&text).is_none() {
        let read = timeout(PATIENCE, stream.read(&mut buffer)).await;
        let count = read.expect("the server answers").expect("no reset");
        assert_ne!(count, 0, "the connection ended after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..count]).expect("text"));
    }
    text
}

/// What comes until the server closes in order.
pub(crate) async fn read_rest(stream: &mut TlsStream<TcpStream>) -> String {
    let mut text = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut text))
        .await
        .expect("the server closes")
        .expect("no reset");
    text
}
