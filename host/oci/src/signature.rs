//! Checks whether a trusted key has signed an artifact. Accepts signatures that cosign made with a key.
//!
//! cosign signs a short text that names the digest of a manifest. So a registry can remove signatures, but it cannot
//! make one. There are two formats:
//!
//! - Up to version 2, cosign stores the text and the signature under the tag `sha256-….sig`.
//! - Since version 3, cosign stores a [bundle] as a referrer of the manifest: the registry lists it when it is asked
//!   what refers to the digest. Registries without that list have an index under the tag `sha256-…`.

pub(super) mod bundle;

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::VerifyingKey;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use sha2::{Digest as _, Sha256, Sha512};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::RegistryError;
use super::causes::KeysProblem;
use super::manifest::{Descriptor, Manifest};

/// A public key for checking signatures.
pub(super) struct PublicKey {
    /// The name of the key in messages: the beginning of its SHA-256.
    pub(super) fingerprint: String,
    /// The file that the key comes from.
    pub(super) path: PathBuf,
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

/// The signed text: cosign's "simple signing" format.
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

/// Media type of a layer that holds a signed text.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// Annotation of such a layer that holds the signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// The `type` that a signed text must have.
const KIND: &str = "cosign container image signature";
/// Maximum size of a signed text, in bytes.
const MAX_PAYLOAD_BYTES: u64 = 64 << 10;
/// Maximum number of signatures of one artifact that are checked.
pub(super) const MAX_SIGNATURES: usize = 50;

const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";
const EC: &str = "1.2.840.10045.2.1";
const RSA: &str = "1.2.840.113549.1.1.1";
const EDWARDS: &str = "1.3.101.112";

// === impl PublicKey ===

impl PublicKey {
    /// Reads keys from PEM files, each of which may hold several.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<Self>, RegistryError> {
        let mut keys = Vec::new();
        for path in paths {
            let failed = |problem: KeysProblem| RegistryError::Keys {
                path: path.clone(),
                problem,
            };
            let bytes = tollgate_config::file::read(path)
                .map_err(|error| failed(KeysProblem::Read(error)))?;
            let sections =
                pem::parse_many(&bytes).map_err(|error| failed(KeysProblem::Pem(error)))?;
            let before = keys.len();
            for section in sections
                .iter()
                .filter(|section| section.tag() == "PUBLIC KEY")
            {
                let key = Self::of(section.contents(), path);
                keys.push(key.ok_or_else(|| failed(KeysProblem::Kind))?);
            }
            if keys.len() == before {
                return Err(failed(KeysProblem::Empty));
            }
        }
        Ok(keys)
    }

    pub(crate) fn of(der: &[u8], path: &Path) -> Option<Self> {
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
            path: path.to_owned(),
            kind,
            bytes: key.subject_public_key.data.to_vec(),
        })
    }

    fn has_signed(&self, payload: &[u8], signature: &[u8]) -> bool {
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
            Self::Rsa => vec![&RSA_PKCS1_2048_8192_SHA256],
        }
    }
}

/// A place where a registry keeps signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The tag `sha256-….sig`.
    Tag,
    /// What refers to the manifest.
    Referrers,
}

/// The places in the order in which they are asked.
pub(super) const PLACES: [Place; 2] = [Place::Tag, Place::Referrers];

/// The form of a signature in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The layer is the signed text, and this is the signature.
    Simple(Vec<u8>),
    /// The layer is a bundle: the signed text with its signature.
    Bundle,
}

impl Form {
    /// Maximum size of such a layer, in bytes.
    pub(super) fn max_bytes(&self) -> u64 {
        match self {
            Self::Simple(_) => MAX_PAYLOAD_BYTES,
            Self::Bundle => bundle::MAX_BYTES,
        }
    }
}

/// The tag under which cosign stores the signatures of a manifest, up to its version 2.
pub(super) fn tag(digest: &str) -> String {
    format!("{}.sig", digest.replace(':', "-"))
}

/// The layers that hold signatures, each with its form.
pub(super) fn signatures(manifest: &[u8]) -> Result<Vec<(Descriptor, Form)>, RegistryError> {
    let manifest = Manifest::read(manifest)?;
    let signed = manifest.layers.into_iter().filter_map(|layer| {
        let form = match layer.media_type.as_str() {
            PAYLOAD => Form::Simple(BASE64.decode(layer.annotations.get(SIGNATURE)?).ok()?),
            kind if bundle::is_bundle(kind) => Form::Bundle,
            _ => return None,
        };
        Some((layer, form))
    });
    Ok(signed.take(MAX_SIGNATURES).collect())
}

/// Finds the key that has signed this manifest, in a layer of this form. Fails with the reason if there is none.
pub(super) fn verify<'k>(
    keys: &'k [PublicKey],
    digest: &str,
    layer: &[u8],
    form: &Form,
) -> Result<&'k str, String> {
    match form {
        Form::Simple(signature) => verify_simple(keys, digest, layer, signature),
        Form::Bundle => bundle::verify(keys, digest, layer).map_err(|refusal| refusal.to_string()),
    }
}

