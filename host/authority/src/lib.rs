//! Tollgate's own certificate authority, for servers without a configured certificate.
//!
//! An [`Authority`] is a value: it does no IO and takes the time as an argument. `tollgate-server` keeps it in a
//! directory, and `tollgate-cluster` in a Secret. The authority is reused, because its certificate is registered as
//! `caBundle`.
//!
//! Half a year before the authority expires, it gets a successor. The bundle holds every certificate that clients must
//! trust. The successor starts to sign 30 days later, which leaves time to register it everywhere:
//!
//! ```text
//! bundle   first           first, next                        first, next        next
//! key      first           first                              next               next
//!          ──────── half a year before its end ── 30 days later ──── first has ended ──▶
//! ```
//!
//! The key determines which certificate of the bundle signs.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, pem::PemObject};
use time::{Duration, OffsetDateTime};

#[cfg(test)]
mod tests;

mod leaf;

pub use self::leaf::{Leaf, is_leaf_due};

/// Tolerance for clocks in a cluster that differ a little.
const CLOCK_SKEW: Duration = Duration::hours(1);

/// Lifetime of an authority. The lifetime is long because a new authority must be registered as `caBundle` everywhere.
const AUTHORITY_LIFETIME: Duration = Duration::days(3650);

/// Remaining lifetime at which an authority gets a successor.
const AUTHORITY_RESERVE: Duration = Duration::days(180);

/// Time between adding the successor to the bundle and its first signature, so that it can be registered as
/// `caBundle`.
const OVERLAP: Duration = Duration::days(30);

/// Remaining lifetime at which the successor signs at once, even if it may not be registered yet.
const LAST_MOMENT: Duration = Duration::days(1);

const LEAF_LIFETIME: Duration = Duration::days(90);

/// An authority: the certificates that clients must trust, the key that signs, and the key that signs next.
#[derive(Debug)]
pub struct Authority {
    bundle: Vec<Member>,
    key: KeyPair,
    next: Option<KeyPair>,
}

/// A certificate of the bundle.
#[derive(Debug)]
struct Member {
    certificate: CertificateDer<'static>,
    public_key: Vec<u8>,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

/// One change of an authority. The code that stores the authority writes each step, in an order that never leaves a key
/// without its certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// The bundle has a successor, which signs from a moment on. Write its key before the bundle.
    SuccessorAdded {
        /// The moment from which the successor signs.
        signs_from: OffsetDateTime,
    },
    /// The successor's key is now the key that signs. The bundle is unchanged.
    SuccessorSigns,
    /// Expired certificates left the bundle. The keys are unchanged.
    ExpiredRemoved,
}

/// The stored texts do not form an authority.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unreadable {
    /// The bundle holds no certificate.
    #[error("the bundle is not a PEM certificate")]
    Bundle,
    /// A section of the bundle is not a certificate.
    #[error("the bundle is not an X.509 certificate")]
    Certificate,
    /// A certificate of the bundle may not sign others.
    #[error("the bundle is not a CA certificate")]
    NoAuthority,
    /// The key cannot be read.
    #[error("the key is not a PEM private key")]
    Key,
    /// The successor's key cannot be read.
    #[error("the successor's key is not a PEM private key")]
    NextKey,
    /// No certificate has the key.
    #[error("the key does not belong to a certificate")]
    Mismatch,
}

