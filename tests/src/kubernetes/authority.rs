//! Certificates for kube-apiserver and its clients, and for Tollgate in tests that bring their own certificate.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A CA that lives as long as a test.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate and its private key, as PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

// === impl Authority ===

impl Authority {
    /// Creates a CA with a new key.
    ///
    /// # Panics
    /// Panics if the system has no randomness.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let key = new_key();
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).expect("a CA can be made").pem();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// The certificate to trust, as PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for a server with these names.
    ///
    /// # Panics
    /// Panics if a name is neither a DNS name nor an IP address.
    #[must_use]
    pub fn server(&self, names: &[&str]) -> Issued {
        self.issue(named("server", names), ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Issues a certificate for a client.
    ///
    /// # Panics
    /// Panics if the system has no randomness.
    #[must_use]
    pub fn client(&self, name: &str) -> Issued {
        self.issue(named(name, &[]), ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Issued {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let key = new_key();
        let certificate = params.signed_by(&key, &self.issuer);
        Issued {
            certificate: certificate.expect("the CA can sign").pem(),
            key: key.serialize_pem(),
        }
    }
}

/// Creates a key pair for signing service-account tokens. Returns the public and the private key as PEM.
///
/// # Panics
/// Panics if the system has no randomness.
#[must_use]
pub fn key_pair() -> (String, String) {
    let key = new_key();
    (key.public_key_pem(), key.serialize_pem())
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("the system has randomness")
}

fn named(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let params = CertificateParams::new(names);
    let mut params = params.expect("they are DNS names and IP addresses");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
