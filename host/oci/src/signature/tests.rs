//! Policies against signatures of every kind.

mod conformance;
mod keyless;
mod recorded;
mod registries;

use serde_json::{Value, json};
use tollgate_config::{Config, SignaturePolicy, SignatureRequirement};

use super::statement::SIGN;
use super::testing::{DIGEST, OTHER, REPOSITORY, Signer, reference, statement};
use super::*;

/// The manifest of the artifact, with a version.
fn manifest(version: Option<&str>) -> Vec<u8> {
    let mut manifest = json!({"schemaVersion": 2});
    if let Some(version) = version {
        manifest["annotations"] = json!({"org.opencontainers.image.version": version});
    }
    manifest.to_string().into_bytes()
}

/// The policy that a configuration has for the artifact. `more` are keys of the policy, as YAML in one line.
fn policy(signers: &str, more: &str) -> SignaturePolicy {
    let more = match more {
        "" => String::new(),
        more => format!(", {more}"),
    };
    let text = format!(
        "
signatures:
  trustedRoot: /root.json
  policies:
    - {{ name: guards, repositories: ['registry.example.com/policies/*'], signers: [{signers}]{more} }}
plugins: [{{ name: a, source: 'oci://{REPOSITORY}:1.4' }}]
"
    );
    let config = Config::parse(&text, std::path::Path::new("/")).unwrap();
    match config.plugins[0].signature_requirement() {
        SignatureRequirement::Policy(policy) => policy.clone(),
        other => panic!("{other:?}"),
    }
}

/// Judges bundles about the artifact. Returns the error of a refusal.
fn judge(trusted: &Trusted, version: Option<&str>, bundles: &[Value]) -> Result<(), String> {
    let manifest = manifest(version);
    let mut assessment = Assessment::new(trusted, DIGEST, &manifest);
    for bundle in bundles {
        assessment.add(trusted.examine(DIGEST, bundle.to_string().as_bytes(), &Form::Bundle));
    }
    match assessment.is_met() {
        true => Ok(()),
        false => Err(assessment.refusal().to_string()),
    }
}

/// Two signers with keys.
const TWO: &str = "{ name: one, key: one.pub }, { name: two, key: two.pub }";

fn trusted_of_two(keys: [&Signer; 2], more: &str) -> Trusted {
    let keys = keys.iter().map(|key| vec![key.public()]).collect();
    Trusted::of(policy(TWO, more), &reference(), keys, None)
}

