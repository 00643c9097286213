//! Fixtures for tests on several topics.

use std::fmt::Display;

use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::kubernetes::{Cluster, Registration};
use tollgate_tests::server::Server;

/// A host that is registered with kube-apiserver. When this is dropped, the registration is removed first.
pub(crate) struct Served<'c> {
    _registration: Registration<'c>,
    pub(crate) server: Server,
}

/// Starts a host, registers it under a name and waits until kube-apiserver asks it. Both of its webhooks must match
/// Pods, or `probe` if its rules are for other objects.
pub(crate) async fn serve<'c>(
    cluster: &'c Cluster,
    name: &str,
    configuration: Configuration,
    arguments: &[&str],
    probe: &Value,
) -> Served<'c> {
    let server = Server::start(configuration);
    let registration =
        Registration::new(cluster, &server, name, arguments, (&path_of(probe), probe)).await;
    server.assert_all_loaded().await;
    Served {
        _registration: registration,
        server,
    }
}

/// Creates a configuration that shares its compiled plugins with other tests.
pub(crate) fn configuration() -> Configuration {
    let cache = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled-plugins");
    Configuration::new().with("engine.cacheDirectory", cache.display().to_string())
}

/// Creates a Pod that every policy allows.
pub(crate) fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "app", "image": "registry.example.com/app:1"}]},
    })
}

/// Creates a ConfigMap with one value.
pub(crate) fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"value": value},
    })
}

/// Creates a Deployment that every policy allows.
pub(crate) fn deployment(namespace: &str, name: &str) -> Value {
    let template = &pod(namespace, name)["spec"];
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template},
        },
    })
}

/// Sets the labels of an object.
pub(crate) fn labelled(mut object: Value, labels: Value) -> Value {
    object["metadata"]["labels"] = labels;
    object
}

/// Returns the path for creating an object. The plural of its kind is formed with an `s`.
pub(crate) fn path_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let root = if version.contains('/') { "apis" } else { "api" };
    let resource = text(&object["kind"]).to_lowercase();
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{resource}s"),
        None => format!("/{root}/{version}/{resource}s"),
    }
}

/// Returns a `match` for operations on resources in a namespace.
pub(crate) fn rules_for(
    namespace: &str,
    operations: &[&str],
    groups: &[&str],
    resources: &[&str],
) -> Value {
    json!({
        "namespaces": [namespace],
        "rules": [{
            "operations": operations,
            "apiGroups": groups,
            "apiVersions": ["*"],
            "resources": resources,
        }],
    })
}

/// Returns a `match` for creating and changing resources in a namespace.
pub(crate) fn rules(namespace: &str, groups: &[&str], resources: &[&str]) -> Value {
    rules_for(namespace, &["CREATE", "UPDATE"], groups, resources)
}

/// Adds a condition to a `match`.
pub(crate) fn when(mut matched: Value, expression: &str) -> Value {
    matched["matchConditions"] = json!([{"name": "when", "expression": expression}]);
    matched
}

/// Adds the plugin that acts as its settings say.
pub(crate) fn act(configuration: &mut Configuration, name: &str, matched: Value, settings: Value) {
    act_with(configuration, name, matched, settings, json!({}));
}

/// Adds the same plugin, with further keys of its entry in `more`.
pub(crate) fn act_with(
    configuration: &mut Configuration,
    name: &str,
    matched: Value,
    settings: Value,
    mut more: Value,
) {
    more["match"] = matched;
    more["settings"] = settings;
    configuration.plugin(name, &guests::build("actor"), more);
}

/// Masks uids, times and versions, which differ in each run.
pub(crate) fn stable(text: &str) -> String {
    let changing = ["uid:", "resourceVersion:", "creationTimestamp:", "time:"];
    let line = |line: &str| {
        let (indentation, rest) = line.split_at(line.len() - line.trim_start().len());
        match changing.iter().find(|name| rest.starts_with(*name)) {
            Some(name) => format!("{indentation}{name} …\n"),
            None => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

/// Masks the uid prefixes at the end of messages, which differ in each run.
pub(crate) fn without_uids(text: &str) -> String {
    const BEFORE: &str = "(review ";
    const UID_CHARACTERS: usize = 8;
    let mut parts = text.split(BEFORE);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (uid, rest) = part.split_once(')').unwrap_or_default();
        let is_uid =
            uid.len() == UID_CHARACTERS && uid.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_uid, "`{uid}` is not the beginning of a uid");
        format!("{text}{BEFORE}…){rest}")
    })
}

/// Compares the text that a user sees with the file of that name in `snapshots`.
pub(crate) fn shows(name: &str, text: impl Display) {
    let text = without_uids(&text.to_string());
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!(name, text);
    });
}
