//! Which requests a policy is for: rules, names, selectors, versions, and resources that no policy is for.

use serde_json::{Value, json};
use tollgate_tests::kubernetes::Cluster;

use super::case::{
    Case, VERSION, create, delete, map, namespace, namespace_of, on, update, validating,
};
use crate::custom_resources;

/// The group of the custom resources.
const GROUP: &str = "policies.example.com";

/// Defines the custom resources of all cases.
pub(super) fn define(cluster: &Cluster) {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    for (singular, versions) in [("limit", &["v1"][..]), ("panda", &["v1", "v2"])] {
        let mut definition = custom_resources::definition(GROUP, singular, versions, &anything);
        definition["spec"]["scope"] = json!("Cluster");
        custom_resources::apply(cluster, &definition);
    }
}

fn matched(name: &'static str, constraints: Value) -> Case {
    let mut constraints = constraints;
    if constraints["resourceRules"].is_null() {
        constraints["resourceRules"] = on("", &["configmaps"])["resourceRules"].take();
    }
    let rule = json!({"expression": "false", "message": "matched"});
    validating(name, json!({"validations": [rule]})).matching(constraints)
}

fn labelled(mut object: Value, labels: Value) -> Value {
    object["metadata"]["labels"] = labels;
    object
}

fn panda(version: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": "Panda",
        "metadata": {"name": name, "labels": {"panda": "yes"}},
    })
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = selectors();
    cases.extend(rules());
    cases.extend(versions());
    cases.extend(excluded());
    cases
}

fn selectors() -> Vec<Case> {
    let plain = |case: &str, name: &str| map(case, name, json!({}));
    let objects = "object-selector";
    let relabelled = [
        labelled(plain(objects, "from"), json!({"size": "l"})),
        labelled(plain(objects, "to"), json!({"size": "s"})),
    ];
    let expressions = "object-expressions";
    let requirement = |key: &str, operator: &str, values: Value| {
        let mut requirement = json!({"key": key, "operator": operator});
        if values.is_array() {
            requirement["values"] = values;
        }
        requirement
    };
    let of_namespace = "namespace-selector";
    let inside = |namespace: &str| {
        let mut object = map(of_namespace, "a", json!({}));
        object["metadata"]["namespace"] = json!(namespace);
        object
    };
    let staged = |name: &str, stage: &str| {
        let mut object = namespace(of_namespace, name);
        object["metadata"]["labels"]["stage"] = json!(stage);
        object
    };
    let of_namespaces = "namespace-selector-of-namespaces";
    let own = |name: &str, stage: &str| {
        let mut object = namespace(of_namespaces, name);
        object["metadata"]["labels"]["stage"] = json!(stage);
        object
    };
    let live = json!({"matchExpressions": [requirement("stage", "In", json!(["live", "next"]))]});
    vec![
        matched(objects, json!({"objectSelector": {"matchLabels": {"size": "l"}}}))
            .existing(relabelled)
            .requests([
                create(labelled(plain(objects, "a"), json!({"size": "l"}))),
                create(labelled(plain(objects, "b"), json!({"size": "s"}))),
                create(plain(objects, "c")),
                // The labels before and after an update count, and those of what is deleted.
                update(labelled(plain(objects, "from"), json!({"size": "s"}))),
                update(labelled(plain(objects, "to"), json!({"size": "l"}))),
                update(labelled(plain(objects, "to"), json!({"size": "m"}))),
                delete(plain(objects, "from")),
                delete(plain(objects, "to")),
            ]),
        matched(
            expressions,
            json!({"objectSelector": {"matchExpressions": [
                requirement("size", "NotIn", json!(["s"])),
                requirement("old", "DoesNotExist", Value::Null),
            ]}}),
        )
        .creates([
            plain(expressions, "a"),
            labelled(plain(expressions, "b"), json!({"size": "s"})),
            labelled(plain(expressions, "c"), json!({"size": "l", "old": ""})),
        ]),
        matched(of_namespace, json!({"namespaceSelector": live}))
            .existing([staged("cel-staged-live", "live"), staged("cel-staged-past", "past")])
            .creates([
                inside("cel-staged-live"),
                inside("cel-staged-past"),
                inside(&namespace_of(of_namespace)),
            ]),
        matched(
            of_namespaces,
            json!({"namespaceSelector": live, "resourceRules": on("", &["namespaces"])["resourceRules"]}),
        )
        .existing([own("cel-own-old", "live")])
        .requests([
            create(own("cel-own-live", "live")),
            create(own("cel-own-past", "past")),
            update(own("cel-own-old", "past")),
            update(own("cel-own-old", "next")),
        ]),
    ]
}