/// A certificate cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot create a certificate: its names must be DNS names or IP addresses")]
pub struct IssueError(#[from] rcgen::Error);

// === impl Authority ===

impl Authority {
    /// Creates an authority that is valid from now on.
    ///
    /// # Errors
    ///
    /// When the system has no random numbers.
    pub fn create(now: OffsetDateTime) -> Result<Self, IssueError> {
        let (key, member) = new_member(now)?;
        Ok(Self {
            bundle: vec![member],
            key,
            next: None,
        })
    }

    /// Reads an authority from PEM. A successor's key without a certificate is dropped: a killed process may have left
    /// it.
    ///
    /// # Errors
    ///
    /// When the texts do not form an authority.
    pub fn read(bundle: &str, key: &str, next_key: Option<&str>) -> Result<Self, Unreadable> {
        let key = KeyPair::from_pem(key).map_err(|_| Unreadable::Key)?;
        let bundle: Vec<_> = CertificateDer::pem_slice_iter(bundle.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|_| Unreadable::Bundle)?;
        if bundle.is_empty() {
            return Err(Unreadable::Bundle);
        }
        let bundle = bundle
            .into_iter()
            .map(Member::read)
            .collect::<Result<_, _>>()?;
        let next = next_key
            .map(|pem| KeyPair::from_pem(pem).map_err(|_| Unreadable::NextKey))
            .transpose()?;
        let mut authority = Self {
            bundle,
            key,
            next: None,
        };
        if authority.member_of(&authority.key).is_none() {
            return Err(Unreadable::Mismatch);
        }
        authority.next = next.filter(|next| authority.member_of(next).is_some());
        Ok(authority)
    }

    /// Makes the next change that is due: adds a successor, lets it sign, or removes expired certificates. Returns none
    /// if nothing is due.
    ///
    /// # Errors
    ///
    /// When the system has no random numbers.
    pub fn advance(&mut self, now: OffsetDateTime) -> Result<Option<Step>, IssueError> {
        let left = self.expiry() - now;
        if left < AUTHORITY_RESERVE && self.next.is_none() {
            let (key, member) = new_member(now)?;
            let signs_from = member.signs_from();
            self.bundle.push(member);
            self.next = Some(key);
            return Ok(Some(Step::SuccessorAdded { signs_from }));
        }
        let is_due = |from: OffsetDateTime| left < LAST_MOMENT || from <= now;
        if self.successor_signs_from().is_some_and(is_due)
            && let Some(key) = self.next.take()
        {
            self.key = key;
            return Ok(Some(Step::SuccessorSigns));
        }
        let count = self.bundle.len();
        let keys = [Some(&self.key), self.next.as_ref()];
        let in_use: Vec<Vec<u8>> = keys
            .into_iter()
            .flatten()
            .map(PublicKeyData::subject_public_key_info)
            .collect();
        self.bundle
            .retain(|member| member.not_after > now || in_use.contains(&member.public_key));
        Ok((self.bundle.len() < count).then_some(Step::ExpiredRemoved))
    }

    /// Issues a new leaf for DNS names and IP addresses. It ends with the authority at the latest.
    ///
    /// # Errors
    ///
    /// When a name is neither.
    pub fn issue(&self, names: &[String], now: OffsetDateTime) -> Result<Leaf, IssueError> {
        let issuer = Issuer::from_ca_cert_der(self.certificate(), &self.key)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = common_name("Tollgate");
        params.not_before = now - CLOCK_SKEW;
        params.not_after = (now + LEAF_LIFETIME).min(self.expiry());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&key, &issuer)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok(Leaf {
            certificate: leaf.der().clone(),
            key: key.into(),
        })
    }

    /// The PEM of every certificate that clients must trust.
    #[must_use]
    pub fn bundle_pem(&self) -> String {
        self.bundle
            .iter()
            .map(|member| certificate_pem(&member.certificate))
            .collect()
    }

    /// The PEM of the key that signs.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// The PEM of the key that signs next.
    #[must_use]
    pub fn next_key_pem(&self) -> Option<String> {
        self.next.as_ref().map(KeyPair::serialize_pem)
    }

    /// The certificate that signs.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.signer().certificate
    }

    /// The start of the signing certificate's validity.
    #[must_use]
    pub fn begin(&self) -> OffsetDateTime {
        self.signer().not_before
    }

    /// The end of the signing certificate's validity.
    #[must_use]
    pub fn expiry(&self) -> OffsetDateTime {
        self.signer().not_after
    }

    /// When the successor starts to sign. The successor must be registered as `caBundle` by then.
    #[must_use]
    pub fn successor_signs_from(&self) -> Option<OffsetDateTime> {
        let next = self.next.as_ref()?;
        self.member_of(next).map(Member::signs_from)
    }

    /// Whether a certificate of the bundle has signed the leaf, as far as the identifiers of their keys tell.
    #[must_use]
    pub fn has_issued(&self, leaf: &Leaf) -> bool {
        let Some(issuer) = leaf::issuer_identifier(&leaf.certificate) else {
            return false;
        };
        let own = |member: &Member| leaf::own_identifier(&member.certificate);
        self.bundle
            .iter()
            .any(|member| own(member).as_ref() == Some(&issuer))
    }

    fn signer(&self) -> &Member {
        self.member_of(&self.key)
            .expect("every constructor and every step keeps the certificate of the key")
    }

    fn member_of(&self, key: &KeyPair) -> Option<&Member> {
        let public_key = key.subject_public_key_info();
        self.bundle
            .iter()
            .find(|member| member.public_key == public_key)
    }
}

// === impl Member ===

impl Member {
    fn read(certificate: CertificateDer<'static>) -> Result<Self, Unreadable> {
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|_| Unreadable::Certificate)?;
        if !parsed.is_ca() {
            return Err(Unreadable::NoAuthority);
        }
        let public_key = parsed.public_key().raw.to_vec();
        let validity = parsed.validity();
        let (not_before, not_after) = (
            validity.not_before.to_datetime(),
            validity.not_after.to_datetime(),
        );
        Ok(Self {
            public_key,
            not_before,
            not_after,
            certificate,
        })
    }

    fn signs_from(&self) -> OffsetDateTime {
        self.not_before + CLOCK_SKEW + OVERLAP
    }
}

fn new_member(now: OffsetDateTime) -> Result<(KeyPair, Member), IssueError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("Tollgate self-signed authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + AUTHORITY_LIFETIME;
    let certificate = params.self_signed(&key)?;
    let member = Member::read(certificate.der().clone())
        .expect("rcgen writes an X.509 certificate with the given constraints");
    Ok((key, member))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, name);
    distinguished_name
}

pub(crate) fn certificate_pem(certificate: &CertificateDer<'_>) -> String {
    section("CERTIFICATE", certificate.as_ref())
}

pub(crate) fn section(tag: &str, bytes: &[u8]) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(tag, bytes), lines)
}
