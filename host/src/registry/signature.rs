//! Whether somebody who is trusted has signed an artifact: cosign's signatures, made with a key.
//!
//! cosign signs a short text that names the digest of a manifest, and keeps it, with the signature, under a tag that is made
//! of that digest. So the registry can take signatures away, and cannot make one.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::RegistryError;
use super::manifest::{Descriptor, Manifest};

/// A key that signatures are checked with.
pub(super) struct PublicKey {
    /// What it is called in messages: the beginning of its SHA-256.
    pub(super) fingerprint: String,
    /// The file that it is from.
    pub(super) path: PathBuf,
    algorithm: &'static dyn VerificationAlgorithm,
    bytes: Vec<u8>,
}

/// What is signed: cosign's "simple signing".
#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Of one layer with a signature.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const KIND: &str = "cosign container image signature";
/// What a signature's text may be long, and how many of them are looked at.
pub(super) const MAX_PAYLOAD_BYTES: u64 = 64 << 10;
const MAX_SIGNATURES: usize = 50;

const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";
const EC: &str = "1.2.840.10045.2.1";
const RSA: &str = "1.2.840.113549.1.1.1";
const EDWARDS: &str = "1.3.101.112";

// === impl PublicKey ===

impl PublicKey {
    /// The keys of PEM files, of which each may hold several.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Self>, RegistryError> {
        let mut keys = Vec::new();
        for path in paths {
            let failed = |why: &str| RegistryError::Keys {
                path: path.clone(),
                why: why.to_owned(),
            };
            let bytes = std::fs::read(path).map_err(|error| failed(&error.to_string()))?;
            let sections = pem::parse_many(&bytes).map_err(|error| failed(&error.to_string()))?;
            let before = keys.len();
            for section in sections
                .iter()
                .filter(|section| section.tag() == "PUBLIC KEY")
            {
                keys.push(Self::of(section.contents(), path).ok_or_else(|| {
                    failed("it has a key of another kind than ECDSA P-256 or P-384, Ed25519 or RSA")
                })?);
            }
            if keys.len() == before {
                return Err(failed(
                    "it holds no key: expected PEM with one or more PUBLIC KEY sections, such as cosign.pub",
                ));
            }
        }
        Ok(keys)
    }

    fn of(der: &[u8], path: &Path) -> Option<Self> {
        let (_, key) = SubjectPublicKeyInfo::from_der(der).ok()?;
        let parameter = || key.algorithm.parameters.as_ref()?.as_oid().ok();
        let kind = key.algorithm.algorithm.to_id_string();
        let curve = || parameter().map(|curve| curve.to_id_string());
        let algorithm: &'static dyn VerificationAlgorithm = match kind.as_str() {
            EC if curve().as_deref() == Some(P256) => &ECDSA_P256_SHA256_ASN1,
            EC if curve().as_deref() == Some(P384) => &ECDSA_P384_SHA256_ASN1,
            EDWARDS => &ED25519,
            RSA => &RSA_PKCS1_2048_8192_SHA256,
            _ => return None,
        };
        let mut fingerprint = format!("{:x}", Sha256::digest(der));
        fingerprint.truncate(16);
        Some(Self {
            fingerprint,
            path: path.to_owned(),
            algorithm,
            bytes: key.subject_public_key.data.to_vec(),
        })
    }

    fn has_signed(&self, payload: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(self.algorithm, &self.bytes);
        key.verify(payload, signature).is_ok()
    }
}

/// The tag under which cosign keeps the signatures of a manifest.
pub(super) fn tag(digest: &str) -> String {
    format!("{}.sig", digest.replace(':', "-"))
}

/// The parts that are signatures, each with the signature itself.
pub(super) fn signatures(manifest: &[u8]) -> Result<Vec<(Descriptor, Vec<u8>)>, RegistryError> {
    let manifest = Manifest::read(manifest)?;
    let layers = manifest
        .layers
        .into_iter()
        .filter(|layer| layer.media_type == PAYLOAD);
    let signed = layers.filter_map(|layer| {
        let signature = BASE64.decode(layer.annotations.get(SIGNATURE)?).ok()?;
        Some((layer, signature))
    });
    Ok(signed.take(MAX_SIGNATURES).collect())
}

/// Which of the keys has signed this text, where the text is about this manifest; else, what is wrong.
pub(super) fn verify<'k>(
    keys: &'k [PublicKey],
    digest: &str,
    payload: &[u8],
    signature: &[u8],
) -> Result<&'k str, String> {
    let signer = keys.iter().find(|key| key.has_signed(payload, signature));
    let Some(signer) = signer else {
        return Err("made with another key".to_owned());
    };
    // From here on the words are those of somebody who is trusted.
    let Ok(Payload { critical }) = serde_json::from_slice(payload) else {
        return Err("over something else than cosign's text".to_owned());
    };
    if critical.kind != KIND {
        return Err(format!("over something else than `{KIND}`"));
    }
    if critical.image.digest != digest {
        return Err(format!("of {}", critical.image.digest));
    }
    Ok(&signer.fingerprint)
}

/// For messages: which keys would do.
pub(super) fn names(keys: &[PublicKey]) -> String {
    let names: Vec<&str> = keys.iter().map(|key| key.fingerprint.as_str()).collect();
    names.join(", ")
}
