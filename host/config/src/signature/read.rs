//! Reads `signatures` from a configuration.

use std::path::Path;
use std::sync::Arc;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{
    Attestations, Provenance, SignaturePolicy, Signatures, Signer, SignerProof, TextPattern,
    TrustedRoot, Version,
};
use crate::plugin::{Source, is_label};
use crate::read::{Fields, Node, quoted};

/// The largest number of policies.
const MOST_POLICIES: usize = 64;
/// The largest number of elements of a list in a policy.
const MOST_ELEMENTS: usize = 32;
/// Longest pattern, and longest predicate type.
const LONGEST_PATTERN_BYTES: usize = 512;
const LONGEST_NAME: usize = 63;

const POLICIES_EXPECTED: &str =
    "a list of policies; the first one that covers a repository decides";
const NAME_EXPECTED: &str = "a name of at most 63 characters of a-z, 0-9 and -, such as release";
const IMAGE_POLICIES_EXPECTED: &str = "a list of policies, each with a name and signers";
const REPOSITORIES_EXPECTED: &str =
    "a list of repositories without tags, such as registry.example.com/policies/*";
const SIGNERS_EXPECTED: &str =
    "a list of signers, each with a key, or with issuer and subject; [] requires no signature";
const PATTERN_EXPECTED: &str =
    "a text of at most 512 bytes; * stands for characters except /, and ** for any characters";
const PREDICATE_EXPECTED: &str = "a predicate type, such as https://example.com/review/v1";
const THRESHOLD_EXPECTED: &str = "a number from 1 to the number of signers";
const VERSION_EXPECTED: &str = "a version, such as 1.4.0";
const TIME_EXPECTED: &str = "a day, such as 2026-01-31, or a time, such as 2026-01-31T18:00:00Z";

/// The artifacts that a policy is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Plugins,
    Images,
}

// === impl Signatures ===

impl Signatures {
    /// Reads `signatures` of an entry. If no artifact can be signed, the key is a problem.
    pub(crate) fn read_entry(
        fields: &mut Fields<'_>,
        source: Option<&Source>,
        folder: &Path,
        default: &Self,
    ) -> Self {
        let has = fields.has("signatures");
        let read = Self::read(fields.section("signatures"), folder, default);
        if !matches!(source, Some(Source::Oci(_))) {
            if has {
                let message = "expected none: only artifacts of registries are signed, and `source` is a file";
                fields.problem("signatures", message);
            }
            return Self::default();
        }
        if has && default.is_by_repository() {
            let message = "expected none: signatures.policies of the file decide for every repository; add a policy there";
            fields.problem("signatures", message);
            return default.clone();
        }
        read
    }

    /// Reads `signatures` of a file or an entry.
    pub(crate) fn read(mut fields: Fields<'_>, folder: &Path, default: &Self) -> Self {
        let keys = fields
            .optional("keys")
            .and_then(|node| node.elements("PEM files with public keys"));
        let root = TrustedRoot::read(&mut fields, folder, default.cache.as_deref());
        let root = root.or_else(|| default.root.clone());
        let policies = fields
            .optional("policies")
            .and_then(|node| elements(&node, "policies", MOST_POLICIES));
        let both = fields.has("keys") && fields.has("policies");
        if both {
            fields.problem(
                "keys",
                "expected either keys or policies: a policy names its keys under `signers`",
            );
        }
        if policies.as_ref().is_some_and(Vec::is_empty) {
            fields.problem(
                "policies",
                format!("got an empty list, expected {POLICIES_EXPECTED}"),
            );
        }
        let policies =
            policies.map(|nodes| read_policies(&nodes, folder, root.as_ref(), For::Plugins));
        fields.finish();
        let read = match (policies, keys) {
            (Some(policies), _) => Self {
                policies: Arc::from(policies),
                is_by_repository: true,
                ..Self::default()
            },
            (None, Some(nodes)) => {
                let paths = nodes.iter().filter_map(|node| node.path_in(folder));
                Self::of_keys(paths.collect())
            }
            (None, None) => default.clone(),
        };
        Self {
            root,
            cache: default.cache.clone(),
            ..read
        }
    }
}

/// Reads the policies of images. A plugin names them, so a policy without `repositories` covers every repository. A
/// policy without signers would verify nothing.
pub(crate) fn read_image_policies(
    fields: &mut Fields<'_>,
    folder: &Path,
    root: Option<&TrustedRoot>,
) -> Option<Vec<SignaturePolicy>> {
    let node = fields.required("policies", IMAGE_POLICIES_EXPECTED)?;
    let nodes = elements(&node, "policies", MOST_POLICIES)?;
    if nodes.is_empty() {
        node.reject(IMAGE_POLICIES_EXPECTED);
        return None;
    }
    let policies = read_policies(&nodes, folder, root, For::Images);
    (policies.len() == nodes.len()).then_some(policies)
}

