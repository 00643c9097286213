//! `signatures`: who must have signed the artifacts of which repositories, and what else must be proven about them.

mod pattern;
mod read;
mod root;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use time::OffsetDateTime;

use super::plugin::{PluginConfig, Source};
use super::registry::Reference;

pub use pattern::TextPattern;
pub(super) use read::read_image_policies;
pub use root::{TrustedRoot, TufSource};
pub use semver::Version;

/// The signatures and attestations that artifacts must have before Tollgate loads them. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signatures {
    /// The first policy that covers a repository decides. Empty means that no signature is required.
    policies: Arc<[SignaturePolicy]>,
    /// Whether the policies were written as `policies`, and not as the short form `keys`.
    is_by_repository: bool,
    /// The trusted root of the section, which images use, too.
    root: Option<TrustedRoot>,
    /// The cache folder, which keeps the metadata of a TUF repository.
    cache: Option<PathBuf>,
}

/// The signatures and attestations that artifacts of some repositories must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignaturePolicy {
    /// The name in messages.
    pub name: Box<str>,
    /// The repositories: registry and repository, without a tag.
    pub repositories: Vec<TextPattern>,
    /// The accepted signers. Empty means that no signature is required.
    pub signers: Vec<Signer>,
    /// The number of different signers that must have signed.
    pub threshold: usize,
    /// The attestations that one of the signers must have made.
    pub attestations: Attestations,
    /// The lowest version that may be loaded.
    pub minimum_version: Option<Version>,
    /// The time before which a signature does not count.
    pub signed_after: Option<OffsetDateTime>,
    /// Whether a signature must name the repository that the artifact is loaded from.
    pub bind_repository: bool,
    /// The trusted root of keyless signatures: certificate authorities, transparency logs, timestamp authorities.
    pub trusted_root: Option<TrustedRoot>,
}

/// A person or a system that may sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// The name in messages.
    pub name: Box<str>,
    /// How the signer proves who they are.
    pub proof: SignerProof,
}

/// How a signer proves who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignerProof {
    /// By one of the public keys in a PEM file.
    Key(PathBuf),
    /// By a certificate of the trusted root that names an identity.
    Identity {
        /// The issuer of the identity, such as `https://token.actions.githubusercontent.com`.
        issuer: TextPattern,
        /// The identity: an email address or a URI.
        subject: TextPattern,
    },
}

/// The attestations that are required.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attestations {
    /// SLSA provenance.
    pub provenance: Option<Provenance>,
    /// Whether an SBOM must be attested, in the format of SPDX or CycloneDX.
    pub sbom: bool,
    /// Further predicate types that must be attested.
    pub predicate_types: Vec<Box<str>>,
}

/// The accepted content of SLSA provenance. An empty list accepts everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The builders.
    pub builders: Vec<TextPattern>,
    /// The repositories of the source.
    pub sources: Vec<TextPattern>,
}

/// The requirement for the artifacts of one repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureRequirement<'s> {
    /// The artifacts need no signature.
    Nothing,
    /// The artifacts must meet this policy.
    Policy(&'s SignaturePolicy),
    /// No policy covers the repository, so its artifacts are refused.
    Uncovered,
}

/// Name of the policy that the short form `keys` stands for.
const KEYS: &str = "signatures.keys";

// === impl Signatures ===

impl Signatures {
    /// One signature by any of these keys, in every repository. Without keys, no signature is required.
    #[must_use]
    pub fn of_keys(paths: Vec<PathBuf>) -> Self {
        if paths.is_empty() {
            return Self::default();
        }
        let signers = paths.into_iter().map(Signer::of_key).collect();
        Self {
            policies: Arc::from([SignaturePolicy::of_signers(KEYS, signers)]),
            ..Self::default()
        }
    }

    /// No requirements. `cache` is the folder in which sections that are read with this default keep the metadata of a
    /// TUF repository.
    pub(crate) fn kept_in(cache: Option<&Path>) -> Self {
        Self {
            cache: cache.map(Path::to_owned),
            ..Self::default()
        }
    }

