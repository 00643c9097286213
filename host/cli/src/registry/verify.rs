//! `tollgate verify`

use std::process::ExitCode;

use clap::Args;
use tollgate_config::Reference;
use tollgate_oci::{Order, RegistryError};

use super::{Access, Signers, block_on, reference};
use crate::FAILURE;
use crate::terminal::{BAD, GOOD, plain, say};

/// Verify that a plugin in a registry is signed as required, and that its bytes are the signed ones.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Verify {
    /// Reference of the plugin, such as oci://registry.example.com/policies/image-rewrite:1.4
    #[arg(value_name = "REFERENCE", value_parser = reference)]
    of: Reference,
    #[command(flatten)]
    signers: Signers,
    #[command(flatten)]
    access: Access,
}

const EXAMPLES: &str = "\
Examples:
  tollgate verify oci://registry.example.com/policies/image-rewrite:1.4 --key cosign.pub
  tollgate verify oci://registry.example.com/policies/image-rewrite:1.4 --config tollgate.yaml
  tollgate verify oci://registry.example.com/policies/image-rewrite:1.4 --trusted-root trusted_root.json \\
    --issuer https://token.actions.githubusercontent.com \\
    --identity 'https://github.com/example/policies/.github/workflows/release.yml@refs/tags/*'

Exit code: 0 when the signatures and the content are valid, 1 when one is not, 2 when they could not be checked.";

// === impl Verify ===

impl Verify {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (registry, limit_bytes) = self.access.registry(&self.of)?;
        // The current content of the registry counts, not a cached copy.
        let registry = registry.without_cache();
        let signatures = self.access.signatures(&self.signers)?;
        say!("{}", self.of);
        let signed = match block_on(registry.signatures(&self.of, &signatures))? {
            Ok(signed) => signed,
            Err(error) => return refused(error),
        };
        say!("  digest    {}", signed.digest);
        let Some(policy) = &signed.policy else {
            anyhow::bail!(
                "nothing is required of {}: pass --key, or --identity with --issuer and --trusted-root, or --config \
                 with a file that has `signatures`",
                self.of
            );
        };
        say!("  policy    {}", plain(policy));
        if let Some(root) = &signed.root {
            say!("  root      {}", plain(root));
        }
        for (index, expected) in signed.expected.iter().enumerate() {
            let label = if index == 0 { "expected" } else { "" };
            say!("  {label:<8}  {}", plain(expected));
        }
        if signed.found.is_empty() {
            let tag = &signed.tag;
            say!("  found     none, under the tag {tag} and among the referrers");
        }
        for (index, found) in signed.found.iter().enumerate() {
            let label = if index == 0 { "found" } else { "" };
            let text = plain(&found.text);
            match found.is_trusted {
                true => say!("  {label:<8}  {GOOD}one {text}{GOOD:#}"),
                false => say!("  {label:<8}  {BAD}one {text}{BAD:#}"),
            }
        }
        if !signed.is_trusted() {
            for missing in &signed.missing {
                say!("{BAD}not verified{BAD:#}: {}", plain(missing));
            }
            return Ok(ExitCode::from(FAILURE));
        }
        let pinned = Reference {
            digest: Some(signed.digest),
            ..self.of
        };
        let order = Order {
            reference: &pinned,
            signatures: &signatures,
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
