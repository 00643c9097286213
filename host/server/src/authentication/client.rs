//! Client certificates: issued by a configured authority and, if configured, for one of the listed subjects.
//!
//! The handshake verifies a certificate. The host verifies it again at the first request of each connection, after the
//! authorities have changed, and after a minute. The reason is that kube-apiserver keeps its connections for as long as
//! it can. A connection could otherwise stay open after its certificate stopped being accepted. Sessions are not
//! resumed, because a resumed session skips the check in the handshake.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::CryptoProvider,
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};
use time::OffsetDateTime;
use tollgate_config::ClientCertificate;
use tollgate_telemetry::metrics::AuthenticationFailure;
use x509_parser::prelude::{GeneralName, X509Certificate};

use super::{AuthenticationError, read};
use crate::tls::Validity;

/// How long a check stays valid. The certificate may expire within this time.
const CHECK_LIFETIME: Duration = Duration::from_secs(60);

/// The authorities and subjects that are accepted for client certificates.
#[derive(Debug)]
pub(super) struct ClientCertificates {
    path: PathBuf,
    subjects: Vec<String>,
    provider: Arc<CryptoProvider>,
    live: ArcSwap<Trusted>,
}

/// The content of one version of the file.
#[derive(Debug)]
struct Trusted {
    authorities: Vec<CertificateDer<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// The client at the other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: Option<SocketAddr>,
    chain: Vec<CertificateDer<'static>>,
    checked: Mutex<Option<(Arc<Trusted>, Instant)>>,
    rejected: AtomicBool,
}

// === impl Peer ===

impl Peer {
    /// The client's address for limits per peer. All clients without a known address share one.
    pub(crate) fn ip(&self) -> IpAddr {
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        self.address
            .map_or(unknown, |address| address.ip().to_canonical())
    }

    pub(crate) fn new(
        address: Option<SocketAddr>,
        chain: Option<&[CertificateDer<'static>]>,
    ) -> Self {
        Self {
            address,
            chain: chain.unwrap_or_default().to_vec(),
            checked: Mutex::default(),
            rejected: AtomicBool::new(false),
        }
    }

    /// Whether the client's certificate is no longer accepted, so that the connection must close.
    pub(crate) fn is_rejected(&self) -> bool {
        self.rejected.load(Ordering::Relaxed)
    }
}

// === impl ClientCertificates ===

impl ClientCertificates {
    pub(super) fn load(
        settings: &ClientCertificate,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, AuthenticationError> {
        let trusted = Trusted::parse(&settings.ca, provider)?;
        Ok(Self {
            path: settings.ca.clone(),
            subjects: settings.subjects.clone(),
            provider: Arc::clone(provider),
            live: ArcSwap::from_pointee(trusted),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn expiry(&self) -> Option<OffsetDateTime> {
        let live = self.live.load();
        live.authorities
            .iter()
            .filter_map(|der| Some(parsed(der)?.validity().not_after.to_datetime()))
            .min()
    }

    pub(super) fn count(&self) -> usize {
        self.live.load().authorities.len()
    }

    /// Checks that at least one authority is valid now. TLS itself does not check this: it accepts a certificate for as
    /// long as the certificate itself is valid, whatever the validity of its authority.
    pub(super) fn check(&self, now: OffsetDateTime) -> Result<(), AuthenticationError> {
        self.live.load().check(&self.path, now)
    }

    pub(super) fn refresh(&self) -> Result<bool, AuthenticationError> {
        let trusted = Trusted::parse(&self.path, &self.provider)?;
        if trusted.authorities == self.live.load().authorities {
            return Ok(false);
        }
        trusted.check(&self.path, OffsetDateTime::now_utc())?;
        tracing::info!(file = %self.path.display(), authorities = trusted.authorities.len(), "loaded changed client CA certificates");
        self.live.store(Arc::new(trusted));
        Ok(true)
    }

    /// Verifies a connection's certificate again if that is due.
    pub(super) fn recheck(&self, peer: &Peer) -> Result<(), AuthenticationFailure> {
        let live = self.live.load_full();
        let mut checked = peer.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((by, when)) = &*checked
            && Arc::ptr_eq(by, &live)
            && when.elapsed() < CHECK_LIFETIME
        {
            return Ok(());
        }
        let accepted = peer.chain.split_first().is_some_and(|(leaf, between)| {
            self.verify(&live, leaf, between, UnixTime::now()).is_ok()
        });
        if !accepted {
            peer.rejected.store(true, Ordering::Relaxed);
            return Err(AuthenticationFailure::Certificate);
        }
        *checked = Some((live, Instant::now()));
        Ok(())
    }

    fn verify(
        &self,
        trusted: &Trusted,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = trusted
            .verifier
            .verify_client_cert(leaf, intermediates, now)?;
        if self.subjects.is_empty() || is_for(leaf, &self.subjects) {
            Ok(verified)
        } else {
            Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            ))
        }
    }
}

/// Whether the certificate names one of the subjects exactly.
fn is_for(leaf: &CertificateDer<'_>, subjects: &[String]) -> bool {
    let Some(leaf) = parsed(leaf) else {
        return false;
    };
    let wanted = |name: &str| subjects.iter().any(|subject| subject == name);
    let mut common_names = leaf.subject().iter_common_name();
    if common_names.any(|name| name.as_str().is_ok_and(wanted)) {
        return true;
    }
    let alternative = leaf.subject_alternative_name().ok().flatten();
    alternative.is_some_and(|names| {
        names.value.general_names.iter().any(|name| match name {
            GeneralName::DNSName(name) | GeneralName::URI(name) => wanted(name),
            _ => false,
        })
    })
}

fn parsed<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed)
}

impl ClientCertVerifier for ClientCertificates {
    /// Returns an empty list, so that clients may send any certificate. A list could not change while serving.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(&self.live.load(), end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let live = self.live.load();
        live.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let live = self.live.load();
        live.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.live.load().verifier.supported_verify_schemes()
    }
}

// === impl Trusted ===

impl Trusted {
    /// Rejects the authorities if none of them is valid now.
    fn check(&self, path: &Path, now: OffsetDateTime) -> Result<(), AuthenticationError> {
        let is_valid = |authority: &CertificateDer<'_>| {
            Validity::of(authority).is_none_or(|validity| validity.check(now).is_ok())
        };
        if self.authorities.iter().any(is_valid) {
            return Ok(());
        }
        Err(AuthenticationError::ClientCaOutdated {
            path: path.to_owned(),
        })
    }

    fn parse(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Self, AuthenticationError> {
        let refused = |problem| AuthenticationError::ClientCa {
            path: path.to_owned(),
            problem,
        };
        let pem = read("authentication.clientCertificate.ca", path)?;
        let authorities: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .map_err(|_| refused("is not PEM"))?;
        if authorities.is_empty() {
            return Err(refused("holds no certificate"));
        }
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            let parsed = parsed(authority)
                .ok_or_else(|| refused("holds a section that is not an X.509 certificate"))?;
            if !parsed.is_ca() {
                return Err(refused("holds a certificate that is not a CA certificate"));
            }
            roots
                .add(authority.clone())
                .map_err(|_| refused("holds a section that is not an X.509 certificate"))?;
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .build()
                .map_err(|_| refused("holds no certificate"))?;
        Ok(Self {
            authorities,
            verifier,
        })
    }
}
