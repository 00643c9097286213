//! Statements about what a release has: SLSA provenance v1, signatures and SBOMs.

use serde_json::{Value, json};

use super::Facts;

/// A file or an artifact that a statement is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    /// The name of a file, or the repository of an artifact.
    pub(super) name: String,
    /// The SHA-256, with the prefix `sha256:`.
    pub(super) digest: String,
}

pub(super) const PROVENANCE: &str = "https://slsa.dev/provenance/v1";
pub(super) const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";
pub(super) const CYCLONEDX: &str = "https://cyclonedx.org/bom";
/// The page that describes how a release is built.
const BUILD_TYPE: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/docs/reference/releases.md#how-a-release-is-built"
);

/// An in-toto statement about some subjects.
pub(super) fn statement(subjects: &[Subject], kind: &str, predicate: &Value) -> Value {
    let subjects = subjects.iter().map(|subject| {
        json!({
            "name": subject.name,
            "digest": {"sha256": subject.digest.trim_start_matches("sha256:")},
        })
    });
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects.collect::<Vec<_>>(),
        "predicateType": kind,
        "predicate": predicate,
    })
}

/// The statement that `cosign sign` signs. The annotation binds the signature to the repository, if it is known.
pub(super) fn signature(subject: &Subject, repository: Option<&str>) -> Value {
    let mut statement = statement(std::slice::from_ref(subject), SIGN, &json!({}));
    if let Some(repository) = repository {
        statement["subject"][0]["annotations"] = json!({"dev.tollgate.repository": repository});
    }
    statement
}

/// The predicate of SLSA provenance. It has no times and no number of the run, so that two builds of the same sources
/// give the same bytes.
pub(super) fn provenance(facts: &Facts, materials: &[Subject]) -> Value {
    let source = format!(
        "git+{}@refs/tags/v{}",
        env!("CARGO_PKG_REPOSITORY"),
        facts.version
    );
    let mut dependencies = vec![json!({
        "uri": format!("git+{}", env!("CARGO_PKG_REPOSITORY")),
        "digest": {"gitCommit": facts.commit},
    })];
    dependencies.push(json!({"uri": format!("pkg:generic/rust@{}", facts.rust)}));
    dependencies.extend(materials.iter().map(|material| {
        json!({
            "name": material.name,
            "digest": {"sha256": material.digest.trim_start_matches("sha256:")},
        })
    }));
    json!({
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "source": {"uri": source},
                "version": facts.version,
                "target": facts.target,
            },
            "internalParameters": {"SOURCE_DATE_EPOCH": facts.time},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {"builder": {"id": facts.builder}},
    })
}
