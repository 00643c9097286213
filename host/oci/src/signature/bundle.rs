//! Verifies a Sigstore bundle, the format of cosign 3.
//!
//! A bundle is a JSON document: a DSSE envelope with an in-toto statement, its signature, and what is needed to verify
//! it. The statement names the digests that it is about, and says by its predicate type what it states about them. A
//! statement of another type does not count as a signature: an SBOM that the same key attests says what is inside, and
//! nothing about whether it may run.
//!
//! Sources: the Sigstore protobuf specifications (bundle v0.3), the DSSE protocol 1.0, in-toto Statement v1.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

use super::PublicKey;

/// The document that a bundle is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    verification_material: Material,
    dsse_envelope: Option<Envelope>,
    message_signature: Option<serde::de::IgnoredAny>,
}

/// What the signer expects the verifier to use.
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

/// An in-toto statement.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    predicate_type: String,
}

#[derive(Deserialize)]
struct Subject {
    #[serde(default)]
    digest: BTreeMap<String, String>,
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
    /// The bundle comes with a certificate.
    #[error(
        "in a bundle with a certificate (keyless), which Tollgate does not verify; sign with `cosign sign --key`"
    )]
    Keyless,
    /// No trusted key has signed the statement.
    #[error("made with another key")]
    Key,
    /// The statement cannot be read.
    #[error("over a statement that cannot be parsed ({0})")]
    Statement(String),
    /// The payload is no in-toto statement.
    #[error("over a payload of type {0}; expected {STATEMENT_PAYLOAD}")]
    PayloadType(String),
    /// The statement does not say what a signature says.
    #[error("that attests {0}, which is not a signature; expected the predicate type {SIGN}")]
    Predicate(String),
    /// The statement is about other digests.
    #[error("for {0}")]
    Digest(String),
}

/// Media type of the bundles that are accepted.
pub(in super::super) const BUNDLE_V03: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The beginning of the media type of every bundle.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
const STATEMENT_PAYLOAD: &str = "application/vnd.in-toto+json";
/// The versions of a statement, which do not differ in what is read here.
const STATEMENTS: [&str; 2] = [
    "https://in-toto.io/Statement/v1",
    "https://in-toto.io/Statement/v0.1",
];
/// The predicate type of a signature.
const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";
/// Maximum size of a bundle, in bytes. A bundle with a certificate and an entry of a log takes about 10 KiB.
pub(in super::super) const MAX_BYTES: u64 = 256 << 10;
/// Maximum number of signatures in an envelope. cosign writes one.
const MAX_SIGNATURES: usize = 8;

/// Whether this is the media type of a bundle, of whichever version.
pub(in super::super) fn is_bundle(media_type: &str) -> bool {
    media_type.starts_with(BUNDLE)
}

/// Finds the key that has signed the manifest with this digest.
pub(super) fn verify<'k>(
    keys: &'k [PublicKey],
    digest: &str,
    bundle: &[u8],
) -> Result<&'k str, Refusal> {
    let bundle: Bundle =
        serde_json::from_slice(bundle).map_err(|error| Refusal::Unreadable(position(&error)))?;
    if bundle.media_type != BUNDLE_V03 {
        return Err(Refusal::Version(shown(&bundle.media_type)));
    }
    let Some(envelope) = bundle.dsse_envelope else {
        return Err(match bundle.message_signature {
            Some(_) => Refusal::Blob,
            None => Refusal::Unreadable("it has no dsseEnvelope".to_owned()),
        });
    };
    if bundle.verification_material.public_key.is_none() {
        return Err(Refusal::Keyless);
    }
    let payload = BASE64.decode(&envelope.payload);
    let payload = payload.map_err(|_| Refusal::Unreadable("payload is not base64".to_owned()))?;
    let signed = pre_authentication_encoding(&envelope.payload_type, &payload);
    let signatures = envelope.signatures.iter().take(MAX_SIGNATURES);
    let signer = signatures
        .filter_map(|signature| BASE64.decode(&signature.sig).ok())
        .find_map(|signature| keys.iter().find(|key| key.has_signed(&signed, &signature)));
    let signer = signer.ok_or(Refusal::Key)?;
    // From here on, the payload comes from a trusted signer.
    if envelope.payload_type != STATEMENT_PAYLOAD {
        return Err(Refusal::PayloadType(shown(&envelope.payload_type)));
    }
    let statement: Statement =
        serde_json::from_slice(&payload).map_err(|error| Refusal::Statement(position(&error)))?;
    if !STATEMENTS.contains(&statement.kind.as_str()) {
        return Err(Refusal::Statement(format!(
            "_type is {}",
            shown(&statement.kind)
        )));
    }
    if statement.predicate_type != SIGN {
        return Err(Refusal::Predicate(shown(&statement.predicate_type)));
    }
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    let about = |subject: &Subject| subject.digest.get("sha256").map(String::as_str) == Some(hex);
    if !statement.subject.iter().any(about) {
        let subject = statement.subject.first();
        let other = subject.and_then(|subject| subject.digest.get("sha256"));
        let other = other.map_or("no digest".to_owned(), |hex| {
            format!("sha256:{}", shown(hex))
        });
        return Err(Refusal::Digest(other));
    }
    Ok(&signer.fingerprint)
}

/// The bytes that a DSSE signature is over. The lengths keep the type apart from the payload.
fn pre_authentication_encoding(kind: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// The place of a syntax error. The parser's own message could quote the document.
fn position(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

/// A text of the bundle, escaped and cut to 100 characters.
fn shown(text: &str) -> String {
    text.chars()
        .take(100)
        .flat_map(char::escape_default)
        .collect()
}

#[cfg(test)]
mod tests;
