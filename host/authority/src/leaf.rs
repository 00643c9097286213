//! Certificates for servers.

use std::net::IpAddr;

use rcgen::{KeyPair, PublicKeyData};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use time::{Duration, OffsetDateTime};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::X509Certificate;

use super::{LAST_MOMENT, Unreadable, certificate_pem, section};

/// Remaining lifetime at which a leaf is replaced.
const LEAF_RESERVE: Duration = Duration::days(30);

/// A certificate for a server, with its key.
#[derive(Debug)]
pub struct Leaf {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// The private key of the certificate.
    pub key: PrivateKeyDer<'static>,
}

/// Returns whether a leaf that ends at `expiry` must be replaced: it expires soon, and a new leaf would last longer.
///
/// `authority_expiry` is the end of the certificate that signs.
#[must_use]
pub fn is_leaf_due(
    expiry: OffsetDateTime,
    authority_expiry: OffsetDateTime,
    now: OffsetDateTime,
) -> bool {
    expiry - now < LEAF_RESERVE && authority_expiry - expiry > LAST_MOMENT
}

// === impl Leaf ===

impl Leaf {
    /// Reads a leaf from PEM.
    ///
    /// # Errors
    ///
    /// When the texts are not a certificate and its key.
    pub fn read(certificate: &str, key: &str) -> Result<Self, Unreadable> {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| Unreadable::Bundle)?;
        let key = KeyPair::from_pem(key).map_err(|_| Unreadable::Key)?;
        let parsed = parse(&certificate).ok_or(Unreadable::Certificate)?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(Unreadable::Mismatch);
        }
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok(Self {
            certificate,
            key: key.into(),
        })
    }

    /// The end of the certificate's validity.
    #[must_use]
    pub fn expiry(&self) -> OffsetDateTime {
        parse(&self.certificate).map_or(OffsetDateTime::UNIX_EPOCH, |parsed| {
            parsed.validity().not_after.to_datetime()
        })
    }

    /// Whether the certificate has each of the DNS names and IP addresses.
    #[must_use]
    pub fn covers(&self, names: &[String]) -> bool {
        let Some(parsed) = parse(&self.certificate) else {
            return false;
        };
        let own = parsed.subject_alternative_name().ok().flatten();
        let own = own.map(|names| names.value.general_names.as_slice());
        let has = |name: &String| {
            let address: Option<IpAddr> = name.parse().ok();
            own.unwrap_or_default().iter().any(|own| match own {
                GeneralName::DNSName(own) => own == name,
                GeneralName::IPAddress(own) => match address {
                    Some(IpAddr::V4(address)) => address.octets() == **own,
                    Some(IpAddr::V6(address)) => address.octets() == **own,
                    None => false,
                },
                _ => false,
            })
        };
        names.iter().all(has)
    }

    /// The PEM of the certificate.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        certificate_pem(&self.certificate)
    }

    /// The PEM of the private key.
    #[must_use]
    pub fn key_pem(&self) -> String {
        section("PRIVATE KEY", self.key.secret_der())
    }
}

/// The identifier of the key that signed the certificate.
pub(crate) fn issuer_identifier(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    identifier(certificate, |extension| match extension {
        ParsedExtension::AuthorityKeyIdentifier(issuer) => {
            issuer.key_identifier.as_ref().map(|key| key.0.to_vec())
        }
        _ => None,
    })
}

/// The identifier of the certificate's own key.
pub(crate) fn own_identifier(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    identifier(certificate, |extension| match extension {
        ParsedExtension::SubjectKeyIdentifier(own) => Some(own.0.to_vec()),
        _ => None,
    })
}

fn identifier(
    certificate: &CertificateDer<'_>,
    of: impl Fn(&ParsedExtension<'_>) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let parsed = parse(certificate)?;
    let mut extensions = parsed.extensions().iter();
    extensions.find_map(|extension| of(extension.parsed_extension()))
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed)
}
