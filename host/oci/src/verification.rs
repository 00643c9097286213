//! Verifies that an artifact is signed as its policy requires, with a registry or with the cache alone.

use tokio::time::timeout;
use tollgate_config::{Reference, SignatureRequirement, Signatures};

use super::cache::Cache;
use super::session::Session;
use super::signature::{self, Assessment, Found, Proof, SignatureLayers, Trust, Trusted};
use super::{Hold, MAX_MANIFEST_BYTES, Registry, RegistryError, describe};

/// The requirements of a policy for an artifact, and the signatures and attestations that were found.
#[derive(Debug)]
pub struct Signed {
    /// Digest of the manifest.
    pub digest: String,
    /// The tag of the signatures in the format that cosign wrote up to its version 2.
    pub tag: String,
    /// The name of the policy; None if no signature is required.
    pub policy: Option<String>,
    /// The trusted root that keyless signatures were verified with: its source, version and expiry. None if no signer
    /// needs one.
    pub root: Option<String>,
    /// The rules of the policy, one in each line.
    pub expected: Vec<String>,
    /// The signatures and attestations that were found.
    pub found: Vec<Found>,
    /// The rules that are not met. Empty if the artifact is trusted.
    pub missing: Vec<String>,
}

/// Why a signature does not count whose bytes were not read.
const TOO_LONG: &str = "that is too long";
/// Why a manifest of signatures does not count.
const UNREADABLE: &str = "in a manifest that cannot be parsed";
/// The name in messages where no policy covers a repository.
const POLICIES: &str = "signatures.policies";

// === impl Registry ===

impl Registry {
    /// Finds out who has signed an artifact, and whether that meets the policy of its repository. The artifact itself is
    /// not pulled.
    ///
    /// A trusted root from a TUF repository is refreshed first. If that fails, the kept one counts.
    ///
    /// # Errors
    /// When the signatures or the files of the policy cannot be read.
    pub async fn signatures(
        &self,
        reference: &Reference,
        signatures: &Signatures,
    ) -> Result<Signed, RegistryError> {
        if let SignatureRequirement::Policy(policy) = signatures.requirement(reference) {
            let tuf: Vec<_> = policy.tuf_source().into_iter().cloned().collect();
            self.roots.refresh(&tuf).await;
        }
        let trust = Trust::read(signatures, reference, &self.roots)?;
        let looking = self.look_for_signatures(reference, &trust);
        let signed = timeout(self.config.timeout, looking).await;
        signed.unwrap_or_else(|_elapsed| Err(self.too_slow(&reference.registry)))
    }

    async fn look_for_signatures(
        &self,
        reference: &Reference,
        trust: &Trust,
    ) -> Result<Signed, RegistryError> {
        let mut session = self.session(reference)?;
        let (digest, manifest) = session.manifest(session.name(), MAX_MANIFEST_BYTES).await?;
        describe::expect_digest(reference, &digest)?;
        let mut signed = Signed {
            tag: signature::tag(&digest),
            policy: None,
            root: None,
            expected: Vec::new(),
            found: Vec::new(),
            missing: Vec::new(),
            digest: digest.clone(),
        };
        match trust {
            Trust::Nothing => {
                let mut count = 0;
                for place in signature::PLACES {
                    let mut names = session.signature_names(place, &digest).await?;
                    while let Some(name) = session.next_name(&mut names).await? {
                        let found = session.signature(place, &name).await?;
                        let found = found.map(|(_, manifest)| place.signatures(&manifest));
                        count +=
                            found.map_or(0, |found| found.map_or(0, |found| found.layers.len()));
                    }
                }
                let unread = Found {
                    is_trusted: false,
                    text: "that was not verified".to_owned(),
                };
                signed.found = vec![unread; count];
            }
            Trust::Uncovered { repository } => {
                signed.policy = Some(POLICIES.to_owned());
                signed.missing = vec![uncovered(repository)];
            }
            Trust::Policy(trusted) => {
                let mut assessment = Assessment::new(trusted, &digest, &manifest);
                self.collect(&mut session, trusted, &mut assessment, None)
                    .await?;
                signed.policy = Some(trusted.name().to_owned());
                signed.root = trusted.root_place().map(str::to_owned);
                signed.expected = assessment.expected();
                signed.missing = assessment.missing();
                signed.found = assessment.into_found();
            }
        }
        Ok(signed)
    }

    /// Checks that an artifact meets the policy of its repository, and keeps the proof in the cache.
    pub(super) async fn verify(
        &self,
        session: &mut Session<'_>,
        trust: &Trust,
        digest: &str,
        manifest: &[u8],
        hold: &Hold,
    ) -> Result<(), RegistryError> {
        let trusted = match trust {
            Trust::Nothing => return Ok(()),
            Trust::Uncovered { repository } => return Err(not_covered(digest, repository)),
            Trust::Policy(trusted) => trusted,
        };
        let mut assessment = Assessment::new(trusted, digest, manifest);
        let kept = self
            .collect(session, trusted, &mut assessment, Some(hold))
            .await?;
        if !assessment.is_met() {
            return Err(assessment.refusal());
        }
        if let Some(cache) = &self.cache {
            cache.resolve(&signature_of(session.reference(), digest), &kept.join("\n"));
        }
        Ok(())
    }