fn verify_simple<'k>(
    keys: &'k [PublicKey],
    digest: &str,
    payload: &[u8],
    signature: &[u8],
) -> Result<&'k str, String> {
    let signer = keys.iter().find(|key| key.has_signed(payload, signature));
    let Some(signer) = signer else {
        return Err("made with another key".to_owned());
    };
    // From here on, the text comes from a trusted signer.
    let Ok(Payload { critical }) = serde_json::from_slice(payload) else {
        return Err("with a payload that is not cosign's".to_owned());
    };
    if critical.kind != KIND {
        return Err(format!("with a payload that is not of type `{KIND}`"));
    }
    if critical.image.digest != digest {
        return Err(format!("for {}", critical.image.digest));
    }
    Ok(&signer.fingerprint)
}

/// The names of the keys, for messages.
pub(crate) fn names(keys: &[PublicKey]) -> String {
    let names: Vec<&str> = keys.iter().map(|key| key.fingerprint.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signature that cosign itself has made.
    struct Made {
        repository: &'static str,
        key: &'static str,
        signature: &'static str,
    }

    /// Digest of the artifact that all of these signatures are for.
    const DIGEST: &str = "sha256:6709a7cac516f66eaafca9072c7eea2de1217ef62cb4f2043080c803b464ffa8";
    /// ECDSA P-384 by cosign 2.5.3, over SHA-256.
    const P384_OF_2_5: Made = Made {
        repository: "v25p384",
        key: "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE7pfCQmAdxplWkDl7KOLRhhpj3+mdSBkIwwVhdg2UvLksUcCw+eFhMsJFwlTAetPaKeOD\
              goU8rwy8+MI9V6P/sXmIABlQPc2uki9Zw0QEVb9wpf4XnxavzGd1oYUmEuCm",
        signature: "MGYCMQCmkpYEdEvqreXmdxvoD/UFLDuM5G9yUjV9hnyGjm2tmycdDrmFWM+xah3Uf5gd5TUCMQD7Kw8JeS6lszbApksoXRHN8ski\
              IaOm/bYXgmGi/B1tBAucuxw3dczUaWCS1rj9cKY=",
    };
    /// ECDSA P-384 by cosign 2.6.5, over SHA-384.
    const P384_OF_2_6: Made = Made {
        repository: "v26p384",
        key: "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEkXvUarRf+yezudl2I/2zwSHv3GQZ0vLheXiD95GBTRKRU+1rkmIODljpmFQGOU+5lF2l\
              FotoW9X3/u6rtbFwt1A30fzSUZsmuM0ww+Ehrb3/qGRKkUspmUyLLj6nDYjI",
        signature: "MGYCMQDpAuwThJGlEYmXFmkxtZTP/Ba2bEaAfWtCAMdHPn8+h5gF3rFlBwEFgJfBLvNotS0CMQCPFZxPaKaVzsp4FUE1p5fabZwj\
              bJeWjIp6pKOSnDQIFbfkJcvwN7H52hpSCRKNmB8=",
    };
    /// Ed25519 by cosign 2.5.3.
    const ED25519_OF_2_5: Made = Made {
        repository: "v25ed",
        key: "MCowBQYDK2VwAyEA1pNhdKT5JLhSwVuxeZYSC2F0bQc6Q7vnlGRRKHjwpUk=",
        signature: "Z1j+OBdzI2rt24Xrvi5X0ZEjc821q/Vlpauu+cXzyr2a5CJwyU8paUx4rt3+1iVr8E5kMkyqRecAEBKOMX7RDg==",
    };
    /// Ed25519 by cosign 2.6.5, prehashed.
    const ED25519_OF_2_6: Made = Made {
        repository: "v26ed",
        key: "MCowBQYDK2VwAyEAnfxInosWfkZtqNuYQD9JaIUMRCl4hTwOAU10kDcDo2U=",
        signature: "zCwnnTofGXCaO/+Y3UKDQGOEI9+0l0ymY86ujEtjWDo0ES0bjWQla9U5DpB6Teq8wzqWlw3Adcvm93K5oDBcDA==",
    };

    fn decode(text: &str) -> Vec<u8> {
        BASE64.decode(text).unwrap()
    }

    fn verified(made: &Made, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
        let repository = made.repository;
        let mut payload = format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"127.0.0.1:23411/sig/{repository}"}},"#
        );
        payload.push_str(&format!(
            r#""image":{{"docker-manifest-digest":"{DIGEST}"}},"type":"{KIND}"}},"optional":null}}"#
        ));
        let mut payload = payload.into_bytes();
        change(&mut payload);
        let key = PublicKey::of(&decode(made.key), Path::new("cosign.pub")).unwrap();
        verify_simple(&[key], DIGEST, &payload, &decode(made.signature)).map(drop)
    }

    #[test]
    fn accepts_cosign_signatures_of_every_key_kind() {
        for made in [P384_OF_2_5, P384_OF_2_6, ED25519_OF_2_5, ED25519_OF_2_6] {
            assert_eq!(verified(&made, |_| ()), Ok(()), "{}", made.repository);
            let changed = verified(&made, |payload| payload.push(b' '));
            assert!(changed.is_err(), "{}", made.repository);
        }
    }
}
