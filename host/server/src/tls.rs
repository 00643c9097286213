//! The serving certificate, from files or self-signed. Tollgate checks it before serving it. While serving, Tollgate
//! replaces it when the files change or the leaf expires soon.

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
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
use tollgate_config::{SelfSigned, Tls};
use tollgate_telemetry::metrics::Metrics;
use x509_parser::extensions::GeneralName;

use crate::authority;
use crate::authority::{Authority, AuthorityError};
use crate::inspect::Usable;

mod pair;
mod trust;
mod validity;

pub use self::trust::RegisteredAuthorities;
use self::trust::Trust;
pub use self::validity::Outdated;
pub(super) use self::validity::{Validity, moment};

/// Time between reads of the self-signed authority's directory. Another process may have added a successor.
const AUTHORITY_PERIOD: Duration = Duration::from_secs(600);

/// The certificate that is served, and its source.
#[derive(Debug)]
pub(super) struct Certificates {
    source: Source,
    provider: Arc<CryptoProvider>,
    live: Arc<Live>,
    /// Whether a served certificate has been valid at any time since the start.
    was_valid: AtomicBool,
    trust: Trust,
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
        /// The authority, and when its directory was last read; none forces a read. Locked while files are read and
        /// locked.
        authority: Box<Mutex<(Authority, Option<Instant>)>>,
        /// The authority's expiry, readable without waiting for the lock.
        ends: ArcSwap<AuthorityEnds>,
    },
}

/// The expiry of an authority, and when its successor starts to sign.
#[derive(Debug)]
struct AuthorityEnds {
    expiry: OffsetDateTime,
    successor_signs_from: Option<OffsetDateTime>,
}

/// The certificate resolver for rustls. It returns the same certificate for every name.
#[derive(Debug)]
struct Live(ArcSwap<CertifiedKey>);