    /// Examines the signatures of an artifact. With a hold, ends when the policy is met, keeps what proves something, and
    /// returns the digests of the manifests that it is in. A registry that is too slow to list all signatures gives no verdict,
    /// unless those that were found meet the policy.
    pub(super) async fn collect(
        &self,
        session: &mut Session<'_>,
        trusted: &Trusted,
        assessment: &mut Assessment<'_>,
        hold: Option<&Hold>,
    ) -> Result<Vec<String>, RegistryError> {
        let mut kept = Vec::new();
        let mut too_slow = None;
        let digest = assessment.digest().to_owned();
        for place in signature::PLACES {
            let mut names = session.signature_names(place, &digest).await?;
            // One after another: only one of them is in memory.
            while let Some(name) = session.next_name(&mut names).await? {
                let Some((of_manifest, manifest)) = session.signature(place, &name).await? else {
                    continue;
                };
                let Ok(signatures) = place.signatures(&manifest) else {
                    assessment.add(Proof::Nothing(UNREADABLE.to_owned()));
                    continue;
                };
                let mut proves = false;
                if let Some(unread) = signatures.unread(&of_manifest) {
                    assessment.leave_out(unread);
                }
                for (layer, form) in signatures.layers {
                    if layer.size > form.max_bytes(trusted) {
                        assessment.add(Proof::Nothing(TOO_LONG.to_owned()));
                        continue;
                    }
                    let cached = hold.and_then(|hold| self.cached(hold, &layer.digest, layer.size));
                    let bytes = match cached {
                        Some(bytes) => bytes,
                        None => session.blob(&layer).await?,
                    };
                    if assessment.add(trusted.examine(&digest, &bytes, &form)) {
                        proves = true;
                        if let (Some(cache), Some(hold)) = (&self.cache, hold) {
                            cache.put(hold, &layer.digest, &bytes);
                        }
                    }
                }
                if proves {
                    if let (Some(cache), Some(hold)) = (&self.cache, hold) {
                        cache.put(hold, &of_manifest, &manifest);
                    }
                    kept.push(of_manifest);
                }
                if hold.is_some() && assessment.is_met() {
                    return Ok(kept);
                }
            }
            if let Some(unread) = names.unread() {
                if names.is_too_slow() {
                    too_slow = Some(unread.clone());
                }
                assessment.leave_out(unread);
            }
        }
        match too_slow.filter(|_| !assessment.is_met()) {
            Some(unread) => Err(RegistryError::ListTooSlow {
                host: session.reference().registry.clone(),
                unread,
            }),
            None => Ok(kept),
        }
    }

    /// The same check with the cache alone, for when the registry is unavailable; None if the cache lacks the proof.
    pub(super) fn is_signed_in(
        cache: &Cache,
        reference: &Reference,
        trust: &Trust,
        digest: &str,
        hold: &Hold,
    ) -> Option<Result<(), RegistryError>> {
        let trusted = match trust {
            Trust::Nothing => return Some(Ok(())),
            Trust::Uncovered { repository } => return Some(Err(not_covered(digest, repository))),
            Trust::Policy(trusted) => trusted,
        };
        let held = |digest: &str, limit_bytes: u64| {
            hold.add(digest);
            cache.get(digest, limit_bytes)
        };
        let manifest = held(digest, MAX_MANIFEST_BYTES)?;
        let mut assessment = Assessment::new(trusted, digest, &manifest);
        let proofs = cache.resolved(&signature_of(reference, digest))?;
        for proof in proofs.lines() {
            let manifest = held(proof, MAX_MANIFEST_BYTES)?;
            let signatures = SignatureLayers::read(&manifest).ok()?;
            for (layer, form) in signatures.layers {
                if let Some(bytes) = held(&layer.digest, form.max_bytes(trusted)) {
                    assessment.add(trusted.examine(digest, &bytes, &form));
                }
            }
        }
        Some(match assessment.is_met() {
            true => Ok(()),
            false => Err(assessment.refusal()),
        })
    }

    /// The digests of the manifests that prove that an artifact was signed.
    pub(super) fn proofs(cache: &Cache, reference: &Reference, digest: &str) -> Vec<String> {
        let proofs = cache.resolved(&signature_of(reference, digest));
        let proofs = proofs.unwrap_or_default();
        proofs.lines().map(str::to_owned).collect()
    }
}

// === impl Signed ===

impl Signed {
    /// Whether a policy required something, and the artifact meets it.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.policy.is_some() && self.missing.is_empty()
    }
}

fn uncovered(repository: &str) -> String {
    format!(
        "repositories: no policy covers {repository}; add one, with `signers: []` if no signature is required"
    )
}

fn not_covered(digest: &str, repository: &str) -> RegistryError {
    RegistryError::Unsigned {
        digest: digest.to_owned(),
        policy: POLICIES.to_owned(),
        missing: uncovered(repository),
        found: "nothing, because signatures were not read".to_owned(),
    }
}

/// The name under which the cache lists the proofs of a manifest.
fn signature_of(reference: &Reference, digest: &str) -> String {
    let Reference {
        registry,
        repository,
        ..
    } = reference;
    format!("{registry}/{repository}:{}", signature::tag(digest))
}
