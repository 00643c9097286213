//! Verifies keyless signatures: bundles with a short-lived certificate that names an identity.
//!
//! `sigstore-verify` verifies the signature itself, and the certificate's chain up to a trusted root at every proven
//! time of the signature. It also verifies the certificate's entry in a certificate log, and the signature's entry in a
//! transparency log with its checkpoint. All of this works offline, with a trusted root from a file or from a
//! kept copy of a TUF repository.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::{Bundle, Sha256Hash, SignatureContent};
use sigstore_verify::{VerificationPolicy, VerificationResult, Verifier};
use time::OffsetDateTime;

use super::{provider, shown};
use crate::RegistryError;
use crate::causes::RootProblem;

/// A trusted root: the authorities and logs that prove identities and times.
#[derive(Clone)]
pub(crate) struct Root {
    verifier: Arc<Verifier>,
    policy: VerificationPolicy,
    /// SHA-256 of its text.
    digest: [u8; 32],
    /// Where it comes from, as people read it.
    place: String,
}

/// A verified identity.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Certified {
    /// The identity: an email address or a URI.
    pub(super) subject: String,
    /// The issuer of the identity.
    pub(super) issuer: String,
    /// The time at which the certificate was issued. The signature cannot be older.
    pub(super) issued: OffsetDateTime,
}

/// The media types of trusted roots.
const MEDIA_TYPES: [&str; 2] = [
    "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
    "application/vnd.dev.sigstore.trustedroot.v0.2+json",
];

// === impl Root ===

impl Root {
    /// Reads a trusted root from a file.
    pub(super) fn read(path: &Path) -> Result<Self, RegistryError> {
        let failed = |problem: RootProblem| RegistryError::Root {
            path: path.to_owned(),
            problem,
        };
        let text =
            tollgate_config::file::read(path).map_err(|error| failed(RootProblem::Read(error)))?;
        let root = Self::of(&text).map_err(|message| failed(RootProblem::Invalid(message)))?;
        Ok(root.at_place(path.display().to_string()))
    }

    /// The same root, with where it comes from.
    pub(crate) fn at_place(self, place: String) -> Self {
        Self { place, ..self }
    }

    /// Where it comes from, as people read it.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Reads a trusted root. Fails with the reason.
    pub(crate) fn of(text: &[u8]) -> Result<Self, String> {
        provider::install();
        let root: TrustedRoot =
            serde_json::from_slice(text).map_err(|error| shown(&error.to_string()))?;
        if !MEDIA_TYPES.contains(&root.media_type.as_str()) {
            return Err(format!("its mediaType is {}", shown(&root.media_type)));
        }
        if root.certificate_authorities.is_empty() {
            return Err("it has no certificateAuthorities".to_owned());
        }
        if root.tlogs.is_empty() && root.timestamp_authorities.is_empty() {
            return Err(
                "it has neither tlogs nor timestampAuthorities, so no time can be proven"
                    .to_owned(),
            );
        }
        // What the root has is required. An installation without a certificate log has no key for one in its root.
        let policy = VerificationPolicy::any_identity();
        let policy = match root.ctlogs.is_empty() {
            true => policy.skip_sct(),
            false => policy,
        };
        let policy = match root.tlogs.is_empty() {
            true => policy.skip_tlog_unsafe(),
            false => policy,
        };
        Ok(Self {
            verifier: Arc::new(Verifier::new(&root).map_err(|error| shown(&error.to_string()))?),
            policy,
            digest: Sha256::digest(text).into(),
            place: String::new(),
        })
    }

    /// SHA-256 of the text that it was read from.
    pub(crate) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Verifies a bundle about the manifest with this digest. Returns the identity and the signed payload, or the reason
    /// why the bundle is not valid.
    pub(crate) fn verify(
        &self,
        bundle: &[u8],
        digest: &str,
    ) -> Result<(Certified, Vec<u8>), String> {
        let text = std::str::from_utf8(bundle).map_err(|_| "it is not UTF-8".to_owned())?;
        let bundle = Bundle::from_json(text).map_err(|error| error.to_string())?;
        let SignatureContent::DsseEnvelope(envelope) = &bundle.content else {
            return Err("it signs a file and not a statement".to_owned());
        };
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        let digest = Sha256Hash::from_hex(hex).map_err(|error| error.to_string())?;
        let verified = self
            .verifier
            .verify(digest, &bundle, &self.policy)
            .map_err(|error| error.to_string())?;
        let certified = Certified::of(&verified)?;
        Ok((certified, envelope.payload.as_bytes().to_vec()))
    }

    /// Verifies a bundle about a file or the subject of a statement, which no artifact has.
    #[cfg(test)]
    pub(super) fn verify_file(&self, bundle: &[u8], file: &[u8]) -> Result<Certified, String> {
        provider::texts::remember(file);
        let text = std::str::from_utf8(bundle).map_err(|error| error.to_string())?;
        let bundle = Bundle::from_json(text).map_err(|error| error.to_string())?;
        let verified = self
            .verifier
            .verify(file, &bundle, &self.policy)
            .map_err(|error| error.to_string())?;
        Certified::of(&verified)
    }
}

// === impl Certified ===

impl Certified {
    fn of(verified: &VerificationResult) -> Result<Self, String> {
        let certificate = verified
            .certificate()
            .filter(|_| verified.certificate_verified());
        let certificate = certificate.ok_or("it has no certificate")?;
        let subject = verified
            .identity()
            .ok_or("its certificate names no identity")?;
        let issuer = verified.issuer().ok_or("its certificate names no issuer")?;
        let issued = OffsetDateTime::from_unix_timestamp(certificate.not_before.as_second())
            .map_err(|error| error.to_string())?;
        Ok(Self {
            subject: subject.as_str().to_owned(),
            issuer: issuer.to_owned(),
            issued,
        })
    }
}
