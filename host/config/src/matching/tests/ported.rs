//! kube-apiserver's own cases, from k8s.io/apiserver v0.37 (Apache-2.0), pkg/admission/plugin/webhook/predicates:
//! rules/rules_test.go, object/matcher_test.go and namespace/matcher_test.go. Each row names its test and its case.
//! The cases of matchconditions are with the tests of conditions.

use serde_json::{Value, json};

use super::*;

/// Group, version, and resource with subresource.
type Attributes = (&'static str, &'static str, &'static str);

struct RuleCase {
    origin: &'static str,
    rule: ManifestRule,
    matching: Vec<AdmissionRequest>,
    others: Vec<AdmissionRequest>,
}

fn all(attributes: &[Attributes]) -> Vec<AdmissionRequest> {
    let requests = attributes
        .iter()
        .map(|(group, version, resource)| request(group, version, resource));
    requests.collect()
}

fn operations(operations: &[Operation]) -> Vec<AdmissionRequest> {
    let requests = operations.iter().map(|operation| AdmissionRequest {
        operation: *operation,
        ..request("g", "v", "r")
    });
    requests.collect()
}

/// The original cases leave out the parts of a rule that they do not test. In these cases, every rule is complete.
fn rule_cases() -> Vec<RuleCase> {
    use Operation::{Connect, Create, Delete, Update};
    let any = &["*"][..];
    let everything = &["*/*"][..];
    let case = |origin, rule, matching, others| RuleCase {
        origin,
        rule,
        matching,
        others,
    };
    let group = |groups: &[&str]| rule(any, groups, any, everything);
    let version = |versions: &[&str]| rule(any, any, versions, everything);
    let operation = |operations: &[&str]| rule(operations, any, any, everything);
    let resource = |resources: &[&str]| rule(any, any, any, resources);
    vec![
        case(
            "TestGroup/wildcard",
            group(&["*"]),
            all(&[("g", "v", "r")]),
            vec![],
        ),
        case(
            "TestGroup/exact",
            group(&["g1", "g2"]),
            all(&[("g1", "v", "r"), ("g2", "v2", "r3")]),
            all(&[("g3", "v", "r"), ("g4", "v", "r")]),
        ),
        case(
            "TestVersion/wildcard",
            version(&["*"]),
            all(&[("g", "v", "r")]),
            vec![],
        ),
        case(
            "TestVersion/exact",
            version(&["v1", "v2"]),
            all(&[("g1", "v1", "r"), ("g2", "v2", "r")]),
            all(&[("g1", "v3", "r"), ("g2", "v4", "r")]),
        ),
        case(
            "TestOperation/wildcard",
            operation(&["*"]),
            operations(&[Create, Update, Delete, Connect]),
            vec![],
        ),
        case(
            "TestOperation/create",
            operation(&["CREATE"]),
            operations(&[Create]),
            operations(&[Update, Delete, Connect]),
        ),
        case(
            "TestOperation/update",
            operation(&["UPDATE"]),
            operations(&[Update]),
            operations(&[Create, Delete, Connect]),
        ),
        case(
            "TestOperation/delete",
            operation(&["DELETE"]),
            operations(&[Delete]),
            operations(&[Create, Update, Connect]),
        ),
        case(
            "TestOperation/connect",
            operation(&["CONNECT"]),
            operations(&[Connect]),
            operations(&[Create, Update, Delete]),
        ),
        case(
            "TestOperation/multiple",
            operation(&["UPDATE", "DELETE"]),
            operations(&[Update, Delete]),
            operations(&[Create, Connect]),
        ),
        case(
            "TestResource/no subresources",
            resource(&["*"]),
            all(&[("g", "v", "r"), ("2", "v", "r2")]),
            all(&[("g", "v", "r/exec"), ("2", "v", "r2/proxy")]),
        ),
        case(
            "TestResource/r & subresources",
            resource(&["r/*"]),
            all(&[("g", "v", "r"), ("g", "v", "r/exec")]),
            all(&[("2", "v", "r2"), ("2", "v", "r2/proxy")]),
        ),
        case(
            "TestResource/r & subresources or r2",
            resource(&["r/*", "r2"]),
            all(&[("g", "v", "r"), ("g", "v", "r/exec"), ("2", "v", "r2")]),
            all(&[("2", "v", "r2/proxy")]),
        ),
        case(
            "TestResource/proxy or exec",
            resource(&["*/proxy", "*/exec"]),
            all(&[
                ("g", "v", "r/exec"),
                ("2", "v", "r2/proxy"),
                ("2", "v", "r3/proxy"),
            ]),
            all(&[("g", "v", "r"), ("2", "v", "r2"), ("2", "v", "r4/scale")]),
        ),
    ]
}

#[test]
fn rules_match_like_kube_apiserver() {
    for RuleCase {
        origin,
        rule,
        matching,
        others,
    } in rule_cases()
    {
        let matcher = one_rule(rule);
        for request in &matching {
            assert!(matcher.matches(request).is_some(), "{origin}: {request:?}");
        }
        for request in &others {
            assert!(matcher.matches(request).is_none(), "{origin}: {request:?}");
        }
    }
}

/// TestScope has one list for all its cases, of cluster-scoped and of namespaced requests. Namespaces are
/// cluster-scoped, whatever the request has as its namespace. The rules have the resource `*`, and the cases only
/// test the scope.
#[test]
fn scopes_match_like_kube_apiserver() {
    let cluster = |resource| in_namespace(None, request("g", "v", resource));
    let namespace = |resource, namespace| in_namespace(namespace, request("", "v1", resource));
    let cluster_scoped = [
        cluster("r"),
        cluster("r/exec"),
        namespace("namespaces", None),
        namespace("namespaces/finalize", None),
        namespace("namespaces", Some("ns")),
        namespace("namespaces/finalize", Some("ns")),
    ];
    let namespaced = [request("g", "v", "r"), request("g", "v", "r/exec")];
    for (origin, scope, matches_cluster, matches_namespaced) in [
        ("TestScope/cluster scope", "Cluster", true, false),
        ("TestScope/namespace scope", "Namespaced", false, true),
        ("TestScope/all scopes", "*", true, true),
    ] {
        let matcher = one_rule(ManifestRule {
            scope: Some(scope.to_owned()),
            ..rule(&["*"], &["*"], &["*"], &["*/*"])
        });
        for (requests, expected) in [
            (&cluster_scoped[..], matches_cluster),
            (&namespaced[..], matches_namespaced),
        ] {
            for request in requests {
                let matches = matcher.matches(request).is_some();
                assert_eq!(matches, expected, "{origin}: {request:?}");
            }
        }
    }
}

#[test]
fn object_selectors_match_like_kube_apiserver() {
    const EMPTY: &str = "{}";
    const NOT_RUN_LEVEL_1: &str =
        "{matchExpressions: [{key: runlevel, operator: NotIn, values: ['1']}]}";
    let node = |level: &str| json!({"metadata": {"labels": {"runlevel": level}}});
    let none = Value::Null;
    // NodeProxyOptions is an object without metadata.
    let options = json!({"kind": "NodeProxyOptions", "apiVersion": "v1", "path": ""});
    for (origin, selector, object, old_object, expected) in [
        (
            "empty object selector matches everything",
            EMPTY,
            &none,
            &none,
            true,
        ),
        (
            "matches new object",
            NOT_RUN_LEVEL_1,
            &node("2"),
            &none,
            true,
        ),
        (
            "matches old object",
            NOT_RUN_LEVEL_1,
            &none,
            &node("2"),
            true,
        ),
        (
            "does not match new object",
            NOT_RUN_LEVEL_1,
            &node("1"),
            &none,
            false,
        ),
        (
            "does not match old object",
            NOT_RUN_LEVEL_1,
            &none,
            &node("1"),
            false,
        ),
        (
            "does not match object that does not implement Object interface",
            NOT_RUN_LEVEL_1,
            &options,
            &none,
            false,
        ),
        (
            "empty selector matches everything, including object that does not implement Object interface",
            EMPTY,
            &options,
            &none,
            true,
        ),
    ] {
        let found = selects(selector, object, old_object);
        assert_eq!(found, expected, "TestObjectSelector/{origin}");
    }
}

fn selects(selector: &str, object: &Value, old_object: &Value) -> bool {
    let part = |value: &Value| (!value.is_null()).then(|| Json::from(value.clone()));
    let (object, old_object) = (part(object), part(old_object));
    let matcher = everything_with(&format!("objectSelector: {selector}"));
    matcher
        .object_selector
        .selects(object.as_ref(), old_object.as_ref())
}

/// Not a ported case. The expected values are those of apimachinery's selectors for each operator.
#[test]
fn same_object_must_meet_every_requirement() {
    let labelled = |labels: Value| json!({"metadata": {"labels": labels}});
    let both = "{matchLabels: {app: web}, matchExpressions: [{key: tier, operator: Exists}]}";
    let web = labelled(json!({"app": "web", "tier": "front"}));
    assert!(selects(both, &web, &Value::Null));
    assert!(selects(both, &labelled(json!({})), &web), "the old one");
    assert!(!selects(
        both,
        &labelled(json!({"app": "web"})),
        &labelled(json!({"tier": "front"}))
    ));
    for (operator, labels, expected) in [
        ("In, values: [a, b]", json!({"k": "b"}), true),
        ("In, values: [a, b]", json!({"k": "c"}), false),
        ("In, values: [a, b]", json!({}), false),
        ("NotIn, values: [a, b]", json!({"k": "b"}), false),
        ("NotIn, values: [a, b]", json!({}), true),
        ("Exists", json!({"k": ""}), true),
        ("Exists", json!({}), false),
        ("DoesNotExist", json!({"k": ""}), false),
        ("DoesNotExist", json!({}), true),
        ("DoesNotExist", Value::Null, true),
    ] {
        let selector = format!("{{matchExpressions: [{{key: k, operator: {operator}}}]}}");
        assert_eq!(
            selects(&selector, &labelled(labels.clone()), &Value::Null),
            expected,
            "{operator} {labels}"
        );
    }
}

/// The original cases select namespaces by label. These select by name, because the cases are about the namespace of a
/// request, which is the same for both.
#[test]
fn request_has_same_namespace_as_in_kube_apiserver() {
    let about = |resource: &str, namespace: Option<&str>, name: &str, operation| AdmissionRequest {
        operation,
        name: name.to_owned(),
        ..in_namespace(namespace, request("", "v1", resource))
    };
    for (origin, request, expected) in [
        (
            "request is for creating namespace, the labels should be from the object itself",
            about("namespaces", None, "2", Operation::Create),
            "2",
        ),
        (
            "request is for updating namespace, the labels should be from the new object",
            about("namespaces", Some("2"), "2", Operation::Update),
            "2",
        ),
        (
            "request is for deleting namespace, the labels should be from the cache",
            about("namespaces", Some("1"), "1", Operation::Delete),
            "1",
        ),
        (
            "request is for namespace/finalizer",
            about(
                "namespaces/finalizers",
                Some("1"),
                "mock-name",
                Operation::Create,
            ),
            "1",
        ),
        (
            "request is for pod",
            about("pods", Some("1"), "mock-name", Operation::Create),
            "1",
        ),
    ] {
        for (list, included) in [("1", expected == "1"), ("2", expected == "2")] {
            let matcher = everything_in(&format!("namespaces: ['{list}']"));
            let matches = matcher.matches(&request).is_some();
            assert_eq!(matches, included, "TestGetNamespaceLabels/{origin}: {list}");
        }
    }
    let node = in_namespace(None, request("", "v1", "nodes"));
    assert!(
        everything_in("namespaces: [a], excludeNamespaces: [b]")
            .matches(&node)
            .is_some(),
        "TestNotExemptClusterScopedResource"
    );
}

fn namespace(name: &str, labels: &Value) -> Json {
    let metadata = json!({"name": name, "labels": labels});
    Json::from(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
}

/// The cache of the original test has the namespace 1 alone.
#[test]
fn namespace_selector_sees_same_labels_as_in_kube_apiserver() {
    let labels = |level: &str| namespace(level, &json!({"runlevel": level}));
    let about = |resource: &str, namespace: &str, name: &str, operation, object| AdmissionRequest {
        operation,
        name: name.to_owned(),
        object,
        ..in_namespace(Some(namespace), request("", "v1", resource))
    };
    for (origin, request, expected) in [
        (
            "request is for creating namespace, the labels should be from the object itself",
            about("namespaces", "", "2", Operation::Create, Some(labels("2"))),
            "2",
        ),
        (
            "request is for updating namespace, the labels should be from the new object",
            about("namespaces", "2", "2", Operation::Update, Some(labels("2"))),
            "2",
        ),
        (
            "request is for deleting namespace, the labels should be from the cache",
            about("namespaces", "1", "1", Operation::Delete, Some(labels("2"))),
            "1",
        ),
        (
            "request is for namespace/finalizer",
            about(
                "namespaces/finalizers",
                "1",
                "mock-name",
                Operation::Create,
                None,
            ),
            "1",
        ),
        (
            "request is for pod",
            about("pods", "1", "mock-name", Operation::Create, None),
            "1",
        ),
    ] {
        let object = request.object.clone();
        let object = object.as_ref();
        for level in ["1", "2"] {
            let selector = format!("namespaceSelector: {{matchLabels: {{runlevel: '{level}'}}}}");
            let matcher = everything_with(&selector);
            let from_cache = expected == "1";
            if from_cache && level == "1" {
                let decided = matcher.decide(&request, object);
                assert!(matches!(decided, Decided::AwaitsNamespace), "{origin}");
                request.take_lookup(Lookup::Found(Namespace::of(&labels("1"))));
            }
            let decided = matcher.decide(&request, object);
            let holds = matches!(decided, Decided::Holds);
            assert_eq!(holds, level == expected, "TestGetNamespaceLabels/{origin}");
            if !holds {
                let fails = matches!(decided, Decided::Fails(Mismatch::NamespaceLabels));
                assert!(fails, "TestGetNamespaceLabels/{origin}");
            }
        }
    }
}

#[test]
fn namespace_selector_never_excludes_cluster_scoped_object() {
    let node = in_namespace(None, request("", "v1", "nodes"));
    for selector in [
        "namespaceSelector: {}",
        "namespaceSelector: {matchLabels: {a: b}}",
    ] {
        let matcher = everything_with(selector);
        let decided = matcher.decide(&node, None);
        assert!(
            matches!(decided, Decided::Holds),
            "TestNotExemptClusterScopedResource: {selector}"
        );
    }
}

/// Not a ported case. kube-apiserver answers such a request with an error, too.
#[test]
fn namespace_that_cannot_be_looked_up_neither_matches_nor_excludes() {
    let matcher = everything_with("namespaceSelector: {matchLabels: {a: b}}");
    let pod = request("", "v1", "pods");
    pod.take_lookup(Lookup::NotFound {
        place: "in the cluster".into(),
    });
    let Decided::NoNamespace(what) = matcher.decide(&pod, None) else {
        panic!("the labels are not known");
    };
    assert_eq!(what, "the namespace `ns` does not exist in the cluster");
}

/// Not a ported case: an empty selector needs no namespace, and cheaper checks come first.
#[test]
fn namespace_is_not_needed_without_need() {
    let pod = request("", "v1", "pods");
    for (matching, expected) in [
        ("namespaceSelector: {}", None),
        (
            "namespaceSelector: {matchLabels: {a: b}}, objectSelector: {matchLabels: {a: b}}",
            Some(Mismatch::Labels),
        ),
        (
            "namespaceSelector: {matchLabels: {a: b}}, excludeNamespaces: [ns]",
            Some(Mismatch::Namespaces),
        ),
    ] {
        let matcher = everything_with(matching);
        let decided = matcher.decide(&pod, None);
        match expected {
            None => assert!(matches!(decided, Decided::Holds), "{matching}"),
            Some(expected) => assert!(
                matches!(decided, Decided::Fails(mismatch) if mismatch == expected),
                "{matching}: {decided:?}"
            ),
        }
    }
}
