//! Verifies a Sigstore bundle, the format of cosign 3.
//!
//! A bundle is a JSON document: a DSSE envelope with an in-toto statement, its signature, and the material to verify
//! it. The statement names the digests of its subjects, and its predicate type says what it states about them. A
//! statement of another type does not count as a signature. An SBOM that the same key attests, for example, lists the
//! content, but does not say that the plugin may run.
//!
//! A key of the policy has signed the statement, or the owner of a short-lived certificate. `keyless.rs` verifies the
//! latter.
//!
//! Sources: the Sigstore protobuf specifications (bundle v0.3), the DSSE protocol 1.0, in-toto Statement v1.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

use super::key::PublicKey;
use super::keyless::{Certified, Root};
use super::shown;
use super::statement::Statement;

/// The document that a bundle is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    verification_material: Material,
    dsse_envelope: Option<Envelope>,
    message_signature: Option<serde::de::IgnoredAny>,
}

/// The material that the signer expects the verifier to use.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    public_key: Option<serde::de::IgnoredAny>,
}

/// A DSSE envelope.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    sig: String,
}

/// The signer of a bundle.
#[derive(Debug)]
pub(super) enum By<'k> {
    /// A key of the policy.
    Key {
        /// The place of the key's owner among the signers.
        owner: usize,
        /// The beginning of the key's SHA-256.
        fingerprint: &'k str,
    },
    /// The owner of a certificate of the trusted root.
    Certificate(Certified),
}

/// Why a bundle does not count. The message completes "found one …". Texts of the bundle are escaped and cut.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The bundle is no JSON document of the specified form.
    #[error("in a bundle that cannot be parsed ({0})")]
    Unreadable(String),
    /// The bundle is of another version.
    #[error("in a bundle of type {0}; expected {BUNDLE_V03}")]
    Version(String),
    /// The signature is over the bytes of a file and not over a statement.
    #[error("in a bundle of `cosign sign-blob`; sign the artifact with `cosign sign`")]
    Blob,
    /// The bundle comes with a certificate, and the policy has no trusted root.
    #[error(
        "in a bundle with a certificate (keyless); expected a key, because the policy has no signatures.trustedRoot"
    )]
    NoRoot,
    /// The certificate, its proofs or the signature are not valid.
    #[error("in a bundle with a certificate that is not valid: {0}")]
    Certificate(String),
    /// No trusted key has signed the statement.
    #[error("made with another key")]
    Key,
    /// The statement cannot be read.
    #[error("over a statement that cannot be parsed ({0})")]
    Statement(String),
    /// The payload is no in-toto statement.
    #[error("over a payload of type {0}; expected {STATEMENT_PAYLOAD}")]
    PayloadType(String),
    /// The statement is about other digests.
    #[error("for {0}")]
    Digest(String),
}

/// Media type of the bundles that are accepted.
pub(in super::super) const BUNDLE_V03: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The beginning of the media type of every bundle.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
const STATEMENT_PAYLOAD: &str = "application/vnd.in-toto+json";
/// Maximum size of a bundle, in bytes. A bundle with a certificate and an entry of a log takes about 10 KiB.
pub(in super::super) const MAX_BYTES: u64 = 256 << 10;
/// Maximum size of a bundle where attestations are required, in bytes. An attested SBOM takes megabytes.
pub(in super::super) const MAX_ATTESTATION_BYTES: u64 = 4 << 20;
/// Maximum number of signatures in an envelope. cosign writes one.
const MAX_SIGNATURES: usize = 8;

/// Whether this is the media type of a bundle, of whichever version.
pub(in super::super) fn is_bundle(media_type: &str) -> bool {
    media_type.starts_with(BUNDLE)
}

/// Verifies a bundle, and returns the signer and the statement, which is about the manifest with this digest.
///
/// `owners` are the signers with keys: their places among the signers, and their keys.
pub(super) fn open<'k>(
    owners: &[(usize, &'k [PublicKey])],
    root: Option<&Root>,
    digest: &str,
    text: &[u8],
) -> Result<(By<'k>, Statement), Refusal> {
    let bundle: Bundle =
        serde_json::from_slice(text).map_err(|error| Refusal::Unreadable(position(&error)))?;
    if bundle.media_type != BUNDLE_V03 {
        return Err(Refusal::Version(shown(&bundle.media_type)));
    }
    let Some(envelope) = bundle.dsse_envelope else {
        return Err(match bundle.message_signature {
            Some(_) => Refusal::Blob,
            None => Refusal::Unreadable("it has no dsseEnvelope".to_owned()),
        });
    };
    let (by, payload) = if bundle.verification_material.public_key.is_some() {
        let payload = BASE64.decode(&envelope.payload);
        let payload =
            payload.map_err(|_| Refusal::Unreadable("payload is not base64".to_owned()))?;
        let by = by_key(owners, &envelope, &payload).ok_or(Refusal::Key)?;
        if envelope.payload_type != STATEMENT_PAYLOAD {
            return Err(Refusal::PayloadType(shown(&envelope.payload_type)));
        }
        (by, payload)
    } else {
        let root = root.ok_or(Refusal::NoRoot)?;
        // The payload comes from the parser that has verified it. Two parsers may read a document differently.
        let (certified, payload) = root
            .verify(text, digest)
            .map_err(|error| Refusal::Certificate(shown(&error)))?;
        (By::Certificate(certified), payload)
    };
    // From here on, the payload comes from a known signer.
    let statement = Statement::read(&payload).map_err(Refusal::Statement)?;
    if !statement.is_about(digest) {
        return Err(Refusal::Digest(statement.first_digest()));
    }
    Ok((by, statement))
}

fn by_key<'k>(
    owners: &[(usize, &'k [PublicKey])],
    envelope: &Envelope,
    payload: &[u8],
) -> Option<By<'k>> {
    let signed = pre_authentication_encoding(&envelope.payload_type, payload);
    let signatures = envelope.signatures.iter().take(MAX_SIGNATURES);
    let mut signatures = signatures.filter_map(|signature| BASE64.decode(&signature.sig).ok());
    signatures.find_map(|signature| {
        let mut keys = owners
            .iter()
            .flat_map(|(owner, keys)| keys.iter().map(move |key| (*owner, key)));
        let (owner, key) = keys.find(|(_, key)| key.has_signed(&signed, &signature))?;
        Some(By::Key {
            owner,
            fingerprint: key.fingerprint.as_str(),
        })
    })
}

/// The bytes that a DSSE signature is over. The lengths keep the type apart from the payload.
fn pre_authentication_encoding(kind: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// The place of a syntax error. The parser's own message could quote the document.
pub(super) fn position(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

#[cfg(test)]
mod tests;
