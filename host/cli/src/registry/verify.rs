//! `tollgate verify`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tollgate_config::Reference;
use tollgate_oci::{Order, RegistryError};

use super::{Access, block_on, reference};
use crate::FAILURE;
use crate::terminal::{BAD, GOOD, plain, say};

/// Verify that a plugin in a registry is signed by one of the given keys, and that its bytes are the signed ones.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Verify {
    /// Reference of the plugin, such as oci://registry.example.com/policies/image-rewrite:1.4
    #[arg(value_name = "REFERENCE", value_parser = reference)]
    of: Reference,
    /// PEM file with public keys, such as cosign.pub. May be given several times. A signature by any of them is enough.
    #[arg(long, value_name = "FILE", required = true)]
    key: Vec<PathBuf>,
    #[command(flatten)]
    access: Access,
}

const EXAMPLES: &str = "\
Examples:
  tollgate verify oci://registry.example.com/policies/image-rewrite:1.4 --key cosign.pub

Exit code: 0 when the signature and the content are valid, 1 when one is not, 2 when they could not be checked.";

// === impl Verify ===

impl Verify {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (registry, limit_bytes) = self.access.registry(&self.of)?;
        // The current content of the registry counts, not a cached copy.
        let registry = registry.without_cache();
        say!("{}", self.of);
        let signed = match block_on(registry.signatures(&self.of, &self.key))? {
            Ok(signed) => signed,
            Err(error) => return refused(error),
        };
        say!("  digest    {}", signed.digest);
        say!("  expected  a signature by one of the keys");
        for (key, path) in &signed.keys {
            say!("              {key} ({})", path.display());
        }
        if signed.found.is_empty() {
            let tag = &signed.tag;
            say!("  found     none, under the tag {tag} and among the referrers");
        }
        for (index, found) in signed.found.iter().enumerate() {
            let label = if index == 0 { "found" } else { "" };
            match found {
                Ok(key) => say!("  {label:<8}  {GOOD}one by {key}{GOOD:#}"),
                Err(what) => say!("  {label:<8}  {BAD}one {}{BAD:#}", plain(what)),
            }
        }
        if !signed.is_trusted() {
            say!("{BAD}not verified{BAD:#}: it has no signature by one of the keys");
            return Ok(ExitCode::from(FAILURE));
        }
        let pinned = Reference {
            digest: Some(signed.digest),
            ..self.of
        };
        let order = Order {
            reference: &pinned,
            keys: &self.key,
            have: None,
            limit_bytes,
        };
        match block_on(registry.pull(order))? {
            Ok(pulled) => {
                let bytes = pulled.bytes.unwrap_or_default();
                say!("  plugin    {} bytes, as the manifest says", bytes.len());
                say!("{GOOD}verified{GOOD:#}");
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => refused(error),
        }
    }
}

/// Reports a failed verification with exit code 1. Any other error becomes exit code 2.
fn refused(error: RegistryError) -> anyhow::Result<ExitCode> {
    match error {
        RegistryError::Unsigned { .. }
        | RegistryError::Digest { .. }
        | RegistryError::Artifact(_) => {
            say!(
                "{BAD}not verified{BAD:#}: {}",
                plain(&tollgate_admission::chain(&error))
            );
            Ok(ExitCode::from(FAILURE))
        }
        error => Err(error.into()),
    }
}
