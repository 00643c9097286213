//! Public keys, and the signatures that they verify.

use std::path::Path;

use ed25519_dalek::VerifyingKey;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use sha2::{Digest as _, Sha256, Sha512};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::RegistryError;
use crate::causes::KeysProblem;

/// A public key for checking signatures.
#[derive(Clone)]
pub(crate) struct PublicKey {
    /// The name of the key in messages: the beginning of its SHA-256.
    pub(super) fingerprint: String,
    kind: Kind,
    bytes: Vec<u8>,
}

/// The kind of a key, which decides how its signatures are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    P256,
    P384,
    Ed25519,
    Rsa,
}

const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";
const EC: &str = "1.2.840.10045.2.1";
const RSA: &str = "1.2.840.113549.1.1.1";
const EDWARDS: &str = "1.3.101.112";

// === impl PublicKey ===

impl PublicKey {
    /// Reads keys from a PEM file, which may hold several.
    pub(super) fn read(path: &Path) -> Result<Vec<Self>, RegistryError> {
        let failed = |problem: KeysProblem| RegistryError::Keys {
            path: path.to_owned(),
            problem,
        };
        let bytes =
            tollgate_config::file::read(path).map_err(|error| failed(KeysProblem::Read(error)))?;
        let sections = pem::parse_many(&bytes).map_err(|error| failed(KeysProblem::Pem(error)))?;
        let sections = sections
            .iter()
            .filter(|section| section.tag() == "PUBLIC KEY");
        let keys = sections.map(|section| {
            let key = Self::of(section.contents());
            key.ok_or_else(|| failed(KeysProblem::Kind))
        });
        let keys: Vec<Self> = keys.collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err(failed(KeysProblem::Empty));
        }
        Ok(keys)
    }

    /// Reads a key from its `SubjectPublicKeyInfo`. None for a key of an unsupported kind.
    pub(crate) fn of(der: &[u8]) -> Option<Self> {
        let (_, key) = SubjectPublicKeyInfo::from_der(der).ok()?;
        let parameter = || key.algorithm.parameters.as_ref()?.as_oid().ok();
        let kind = key.algorithm.algorithm.to_id_string();
        let curve = || parameter().map(|curve| curve.to_id_string());
        let kind = match kind.as_str() {
            EC if curve().as_deref() == Some(P256) => Kind::P256,
            EC if curve().as_deref() == Some(P384) => Kind::P384,
            EDWARDS => Kind::Ed25519,
            RSA => Kind::Rsa,
            _ => return None,
        };
        let mut fingerprint = format!("{:x}", Sha256::digest(der));
        fingerprint.truncate(16);
        Some(Self {
            fingerprint,
            kind,
            bytes: key.subject_public_key.data.to_vec(),
        })
    }

    /// SHA-256 of the key and its kind.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update([self.kind as u8]);
        digest.update(&self.bytes);
        digest.finalize().into()
    }

    pub(super) fn has_signed(&self, payload: &[u8], signature: &[u8]) -> bool {
        let plain = self.kind.algorithms().into_iter().any(|algorithm| {
            let key = UnparsedPublicKey::new(algorithm, &self.bytes);
            key.verify(payload, signature).is_ok()
        });
        plain || self.kind == Kind::Ed25519 && self.has_signed_prehashed(payload, signature)
    }

    /// Whether this is an Ed25519ph signature, which cosign makes since version 2.6. ring does not know this form.
    fn has_signed_prehashed(&self, payload: &[u8], signature: &[u8]) -> bool {
        let key = self.bytes.as_slice().try_into().ok();
        let key = key.and_then(|bytes| VerifyingKey::from_bytes(bytes).ok());
        let signature = ed25519_dalek::Signature::from_slice(signature).ok();
        let (Some(key), Some(signature)) = (key, signature) else {
            return false;
        };
        let hash = Sha512::new_with_prefix(payload);
        key.verify_prehashed_strict(hash, None, &signature).is_ok()
    }
}

// === impl Kind ===

impl Kind {
    fn algorithms(self) -> Vec<&'static dyn VerificationAlgorithm> {
        match self {
            Self::P256 => vec![&ECDSA_P256_SHA256_ASN1],
            // cosign 2.6 and later use SHA-384, earlier versions use SHA-256.
            Self::P384 => vec![&ECDSA_P384_SHA384_ASN1, &ECDSA_P384_SHA256_ASN1],
            Self::Ed25519 => vec![&ED25519],
            // cosign uses PKCS #1 v1.5. Key services may use PSS.
            Self::Rsa => vec![&RSA_PKCS1_2048_8192_SHA256, &RSA_PSS_2048_8192_SHA256],
        }
    }
}
