//! The serving certificate: from files or self-signed, checked before it is served, and replaced
//! while serving when the files change or the leaf nears its end.

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, pem};
use time::OffsetDateTime;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;
use x509_parser::extensions::GeneralName;

use crate::{
    config::{SelfSigned, Tls},
    metrics::Metrics,
    server::{
        authority::{self, Authority, AuthorityError},
        inspect::Usable,
    },
};

/// How often the directory of the self-signed authority is looked at: others may have added its successor.
const AUTHORITY_PERIOD: Duration = Duration::from_secs(600);

const UNORDERED_CHAIN: &str = "the certificates of the chain do not follow one another: clients may refuse it; expected \
    the server's own first, then the one that issued it, and so on";

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
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
    SelfSigned {
        settings: SelfSigned,
        authority: Box<Mutex<(Authority, Instant)>>,
    },
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
    /// `clients` judges the clients' certificates; without it none is asked for.
    pub(super) async fn load(
        tls: &Tls,
        provider: Arc<CryptoProvider>,
        clients: Option<Arc<dyn ClientCertVerifier>>,
        metrics: &Metrics,
    ) -> Result<Self, CertificateError> {
        let (tls, of) = (tls.clone(), Arc::clone(&provider));
        // Off the runtime: another process may hold the authority's lock, or be writing the files, for a moment.
        let obtained = spawn_blocking(move || {
            let source = Source::open(tls)?;
            let certified = source.obtain(&of)?;
            Ok((source, certified))
        });
        let (source, certified) = obtained
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        announce(&source, &certified, metrics);
        let live = Arc::new(Live(ArcSwap::from_pointee(certified)));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Library)?;
        let resumes = clients.is_none();
        let mut config = match clients {
            Some(clients) => builder.with_client_cert_verifier(clients),
            None => builder.with_no_client_auth(),
        }
        .with_cert_resolver(Arc::clone(&live) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        if resumes {
            // Tickets need no memory here, and resumption spares the signature, the handshake's cost.
            config.ticketer = ring::Ticketer::new().map_err(CertificateError::Library)?;
        } else {
            // A resumed session would bring a client's certificate along unjudged.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
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

    pub(super) fn ca_bundle(&self) -> Option<PathBuf> {
        match &self.source {
            Source::Files { .. } => None,
            Source::SelfSigned { settings, .. } => Some(authority::bundle_path(settings)),
        }
    }

    /// What `/readyz` says of the certificates, in lines.
    pub(super) fn detail(&self, now: OffsetDateTime) -> Vec<String> {
        let live = self.live.0.load();
        let mut lines = vec![format!(
            "certificate {}: {}",
            self.source.name(),
            ends(expiry(&live), now)
        )];
        if let Source::SelfSigned {
            settings,
            authority,
        } = &self.source
        {
            let authority = authority.lock().unwrap_or_else(PoisonError::into_inner);
            let path = authority::bundle_path(settings);
            lines.push(format!(
                "authority {}: {}",
                path.display(),
                ends(Some(authority.0.expiry()), now)
            ));
            if let Some(from) = authority.0.successor_signs_from() {
                lines.push(format!(
                    "authority {}: the next one is in the file and signs from {} on; register the file as caBundle \
                     before that",
                    path.display(),
                    from.date()
                ));
            }
        }
        lines
    }

    /// Replaces what is served when there is something newer; true when it did.
    pub(super) fn refresh(&self, metrics: &Metrics) -> Result<bool, CertificateError> {
        let live = self.live.0.load();
        if let Source::SelfSigned {
            settings,
            authority,
        } = &self.source
            && !renewed(settings, authority, expiry(&live))?
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

/// Looks at the authority's directory when it is time; true when a new leaf is wanted.
fn renewed(
    settings: &SelfSigned,
    authority: &Mutex<(Authority, Instant)>,
    leaf_expiry: Option<OffsetDateTime>,
) -> Result<bool, CertificateError> {
    let mut held = authority.lock().unwrap_or_else(PoisonError::into_inner);
    if held.1.elapsed() < AUTHORITY_PERIOD {
        return Ok(false);
    }
    let now = OffsetDateTime::now_utc();
    let authority = Authority::open(settings, now).map_err(CertificateError::Authority)?;
    let renewed = !authority.is_same(&held.0)
        || leaf_expiry.is_none_or(|expiry| authority.is_due(expiry, now));
    *held = (authority, Instant::now());
    Ok(renewed)
}

fn announce(source: &Source, certified: &CertifiedKey, metrics: &Metrics) {
    if let Source::SelfSigned {
        settings,
        authority,
    } = source
    {
        let authority = authority.lock().unwrap_or_else(PoisonError::into_inner);
        let path = authority::bundle_path(settings);
        metrics.certificate(Some(&path), authority.0.expiry().unix_timestamp());
    }
    let Some(expiry) = expiry(certified) else {
        return;
    };
    let file = match source {
        Source::Files { certificate, .. } => Some(certificate.as_path()),
        Source::SelfSigned { .. } => None,
    };
    metrics.certificate(file, expiry.unix_timestamp());
    let certificate = source.name();
    if !is_chain(&certified.cert) {
        tracing::warn!(%certificate, "{UNORDERED_CHAIN}");
    }
    if expiry <= OffsetDateTime::now_utc() {
        tracing::warn!(%certificate, %expiry, "the certificate has expired: clients refuse it");
    } else {
        tracing::info!(%certificate, %expiry, "serving a certificate");
    }
}

/// When a certificate ends, for people.
pub(super) fn ends(expiry: Option<OffsetDateTime>, now: OffsetDateTime) -> String {
    match expiry {
        Some(expiry) if expiry <= now => format!("EXPIRED on {}", expiry.date()),
        Some(expiry) => format!(
            "ends on {}, in {} days",
            expiry.date(),
            (expiry - now).whole_days()
        ),
        None => "its end cannot be read".to_owned(),
    }
}

/// What `tls` finds in its files; none where a self-signed authority is yet to be made.
pub(super) fn inspect(
    tls: &Tls,
    provider: &CryptoProvider,
    now: OffsetDateTime,
) -> Result<Option<Usable>, CertificateError> {
    match tls {
        Tls::Files { certificate, key } => {
            let certified = pair::read(certificate, key, provider)?;
            let expiry = expiry(&certified);
            let mut warnings = Vec::new();
            if expiry.is_some_and(|expiry| expiry <= now) {
                warnings.push("the certificate has expired: clients refuse it".to_owned());
            }
            if !is_chain(&certified.cert) {
                warnings.push(UNORDERED_CHAIN.to_owned());
            }
            let names = names(&certified);
            if names.is_empty() {
                warnings.push(
                    "the certificate is for no DNS name or IP address: clients refuse it, as they do not look at its \
                     common name"
                        .to_owned(),
                );
            }
            Ok(Some(Usable {
                description: format!("{}, for {}", ends(expiry, now), names.join(", ")),
                warnings,
            }))
        }
        Tls::SelfSigned(settings) => {
            let authority = Authority::kept(settings).map_err(CertificateError::Authority)?;
            Ok(authority.map(|authority| Usable {
                description: format!(
                    "self-signed, its CA {}",
                    ends(Some(authority.expiry()), now)
                ),
                warnings: Vec::new(),
            }))
        }
    }
}

/// What the server's own certificate is for.
fn names(certified: &CertifiedKey) -> Vec<String> {
    let Some(certificate) = certified.cert.first() else {
        return Vec::new();
    };
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
        return Vec::new();
    };
    let alternative = parsed.subject_alternative_name().ok().flatten();
    let names = alternative
        .iter()
        .flat_map(|names| &names.value.general_names);
    let shown = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes)
                .ok()
                .map(|bytes| IpAddr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes)
                .ok()
                .map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    });
    shown.collect()
}

