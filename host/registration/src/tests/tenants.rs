//! Plugins of namespaces: a webhook for each, which no other webhook notices.

use serde_json::{Value, json};
use tollgate_config::PluginName;

use super::*;

const PODS: &str =
    "{rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}";
const EVERYTHING: &str = "{rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*'], scope: \
     Namespaced}], namespaces: [team-a], objectSelector: {matchLabels: {a: b}}, namespaceSelector: {matchLabels: {c: d}}, \
     matchConditions: [{name: c, expression: object.kind == 'Pod'}]}";

/// A plugin of the cluster, and one of the namespace `team-a` with the same name.
fn plugins(more: &str) -> Vec<PluginConfig> {
    let mut plugins = config(&format!(
        "- {{name: guard, source: 'file:a', match: {PODS}}}\n- {{name: other, source: 'file:a', match: {EVERYTHING}{more}}}"
    ))
    .plugins;
    plugins[1].name = PluginName::of_tenant("team-a", "guard").expect("a name");
    plugins
}

fn webhooks(endpoint: Endpoint, plugins: &[PluginConfig]) -> Vec<Value> {
    let participants: Vec<_> = plugins.iter().map(participant).collect();
    let webhooks = registration().webhooks(endpoint, &participants);
    let webhooks = webhooks.unwrap_or_else(|error| panic!("{error}"));
    let object = serde_json::to_value(webhooks).expect("JSON");
    object["webhooks"].as_array().cloned().unwrap_or_default()
}

#[test]
fn plugin_of_a_namespace_has_its_own_webhook_before_all_others() {
    let all = webhooks(Endpoint::Mutate, &plugins(""));
    let names: Vec<_> = all.iter().map(|webhook| &webhook["name"]).collect();
    assert_eq!(
        names,
        ["guard.team-a.mutate.tollgate.dev", "mutate.tollgate.dev"]
    );
    let own = &all[0];
    assert_eq!(
        own["clientConfig"]["service"]["path"],
        "/mutate/team-a/guard"
    );
    let requirements = own["namespaceSelector"]["matchExpressions"]
        .as_array()
        .expect("a list");
    let only =
        json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a"]});
    assert!(requirements.contains(&only), "{requirements:?}");
    assert_eq!(own["rules"][0]["scope"], "Namespaced");
}

/// kube-apiserver refuses all webhooks for one text that it does not take.
#[test]
fn texts_of_a_namespace_are_not_in_its_webhook() {
    let own = &webhooks(Endpoint::Validate, &plugins(""))[0];
    assert_eq!(own["objectSelector"], Value::Null);
    let text = own.to_string();
    assert!(
        !text.contains("guard/c") && !text.contains("matchLabels"),
        "{text}"
    );
}

#[test]
fn webhook_of_the_cluster_is_the_same_with_and_without_plugins_of_namespaces() {
    let all = plugins("");
    for endpoint in [Endpoint::Mutate, Endpoint::Validate] {
        let alone = webhooks(endpoint, &all[..1]);
        assert_eq!(webhooks(endpoint, &all)[1..], alone);
        assert_eq!(webhooks(endpoint, &all[1..]).len(), 1);
    }
}

#[test]
fn slow_plugin_of_a_namespace_keeps_nothing_from_being_registered() {
    let slow = plugins(", limits: {timeout: 30s}, existingViolations: allow");
    assert_eq!(webhooks(Endpoint::Validate, &slow)[0]["timeoutSeconds"], 30);
}
