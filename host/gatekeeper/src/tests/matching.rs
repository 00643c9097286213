//! `match`, by Gatekeeper's own rules (`pkg/mutation/match` of Gatekeeper).

use serde_json::{Map, Value as Json, json};

use crate::{Match, Subject, UnknownNamespace};

fn read(matching: Json) -> Match {
    serde_json::from_value(matching).unwrap()
}

fn pod(namespace: &str) -> Subject {
    Subject {
        kind: "Pod".to_owned(),
        name: "web-1".to_owned(),
        namespace: namespace.to_owned(),
        labels: labels(json!({ "app": "web" })),
        ..Subject::default()
    }
}

fn namespace(name: &str) -> Subject {
    Subject {
        kind: "Namespace".to_owned(),
        name: name.to_owned(),
        labels: labels(json!({ "team": "a" })),
        ..Subject::default()
    }
}

fn node() -> Subject {
    Subject {
        kind: "Node".to_owned(),
        name: "n1".to_owned(),
        ..Subject::default()
    }
}

fn labels(labels: Json) -> Map<String, Json> {
    labels.as_object().unwrap().clone()
}

fn selects(matching: Json, subject: &Subject) -> bool {
    let labels_of = |name: &str| (name == "shop").then(|| labels(json!({ "team": "a" })));
    read(matching).selects(subject, &labels_of).unwrap()
}

#[test]
fn kinds_select_by_group_and_kind() {
    for (kinds, expected) in [
        (json!([]), true),
        (json!([{}]), true),
        (json!([{ "apiGroups": [""], "kinds": ["Pod"] }]), true),
        (json!([{ "apiGroups": ["*"], "kinds": ["Pod"] }]), true),
        (json!([{ "apiGroups": [""], "kinds": ["*"] }]), true),
        (json!([{ "apiGroups": ["apps"], "kinds": ["Pod"] }]), false),
        (
            json!([{ "apiGroups": ["apps"], "kinds": ["*"] }, { "kinds": ["Pod"] }]),
            true,
        ),
        (json!([{ "apiGroups": [""], "kinds": ["Service"] }]), false),
    ] {
        assert_eq!(
            selects(json!({ "kinds": kinds }), &pod("shop")),
            expected,
            "{kinds}"
        );
    }
}

#[test]
fn namespaces_select_by_name_and_glob() {
    for (list, expected) in [
        (json!(["shop"]), true),
        (json!(["sh*"]), true),
        (json!(["*op"]), true),
        (json!(["*ho*"]), true),
        (json!(["*"]), true),
        (json!(["other"]), false),
        (json!(["shop-*"]), false),
        (json!(["*-shop"]), false),
    ] {
        let namespaces = json!({ "namespaces": list });
        assert_eq!(selects(namespaces, &pod("shop")), expected, "{list}");
        let excluded = json!({ "excludedNamespaces": list });
        assert_eq!(selects(excluded, &pod("shop")), !expected, "{list}");
    }
}

#[test]
fn cluster_scoped_object_is_excluded_by_no_list_of_namespaces() {
    assert!(selects(json!({ "namespaces": ["shop"] }), &node()));
    assert!(selects(json!({ "excludedNamespaces": ["*"] }), &node()));
}

#[test]
fn namespace_counts_as_being_in_itself() {
    assert!(selects(
        json!({ "namespaces": ["shop"] }),
        &namespace("shop")
    ));
    assert!(!selects(
        json!({ "namespaces": ["shop"] }),
        &namespace("other")
    ));
    assert!(!selects(
        json!({ "excludedNamespaces": ["shop"] }),
        &namespace("shop")
    ));
}

#[test]
fn scope_counts_a_namespace_as_cluster_scoped() {
    for (scope, [of_pod, of_namespace, of_node]) in [
        ("*", [true, true, true]),
        ("Cluster", [false, true, true]),
        ("Namespaced", [true, false, false]),
    ] {
        let scope = json!({ "scope": scope });
        assert_eq!(selects(scope.clone(), &pod("shop")), of_pod, "{scope}");
        assert_eq!(
            selects(scope.clone(), &namespace("shop")),
            of_namespace,
            "{scope}"
        );
        assert_eq!(selects(scope.clone(), &node()), of_node, "{scope}");
    }
}

#[test]
fn name_selects_by_glob_and_generated_name() {
    for (name, expected) in [
        ("web-1", true),
        ("web-*", true),
        ("*-1", true),
        ("db*", false),
    ] {
        assert_eq!(
            selects(json!({ "name": name }), &pod("shop")),
            expected,
            "{name}"
        );
    }
    let generated = Subject {
        name: String::new(),
        generate_name: "web-".to_owned(),
        ..pod("shop")
    };
    assert!(selects(json!({ "name": "web-*" }), &generated));
    assert!(!selects(json!({ "name": "*-1" }), &generated));
}

#[test]
fn label_selector_selects_by_labels_and_expressions() {
    for (selector, expected) in [
        (json!({}), true),
        (json!({ "matchLabels": { "app": "web" } }), true),
        (json!({ "matchLabels": { "app": "db" } }), false),
        (
            json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["web"] }] }),
            true,
        ),
        (
            json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["web"] }] }),
            false,
        ),
        (
            json!({ "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["x"] }] }),
            true,
        ),
        (
            json!({ "matchExpressions": [{ "key": "app", "operator": "Exists" }] }),
            true,
        ),
        (
            json!({ "matchExpressions": [{ "key": "app", "operator": "DoesNotExist" }] }),
            false,
        ),
    ] {
        let matching = json!({ "labelSelector": selector });
        assert_eq!(selects(matching, &pod("shop")), expected, "{selector}");
    }
}

#[test]
fn namespace_selector_reads_labels_of_the_namespace() {
    let team = |team: &str| json!({ "namespaceSelector": { "matchLabels": { "team": team } } });
    assert!(selects(team("a"), &pod("shop")));
    assert!(!selects(team("b"), &pod("shop")));
    assert!(selects(team("a"), &namespace("new")));
    assert!(!selects(team("b"), &namespace("new")));
    assert!(selects(team("b"), &node()));
    let unknown = read(team("a")).selects(&pod("elsewhere"), &|_| None);
    assert_eq!(unknown, Err(UnknownNamespace("elsewhere".to_owned())));
}

#[test]
fn namespace_selector_by_name_needs_no_labels() {
    let by_name = |operator: &str| {
        read(json!({ "namespaceSelector": { "matchExpressions": [
            { "key": "kubernetes.io/metadata.name", "operator": operator, "values": ["shop"] },
        ] } }))
    };
    assert!(!by_name("In").needs_namespace_labels());
    assert_eq!(by_name("In").selects(&pod("shop"), &|_| None), Ok(true));
    assert_eq!(by_name("NotIn").selects(&pod("shop"), &|_| None), Ok(false));
}

#[test]
fn source_generated_selects_nothing_that_a_user_sends() {
    assert!(selects(json!({ "source": "All" }), &pod("shop")));
    assert!(selects(json!({ "source": "Original" }), &pod("shop")));
    assert!(!selects(json!({ "source": "Generated" }), &pod("shop")));
}
