//! Signers for tests: keys of every kind, and a separate installation of Sigstore.

mod key;
mod sigstore;

pub(crate) use key::Signer;
pub(super) use key::hex;
pub(crate) use sigstore::{Identity, Sigstore};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tollgate_config::Reference;

/// The artifact of the tests.
pub(crate) const DIGEST: &str =
    "sha256:6709a7cac516f66eaafca9072c7eea2de1217ef62cb4f2043080c803b464ffa8";
/// Another artifact.
pub(super) const OTHER: &str =
    "sha256:0000000000000000000000000000000000000000000000000000000000000001";
/// The repository of the artifact.
pub(crate) const REPOSITORY: &str = "registry.example.com/policies/guard";
/// Media type of bundles, and of the payload in them.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const STATEMENT: &str = "application/vnd.in-toto+json";

/// The reference of the artifact.
pub(crate) fn reference() -> Reference {
    Reference::parse(&format!("{REPOSITORY}:1.4")).unwrap()
}

/// The statement that cosign signs about an artifact, or one with another predicate type.
pub(crate) fn statement(digest: &str, predicate: &str) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "", "digest": {"sha256": digest.trim_start_matches("sha256:")}}],
        "predicateType": predicate,
        "predicate": {},
    })
}

/// The bytes that a DSSE signature is over.
fn encoding(payload: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("DSSEv1 {} {STATEMENT} {} ", STATEMENT.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// A bundle with this material.
fn bundle(material: &Value, payload: &[u8], signature: &[u8]) -> Value {
    json!({
        "mediaType": BUNDLE,
        "verificationMaterial": material,
        "dsseEnvelope": {
            "payload": BASE64.encode(payload),
            "payloadType": STATEMENT,
            "signatures": [{"sig": BASE64.encode(signature)}],
        },
    })
}
