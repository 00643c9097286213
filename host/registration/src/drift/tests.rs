//! Registrations that differ from the configuration in one way each.

use std::path::Path;

use insta::assert_snapshot;
use serde_json::{Value, json};
use tollgate_admission::Endpoint;
use tollgate_config::Config;

use super::*;
use crate::tests::{participant, registration};

const PLUGINS: &str = r#"
  - { name: change, source: file:a.wasm, match: { rules: [ { operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods] } ] } }
  - { name: check, source: file:a.wasm, match: { rules: [ { operations: [CREATE, UPDATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments, statefulsets] } ] } }
"#;

fn configured() -> Vec<Webhooks> {
    let text = format!("plugins:{PLUGINS}");
    let config = Config::parse(&text, Path::new("/etc/tollgate")).expect("a configuration");
    let participants: Vec<_> = config.plugins.iter().map(participant).collect();
    [Endpoint::Mutate, Endpoint::Validate]
        .into_iter()
        .filter_map(|endpoint| {
            let webhooks = registration().webhooks(endpoint, &participants);
            webhooks.expect("fast plugins")
        })
        .collect()
}

/// The objects that kube-apiserver returns, with its defaults and with metadata.
fn live() -> Vec<Value> {
    configured()
        .iter()
        .map(|webhooks| {
            let mut object = json!(webhooks);
            object["metadata"]["resourceVersion"] = json!("17");
            for webhook in object["webhooks"].as_array_mut().expect("a list") {
                if webhook.get("objectSelector").is_none() {
                    webhook["objectSelector"] = json!({});
                }
                webhook["namespaceSelector"]["matchExpressions"][0]["values"]
                    .as_array_mut()
                    .expect("a list")
                    .reverse();
            }
            object
        })
        .collect()
}

fn compared(documents: &[Value]) -> Vec<Drift> {
    let list = json!({"kind": "List", "items": documents});
    let live = Objects::parse(&list.to_string()).expect("objects");
    let registration = registration();
    compare(
        &configured(),
        &live,
        &registration.name,
        &registration.address,
    )
}

fn written(drifts: &[Drift]) -> String {
    let lines: Vec<String> = drifts.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn after(change: impl FnOnce(&mut Vec<Value>)) -> String {
    let mut documents = live();
    change(&mut documents);
    written(&compared(&documents))
}

#[test]
fn registration_with_defaults_of_kube_apiserver_is_the_same() {
    assert_eq!(after(|_| {}), "");
}

#[test]
fn printed_yaml_is_the_same() {
    let yaml = Webhooks::to_yaml(&configured()).expect("YAML");
    let live = Objects::parse(&yaml).expect("objects");
    let registration = registration();
    let drifts = compare(
        &configured(),
        &live,
        &registration.name,
        &registration.address,
    );
    assert_eq!(written(&drifts), "");
}

#[test]
fn rules_in_another_shape_are_the_same() {
    let changed = after(|documents| {
        documents[1]["webhooks"][0]["rules"] = json!([
            {"operations": ["UPDATE", "CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
             "resources": ["statefulsets"], "scope": "*"},
            {"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
             "scope": "Namespaced"},
            {"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
             "scope": "Cluster"},
            {"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]},
        ]);
    });
    assert_eq!(changed, "");
}

#[test]
fn finds_rules_that_are_too_wide_and_too_narrow() {
    assert_snapshot!(after(|documents| {
        documents[0]["webhooks"][0]["rules"][0]["resources"] = json!(["*"]);
        documents[1]["webhooks"][0]["rules"] = json!([
            {"operations": ["CREATE", "DELETE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
             "resources": ["deployments"], "scope": "Namespaced"},
        ]);
    }));
}

#[test]
fn finds_changed_fields() {
    assert_snapshot!(after(|documents| {
        let webhook = &mut documents[0]["webhooks"][0];
        webhook["failurePolicy"] = json!("Ignore");
        webhook["timeoutSeconds"] = json!(30);
        webhook["namespaceSelector"] = json!({"matchLabels": {"policy": "on"}});
        webhook["matchConditions"] = json!([{"name": "mine", "expression": "true"}]);
        webhook["clientConfig"]["service"]["path"] = json!("/mutate/change");
        webhook["clientConfig"]["caBundle"] = json!("");
    }));
}

#[test]
fn finds_missing_and_left_over_configurations() {
    let drifts = |change: fn(&mut Vec<Value>)| after(change);
    assert_eq!(
        drifts(|documents| {
            documents.remove(0);
        }),
        "MutatingWebhookConfiguration tollgate: not registered"
    );
    assert_eq!(
        drifts(|documents| {
            let mut old = documents[1].clone();
            old["metadata"]["name"] = json!("tollgate-old");
            documents.push(old);
        }),
        "ValidatingWebhookConfiguration tollgate-old: left over"
    );
    // Another installation has another Service, and another tool has no such label.
    for (pointer, value) in [
        ("/webhooks/0/clientConfig/service/name", "other"),
        ("/metadata/labels/app.kubernetes.io~1name", "other"),
    ] {
        let mut documents = live();
        let mut other = documents[1].clone();
        other["metadata"]["name"] = json!("other");
        *other.pointer_mut(pointer).expect("the place is there") = json!(value);
        documents.push(other);
        assert_eq!(written(&compared(&documents)), "", "{pointer}");
    }
}

#[test]
fn finds_webhooks_of_removed_and_new_plugins() {
    assert_eq!(
        after(|documents| documents[1]["webhooks"][0]["name"] = json!("old.validate.tollgate.dev")),
        "ValidatingWebhookConfiguration tollgate, webhook old.validate.tollgate.dev: left over\n\
         ValidatingWebhookConfiguration tollgate, webhook validate.tollgate.dev: not registered"
    );
}

#[test]
fn removes_left_over_objects_only() {
    let mut documents = live();
    let mut old = documents[0].clone();
    old["metadata"]["name"] = json!("tollgate-old");
    documents.push(old);
    documents[1]["webhooks"][0]["name"] = json!("old.validate.tollgate.dev");
    let removals: Vec<String> = compared(&documents)
        .iter()
        .filter_map(Drift::removal)
        .collect();
    assert_eq!(
        removals,
        ["kubectl delete mutatingwebhookconfiguration tollgate-old"]
    );
}