    /// One policy for every repository.
    #[must_use]
    pub fn of_policy(policy: SignaturePolicy) -> Self {
        Self {
            policies: Arc::from([policy]),
            ..Self::default()
        }
    }

    /// Returns the requirement for the artifacts of a repository.
    #[must_use]
    pub fn requirement(&self, reference: &Reference) -> SignatureRequirement<'_> {
        if self.policies.is_empty() {
            return SignatureRequirement::Nothing;
        }
        let repository = reference.name();
        let mut policies = self.policies.iter();
        match policies.find(|policy| policy.covers(&repository)) {
            None => SignatureRequirement::Uncovered,
            Some(policy) if policy.signers.is_empty() => SignatureRequirement::Nothing,
            Some(policy) => SignatureRequirement::Policy(policy),
        }
    }

    /// Lists the files that the policies read: keys and trusted roots.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.policies.iter().flat_map(SignaturePolicy::files)
    }

    /// Lists the TUF repositories that publish the trusted roots of the policies.
    pub fn tuf_sources(&self) -> impl Iterator<Item = &Arc<TufSource>> {
        self.policies.iter().filter_map(SignaturePolicy::tuf_source)
    }

    /// Returns the trusted root of the section.
    pub(crate) fn root(&self) -> Option<&TrustedRoot> {
        self.root.as_ref()
    }

    /// Whether the requirements come from policies for repositories. If so, nothing else can change them.
    pub(crate) fn is_by_repository(&self) -> bool {
        self.is_by_repository
    }
}

// === impl SignaturePolicy ===

impl SignaturePolicy {
    /// A policy for every repository: one of the signers must have signed.
    #[must_use]
    pub fn of_signers(name: &str, signers: Vec<Signer>) -> Self {
        Self {
            name: name.into(),
            repositories: vec![TextPattern::everything()],
            signers,
            threshold: 1,
            attestations: Attestations::default(),
            minimum_version: None,
            signed_after: None,
            bind_repository: false,
            trusted_root: None,
        }
    }

    pub(super) fn covers(&self, repository: &str) -> bool {
        let mut patterns = self.repositories.iter();
        patterns.any(|pattern| pattern.matches(repository))
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let keys = self
            .signers
            .iter()
            .filter_map(|signer| match &signer.proof {
                SignerProof::Key(path) => Some(path),
                SignerProof::Identity { .. } => None,
            });
        let root = self.trusted_root.iter().filter(|_| self.has_identities());
        let root = root.flat_map(TrustedRoot::files);
        keys.chain(root)
    }

    /// Returns the TUF repository that publishes the trusted root, if a signer needs it.
    #[must_use]
    pub fn tuf_source(&self) -> Option<&Arc<TufSource>> {
        match &self.trusted_root {
            Some(TrustedRoot::Tuf(source)) if self.has_identities() => Some(source),
            Some(TrustedRoot::Tuf(_) | TrustedRoot::File(_)) | None => None,
        }
    }

    /// Whether a signer proves who they are by an identity, for which a trusted root is needed.
    #[must_use]
    pub fn has_identities(&self) -> bool {
        let mut signers = self.signers.iter();
        signers.any(|signer| matches!(signer.proof, SignerProof::Identity { .. }))
    }
}

// === impl Signer ===

impl Signer {
    /// The owner of the keys in a PEM file.
    #[must_use]
    pub fn of_key(path: PathBuf) -> Self {
        Self {
            name: path.display().to_string().into(),
            proof: SignerProof::Key(path),
        }
    }
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.proof {
            SignerProof::Key(path) => write!(f, "a key of {}", path.display()),
            SignerProof::Identity { issuer, subject } => {
                write!(f, "the identity {subject} of {issuer}")
            }
        }
    }
}

// === impl PluginConfig ===

impl PluginConfig {
    /// Returns the requirement for the plugin's artifact. A file has no requirement.
    #[must_use]
    pub fn signature_requirement(&self) -> SignatureRequirement<'_> {
        match &self.source {
            Source::Oci(reference) => self.signatures.requirement(reference),
            Source::File(_) => SignatureRequirement::Nothing,
        }
    }
}
