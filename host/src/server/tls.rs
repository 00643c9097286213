//! The serving certificate: from files or self-signed, checked before it is served, and replaced
//! while serving when the files change or the leaf nears its end.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::{
    InconsistentKeys, ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};
use time::OffsetDateTime;
use tokio::{task::spawn_blocking, time::interval};
use tokio_rustls::TlsAcceptor;

use crate::{
    config::Tls,
    metrics::Metrics,
    server::authority::{Authority, AuthorityError},
};

/// How often files are read again. kubelet itself needs about a minute to bring a changed Secret.
const REFRESH_PERIOD: Duration = Duration::from_secs(10);

/// The certificate being served and where it comes from.
#[derive(Debug)]
pub(super) struct Certificates {
    source: Source,
    provider: Arc<CryptoProvider>,
    live: Arc<Live>,
    config: Arc<ServerConfig>,
}

#[derive(Debug)]
enum Source {
    Files { certificate: PathBuf, key: PathBuf },
    SelfSigned(Box<Authority>),
}

/// What rustls asks for a certificate: there is one, whatever name the client wants.
#[derive(Debug)]
struct Live(ArcSwap<CertifiedKey>);

/// The certificate or its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {path} ({setting})")]
    Read {
        /// The configuration key.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The certificate file is not PEM, or holds no certificate.
    #[error(
        "{path} (tls.certificate) does not hold a certificate: expected PEM with one or more CERTIFICATE sections, the server's own first"
    )]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: pem::Error,
    },
    /// The key file is not PEM, or holds no key.
    #[error(
        "{path} (tls.key) does not hold a private key: expected PEM with an unencrypted PKCS#8, PKCS#1 or SEC1 key"
    )]
    Key {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: pem::Error,
    },
    /// The key is not the certificate's.
    #[error(
        "the key in {key} (tls.key) does not belong to the first certificate in {certificate} (tls.certificate): the server's own certificate comes first in the file, and both files must be of one issue"
    )]
    Mismatch {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// The pair parses, and still cannot be used.
    #[error(
        "{certificate} (tls.certificate) and {key} (tls.key) cannot be used: expected an X.509 v3 certificate and an RSA, ECDSA P-256, P-384 or Ed25519 key"
    )]
    Unusable {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
        /// What the TLS library said.
        source: rustls::Error,
    },
    /// The self-signed certificate cannot be made.
    #[error("cannot make a self-signed certificate (tls.selfSigned)")]
    Authority(#[source] AuthorityError),
    /// The TLS library cannot be set up.
    #[error("cannot set up TLS: this is a defect of Tollgate or of the system's random source")]
    Library(#[source] rustls::Error),
}

// === impl Certificates ===

impl Certificates {
    pub(super) async fn load(tls: &Tls, metrics: &Metrics) -> Result<Self, CertificateError> {
        let source = match tls.clone() {
            Tls::Files { certificate, key } => Source::Files { certificate, key },
            Tls::SelfSigned(settings) => {
                // Off the runtime: another process may hold the directory's lock for a moment.
                let opened = spawn_blocking(move || Authority::open(&settings)).await;
                let authority = opened
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
                    .map_err(CertificateError::Authority)?;
                Source::SelfSigned(Box::new(authority))
            }
        };
        let provider = Arc::new(ring::default_provider());
        let certified = source.obtain(&provider)?;
        announce(&source, &certified, metrics);
        let live = Arc::new(Live(ArcSwap::from_pointee(certified)));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Library)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&live) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Tickets need no memory here, and resumption spares the signature, the handshake's cost.
        config.ticketer = ring::Ticketer::new().map_err(CertificateError::Library)?;
        Ok(Self {
            source,
            provider,
            live,
            config: Arc::new(config),
        })
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    pub(super) fn ca_bundle(&self) -> Option<&Path> {
        match &self.source {
            Source::Files { .. } => None,
            Source::SelfSigned(authority) => Some(authority.certificate_path()),
        }
    }

    /// Replaces what is served when there is something newer; true when it did.
    fn refresh(&self, metrics: &Metrics) -> Result<bool, CertificateError> {
        let live = self.live.0.load();
        if let Source::SelfSigned(_) = &self.source
            && expiry(&live).is_none_or(|expiry| !Authority::is_due(expiry))
        {
            return Ok(false);
        }
        let certified = self.source.obtain(&self.provider)?;
        if certified.cert == live.cert {
            return Ok(false);
        }
        announce(&self.source, &certified, metrics);
        self.live.0.store(Arc::new(certified));
        Ok(true)
    }
}

/// Looks for a newer certificate from time to time. One that cannot be used is reported once and
/// does not replace the one that is served.
pub(super) async fn keep_fresh(certificates: Arc<Certificates>, metrics: Arc<Metrics>) {
    let mut periods = interval(REFRESH_PERIOD);
    let mut reported = None;
    loop {
        periods.tick().await;
        let refreshed = {
            let certificates = Arc::clone(&certificates);
            let metrics = Arc::clone(&metrics);
            spawn_blocking(move || certificates.refresh(&metrics)).await
        };
        match refreshed {
            Ok(Ok(_)) => reported = None,
            Ok(Err(error)) => {
                let text = error.to_string();
                if reported.as_ref() != Some(&text) {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the new certificate cannot be used; the old one stays"
                    );
                    reported = Some(text);
                }
            }
            // The panic hook has reported it.
            Err(_) => {}
        }
    }
}

fn announce(source: &Source, certified: &CertifiedKey, metrics: &Metrics) {
    let file = match source {
        Source::Files { certificate, .. } => Some(certificate.as_path()),
        Source::SelfSigned(_) => None,
    };
    let Some(expiry) = expiry(certified) else {
        return;
    };
    metrics.certificate(file, expiry.unix_timestamp());
    let certificate = file.map_or_else(|| "self-signed".into(), |path| path.display().to_string());
    if expiry <= OffsetDateTime::now_utc() {
        tracing::warn!(%certificate, %expiry, "the certificate has expired: clients refuse it");
    } else {
        tracing::info!(%certificate, %expiry, "serving a certificate");
    }
}

fn expiry(certified: &CertifiedKey) -> Option<OffsetDateTime> {
    let certificate = certified.cert.first()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_after.to_datetime())
}

// === impl Source ===

impl Source {
    fn obtain(&self, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
        match self {
            Self::Files { certificate, key } => from_files(certificate, key, provider),
            Self::SelfSigned(authority) => {
                let (chain, key) = authority.issue().map_err(CertificateError::Authority)?;
                CertifiedKey::from_der(chain, key, provider).map_err(CertificateError::Library)
            }
        }
    }
}

fn from_files(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, CertificateError> {
    let pem = read("tls.certificate", certificate)?;
    let chain = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .and_then(|chain| {
            if chain.is_empty() {
                Err(pem::Error::NoItemsFound)
            } else {
                Ok(chain)
            }
        })
        .map_err(|source| CertificateError::Certificate {
            path: certificate.to_owned(),
            source,
        })?;
    let pem = read("tls.key", key)?;
    let private = PrivateKeyDer::from_pem_slice(&pem).map_err(|source| CertificateError::Key {
        path: key.to_owned(),
        source,
    })?;
    CertifiedKey::from_der(chain, private, provider).map_err(|source| match source {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            CertificateError::Mismatch {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
            }
        }
        source => CertificateError::Unusable {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            source,
        },
    })
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, CertificateError> {
    std::fs::read(path).map_err(|source| CertificateError::Read {
        setting,
        path: path.to_owned(),
        source,
    })
}

// === impl Live ===

impl ResolvesServerCert for Live {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

#[cfg(test)]
mod tests;
