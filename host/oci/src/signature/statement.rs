//! In-toto statements: what a signer says about an artifact.
//!
//! Sources: in-toto Statement v1, SLSA provenance v0.2 and v1, the predicate types of cosign.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::bundle::position;
use super::shown;

/// An in-toto statement.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    pub(super) predicate_type: String,
    #[serde(default)]
    predicate: Value,
}

#[derive(Debug, Deserialize)]
struct Subject {
    #[serde(default)]
    digest: BTreeMap<String, String>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, Value>>,
}

/// The parts of SLSA provenance that a policy can demand.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// The builder.
    pub(super) builder: Option<String>,
    /// The repository of the source.
    pub(super) source: Option<String>,
}

/// The versions of a statement. The fields that Tollgate reads are the same in both.
const STATEMENTS: [&str; 2] = [
    "https://in-toto.io/Statement/v1",
    "https://in-toto.io/Statement/v0.1",
];
/// The predicate type of a signature.
pub(super) const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";
/// The predicate types of SLSA provenance.
const PROVENANCE_V02: &str = "https://slsa.dev/provenance/v0.2";
const PROVENANCE_V1: &str = "https://slsa.dev/provenance/v1";
/// The beginnings of the predicate types of SBOMs. A version may follow after `/`.
const SBOMS: [&str; 2] = ["https://spdx.dev/Document", "https://cyclonedx.org/bom"];
/// The annotation of a subject that names the repository: `cosign sign --annotations dev.tollgate.repository=…`.
pub(super) const REPOSITORY: &str = "dev.tollgate.repository";

// === impl Statement ===

impl Statement {
    /// Reads a statement. Fails with the reason.
    pub(super) fn read(payload: &[u8]) -> Result<Self, String> {
        let statement: Self = serde_json::from_slice(payload).map_err(|error| position(&error))?;
        if !STATEMENTS.contains(&statement.kind.as_str()) {
            return Err(format!("_type is {}", shown(&statement.kind)));
        }
        Ok(statement)
    }

    /// Whether the manifest with this digest is one of the subjects.
    pub(super) fn is_about(&self, digest: &str) -> bool {
        self.subject(digest).is_some()
    }

    fn subject(&self, digest: &str) -> Option<&Subject> {
        let hex = digest.strip_prefix("sha256:")?;
        let mut subjects = self.subject.iter();
        subjects.find(|subject| subject.digest.get("sha256").map(String::as_str) == Some(hex))
    }

    /// The digest of the first subject, for messages.
    pub(super) fn first_digest(&self) -> String {
        let digest = self
            .subject
            .first()
            .and_then(|subject| subject.digest.get("sha256"));
        digest.map_or("no digest".to_owned(), |hex| {
            format!("sha256:{}", shown(hex))
        })
    }

    /// Whether this is a signature, and not an attestation of something else.
    pub(super) fn is_signature(&self) -> bool {
        self.predicate_type == SIGN
    }

    /// The repository that the signer has named for the manifest.
    pub(super) fn repository(&self, digest: &str) -> Option<&str> {
        let annotations = self.subject(digest)?.annotations.as_ref()?;
        annotations.get(REPOSITORY)?.as_str()
    }

    /// Whether the predicate is an SBOM.
    pub(super) fn is_sbom(&self) -> bool {
        SBOMS.iter().any(|kind| {
            let rest = self.predicate_type.strip_prefix(kind);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// The origin of the artifact; None if the predicate is no SLSA provenance.
    ///
    /// The source is what the build was asked to build. Dependencies do not count: a build of anything else may have
    /// the right repository among them.
    pub(super) fn origin(&self) -> Option<Origin> {
        let text = |pointer: &str| {
            let value = self.predicate.pointer(pointer)?.as_str()?;
            Some(value.to_owned())
        };
        match self.predicate_type.as_str() {
            PROVENANCE_V1 => {
                let parameters = "/buildDefinition/externalParameters";
                let places = [
                    "workflow/repository",
                    "configSource/uri",
                    "source/uri",
                    "source",
                ];
                let mut sources = places
                    .iter()
                    .filter_map(|place| text(&format!("{parameters}/{place}")));
                Some(Origin {
                    builder: text("/runDetails/builder/id"),
                    source: sources.next().as_deref().map(repository_of),
                })
            }
            PROVENANCE_V02 => Some(Origin {
                builder: text("/builder/id"),
                source: text("/invocation/configSource/uri")
                    .as_deref()
                    .map(repository_of),
            }),
            _ => None,
        }
    }
}

/// The repository in a URI such as `git+https://example.com/a@refs/heads/main`.
fn repository_of(uri: &str) -> String {
    let uri = uri.strip_prefix("git+").unwrap_or(uri);
    let end = uri.find("@refs/").unwrap_or(uri.len());
    uri[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn statement(kind: &str, predicate: Value) -> Statement {
        let statement = json!({
            "_type": STATEMENTS[0],
            "subject": [{"digest": {"sha256": "ab"}}],
            "predicateType": kind,
            "predicate": predicate,
        });
        Statement::read(statement.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn reads_builder_and_source_of_provenance() {
        let of_github = statement(
            PROVENANCE_V1,
            json!({
                "buildDefinition": {
                    "externalParameters": {"workflow": {"repository": "https://github.com/example/policies"}},
                    "resolvedDependencies": [{"uri": "git+https://github.com/other/thing@refs/heads/main"}],
                },
                "runDetails": {"builder": {"id": "https://github.com/actions/runner/github-hosted"}},
            }),
        );
        let origin = of_github.origin().unwrap();
        assert_eq!(
            origin.source.as_deref(),
            Some("https://github.com/example/policies")
        );
        assert_eq!(
            origin.builder.as_deref(),
            Some("https://github.com/actions/runner/github-hosted")
        );

        let older = statement(
            PROVENANCE_V02,
            json!({
                "builder": {"id": "https://example.com/builder"},
                "invocation": {"configSource": {"uri": "git+https://example.com/a@refs/tags/v1"}},
            }),
        );
        let origin = older.origin().unwrap();
        assert_eq!(origin.source.as_deref(), Some("https://example.com/a"));

        // A dependency is not the source.
        let none = statement(
            PROVENANCE_V1,
            json!({"buildDefinition": {"resolvedDependencies": [{"uri": "https://example.com/a"}]}}),
        );
        assert_eq!(none.origin(), Some(Origin::default()));
        assert_eq!(statement(SIGN, json!({})).origin(), None);
    }

    #[test]
    fn knows_sboms_by_predicate_type() {
        for (kind, is_sbom) in [
            ("https://spdx.dev/Document", true),
            ("https://spdx.dev/Document/v2.3", true),
            ("https://cyclonedx.org/bom", true),
            ("https://cyclonedx.org/bomb", false),
            (SIGN, false),
        ] {
            assert_eq!(statement(kind, Value::Null).is_sbom(), is_sbom, "{kind}");
        }
    }
}