fn read_policies(
    nodes: &[Node<'_>],
    folder: &Path,
    root: Option<&TrustedRoot>,
    purpose: For,
) -> Vec<SignaturePolicy> {
    let mut policies: Vec<SignaturePolicy> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let Some(policy) = SignaturePolicy::read(node, folder, root, purpose) else {
            continue;
        };
        if policies.iter().any(|earlier| earlier.name == policy.name) {
            node.reject(&format!(
                "another name: {} names an earlier policy",
                quoted(&policy.name)
            ));
        }
        policies.push(policy);
    }
    policies
}

// === impl SignaturePolicy ===

impl SignaturePolicy {
    fn read(
        node: &Node<'_>,
        folder: &Path,
        root: Option<&TrustedRoot>,
        purpose: For,
    ) -> Option<Self> {
        let mut fields = node.object()?;
        let name = fields
            .required("name", NAME_EXPECTED)
            .and_then(|node| read_name(&node));
        let repositories = match purpose {
            For::Plugins => fields
                .required("repositories", REPOSITORIES_EXPECTED)
                .and_then(|node| read_repositories(&node)),
            For::Images => match fields.optional("repositories") {
                Some(node) => read_repositories(&node),
                None => Some(vec![TextPattern::everything()]),
            },
        };
        let signers = fields
            .required("signers", SIGNERS_EXPECTED)
            .and_then(|node| read_signers(&node, folder));
        let threshold = fields
            .optional("threshold")
            .map(|node| (node.integer(THRESHOLD_EXPECTED), node));
        let attestations = Attestations::read(fields.section("attestations"));
        let minimum_version = fields
            .optional("minimumVersion")
            .and_then(|node| read_version(&node));
        let signed_after = fields
            .optional("signedAfter")
            .and_then(|node| read_time(&node));
        let bind_repository = fields
            .optional("bindRepository")
            .and_then(|node| node.boolean());
        let Some(signers) = signers else {
            fields.finish();
            return None;
        };
        let count = threshold.map_or(Some(1), |(count, node)| {
            let count = usize::try_from(count?).ok();
            let fits = count.filter(|count| (1..=signers.len().max(1)).contains(count));
            if fits.is_none() {
                node.reject(THRESHOLD_EXPECTED);
            }
            fits
        });
        check_signers(&fields, &signers, root, signed_after.is_some(), purpose);
        fields.finish();
        Some(Self {
            repositories: repositories?,
            threshold: count?,
            attestations,
            minimum_version,
            signed_after,
            bind_repository: bind_repository.unwrap_or_default(),
            trusted_root: root.cloned(),
            ..Self::of_signers(&name?, signers)
        })
    }
}

/// Finds demands that these signers cannot meet.
fn check_signers(
    fields: &Fields<'_>,
    signers: &[Signer],
    root: Option<&TrustedRoot>,
    timed: bool,
    purpose: For,
) {
    let is_key = |signer: &Signer| matches!(signer.proof, SignerProof::Key(_));
    if signers.is_empty() && purpose == For::Images {
        fields.problem(
            "signers",
            "got an empty list, expected at least one: without signers, the policy would verify nothing",
        );
    } else if signers.is_empty() {
        let demands = [
            "threshold",
            "attestations",
            "minimumVersion",
            "signedAfter",
            "bindRepository",
        ];
        for key in demands.into_iter().filter(|key| fields.has(key)) {
            fields.problem(
                key,
                "expected none: without signers, nobody can have signed it",
            );
        }
    }
    if root.is_none() && signers.iter().any(|signer| !is_key(signer)) {
        let expected = match purpose {
            For::Plugins => "signatures.trustedRoot or signatures.tuf",
            For::Images => {
                "images.trustedRoot, or signatures.trustedRoot or signatures.tuf of the file,"
            }
        };
        fields.problem(
            "signers",
            format!(
                "expected {expected} beside a signer with issuer and subject: it holds the authorities that certificates \
                 come from"
            ),
        );
    }
    if timed && signers.iter().any(is_key) {
        fields.problem(
            "signedAfter",
            "expected only signers with issuer and subject: anyone can add a later timestamp to a signature by a key. \
             Use minimumVersion, or remove the old key",
        );
    }
}

// === impl Signer ===

fn read_signers(node: &Node<'_>, folder: &Path) -> Option<Vec<Signer>> {
    let nodes = elements(node, "signers", MOST_ELEMENTS)?;
    let signers: Vec<_> = nodes
        .iter()
        .map(|node| Signer::read(node, folder))
        .collect();
    let signers: Vec<Signer> = signers.into_iter().collect::<Option<_>>()?;
    for (index, signer) in signers.iter().enumerate() {
        let is_same = |other: &Signer| other.name == signer.name || other.proof == signer.proof;
        if signers[..index].iter().any(is_same) {
            nodes[index]
                .reject("another signer: one with this name or proof is in the list already");
        }
    }
    Some(signers)
}

