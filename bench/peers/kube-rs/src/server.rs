//! The HTTPS server, put together like the servers that axum and its helpers run: hyper-util over tokio-rustls.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::webhook::Webhook;

/// Creates an acceptor with the certificate in a folder.
pub(crate) fn acceptor(folder: &Path) -> anyhow::Result<TlsAcceptor> {
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let unreadable = |file: &Path| format!("cannot read {}", file.display());
    let chain = CertificateDer::pem_file_iter(&certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| unreadable(&certificate))?;
    let key = PrivateKeyDer::from_pem_file(&key).with_context(|| unreadable(&key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("cannot use the certificate")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves on a free port of loopback until the process is ended.
pub(crate) async fn serve(
    webhook: Webhook,
    acceptor: TlsAcceptor,
    announce: impl FnOnce(SocketAddr),
) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .context("cannot listen on loopback")?;
    announce(listener.local_addr()?);
    let webhook = Arc::new(webhook);
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept")?;
        tokio::spawn(connection(stream, acceptor.clone(), webhook.clone()));
    }
}

/// Serves one connection to its end. Its errors are the client's.
async fn connection(stream: TcpStream, acceptor: TlsAcceptor, webhook: Arc<Webhook>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request| {
        let webhook = webhook.clone();
        async move { Ok::<_, Infallible>(answer(&webhook, request).await) }
    });
    let builder = Builder::new(TokioExecutor::new());
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(webhook: &Webhook, request: Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::POST || request.uri().path() != "/validate" {
        return text(StatusCode::NOT_FOUND, "expected POST /validate".to_owned());
    }
    let body = match request.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    match webhook.answer(&body) {
        Ok(answer) => {
            let mut response = Response::new(Full::new(answer));
            let json = header::HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(why) => text(StatusCode::BAD_REQUEST, why),
    }
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}
