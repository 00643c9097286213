//! The policy for one artifact, with the keys and the trusted root that it names.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tollgate_config::{
    Reference, SignaturePolicy, SignatureRequirement, Signatures, SignerProof, TrustedRoot,
};

use super::bundle::{self, By};
use super::key::PublicKey;
use super::keyless::{Certified, Root};
use super::statement::{REPOSITORY, Statement};
use super::{Form, shown, simple};
use crate::{RegistryError, TrustedRoots};

/// The requirement for the artifacts of one repository.
pub(crate) enum Trust {
    /// Nothing.
    Nothing,
    /// No policy covers this repository, so nothing is trusted.
    Uncovered {
        /// Registry and repository.
        repository: String,
    },
    /// A policy.
    Policy(Box<Trusted>),
}

/// A policy, with the keys and the trusted root that it names.
pub(crate) struct Trusted {
    pub(super) policy: SignaturePolicy,
    /// Registry and repository of the artifact.
    pub(super) repository: String,
    /// The keys of each signer. An identity has none.
    keys: Vec<Vec<PublicKey>>,
    root: Option<Arc<Root>>,
}

/// A policy with the files that it names, for artifacts of any repository.
pub(crate) struct Readied {
    policy: SignaturePolicy,
    keys: Vec<Vec<PublicKey>>,
    root: Option<Arc<Root>>,
}

/// The meaning of one verified layer.
#[derive(Debug)]
pub(crate) enum Proof {
    /// A signer has signed the artifact.
    Signature {
        /// The place of the signer in the policy.
        signer: usize,
        /// Completes "one …".
        text: String,
    },
    /// A signer has attested something about the artifact.
    Attestation {
        statement: Statement,
        /// Completes "one …".
        text: String,
    },
    /// The layer proves nothing, for this reason. The text completes "one …".
    Nothing(String),
}

// === impl Trust ===

impl Trust {
    /// Finds the policy for an artifact, and reads its files.
    pub(crate) fn read(
        signatures: &Signatures,
        reference: &Reference,
        roots: &TrustedRoots,
    ) -> Result<Self, RegistryError> {
        Ok(match signatures.requirement(reference) {
            SignatureRequirement::Nothing => Self::Nothing,
            SignatureRequirement::Uncovered => Self::Uncovered {
                repository: reference.name(),
            },
            SignatureRequirement::Policy(policy) => {
                Self::Policy(Box::new(Readied::read(policy, roots)?.of(reference)))
            }
        })
    }
}

// === impl Readied ===

impl Readied {
    /// Reads the keys and the trusted root of a policy.
    pub(crate) fn read(
        policy: &SignaturePolicy,
        roots: &TrustedRoots,
    ) -> Result<Self, RegistryError> {
        let keys = policy.signers.iter().map(|signer| match &signer.proof {
            SignerProof::Key(path) => PublicKey::read(path),
            SignerProof::Identity { .. } => Ok(Vec::new()),
        });
        let keys = keys.collect::<Result<_, _>>()?;
        let root = policy.trusted_root.as_ref();
        let root = root.filter(|_| policy.has_identities());
        let root = root.map(|root| match root {
            TrustedRoot::File(path) => Root::read(path),
            TrustedRoot::Tuf(source) => roots.current(source),
        });
        let root = root.transpose()?;
        Ok(Self {
            policy: policy.clone(),
            keys,
            root: root.map(Arc::new),
        })
    }

    /// The policy for the artifacts of one repository.
    pub(crate) fn of(&self, reference: &Reference) -> Trusted {
        Trusted {
            policy: self.policy.clone(),
            repository: reference.name(),
            keys: self.keys.clone(),
            root: self.root.clone(),
        }
    }

    /// The policy for the artifacts of one repository, with the trusted root that is in use now. A root from a file stays
    /// the one that was read.
    pub(crate) fn now_of(
        &self,
        reference: &Reference,
        roots: &TrustedRoots,
    ) -> Result<Trusted, RegistryError> {
        let current = self
            .policy
            .tuf_source()
            .map(|source| roots.current(source).map(Arc::new));
        let trusted = self.of(reference);
        Ok(match current.transpose()? {
            Some(root) => Trusted {
                root: Some(root),
                ..trusted
            },
            None => trusted,
        })
    }

    /// The policy as it was written.
    pub(crate) fn policy(&self) -> &SignaturePolicy {
        &self.policy
    }

    /// A digest of the policy and its keys. With [`root_digest`](Self::root_digest), it is of everything that decides whether
    /// an artifact meets the policy.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(format!("{:?}", self.policy));
        for keys in &self.keys {
            digest.update((keys.len() as u64).to_le_bytes());
            keys.iter().for_each(|key| digest.update(key.digest()));
        }
        digest.finalize().into()
    }

    /// The digest of the trusted root that [`now_of`](Self::now_of) uses, without reading anything. None if no signer needs a
    /// root.
    pub(crate) fn root_digest(&self, roots: &TrustedRoots) -> Option<[u8; 32]> {
        let in_use = self.policy.tuf_source();
        let in_use = in_use.and_then(|source| roots.digest(source));
        in_use.or_else(|| self.root.as_deref().map(|root| *root.digest()))
    }
}

// === impl Trusted ===

