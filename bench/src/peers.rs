//! The peers: webhooks as people write them, without a plugin host.
//!
//! - `peer-controller-runtime` (`bench/peers/controller-runtime`): Go, a typed Pod, `admission.Validator`.
//! - `peer-kube-rs` (`bench/peers/kube-rs`): Rust, a typed Pod, kube-rs' admission types. With `--floor` the same
//!   server reads each body and does not parse it.
//!
//! Both take the configuration file of the host, and make the check of its only plugin.

use std::path::PathBuf;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tollgate_tests::binary::profile_directory;
use tollgate_tests::server::Start;

use crate::servers::Side;

/// A CA, and a certificate for loopback that the peers share. The host and the native control create their own.
pub struct Certificates {
    folder: TempDir,
}

// === impl Side ===

impl Side {
    /// The peers.
    pub const PEERS: [Self; 3] = [Self::ControllerRuntime, Self::KubeRs, Self::Floor];

    /// The program of a peer.
    #[must_use]
    pub fn peer(self) -> Option<PathBuf> {
        let name = match self {
            Self::ControllerRuntime => "peer-controller-runtime",
            Self::KubeRs | Self::Floor => "peer-kube-rs",
            Self::Host | Self::Known | Self::New | Self::Native | Self::Empty => return None,
        };
        Some(profile_directory().join(name))
    }

    /// Whether the program of a peer has been built. The other sides are built whenever this program is.
    #[must_use]
    pub fn is_built(self) -> bool {
        self.peer().is_none_or(|program| program.is_file())
    }
}

// === impl Certificates ===

impl Certificates {
    /// Creates the certificates in a temporary folder.
    ///
    /// # Errors
    /// Fails if the folder cannot be created or written to.
    pub fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
        let authority_key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = parameters.self_signed(&authority_key)?;
        let issuer = Issuer::new(parameters, authority_key);
        // ECDSA with P-256, as the host's own certificate.
        let key = KeyPair::generate()?;
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        let leaf = leaf.signed_by(&key, &issuer)?;
        for (name, text) in [
            ("ca.crt", authority.pem()),
            ("tls.crt", leaf.pem()),
            ("tls.key", key.serialize_pem()),
        ] {
            let file = folder.path().join(name);
            std::fs::write(&file, text)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(Self { folder })
    }

    /// Has a peer serve the certificate, and its clients trust it.
    #[must_use]
    pub fn give(&self, start: Start) -> Start {
        let folder = self.folder.path();
        start
            .argument("--tls")
            .argument(&folder.display().to_string())
            .trusting(folder.join("ca.crt"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_peers_have_a_program_of_their_own() {
        for side in Side::PEERS {
            let program = side.peer().unwrap();
            assert!(program.starts_with(profile_directory()), "{program:?}");
        }
        for side in [
            Side::Host,
            Side::Known,
            Side::New,
            Side::Native,
            Side::Empty,
        ] {
            assert!(side.peer().is_none() && side.is_built(), "{side:?}");
        }
    }

    #[test]
    fn certificates_are_where_the_peers_look() {
        let certificates = Certificates::new().unwrap();
        for name in ["ca.crt", "tls.crt", "tls.key"] {
            let text = std::fs::read_to_string(certificates.folder.path().join(name)).unwrap();
            assert!(text.starts_with("-----BEGIN "), "{name}");
        }
    }
}