#[track_caller]
fn refused(result: Result<(), String>, parts: &[&str]) {
    let error = result.expect_err("it must be refused");
    println!("{error}");
    for part in [DIGEST, "the policy"].iter().chain(parts) {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[test]
fn counts_different_signers() {
    let (one, two, stranger) = (Signer::p256(), Signer::p384(), Signer::p256());
    let trusted = trusted_of_two([&one, &two], "threshold: 2");
    let [by_one, by_two, by_stranger] =
        [&one, &two, &stranger].map(|signer| signer.bundle(&statement(DIGEST, SIGN)));
    let both = [by_one.clone(), by_two.clone()];
    assert_eq!(judge(&trusted, None, &both), Ok(()));
    let twice = [by_one.clone(), by_one.clone()];
    refused(
        judge(&trusted, None, &twice),
        &[
            "guards requires: signers: expected signatures of 2 signers",
            "found 1",
        ],
    );
    let with_stranger = [by_one, by_stranger];
    refused(
        judge(&trusted, None, &with_stranger),
        &["one made with another key", "one by a key of /one.pub"],
    );
    refused(
        judge(&trusted, None, &[]),
        &["found none, under the tag sha256-"],
    );
}

#[test]
fn demands_attestations_of_a_signer() {
    let (one, two, stranger) = (Signer::p256(), Signer::p256(), Signer::p256());
    let more = "attestations: { sbom: true, predicateTypes: ['https://example.com/review/v1'], provenance: { \
                builders: ['https://example.com/builder/*'], sources: ['https://example.com/policies'] } }";
    let trusted = trusted_of_two([&one, &two], more);
    let signature = one.bundle(&statement(DIGEST, SIGN));
    let sbom = two.bundle(&statement(DIGEST, "https://cyclonedx.org/bom/v1.5"));
    let review = two.bundle(&statement(DIGEST, "https://example.com/review/v1"));
    let provenance = |signer: &Signer, builder: &str, source: &str| {
        let mut provenance = statement(DIGEST, "https://slsa.dev/provenance/v1");
        provenance["predicate"] = json!({
            "buildDefinition": {"externalParameters": {"source": source}},
            "runDetails": {"builder": {"id": builder}},
        });
        signer.bundle(&provenance)
    };
    let (builder, source) = (
        "https://example.com/builder/7",
        "https://example.com/policies",
    );
    let with = |provenance: Value| {
        let bundles = [signature.clone(), sbom.clone(), review.clone(), provenance];
        judge(&trusted, None, &bundles)
    };
    assert_eq!(with(provenance(&two, builder, source)), Ok(()));
    refused(
        with(provenance(&two, "https://example.com/laptop", source)),
        &[
            "attestations.provenance: expected SLSA provenance of a signer with builder https://example.com/builder/*",
            "found builder https://example.com/laptop, source https://example.com/policies",
        ],
    );
    refused(
        with(provenance(&two, builder, "https://example.com/fork")),
        &["source https://example.com/fork"],
    );
    refused(
        with(provenance(&stranger, builder, source)),
        &["found none", "one made with another key"],
    );
    let only = provenance(&two, builder, source);
    refused(
        judge(&trusted, None, &[signature.clone(), only]),
        &[
            "attestations.sbom: expected an SBOM",
            "attestations.predicateTypes: expected https://example.com/review/v1",
        ],
    );
    // An attestation is no signature.
    let plain = trusted_of_two([&one, &two], "");
    refused(
        judge(&plain, None, std::slice::from_ref(&sbom)),
        &["one that attests https://cyclonedx.org/bom/v1.5, which is not a signature"],
    );
}

#[test]
fn refuses_older_versions() {
    let (one, two) = (Signer::p256(), Signer::p256());
    let trusted = trusted_of_two([&one, &two], "minimumVersion: 1.4.0");
    let signature = [one.bundle(&statement(DIGEST, SIGN))];
    for version in ["1.4.0", "1.4", "v1.10.0", "2.0.0"] {
        assert_eq!(
            judge(&trusted, Some(version), &signature),
            Ok(()),
            "{version}"
        );
    }
    for (version, found) in [
        (Some("1.3.9"), "found 1.3.9"),
        (Some("1.4.0-rc.1"), "found 1.4.0-rc.1"),
        (Some("latest"), "found latest, which is no version"),
        (None, "found none"),
    ] {
        refused(
            judge(&trusted, version, &signature),
            &["minimumVersion: expected 1.4.0 or later", found],
        );
    }
}

#[test]
fn binds_signatures_to_the_repository() {
    let (one, two) = (Signer::p256(), Signer::p256());
    let bound = trusted_of_two([&one, &two], "bindRepository: true");
    let free = trusted_of_two([&one, &two], "");
    let naming = |repository: &str| {
        let mut named = statement(DIGEST, SIGN);
        named["subject"][0]["annotations"] = json!({"dev.tollgate.repository": repository});
        [one.bundle(&named)]
    };
    assert_eq!(judge(&bound, None, &naming(REPOSITORY)), Ok(()));
    let spelled = "REGISTRY.example.com:443/policies/guard";
    assert_eq!(judge(&bound, None, &naming(spelled)), Ok(()));
    let other = "registry.example.com/policies/harmless";
    assert_eq!(judge(&free, None, &naming(other)), Ok(()), "a mirror");
    refused(
        judge(&bound, None, &naming(other)),
        &[
            "for the repository registry.example.com/policies/harmless (dev.tollgate.repository)",
            "expected registry.example.com/policies/guard (bindRepository)",
        ],
    );
    refused(
        judge(&bound, None, &[one.bundle(&statement(DIGEST, SIGN))]),
        &["for no repository (dev.tollgate.repository)"],
    );

    // The old format always names a repository.
    let simple = |repository: &str| {
        let payload = json!({"critical": {
            "identity": {"docker-reference": repository},
            "image": {"docker-manifest-digest": DIGEST},
            "type": "cosign container image signature",
        }});
        let payload = payload.to_string().into_bytes();
        let form = Form::Simple(one.sign(&payload));
        let manifest = manifest(None);
        let mut assessment = Assessment::new(&bound, DIGEST, &manifest);
        assessment.add(bound.examine(DIGEST, &payload, &form));
        match assessment.is_met() {
            true => Ok(()),
            false => Err(assessment.refusal().to_string()),
        }
    };
    assert_eq!(simple(REPOSITORY), Ok(()));
    refused(
        simple(other),
        &["for the repository registry.example.com/policies/harmless (docker-reference)"],
    );
    refused(simple(""), &["for no repository (docker-reference)"]);
}

#[test]
fn refuses_signatures_of_other_artifacts() {
    let (one, two) = (Signer::p256(), Signer::p256());
    let trusted = trusted_of_two([&one, &two], "");
    let other = one.bundle(&statement(OTHER, SIGN));
    refused(
        judge(&trusted, None, &[other]),
        &[&format!("one for {OTHER}")],
    );
}

#[test]
fn error_shows_a_limited_number_of_signatures() {
    let (one, two, stranger) = (Signer::p256(), Signer::p256(), Signer::p256());
    let trusted = trusted_of_two([&one, &two], "");
    let bundles = vec![stranger.bundle(&statement(DIGEST, SIGN)); MAX_SIGNATURES];
    refused(judge(&trusted, None, &bundles), &["and 42 more"]);
}