/// Whether each certificate was issued by the one after it.
fn is_chain(chain: &[CertificateDer<'_>]) -> bool {
    chain.windows(2).all(|pair| {
        let parsed = |der| x509_parser::parse_x509_certificate(der).ok();
        match (parsed(&pair[0]), parsed(&pair[1])) {
            (Some((_, issued)), Some((_, by))) => issued.issuer().as_raw() == by.subject().as_raw(),
            // What x509-parser cannot read, clients may.
            _ => true,
        }
    })
}

fn expiry(certified: &CertifiedKey) -> Option<OffsetDateTime> {
    let certificate = certified.cert.first()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_after.to_datetime())
}

// === impl Source ===

impl Source {
    fn open(tls: Tls) -> Result<Self, CertificateError> {
        match tls {
            Tls::Files { certificate, key } => Ok(Self::Files { certificate, key }),
            Tls::SelfSigned(settings) => {
                let authority = Authority::open(&settings, OffsetDateTime::now_utc())
                    .map_err(CertificateError::Authority)?;
                Ok(Self::SelfSigned {
                    settings,
                    authority: Box::new(Mutex::new((authority, Instant::now()))),
                })
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Files { certificate, .. } => certificate.display().to_string(),
            Self::SelfSigned { .. } => "self-signed".to_owned(),
        }
    }

    fn obtain(&self, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
        match self {
            Self::Files { certificate, key } => pair::read(certificate, key, provider),
            Self::SelfSigned { authority, .. } => {
                let authority = authority.lock().unwrap_or_else(PoisonError::into_inner);
                let (chain, key) = authority
                    .0
                    .issue(OffsetDateTime::now_utc())
                    .map_err(CertificateError::Authority)?;
                CertifiedKey::from_der(chain, key, provider).map_err(CertificateError::Library)
            }
        }
    }
}

// === impl Live ===

impl ResolvesServerCert for Live {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

mod pair;
#[cfg(test)]
mod tests;
