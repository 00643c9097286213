//! Entry points for fuzzing the code that reads the answers of a registry.

use std::net::IpAddr;
use std::path::Path;

use tollgate_admission::chain;

use super::address;
use super::manifest::{Manifest, is_digest};
use super::signature::{Form, PublicKey, signatures};

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
    let signatures = signatures(manifest).map_err(|error| chain(&error))?;
    Ok(signatures.len())
}

/// Reads a public key and checks a signature with it.
#[must_use]
pub fn is_signed(key: &[u8], payload: &[u8], signature: &[u8]) -> bool {
    let Some(key) = PublicKey::of(key, Path::new("key.pub")) else {
        return false;
    };
    let digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let form = Form::Simple(signature.to_vec());
    super::signature::verify(&[key], digest, payload, &form).is_ok()
}

/// Verifies a bundle against a key.
///
/// # Errors
/// The reason why the bundle does not count, as an operator reads it.
pub fn bundle(key: &[u8], bundle: &[u8]) -> Result<(), String> {
    let keys: Vec<PublicKey> = PublicKey::of(key, Path::new("key.pub"))
        .into_iter()
        .collect();
    let digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    super::signature::verify(&keys, digest, bundle, &Form::Bundle).map(drop)
}

/// How harmful an address is: 0 for public, 1 for private, 2 for this machine, 3 for one that is never a registry's.
#[must_use]
pub fn harm(address: IpAddr) -> u8 {
    address::harm(address)
}
