//! A client of a server's admin listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::Args;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::terminal::plain;

/// Flags that locate the admin listener, and the credentials for it.
#[derive(Args, Clone, Debug)]
pub(super) struct AdminClient {
    /// URL of the server's admin listener: https where `admin.authentication` is configured
    #[arg(
        long = "admin",
        value_name = "URL",
        default_value = "http://127.0.0.1:8081"
    )]
    url: Uri,
    /// PEM file of the CA that signed the server's certificate
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Expected name in the server's certificate, if it differs from the host of the URL
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// PEM file of the client certificate
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_certificate: Option<PathBuf>,
    /// PEM file of the client certificate's private key
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    client_key: Option<PathBuf>,
    /// File that holds the bearer token: one of `admin.authentication.bearer`, or of the cluster
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// CAs in PEM that are used without `--certificate-authority`.
    #[arg(skip)]
    bundle: Option<Vec<u8>>,
}

/// Header without which the server changes nothing. A web page cannot send it.
const CONFIRMATION: &str = "tollgate-admin";
/// Longest time to wait for the server.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer that the client reads. The decisions that a server can keep at most fit into it.
const LONGEST_ANSWER_BYTES: usize = 1 << 30;

// === impl AdminClient ===

impl AdminClient {
    pub(super) fn url(&self) -> &Uri {
        &self.url
    }

    /// Whether the user named the CA of the server's certificate.
    pub(super) fn has_authority(&self) -> bool {
        self.certificate_authority.is_some()
    }

    /// The same client for another listener, with defaults for the name and the CAs of its certificate.
    pub(super) fn at(&self, url: Uri, host: String, bundle: Option<Vec<u8>>) -> Self {
        Self {
            url,
            tls_server_name: self.tls_server_name.clone().or(Some(host)),
            bundle,
            ..self.clone()
        }
    }

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        self.within_time(Method::GET, path).await
    }

    /// Asks the server to change something.
    pub(super) async fn post(&self, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        self.within_time(Method::POST, path).await
    }

    async fn within_time(&self, method: Method, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        let asking = tokio::time::timeout(TIMEOUT, self.ask(method, path));
        asking.await.with_context(|| {
            format!("{} did not answer within {} s", self.url, TIMEOUT.as_secs())
        })?
    }

    async fn ask(&self, method: Method, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        let expected = || {
            format!(
                "--admin {}: expected a URL such as http://127.0.0.1:8081 or https://tollgate.internal:8081",
                self.url
            )
        };
        let authority = self.url.authority().with_context(expected)?;
        let is_tls = match self.url.scheme_str() {
            None | Some("http") => false,
            Some("https") => true,
            Some(_) => anyhow::bail!("{}", expected()),
        };
        let default_port = if is_tls { 443 } else { 80 };
        let port = authority.port_u16().unwrap_or(default_port);
        let host = authority.host().trim_matches(['[', ']']);
        let is_change = method == Method::POST;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, authority.as_str());
        if is_change {
            request = request.header(CONFIRMATION, "true");
        }
        if let Some(path) = &self.token_file {
            ensure!(
                is_tls,
                "--token-file needs an https:// URL, got --admin {}",
                self.url
            );
            let token = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {} (--token-file)", path.display()))?;
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .context("cannot build the request")?;
        let stream = TcpStream::connect((host, port)).await.with_context(|| {
            format!(
                "cannot connect to {}: start `tollgate serve`, or pass the address of its admin.listen with --admin",
                self.url
            )
        })?;
        if !is_tls {
            return self.send(stream, request).await;
        }
        let name = self.tls_server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name)
            .context("--tls-server-name: expected a DNS name or an IP address")?;
        let connector = TlsConnector::from(Arc::new(self.tls()?));
        let stream = connector.connect(name, stream).await.with_context(|| {
            format!(
                "TLS handshake with {} failed: pass the CA of its certificate with --certificate-authority and a \
                 name in it with --tls-server-name, or use http:// if admin.authentication is not configured",
                self.url
            )
        })?;
        self.send(stream, request).await
    }

    async fn send(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        request: Request<Empty<Bytes>>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let broken = || {
            format!(
                "connection to {} failed: check that it is the address of the admin listener, and that http:// or \
                 https:// is right",
                self.url
            )
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .with_context(broken)?;
        let connection = tokio::spawn(connection);
        let response = sender.send_request(request).await.with_context(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LONGEST_ANSWER_BYTES)
            .collect()
            .await
            .map_err(|error| anyhow::anyhow!(error))
            .with_context(broken)?;
        connection.abort();
        match status {
            StatusCode::UNAUTHORIZED => anyhow::bail!(
                "{} requires authentication: pass a token of admin.authentication.bearer with --token-file, or with \
                 admin.authentication.tokenReview one of the cluster (kubectl create token NAME > FILE)",
                self.url
            ),
            StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
                let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
                anyhow::bail!("{} answered {status}: {}", self.url, plain(text.trim()))
            }
            status => Ok((status, body.to_bytes())),
        }
    }

    fn tls(&self) -> anyhow::Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        match (&self.certificate_authority, &self.bundle) {
            (Some(path), _) => {
                for certificate in certificates(path, "--certificate-authority")? {
                    roots.add(certificate).with_context(|| {
                        format!(
                            "{} (--certificate-authority) contains no CA certificate",
                            path.display()
                        )
                    })?;
                }
            }
            (None, Some(bundle)) => {
                let certificates = CertificateDer::pem_slice_iter(bundle);
                let certificates: Result<Vec<_>, _> = certificates.collect();
                roots.add_parsable_certificates(
                    certificates.context("the caBundle of the webhooks contains no PEM")?,
                );
            }
            (None, None) => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("cannot set up TLS")?
            .with_root_certificates(roots);
        let (Some(certificate), Some(key)) = (&self.client_certificate, &self.client_key) else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates(certificate, "--client-certificate")?;
        let key = PrivateKeyDer::from_pem_file(key)
            .with_context(|| format!("{} (--client-key) contains no private key", key.display()))?;
        builder
            .with_client_auth_cert(chain, key)
            .context("--client-key is not the private key of --client-certificate")
    }
}

fn certificates(path: &Path, option: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let of = || format!("{} ({option}) contains no PEM certificate", path.display());
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .with_context(of)?;
    ensure!(!certificates.is_empty(), of());
    Ok(certificates)
}
