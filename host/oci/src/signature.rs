//! Checks whether an artifact is signed as a policy requires. Accepts signatures and attestations of cosign.
//!
//! A signature is over a short text that names the digest of a manifest. A registry can therefore remove signatures,
//! but cannot forge one. Signatures have one of two formats:
//!
//! - Up to version 2, cosign stores the text and the signature under the tag `sha256-….sig`.
//! - Since version 3, cosign stores a [bundle] as a referrer of the manifest. The registry lists the referrers of a
//!   digest. Registries without that list have an index under the tag `sha256-…`.

mod assessment;
pub(super) mod bundle;
mod key;
mod keyless;
mod provider;
mod simple;
mod statement;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
mod trust;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

pub(super) use assessment::Assessment;
pub use assessment::Found;
pub(super) use key::PublicKey;
pub(super) use keyless::Root;
pub(super) use provider::install as install_provider;
pub(super) use trust::{Proof, Readied, Trust, Trusted};

use super::RegistryError;
use super::manifest::{Descriptor, Manifest, is_digest};

/// Media type of a layer that holds a signed text.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// Annotation of such a layer that holds the signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// Maximum size of a signed text, in bytes.
const MAX_PAYLOAD_BYTES: u64 = 64 << 10;
/// Maximum number of signatures of one artifact that are checked.
pub(super) const MAX_SIGNATURES: usize = 50;

/// Maximum number of bundles in one manifest that are checked. cosign writes one.
const MAX_BUNDLES: usize = 4;

/// A place where a registry keeps signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The tag `sha256-….sig`.
    Tag,
    /// The artifacts that refer to the manifest.
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

/// The signatures in a manifest.
#[derive(Debug)]
pub(super) struct SignatureLayers {
    /// The layers that hold signatures, each with its form.
    pub(super) layers: Vec<(Descriptor, Form)>,
    /// Number of further layers, which are not looked at.
    left_out: usize,
}

// === impl Place ===

impl Place {
    /// Reads a manifest in this place. A referrer has bundles, and one manifest has few of them, whoever wrote it.
    pub(super) fn signatures(self, manifest: &[u8]) -> Result<SignatureLayers, RegistryError> {
        let mut layers = signed_layers(manifest)?;
        Ok(match self {
            Self::Tag => SignatureLayers::first(layers, MAX_SIGNATURES),
            Self::Referrers => {
                layers.retain(|(_, form)| *form == Form::Bundle);
                SignatureLayers::first(layers, MAX_BUNDLES)
            }
        })
    }
}

// === impl Form ===

impl Form {
    /// Maximum size of such a layer, in bytes. A bundle may hold an attested SBOM, which is long.
    pub(super) fn max_bytes(&self, trust: &Trusted) -> u64 {
        match self {
            Self::Simple(_) => MAX_PAYLOAD_BYTES,
            Self::Bundle if trust.wants_attestations() => bundle::MAX_ATTESTATION_BYTES,
            Self::Bundle => bundle::MAX_BYTES,
        }
    }
}

/// The tag under which cosign stores the signatures of a manifest, up to its version 2.
pub(super) fn tag(digest: &str) -> String {
    format!("{}.sig", digest.replace(':', "-"))
}

// === impl SignatureLayers ===

impl SignatureLayers {
    pub(super) fn read(manifest: &[u8]) -> Result<Self, RegistryError> {
        Ok(Self::first(signed_layers(manifest)?, MAX_SIGNATURES))
    }

    fn first(mut layers: Vec<(Descriptor, Form)>, most: usize) -> Self {
        let left_out = layers.len().saturating_sub(most);
        layers.truncate(most);
        Self { layers, left_out }
    }

    /// Says how many of the manifest's signatures are looked at, if they are not all of them.
    pub(super) fn unread(&self, manifest: &str) -> Option<String> {
        let looked_at = self.layers.len();
        let all = looked_at + self.left_out;
        (self.left_out > 0).then(|| {
            format!(
                "looked at {looked_at} of the {all} signatures in the manifest {manifest}: Tollgate looks at no more in one manifest"
            )
        })
    }
}

/// All layers that hold signatures, each with its form.
fn signed_layers(manifest: &[u8]) -> Result<Vec<(Descriptor, Form)>, RegistryError> {
    let manifest = Manifest::read(manifest)?;
    let signed = manifest.layers.into_iter().filter_map(|layer| {
        let form = match layer.media_type.as_str() {
            PAYLOAD => Form::Simple(BASE64.decode(layer.annotations.get(SIGNATURE)?).ok()?),
            kind if bundle::is_bundle(kind) => Form::Bundle,
            _ => return None,
        };
        is_digest(&layer.digest).then_some((layer, form))
    });
    Ok(signed.collect())
}

/// A text of a signature, escaped and cut to 160 characters.
pub(super) fn shown(text: &str) -> String {
    text.chars()
        .take(160)
        .flat_map(char::escape_default)
        .collect()
}
