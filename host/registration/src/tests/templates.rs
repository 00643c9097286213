//! Plugins that get pod templates: their webhooks match the workloads, and no selector for Pods is applied to them.

use serde_json::{Value, json};

use super::*;

const TEMPLATES: &str = "{rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}], \
     podTemplates: true, objectSelector: {matchLabels: {a: b}}, namespaceSelector: {matchLabels: {c: d}}, \
     matchConditions: [{name: c, expression: size(object.spec.containers) > 1}]}";

fn webhook(matching: &str) -> Value {
    let config = config(&format!(
        "- {{name: guard, source: 'file:a', match: {matching}}}"
    ));
    let participants: Vec<_> = config.plugins.iter().map(participant).collect();
    let webhooks = registration().webhooks(Endpoint::Validate, &participants);
    let webhooks = webhooks.unwrap_or_else(|error| panic!("{error}"));
    serde_json::to_value(webhooks).expect("JSON")["webhooks"][0].clone()
}

#[test]
fn webhook_matches_workloads() {
    let rules = &webhook(TEMPLATES)["rules"];
    for (group, resource) in [
        ("", "pods"),
        ("", "replicationcontrollers"),
        ("", "podtemplates"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("apps", "daemonsets"),
        ("batch", "jobs"),
        ("batch", "cronjobs"),
    ] {
        let has = |rule: &Value, key: &str, name: &str| {
            let names = rule[key].as_array().expect("a list");
            names.contains(&json!(name))
        };
        let found = rules
            .as_array()
            .expect("a list")
            .iter()
            .find(|rule| has(rule, "apiGroups", group) && has(rule, "resources", resource));
        let rule = found.unwrap_or_else(|| panic!("{resource}: {rules}"));
        let updates = has(rule, "operations", "UPDATE");
        assert_eq!(updates, resource != "pods", "{resource}");
    }
}

/// kube-apiserver would compare them with the workload. The host compares them with the Pod.
#[test]
fn selectors_and_conditions_for_pods_stay_in_the_host() {
    let with = webhook(TEMPLATES);
    assert_eq!(with["objectSelector"], Value::Null);
    assert!(!with["matchConditions"].to_string().contains("containers"));
    // The namespace is the same for both.
    let namespaces = with["namespaceSelector"].to_string();
    assert!(namespaces.contains("\"c\""), "{namespaces}");
    let without = webhook(&TEMPLATES.replace("podTemplates: true, ", ""));
    assert_ne!(without["objectSelector"], Value::Null);
    assert!(
        without["matchConditions"]
            .to_string()
            .contains("containers")
    );
}
