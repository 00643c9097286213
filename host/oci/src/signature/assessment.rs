//! Compares the signatures and attestations of an artifact with the requirements of its policy.

use std::collections::BTreeSet;

use tollgate_config::{Provenance, TextPattern, Version};

use super::statement::{Origin, Statement};
use super::trust::{Proof, Trusted};
use super::{shown, tag};
use crate::RegistryError;
use crate::manifest::Manifest;

/// The signatures and attestations of an artifact that were found so far.
pub(crate) struct Assessment<'t> {
    trusted: &'t Trusted,
    digest: &'t str,
    /// The version in the manifest.
    version: Option<String>,
    signers: BTreeSet<usize>,
    provenance: Vec<Origin>,
    has_sbom: bool,
    predicate_types: BTreeSet<String>,
    found: Vec<Found>,
    /// Says what was not looked at, although signatures may be there.
    left_out: Vec<String>,
}

/// A signature or attestation that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whether it is valid and by a signer of the policy.
    pub is_trusted: bool,
    /// The signer, or the reason why it does not count. Completes "one …".
    pub text: String,
}

/// Maximum number of signatures in an error, and of notes on what was not looked at.
const MOST_SHOWN: usize = 8;
/// The annotation of a manifest that holds the version.
const VERSION: &str = "org.opencontainers.image.version";

// === impl Assessment ===

impl<'t> Assessment<'t> {
    /// Begins the assessment of an artifact. `manifest` has the digest.
    pub(crate) fn new(trusted: &'t Trusted, digest: &'t str, manifest: &[u8]) -> Self {
        let manifest = Manifest::read(manifest).ok();
        let version = manifest.and_then(|mut manifest| manifest.annotations.remove(VERSION));
        Self {
            trusted,
            digest,
            version,
            signers: BTreeSet::new(),
            provenance: Vec::new(),
            has_sbom: false,
            predicate_types: BTreeSet::new(),
            found: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Adds what a layer proves. Returns whether it proves anything.
    pub(crate) fn add(&mut self, proof: Proof) -> bool {
        let is_trusted = !matches!(proof, Proof::Nothing(_));
        let text = match proof {
            Proof::Signature { signer, text } => {
                self.signers.insert(signer);
                text
            }
            Proof::Attestation { statement, text } => {
                self.attested(&statement);
                text
            }
            Proof::Nothing(text) => text,
        };
        self.found.push(Found { is_trusted, text });
        is_trusted
    }

    fn attested(&mut self, statement: &Statement) {
        self.provenance.extend(statement.origin());
        self.has_sbom |= statement.is_sbom();
        self.predicate_types
            .insert(statement.predicate_type.clone());
    }

    /// Notes that signatures may be where nobody has looked.
    pub(crate) fn leave_out(&mut self, what: String) {
        if self.left_out.len() < MOST_SHOWN {
            self.left_out.push(what);
        }
    }

    pub(crate) fn digest(&self) -> &'t str {
        self.digest
    }

    /// The names of the signers who have signed.
    pub(crate) fn signer_names(&self) -> Vec<Box<str>> {
        let signers = self.signers.iter();
        let names = signers.map(|signer| self.trusted.policy.signers[*signer].name.clone());
        names.collect()
    }

    /// Whether there is nothing to be found.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty() && self.left_out.is_empty()
    }

    /// Whether the policy is met.
    pub(crate) fn is_met(&self) -> bool {
        self.broken_rules().is_empty()
    }