/// Error when the certificate or its key is unusable.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {path} ({setting})")]
    Read {
        /// The configuration key.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The error from the system.
        source: std::io::Error,
    },
    /// The certificate file is not PEM, or holds no certificate.
    #[error(
        "{path} (tls.certificate) does not hold a certificate: expected PEM with one or more CERTIFICATE sections, the server's own first"
    )]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The error from the parser.
        source: pem::Error,
    },
    /// The key file is not PEM, or holds no key.
    #[error(
        "{path} (tls.key) does not hold a private key: expected PEM with an unencrypted PKCS#8, PKCS#1 or SEC1 key"
    )]
    Key {
        /// The file.
        path: PathBuf,
        /// The error from the parser.
        source: pem::Error,
    },
    /// The key does not belong to the certificate.
    #[error(
        "the key in {key} (tls.key) does not belong to the first certificate in {certificate} (tls.certificate): put \
         the server's own certificate first in the file, and take both files from the same issuance"
    )]
    Mismatch {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// The pair parses but is unusable.
    #[error(
        "{certificate} (tls.certificate) and {key} (tls.key) cannot be used: expected an X.509 v3 certificate and an RSA, ECDSA P-256, P-384 or Ed25519 key"
    )]
    Unusable {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
        /// The error from the TLS library.
        source: rustls::Error,
    },
    /// The certificate is not valid now.
    #[error(
        "{certificate} (tls.certificate) {outdated}: clients reject it; replace it and its key with a pair that is \
         valid today"
    )]
    Outdated {
        /// The certificate file.
        certificate: PathBuf,
        /// The reason: expired or not valid yet.
        outdated: Outdated,
    },
    /// The self-signed authority is not valid now.
    #[error(
        "{certificate} (tls.selfSigned.directory) {outdated}: clients reject the certificates that it signs; put a \
         ca.crt and ca.key there that are valid today, or restart with a writable directory and register the ca.crt \
         that Tollgate creates there as caBundle"
    )]
    AuthorityOutdated {
        /// The authority's certificate.
        certificate: PathBuf,
        /// The reason: expired or not valid yet.
        outdated: Outdated,
    },
    /// The self-signed certificate cannot be created.
    #[error("cannot create a self-signed certificate (tls.selfSigned)")]
    Authority(#[source] AuthorityError),
    /// The TLS library cannot be set up.
    #[error("cannot set up TLS: this is a defect of Tollgate or of the system's random source")]
    Library(#[source] rustls::Error),
}

// === impl Certificates ===

impl Certificates {
    /// Loads the certificate. `clients` verifies client certificates. Without it, the server asks for none.
    pub(super) async fn load(
        tls: &Tls,
        provider: Arc<CryptoProvider>,
        clients: Option<Arc<dyn ClientCertVerifier>>,
        metrics: &Metrics,
    ) -> Result<Self, CertificateError> {
        let (tls, of) = (tls.clone(), Arc::clone(&provider));
        // Not on the runtime's threads: another process may hold the authority's lock or write the files for a moment.
        let obtained = spawn_blocking(move || {
            let source = Source::open(tls)?;
            let certified = source.obtain(&of)?;
            Ok((source, certified))
        });
        let (source, certified) = obtained
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let checked = source.check(&certified, OffsetDateTime::now_utc());
        announce(&source, &certified, metrics);
        if let Err(error) = &checked {
            // The operator can replace the certificate while the server waits, because the files are read again.
            let error = error as &dyn std::error::Error;
            tracing::error!(error, "not ready until the certificate is valid");
        }
        let live = Arc::new(Live(ArcSwap::from_pointee(certified)));
        let mut config = server_config(&provider, &live, clients)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            source,
            provider,
            live,
            was_valid: AtomicBool::new(checked.is_ok()),
            trust: Trust::new(None),
            config: Arc::new(config),
        })
    }

    /// Lets new certificates wait until kube-apiserver trusts them.
    #[must_use]
    pub(super) fn registered_with(self, authorities: Option<RegisteredAuthorities>) -> Self {
        Self {
            trust: Trust::new(authorities),
            ..self
        }
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// The acceptor for the admin listener. It serves the same certificate but verifies client certificates separately.
    pub(super) fn admin_acceptor(
        &self,
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<TlsAcceptor, CertificateError> {
        let config = server_config(&self.provider, &self.live, clients)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    pub(super) fn ca_bundle(&self) -> Option<PathBuf> {
        match &self.source {
            Source::Files { .. } => None,
            Source::SelfSigned { settings, .. } => Some(authority::bundle_path(settings)),
        }
    }

    /// Lines for `/readyz` about the certificates.
    pub(super) fn detail(&self, now: OffsetDateTime) -> Vec<String> {
        let live = self.live.0.load();
        let mut lines = vec![format!(
            "certificate {}: {}",
            self.source.name(),
            ends(expiry(&live), now)
        )];
        if let Source::SelfSigned {
            settings,
            ends: authority_ends,
            ..
        } = &self.source
        {
            let authority_ends = authority_ends.load();
            let path = authority::bundle_path(settings);
            lines.push(format!(
                "authority {}: {}",
                path.display(),
                ends(Some(authority_ends.expiry), now)
            ));
            if let Some(from) = authority_ends.successor_signs_from {
                lines.push(format!(
                    "authority {}: its successor is in the same file and signs from {} on; register the file as \
                     caBundle before then",
                    path.display(),
                    from.date()
                ));
            }
        }
        lines
    }

    /// The reason why the server must not be called: its first certificate is not valid, and no valid one has replaced
    /// it. A certificate that expires while it is served is not a reason. If the server became unready then,
    /// kube-apiserver would report missing endpoints instead of the expired certificate.
    pub(super) fn unusable(&self, now: OffsetDateTime) -> Option<String> {
        if self.was_valid.load(Ordering::Relaxed) {
            return None;
        }
        match self.source.check(&self.live.0.load(), now) {
            Ok(()) => {
                self.was_valid.store(true, Ordering::Relaxed);
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Replaces the served certificate if a newer valid one exists. Returns true if it did.
    pub(super) fn refresh(&self, metrics: &Metrics) -> Result<bool, CertificateError> {
        self.refresh_at(metrics, OffsetDateTime::now_utc())
    }

    fn refresh_at(&self, metrics: &Metrics, now: OffsetDateTime) -> Result<bool, CertificateError> {
        let live = self.live.0.load();
        let certified = match &self.source {
            Source::Files { certificate, key } => pair::read(certificate, key, &self.provider)?,
            Source::SelfSigned {
                settings,
                authority,
                ends,
            } => {
                let Some(certified) = renewed(
                    settings,
                    authority,
                    ends,
                    expiry(&live),
                    &self.provider,
                    now,
                )?
                else {
                    return Ok(false);
                };
                certified
            }
        };
        if certified.cert == live.cert {
            return Ok(false);
        }
        self.source.check(&certified, now)?;
        if self.trust.must_wait(&live, &certified, &self.provider, now) {
            return Ok(false);
        }
        announce(&self.source, &certified, metrics);
        let lost = validity::missing(&names(&live.cert), &names(&certified.cert));
        if !lost.is_empty() {
            tracing::warn!(
                certificate = self.source.name(),
                lost = lost.join(", "),
                "the new certificate lacks names that the previous one covers; clients that call by these names \
                 reject it"
            );
        }
        self.was_valid.store(true, Ordering::Relaxed);
        self.live.0.store(Arc::new(certified));
        Ok(true)
    }
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    live: &Arc<Live>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, CertificateError> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(CertificateError::Library)?;
    let resumes = clients.is_none();
    let mut config = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients),
        None => builder.with_no_client_auth(),
    }
    .with_cert_resolver(Arc::clone(live) as Arc<dyn ResolvesServerCert>);
    if resumes {
        // Tickets need no memory here. A resumed session skips the signature, which is the main cost of a handshake.
        config.ticketer = ring::Ticketer::new().map_err(CertificateError::Library)?;
    } else {
        // A resumed session would skip the check of the client's certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// Reads the authority's directory if that is due, and issues a new leaf if one is needed. An authority that is not
/// valid now does not replace the previous one.
fn renewed(
    settings: &SelfSigned,
    authority: &Mutex<(Authority, Option<Instant>)>,
    ends: &ArcSwap<AuthorityEnds>,
    leaf_expiry: Option<OffsetDateTime>,
    provider: &CryptoProvider,
    now: OffsetDateTime,
) -> Result<Option<CertifiedKey>, CertificateError> {
    let mut held = authority.lock().unwrap_or_else(PoisonError::into_inner);
    if held
        .1
        .is_some_and(|checked_at| checked_at.elapsed() < AUTHORITY_PERIOD)
    {
        return Ok(None);
    }
    let authority = Authority::open(settings, now).map_err(CertificateError::Authority)?;
    let is_same = authority.is_same(&held.0);
    let renewed = !is_same || leaf_expiry.is_none_or(|expiry| authority.is_due(expiry, now));
    let certified = renewed
        .then(|| issue(settings, &authority, provider, now))
        .transpose()?;
    ends.store(Arc::new(AuthorityEnds::of(&authority)));
    *held = (authority, Some(Instant::now()));
    Ok(certified)
}

/// Issues a leaf, if the authority is valid now.
fn issue(
    settings: &SelfSigned,
    authority: &Authority,
    provider: &CryptoProvider,
    now: OffsetDateTime,
) -> Result<CertifiedKey, CertificateError> {
    let validity = Validity::new(authority.begin(), authority.expiry());
    validity
        .check(now)
        .map_err(|outdated| CertificateError::AuthorityOutdated {
            certificate: authority::bundle_path(settings),
            outdated,
        })?;
    leaf(authority, provider, now)
}

fn leaf(
    authority: &Authority,
    provider: &CryptoProvider,
    now: OffsetDateTime,
) -> Result<CertifiedKey, CertificateError> {
    let (chain, key) = authority.issue(now).map_err(CertificateError::Authority)?;
    CertifiedKey::from_der(chain, key, provider).map_err(CertificateError::Library)
}

fn announce(source: &Source, certified: &CertifiedKey, metrics: &Metrics) {
    if let Source::SelfSigned { settings, ends, .. } = source {
        let path = authority::bundle_path(settings);
        metrics.certificate(Some(&path), ends.load().expiry.unix_timestamp());
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
    for warning in validity::warnings(&certified.cert, OffsetDateTime::now_utc()) {
        tracing::warn!(%certificate, "{warning}");
    }
    tracing::info!(%certificate, %expiry, "serving a certificate");
}

/// Describes the expiry of a certificate for people.
pub(super) fn ends(expiry: Option<OffsetDateTime>, now: OffsetDateTime) -> String {
    match expiry {
        Some(expiry) if expiry <= now => format!("EXPIRED on {}", expiry.date()),
        Some(expiry) => format!(
            "expires on {}, in {} days",
            expiry.date(),
            (expiry - now).whole_days()
        ),
        None => "its expiry cannot be read".to_owned(),
    }
}

/// Reads the files of `tls` for `tollgate check`. Returns none if there is no self-signed authority yet.
pub(super) fn inspect(
    tls: &Tls,
    provider: &CryptoProvider,
    now: OffsetDateTime,
) -> Result<Option<Usable>, CertificateError> {
    match tls {
        Tls::Files { certificate, key } => {
            let source = Source::Files {
                certificate: certificate.clone(),
                key: key.clone(),
            };
            let certified = pair::read(certificate, key, provider)?;
            source.check(&certified, now)?;
            let warnings = validity::warnings(&certified.cert, now);
            Ok(Some(Usable {
                description: format!(
                    "{}, for {}",
                    ends(expiry(&certified), now),
                    names(&certified.cert).join(", ")
                ),
                warnings: warnings.into_iter().map(str::to_owned).collect(),
            }))
        }
        Tls::SelfSigned(settings) => {
            let authority = Authority::kept(settings).map_err(CertificateError::Authority)?;
            let Some(authority) = authority else {
                return Ok(None);
            };
            issue(settings, &authority, provider, now)?;
            Ok(Some(Usable {
                description: format!(
                    "self-signed, its CA {}",
                    ends(Some(authority.expiry()), now)
                ),
                warnings: Vec::new(),
            }))
        }
    }
}

/// The names that the server's own certificate covers.
fn names(chain: &[CertificateDer<'_>]) -> Vec<String> {
    let Some(certificate) = chain.first() else {
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
                    ends: ArcSwap::from_pointee(AuthorityEnds::of(&authority)),
                    authority: Box::new(Mutex::new((authority, Some(Instant::now())))),
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

    /// Obtains the first certificate to serve, even if it is not valid, because there is no other.
    fn obtain(&self, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
        match self {
            Self::Files { certificate, key } => pair::read(certificate, key, provider),
            Self::SelfSigned { authority, .. } => {
                let authority = authority.lock().unwrap_or_else(PoisonError::into_inner);
                leaf(&authority.0, provider, OffsetDateTime::now_utc())
            }
        }
    }

    /// Checks whether the server's own certificate is valid now. The rest of the chain is left to the client, which may
    /// know another path to its CA.
    fn check(&self, certified: &CertifiedKey, now: OffsetDateTime) -> Result<(), CertificateError> {
        let Some(validity) = certified.cert.first().and_then(Validity::of) else {
            return Ok(());
        };
        let Err(outdated) = validity.check(now) else {
            return Ok(());
        };
        Err(match self {
            Self::Files { certificate, .. } => CertificateError::Outdated {
                certificate: certificate.clone(),
                outdated,
            },
            // A leaf is valid only as long as the authority that signed it.
            Self::SelfSigned { settings, .. } => CertificateError::AuthorityOutdated {
                certificate: authority::bundle_path(settings),
                outdated,
            },
        })
    }
}

// === impl AuthorityEnds ===

impl AuthorityEnds {
    fn of(authority: &Authority) -> Self {
        Self {
            expiry: authority.expiry(),
            successor_signs_from: authority.successor_signs_from(),
        }
    }
}

// === impl Live ===

impl ResolvesServerCert for Live {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

#[cfg(test)]
mod tests;