impl Signer {
    fn read(node: &Node<'_>, folder: &Path) -> Option<Self> {
        let mut fields = node.object()?;
        let name = fields.optional("name").map(|node| read_name(&node));
        let key = fields.optional("key").map(|node| node.path_in(folder));
        let issuer = fields.optional("issuer").map(|node| read_pattern(&node));
        let subject = fields.optional("subject").map(|node| read_pattern(&node));
        fields.finish();
        let proof = match (key, issuer, subject) {
            (Some(key), None, None) => SignerProof::Key(key?),
            (None, Some(issuer), Some(subject)) => SignerProof::Identity {
                issuer: issuer?,
                subject: subject?,
            },
            _ => {
                node.reject("either a key, or issuer and subject");
                return None;
            }
        };
        let name = match name {
            Some(name) => name?,
            None => match &proof {
                SignerProof::Key(path) => path.display().to_string().into(),
                SignerProof::Identity { subject, .. } => subject.to_string().into(),
            },
        };
        Some(Self { name, proof })
    }
}

// === impl Attestations ===

impl Attestations {
    fn read(mut fields: Fields<'_>) -> Self {
        let provenance = fields.optional("provenance").and_then(|node| {
            let mut fields = node.object()?;
            let builders = fields.optional("builders").map(|node| read_patterns(&node));
            let sources = fields.optional("sources").map(|node| read_patterns(&node));
            fields.finish();
            Some(Provenance {
                builders: builders.unwrap_or_default(),
                sources: sources.unwrap_or_default(),
            })
        });
        let sbom = fields.optional("sbom").and_then(|node| node.boolean());
        let types = fields
            .optional("predicateTypes")
            .and_then(|node| elements(&node, "predicate types", MOST_ELEMENTS));
        let types = types.unwrap_or_default();
        let types = types.iter().filter_map(|node| {
            let text = node.text(PREDICATE_EXPECTED)?;
            let fits = (1..=LONGEST_PATTERN_BYTES).contains(&text.len());
            if !fits {
                node.reject(PREDICATE_EXPECTED);
            }
            fits.then(|| text.into())
        });
        let types = types.collect();
        fields.finish();
        Self {
            provenance,
            sbom: sbom.unwrap_or_default(),
            predicate_types: types,
        }
    }
}

fn elements<'a>(node: &Node<'a>, of: &str, most: usize) -> Option<Vec<Node<'a>>> {
    let nodes = node.elements(of)?;
    if nodes.len() > most {
        node.reject(&format!("at most {most} elements"));
        return None;
    }
    Some(nodes)
}

fn read_name(node: &Node<'_>) -> Option<Box<str>> {
    let name = node.quotable_text(NAME_EXPECTED)?;
    if !is_label(name, LONGEST_NAME) {
        node.reject(NAME_EXPECTED);
        return None;
    }
    Some(name.into())
}

fn read_pattern(node: &Node<'_>) -> Option<TextPattern> {
    let text = node.text(PATTERN_EXPECTED)?;
    if !(1..=LONGEST_PATTERN_BYTES).contains(&text.len()) {
        node.reject(PATTERN_EXPECTED);
        return None;
    }
    Some(TextPattern::new(text))
}

fn read_patterns(node: &Node<'_>) -> Vec<TextPattern> {
    let nodes = elements(node, "patterns", MOST_ELEMENTS).unwrap_or_default();
    // An empty list would allow everything, and look as if it allowed nothing.
    if nodes.is_empty() {
        node.reject("a list of patterns; leave the key out to allow everything");
    }
    nodes.iter().filter_map(read_pattern).collect()
}

fn read_repositories(node: &Node<'_>) -> Option<Vec<TextPattern>> {
    let nodes = elements(node, "repositories", MOST_ELEMENTS)?;
    if nodes.is_empty() {
        node.reject(REPOSITORIES_EXPECTED);
    }
    let patterns: Vec<_> = nodes
        .iter()
        .map(|node| {
            let text = node.text(REPOSITORIES_EXPECTED)?;
            if text.starts_with("oci://") || text.contains('@') {
                node.reject(REPOSITORIES_EXPECTED);
                return None;
            }
            read_pattern(node)
        })
        .collect();
    patterns.into_iter().collect()
}

fn read_version(node: &Node<'_>) -> Option<Version> {
    let version = Version::parse(node.quotable_text(VERSION_EXPECTED)?).ok();
    if version.is_none() {
        node.reject(VERSION_EXPECTED);
    }
    version
}

fn read_time(node: &Node<'_>) -> Option<OffsetDateTime> {
    let text = node.quotable_text(TIME_EXPECTED)?;
    let start_of_day = || OffsetDateTime::parse(&format!("{text}T00:00:00Z"), &Rfc3339);
    let time = OffsetDateTime::parse(text, &Rfc3339)
        .or_else(|_| start_of_day())
        .ok();
    if time.is_none() {
        node.reject(TIME_EXPECTED);
    }
    time
}
