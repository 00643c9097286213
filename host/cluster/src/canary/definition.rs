//! The CustomResourceDefinition of canaries. Users create none, and none is ever stored.

use serde_json::{Value, json};
use tollgate_admission::canary::{GROUP, KIND, RESOURCE, VERSION};

/// Returns the definition of canaries.
#[must_use]
pub fn canary_definition() -> Value {
    let text = |description: &str| json!({ "description": description, "type": "string", "maxLength": 1024 });
    let spec = json!({
        "description": "The question of the leader, and the answer of a replica.",
        "type": "object",
        "properties": {
            "nonce": text("A number that the leader uses once."),
            "plugins": {
                "description": "The plugins that the webhook calls.",
                "type": "array", "maxItems": 1024, "items": { "type": "string", "maxLength": 40 },
            },
            "signature": text("The leader's signature."),
            "proof": text("The proof of a mutating webhook. A validating one answers with a warning."),
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{RESOURCE}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": KIND,
                "listKind": format!("{KIND}List"),
                "plural": RESOURCE,
                "singular": KIND.to_lowercase(),
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "schema": {
                    "openAPIV3Schema": {
                        "description": "A canary: Tollgate creates it as a dry run, to show that kube-apiserver calls a webhook. None is stored.",
                        "type": "object",
                        "properties": {
                            "apiVersion": { "type": "string" },
                            "kind": { "type": "string" },
                            "metadata": { "type": "object" },
                            "spec": spec,
                        },
                    },
                },
            }],
        },
    })
}

/// Returns the definition of canaries as YAML.
///
/// # Errors
/// When the document cannot be written.
pub fn canary_definition_yaml() -> Result<String, serde_saphyr::ser::Error> {
    let options = serde_saphyr::ser_options! {
        prefer_block_scalars: false,
    };
    serde_saphyr::to_string_with_options(&canary_definition(), options)
}