impl Trusted {
    /// A policy with keys and a trusted root that were read already.
    pub(crate) fn of(
        policy: SignaturePolicy,
        reference: &Reference,
        keys: Vec<Vec<PublicKey>>,
        root: Option<Root>,
    ) -> Self {
        Self {
            policy,
            repository: reference.name(),
            keys,
            root: root.map(Arc::new),
        }
    }

    /// The name of the policy.
    pub(crate) fn name(&self) -> &str {
        &self.policy.name
    }

    /// Where the trusted root comes from, as people read it. None if no signer needs one.
    pub(crate) fn root_place(&self) -> Option<&str> {
        self.root.as_deref().map(Root::place)
    }

    /// Whether the policy requires attestations, which may be long.
    pub(super) fn wants_attestations(&self) -> bool {
        let wanted = &self.policy.attestations;
        wanted.sbom || wanted.provenance.is_some() || !wanted.predicate_types.is_empty()
    }

    /// The signers as messages name them, with the fingerprints of their keys.
    pub(super) fn signers(&self) -> Vec<String> {
        let signers = self.policy.signers.iter().zip(&self.keys);
        let signers = signers.map(|(signer, keys)| match signer.proof {
            SignerProof::Key(_) => {
                let keys: Vec<&str> = keys.iter().map(|key| key.fingerprint.as_str()).collect();
                format!("{signer} ({})", keys.join(", "))
            }
            SignerProof::Identity { .. } => signer.to_string(),
        });
        signers.collect()
    }

    /// Finds out what a layer of this form proves about the manifest with this digest.
    pub(crate) fn examine(&self, digest: &str, layer: &[u8], form: &Form) -> Proof {
        let owners: Vec<(usize, &[PublicKey])> = self
            .keys
            .iter()
            .enumerate()
            .filter(|(_, keys)| !keys.is_empty())
            .map(|(owner, keys)| (owner, keys.as_slice()))
            .collect();
        let proven = match form {
            Form::Simple(signature) => self.simple(&owners, digest, layer, signature),
            Form::Bundle => self.bundle(&owners, digest, layer),
        };
        proven.unwrap_or_else(Proof::Nothing)
    }

    fn simple(
        &self,
        owners: &[(usize, &[PublicKey])],
        digest: &str,
        payload: &[u8],
        signature: &[u8],
    ) -> Result<Proof, String> {
        let (signer, fingerprint, named) = simple::verify(owners, digest, payload, signature)?;
        let named = (!named.is_empty()).then_some(named.as_str());
        self.check_repository(named, "docker-reference")?;
        Ok(Proof::Signature {
            signer,
            text: format!("by {} ({fingerprint})", self.policy.signers[signer]),
        })
    }

    fn bundle(
        &self,
        owners: &[(usize, &[PublicKey])],
        digest: &str,
        bundle: &[u8],
    ) -> Result<Proof, String> {
        let opened = bundle::open(owners, self.root.as_deref(), digest, bundle);
        let (by, statement) = opened.map_err(|refusal| refusal.to_string())?;
        let (signer, who) = match by {
            By::Key { owner, fingerprint } => (
                owner,
                format!("{} ({fingerprint})", self.policy.signers[owner]),
            ),
            By::Certificate(certified) => self.identity(&certified)?,
        };
        if !statement.is_signature() {
            let kind = shown(&statement.predicate_type);
            return Ok(Proof::Attestation {
                text: format!("that attests {kind}, which is not a signature, by {who}"),
                statement,
            });
        }
        self.check_repository(statement.repository(digest), REPOSITORY)?;
        Ok(Proof::Signature {
            signer,
            text: format!("by {who}"),
        })
    }

    /// Finds the signer with a verified identity.
    fn identity(&self, certified: &Certified) -> Result<(usize, String), String> {
        let (subject, issuer) = (&certified.subject, &certified.issuer);
        let who = format!("the identity {} of {}", shown(subject), shown(issuer));
        let mut signers = self.policy.signers.iter().enumerate();
        let signer = signers.find(|(_, signer)| match &signer.proof {
            SignerProof::Key(_) => false,
            SignerProof::Identity {
                issuer: issuers,
                subject: subjects,
            } => issuers.matches(issuer) && subjects.matches(subject),
        });
        let Some((signer, _)) = signer else {
            return Err(format!("by {who}, who is not a signer"));
        };
        if let Some(earliest) = self.policy.signed_after
            && certified.issued < earliest
        {
            let issued = certified.issued;
            return Err(format!(
                "by {who}, with a certificate of {issued}; expected one after {earliest} (signedAfter)"
            ));
        }
        Ok((signer, who))
    }

    /// Checks that a signature names the repository of the artifact, if the policy demands that.
    fn check_repository(&self, named: Option<&str>, place: &str) -> Result<(), String> {
        let wanted = &self.repository;
        if !self.policy.bind_repository || named.is_some_and(|named| normal(named) == *wanted) {
            return Ok(());
        }
        let named = named.map_or("no repository".to_owned(), |named| {
            format!("the repository {}", shown(named))
        });
        Err(format!(
            "for {named} ({place}); expected {wanted} (bindRepository)"
        ))
    }
}

/// A repository in the spelling of [`Reference::name`].
fn normal(repository: &str) -> String {
    let Some((registry, repository)) = repository.split_once('/') else {
        return repository.to_owned();
    };
    let reference = Reference {
        registry: registry.to_owned(),
        repository: repository.to_owned(),
        tag: None,
        digest: None,
    };
    reference.name()
}