    /// Returns the rules of the policy that are not met, each with the expectation and the finding. If there are any, says what
    /// was not looked at.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut missing = self.broken_rules();
        if !missing.is_empty() {
            missing.extend(self.left_out.clone());
        }
        missing
    }

    fn broken_rules(&self) -> Vec<String> {
        let rules = [
            self.lacks_signers(),
            self.lacks_provenance(),
            self.lacks_sbom(),
            self.is_too_old(),
        ];
        let rules = rules.into_iter().flatten();
        rules.chain(self.lacks_predicates()).collect()
    }

    fn lacks_signers(&self) -> Option<String> {
        let (wanted, found) = (self.trusted.policy.threshold, self.signers.len());
        if found >= wanted {
            return None;
        }
        let signers = self.trusted.signers().join(", ");
        let wanted = match wanted {
            1 => "a signature".to_owned(),
            wanted => format!("signatures of {wanted} signers"),
        };
        let found = match found {
            0 => String::new(),
            found => format!(", found {found}"),
        };
        Some(format!("signers: expected {wanted} by {signers}{found}"))
    }

    fn lacks_provenance(&self) -> Option<String> {
        let wanted = self.trusted.policy.attestations.provenance.as_ref()?;
        if self.provenance.iter().any(|origin| fits(wanted, origin)) {
            return None;
        }
        let expected = format!(
            "builder {}, source {}",
            or_any(&wanted.builders),
            or_any(&wanted.sources)
        );
        let found = self.provenance.iter().map(|origin| {
            let text = |value: &Option<String>| value.as_deref().map_or("none".to_owned(), shown);
            format!(
                "builder {}, source {}",
                text(&origin.builder),
                text(&origin.source)
            )
        });
        let found: Vec<String> = found.collect();
        let found = match found.is_empty() {
            true => "none".to_owned(),
            false => found.join("; "),
        };
        Some(format!(
            "attestations.provenance: expected SLSA provenance of a signer with {expected}, found {found}"
        ))
    }

    fn lacks_sbom(&self) -> Option<String> {
        let lacks = self.trusted.policy.attestations.sbom && !self.has_sbom;
        lacks.then(|| {
            "attestations.sbom: expected an SBOM (SPDX or CycloneDX) attested by a signer, found none"
                .to_owned()
        })
    }

    fn lacks_predicates(&self) -> impl Iterator<Item = String> {
        let wanted = &self.trusted.policy.attestations.predicate_types;
        let lacking = wanted
            .iter()
            .filter(|kind| !self.predicate_types.contains(&***kind));
        lacking.map(|kind| {
            format!("attestations.predicateTypes: expected {kind} attested by a signer, found none")
        })
    }

    fn is_too_old(&self) -> Option<String> {
        let minimum = self.trusted.policy.minimum_version.as_ref()?;
        let found = match &self.version {
            None => "none".to_owned(),
            Some(text) => match parse_version(text) {
                Some(version) if version >= *minimum => return None,
                Some(version) => version.to_string(),
                None => format!("{}, which is no version such as 1.4.0", shown(text)),
            },
        };
        Some(format!(
            "minimumVersion: expected {minimum} or later, found {found} (annotation {VERSION})"
        ))
    }

    /// Returns the rules of the policy, one in each line.
    pub(crate) fn expected(&self) -> Vec<String> {
        let policy = &self.trusted.policy;
        let signers = self.trusted.signers();
        let mut lines = vec![match (policy.threshold, signers.as_slice()) {
            (1, [signer]) => format!("a signature by {signer}"),
            (1, signers) => format!("a signature by one of: {}", signers.join(", ")),
            (count, signers) => format!("signatures by {count} of: {}", signers.join(", ")),
        }];
        if policy.bind_repository {
            lines.push(format!(
                "made for the repository {}",
                self.trusted.repository
            ));
        }
        if let Some(after) = policy.signed_after {
            lines.push(format!("with a certificate issued after {after}"));
        }
        if let Some(provenance) = &policy.attestations.provenance {
            let (builders, sources) = (or_any(&provenance.builders), or_any(&provenance.sources));
            lines.push(format!(
                "SLSA provenance: builder {builders}, source {sources}"
            ));
        }
        if policy.attestations.sbom {
            lines.push("an attested SBOM".to_owned());
        }
        let types = policy.attestations.predicate_types.iter();
        lines.extend(types.map(|kind| format!("an attestation of {kind}")));
        if let Some(minimum) = &policy.minimum_version {
            lines.push(format!("version {minimum} or later"));
        }
        lines
    }

    /// Returns the signatures and attestations that were found.
    pub(crate) fn into_found(self) -> Vec<Found> {
        self.found
    }

    /// The error that names the rules that are not met.
    pub(crate) fn refusal(&self) -> RegistryError {
        let found = self.found.iter().take(MOST_SHOWN);
        let mut found: Vec<String> = found.map(|found| format!("one {}", found.text)).collect();
        if found.is_empty() {
            let tag = tag(self.digest);
            found.push(format!("none, under the tag {tag} and among the referrers"));
        }
        if self.found.len() > MOST_SHOWN {
            found.push(format!("and {} more", self.found.len() - MOST_SHOWN));
        }
        RegistryError::Unsigned {
            digest: self.digest.to_owned(),
            policy: self.trusted.policy.name.to_string(),
            missing: self.missing().join("; "),
            found: found.join(", "),
        }
    }
}

/// Whether both parts of an origin are allowed.
fn fits(wanted: &Provenance, origin: &Origin) -> bool {
    let allows = |patterns: &[TextPattern], value: &Option<String>| {
        patterns.is_empty()
            || value
                .as_ref()
                .is_some_and(|value| patterns.iter().any(|pattern| pattern.matches(value)))
    };
    allows(&wanted.builders, &origin.builder) && allows(&wanted.sources, &origin.source)
}

fn or_any(patterns: &[TextPattern]) -> String {
    let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    match patterns.is_empty() {
        true => "any".to_owned(),
        false => patterns.join(" or "),
    }
}

/// Reads a version such as `1.4.0`, `v1.4.0` or `1.4`.
fn parse_version(text: &str) -> Option<Version> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let is_short = text.split('.').count() < 3
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let zeros = match text.split('.').count() {
        1 if is_short => ".0.0",
        2 if is_short => ".0",
        _ => "",
    };
    Version::parse(&format!("{text}{zeros}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_in_common_forms() {
        for (text, version) in [
            ("1.4.0", Some("1.4.0")),
            ("v1.4.0", Some("1.4.0")),
            ("1.4", Some("1.4.0")),
            ("2", Some("2.0.0")),
            ("1.4.0-rc.1", Some("1.4.0-rc.1")),
            ("latest", None),
            ("", None),
            ("1.4.0.0", None),
        ] {
            let read = parse_version(text).map(|version| version.to_string());
            assert_eq!(read.as_deref(), version, "{text}");
        }
    }
}
