//! What the tests of several topics need.

use std::path::PathBuf;

use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;

/// A Pod that nobody has anything against.
pub(crate) fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "app", "image": "registry.example.com/app:1"}]},
    })
}

/// A ConfigMap with one value.
pub(crate) fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"value": value},
    })
}

/// Where objects of the core group are created.
pub(crate) fn path(namespace: &str, resource: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{resource}")
}

/// The plugin that does what its settings say.
pub(crate) fn actor() -> PathBuf {
    guests::build("actor")
}

/// `match` for creating and changing resources in a namespace.
pub(crate) fn rules(namespace: &str, groups: &[&str], resources: &[&str]) -> Value {
    json!({
        "namespaces": [namespace],
        "rules": [{
            "operations": ["CREATE", "UPDATE"],
            "apiGroups": groups,
            "apiVersions": ["*"],
            "resources": resources,
        }],
    })
}

/// Adds the actor under a name.
pub(crate) fn act(configuration: &mut Configuration, name: &str, matched: &Value, settings: Value) {
    act_with(configuration, name, matched, settings, json!({}));
}

/// Adds the actor under a name; `more` are further keys of its entry.
pub(crate) fn act_with(
    configuration: &mut Configuration,
    name: &str,
    matched: &Value,
    settings: Value,
    mut more: Value,
) {
    more["match"] = matched.clone();
    more["settings"] = settings;
    configuration.plugin(name, &actor(), more);
}