fn rules() -> Vec<Case> {
    let rule = |more: Value| {
        let mut rule = json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
        for (key, value) in more.as_object().into_iter().flatten() {
            rule[key] = value.clone();
        }
        rule
    };
    let secret = |case: &str| {
        let mut object = map(case, "a", json!({}));
        object["kind"] = json!("Secret");
        object
    };
    let existing = |case: &str| [map(case, "old", json!({}))];
    let scoped = |name: &'static str, scope: &str| {
        matched(
            name,
            json!({"resourceRules": [rule(json!({"resources": ["*"], "scope": scope}))]}),
        )
        .maps(&["a"], &json!({}))
        .creates([namespace(name, &format!("cel-{name}-a"))])
    };
    vec![
        matched("names", json!({"resourceRules": [rule(json!({"resourceNames": ["a", "old"]}))]}))
            .existing(existing("names"))
            .maps(&["a", "b"], &json!({}))
            .requests([delete(map("names", "old", json!({})))]),
        matched("operations", json!({"resourceRules": [rule(json!({"operations": ["UPDATE", "DELETE"]}))]}))
            .existing(existing("operations"))
            .requests([
                create(map("operations", "a", json!({}))),
                update(map("operations", "old", json!({"a": "b"}))),
                delete(map("operations", "old", json!({}))),
            ]),
        matched(
            "excluded",
            json!({"resourceRules": [rule(json!({"resources": ["*"]}))], "excludeResourceRules": [rule(json!({}))]}),
        )
        .maps(&["a"], &json!({}))
        .creates([secret("excluded")]),
        matched(
            "excluded-names",
            json!({"resourceRules": [rule(json!({}))], "excludeResourceRules": [rule(json!({"resourceNames": ["b"]}))]}),
        )
        .maps(&["a", "b"], &json!({})),
        // A binding makes the rules of its policy narrower, and never wider.
        matched("narrowed", json!({"resourceRules": [rule(json!({"resources": ["configmaps"]}))]}))
            .binding(json!({"matchResources": {"resourceRules": [rule(json!({"resources": ["*"], "resourceNames": ["a"]}))]}}))
            .maps(&["a", "b"], &json!({}))
            .creates([secret("narrowed")]),
        matched("narrowed-by-exclusion", json!({"resourceRules": [rule(json!({"resources": ["*"]}))]}))
            .binding(json!({"matchResources": {"excludeResourceRules": [rule(json!({"resources": ["secrets"]}))]}}))
            .maps(&["a"], &json!({}))
            .creates([secret("narrowed-by-exclusion")]),
        scoped("scope-namespaced", "Namespaced"),
        scoped("scope-cluster", "Cluster"),
        scoped("scope-any", "*"),
        // A rule for a resource is not one for its subresources.
        matched("no-subresource", json!({"resourceRules": [rule(json!({"resources": ["namespaces"]}))]}))
            .existing([namespace("no-subresource", "cel-sub-none")])
            .requests([update(namespace("no-subresource", "cel-sub-none")).of("status")]),
        matched("subresource", json!({"resourceRules": [rule(json!({"resources": ["namespaces/status"]}))]}))
            .existing([namespace("subresource", "cel-sub-status")])
            .requests([
                update(namespace("subresource", "cel-sub-status")).of("status"),
                update(namespace("subresource", "cel-sub-status")),
            ]),
        matched("subresources", json!({"resourceRules": [rule(json!({"resources": ["*/status"]}))]}))
            .existing([namespace("subresources", "cel-sub-all")])
            .requests([
                update(namespace("subresources", "cel-sub-all")).of("status"),
                update(namespace("subresources", "cel-sub-all")),
            ]),
    ]
}

fn versions() -> Vec<Case> {
    let versioned = |name: &'static str, policy: &str| {
        let mut constraints = on(GROUP, &["pandas"]);
        constraints["matchPolicy"] = json!(policy);
        constraints["objectSelector"] = json!({"matchLabels": {"panda": "yes", "by": name}});
        let of = |version: &str| {
            let mut object = panda(version, name);
            object["metadata"]["labels"]["by"] = json!(name);
            object
        };
        matched(name, constraints).requests([create(of("v1")), create(of("v2")).converted_to("v1")])
    };
    let mut said = versioned("equivalent", "Equivalent");
    let spec = json!({"validations": [{"expression": "false", "messageExpression": "object.apiVersion + ' ' + request.resource.version + ' ' + request.requestResource.version + ' ' + request.kind.version"}]});
    let with_message = validating("equivalent", spec);
    said.policies.splice(.., with_message.policies);
    let mut constraints = on(GROUP, &["pandas"]);
    constraints["objectSelector"] = json!({"matchLabels": {"by": "equivalent"}});
    vec![said.matching(constraints), versioned("exact", "Exact")]
}

/// kube-apiserver calls no policy for reviews and for policies, whatever the rules say.
fn excluded() -> Vec<Case> {
    let all = json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]});
    let mut all = all;
    all["objectSelector"] = json!({"matchLabels": {"by": "everything"}});
    let policy = json!({
        "apiVersion": VERSION, "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "cel-unbound", "labels": {"by": "everything"}},
        "spec": {"matchConstraints": on("", &["configmaps"]), "validations": [{"expression": "true"}]},
    });
    let reviews = json!({"resourceRules": [{
        "operations": ["*"], "apiVersions": ["*"], "resources": ["*"],
        "apiGroups": ["authorization.k8s.io", "authentication.k8s.io"],
    }]});
    let access = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    });
    let user = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let in_case = labelled(
        map("everything", "a", json!({})),
        json!({"by": "everything"}),
    );
    vec![
        matched("everything", all).creates([in_case, policy]),
        matched("reviews", reviews).creates([access, user]),
    ]
}
