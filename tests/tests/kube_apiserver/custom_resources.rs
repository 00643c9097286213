//! Custom resources for tests on several topics.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::kubernetes::Cluster;

/// Defines a namespaced resource without a schema in some versions, and waits until it is served. The first version is
/// stored. The plural of `singular` is formed with an `s`.
pub(crate) fn define(cluster: &Cluster, group: &str, singular: &str, versions: &[&str]) {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    apply(cluster, &definition(group, singular, versions, &anything));
}

/// Returns the definition of a resource whose versions all have the same schema.
pub(crate) fn definition(group: &str, singular: &str, versions: &[&str], schema: &Value) -> Value {
    let plural = format!("{singular}s");
    let kind = format!("{}{}", singular[..1].to_uppercase(), &singular[1..]);
    let version = |(index, name): (usize, &&str)| json!({"name": name, "served": true, "storage": index == 0, "schema": {"openAPIV3Schema": schema}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        },
    })
}

/// Applies a definition and waits until it is served.
pub(crate) fn apply(cluster: &Cluster, definition: &Value) {
    cluster
        .kubectl(&["apply", "-f", "-"])
        .input(definition)
        .succeed();
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    wait_until_served(cluster, name);
}

/// Waits until a definition is served.
pub(crate) fn wait_until_served(cluster: &Cluster, name: &str) {
    let resource = format!("customresourcedefinition/{name}");
    let established = [
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        &resource,
    ];
    let deadline = Instant::now() + Duration::from_secs(60);
    // kubectl fails at once for a definition that has no conditions yet, and a definition is established before discovery
    // lists it.
    for command in [&established[..], &["get", name, "-A"]] {
        while !cluster.kubectl(command).run().succeeded() {
            assert!(Instant::now() < deadline, "{name} is not served");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
