//! The schema of `images`: the images that a plugin may have verified, and who must have signed them.

use serde_json::{Value, json};

use super::{MOST_ELEMENTS, text, texts};

/// Returns the schema of the section.
pub(super) fn images() -> Value {
    json!({
        "description": "The images that the plugin may have verified. It grants the capability images.",
        "type": "object",
        "required": ["registries", "policies"],
        "properties": {
            "registries": texts("The registries that may be asked, as images name them, such as docker.io."),
            "pullSecretNamespaces": texts("The namespaces whose Pods bring credentials along, in their imagePullSecrets."),
            "trustedRoot": text("A trusted root of keyless signatures on the replicas. Without it, that of the configuration file."),
            "policies": {
                "description": "The policies that the plugin may name.",
                "type": "array", "minItems": 1, "maxItems": MOST_ELEMENTS,
                "items": policy(),
            },
            "verifiedFor": text("How long a verified digest counts as verified, such as 1h."),
            "refusedFor": text("How long a refused digest, or a missing tag, counts as such."),
            "resolvedFor": text("How long a tag counts as leading to its digest."),
            "lastKnownGoodFor": text("How long a verified digest counts when its registry does not answer."),
        },
    })
}

fn policy() -> Value {
    let signer = json!({
        "type": "object",
        "properties": {
            "name": text("The name in messages."),
            "key": text("A PEM file with public keys on the replicas."),
            "issuer": text("The issuer of an identity."),
            "subject": text("The identity: an email address or a URI."),
        },
    });
    let attestations = json!({
        "description": "What a signer must have attested about the image.",
        "type": "object",
        "properties": {
            "provenance": {
                "description": "SLSA provenance.",
                "type": "object",
                "properties": { "builders": texts("Allowed builders."), "sources": texts("Allowed repositories of the source.") },
            },
            "sbom": { "description": "Whether an SBOM must be attested.", "type": "boolean" },
            "predicateTypes": texts("Further predicate types that must be attested."),
        },
    });
    json!({
        "type": "object",
        "required": ["name", "signers"],
        "properties": {
            "name": text("The name by which the plugin asks."),
            "repositories": texts("Patterns for registry and repository. Without it, every repository."),
            "signers": {
                "description": "Who may sign.",
                "type": "array", "minItems": 1, "maxItems": MOST_ELEMENTS,
                "items": signer,
            },
            "threshold": { "description": "The number of signers that must have signed.", "type": "integer", "minimum": 1 },
            "attestations": attestations,
            "minimumVersion": text("The lowest version, such as 1.4.0."),
            "signedAfter": text("A day or a time. Earlier certificates do not count."),
            "bindRepository": { "description": "Whether a signature must name the repository.", "type": "boolean" },
        },
    })
}
