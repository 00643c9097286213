//! Entry points for fuzzing the code that reads the answers of a registry.

use std::net::IpAddr;

use tollgate_admission::chain;
use tollgate_config::{Reference, SignaturePolicy, Signer, SignerProof, TextPattern};

use super::manifest::{Manifest, is_digest};
use super::referrers::{bundles_in, next_page};
use super::signature::{Form, Proof, PublicKey, Root, SignatureLayers, Trusted};
use super::{address, tuf};

/// Reads a manifest and returns the digest of its one layer.
///
/// # Errors
/// The reason why the manifest is not a plugin's, as an operator reads it.
pub fn layer(manifest: &[u8]) -> Result<String, String> {
    let manifest = Manifest::read(manifest).map_err(|error| chain(&error))?;
    let layer = manifest.plugin().map_err(|error| chain(&error))?;
    Ok(layer.digest.clone())
}

/// Whether a text is a digest that a layer may have.
#[must_use]
pub fn is_layers_digest(text: &str) -> bool {
    is_digest(text)
}

/// Counts the signatures in a manifest of signatures.
///
/// # Errors
/// The reason why the manifest cannot be read.
pub fn count_signatures(manifest: &[u8]) -> Result<usize, String> {
    let signatures = SignatureLayers::read(manifest).map_err(|error| chain(&error))?;
    Ok(signatures.layers.len())
}

/// Reads a public key and checks a signature with it.
#[must_use]
pub fn is_signed(key: &[u8], payload: &[u8], signature: &[u8]) -> bool {
    let form = Form::Simple(signature.to_vec());
    proof(key, None, payload, &form).is_ok()
}

/// Verifies a bundle against a key.
///
/// # Errors
/// The reason why the bundle does not count, as an operator reads it.
pub fn bundle(key: &[u8], bundle: &[u8]) -> Result<(), String> {
    proof(key, None, bundle, &Form::Bundle)
}

/// Verifies a bundle against a trusted root.
///
/// # Errors
/// The reason why the root cannot be used, or why the bundle does not count.
pub fn keyless(root: &[u8], bundle: &[u8]) -> Result<(), String> {
    proof(&[], Some(Root::of(root)?), bundle, &Form::Bundle)
}

fn proof(key: &[u8], root: Option<Root>, layer: &[u8], form: &Form) -> Result<(), String> {
    const DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let identity = Signer {
        name: "anyone".into(),
        proof: SignerProof::Identity {
            issuer: TextPattern::everything(),
            subject: TextPattern::everything(),
        },
    };
    let key = PublicKey::of(key).into_iter().collect();
    let signers = vec![Signer::of_key("key.pub".into()), identity];
    let policy = SignaturePolicy::of_signers("fuzzing", signers);
    let reference = Reference {
        registry: "registry.example.com".to_owned(),
        repository: "fuzzing".to_owned(),
        tag: None,
        digest: Some(DIGEST.to_owned()),
    };
    let trusted = Trusted::of(policy, &reference, vec![key, Vec::new()], root);
    match trusted.examine(DIGEST, layer, form) {
        Proof::Nothing(reason) => Err(reason),
        Proof::Signature { .. } | Proof::Attestation { .. } => Ok(()),
    }
}

/// Returns the digests that a list of referrers names as bundles.
#[must_use]
pub fn referrers(list: &[u8]) -> Vec<String> {
    bundles_in(list)
}

/// Returns the URL of the next page of a list, which this URL has answered with this `Link` header.
#[must_use]
pub fn next_page_of(page: &str, header: &str) -> Option<String> {
    next_page(page, header)
}

/// Verifies the kept files of a TUF repository from a pinned root, and returns the target.
///
/// # Errors
/// The reason why the files do not count, as an operator reads it.
pub fn tuf(pinned: &[u8], kept: &[u8], target: &str) -> Result<String, String> {
    tuf::verify_kept(pinned, kept, target).map_err(|problem| problem.to_string())
}

/// How harmful an address is: 0 for public, 1 for private, 2 for this machine, 3 for one that is never a registry's.
#[must_use]
pub fn harm(address: IpAddr) -> u8 {
    address::harm(address)
}
