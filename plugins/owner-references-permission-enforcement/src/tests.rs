use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{TestReview, manifest};

use super::*;

const CANNOT_DELETE: &str = "cannot set an ownerRef on a resource you can't delete";
const CANNOT_BLOCK: &str = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";

/// The rights of the users of kube-apiserver's tests, as far as the plugin asks about them.
fn rights() -> Vec<Json> {
    let all = json!({"user": "super", "verb": "*", "apiGroup": "*", "resource": "*"});
    let mut rights = vec![all];
    for (user, resources) in [
        (
            "non-pod-deleter",
            &["not-pods", "replicationcontrollers", "nodes"][..],
        ),
        ("non-rc-deleter", &["pods", "not-pods", "nodes"]),
        (
            "non-node-deleter",
            &["pods", "not-pods", "replicationcontrollers"],
        ),
    ] {
        for resource in resources {
            let finalizers = format!("{resource}/finalizers");
            rights.push(json!({"user": user, "verb": "delete", "resource": resource}));
            rights.push(json!({"user": user, "verb": "update", "resource": finalizers}));
        }
        rights.push(
            json!({"user": user, "verb": "update", "apiGroup": "apps", "resource": "daemonsets/finalizers"}),
        );
    }
    rights
}

fn pod(owners: &[Json]) -> Json {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foo", "namespace": "default"}});
    if !owners.is_empty() {
        pod["metadata"]["ownerReferences"] = json!(owners);
    }
    pod
}

fn definitions() -> (Json, Vec<Json>) {
    let lookup = json!({
        "name": "definitions",
        "resource": {"group": "apiextensions.k8s.io", "version": "v1", "resource": "customresourcedefinitions"},
        "fields": ["/spec/group", "/spec/scope", "/spec/names/plural", "/spec/names/kind", "/spec/versions/*/name"],
        "indexes": {"kind": "/spec/names/kind"},
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "mice.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "mice", "kind": "Mouse"},
            "versions": [{"name": "v1"}]},
    });
    (lookup, vec![definition])
}

/// Evaluates a request. Returns the message of the denial. Without old owners, the request is a creation.
fn evaluate(user: &str, resource: &str, old: Option<&[Json]>, new: &[Json]) -> Option<String> {
    let review = match old {
        None => TestReview::create(pod(new)),
        Some(old) => TestReview::update(pod(old), pod(new)),
    };
    let (resource, sub_resource) = resource.split_once('/').unwrap_or((resource, ""));
    let mut review = review.resource("", "v1", resource).user(user, &[]);
    if !sub_resource.is_empty() {
        review = review.sub_resource(sub_resource);
    }
    let (lookup, objects) = definitions();
    let review = review.access(rights()).lookup(lookup, objects);
    let outcome = review.validate::<OwnerReferences>();
    let denial = outcome.answer().err();
    denial.map(|denial| denial.message.clone())
}

/// The rows of `TestGCAdmission` in plugin/pkg/admission/gc/gc_admission_test.go of Kubernetes.
#[test]
fn answers_about_owners_like_kube_apiserver() {
    let (first, second) = (json!({"name": "first"}), json!({"name": "second"}));
    let (none, one) = (&[][..], &[first.clone()][..]);
    let two = &[first.clone(), second][..];
    for (user, resource, old, new, fails) in [
        ("super", "pods", None, none, false),
        ("super", "pods", None, one, false),
        ("non-deleter", "pods", None, none, false),
        ("non-deleter", "pods", None, one, false),
        ("non-pod-deleter", "pods", None, none, false),
        ("non-pod-deleter", "pods", None, one, false),
        ("non-pod-deleter", "not-pods", None, one, false),
        ("super", "pods", Some(none), none, false),
        ("super", "pods", Some(one), one, false),
        ("super", "pods", Some(none), one, false),
        ("non-deleter", "pods", Some(none), none, false),
        ("non-deleter", "pods", Some(one), one, false),
        ("non-deleter", "pods", Some(none), one, true),
        ("non-deleter", "pods", Some(one), two, true),
        ("non-pod-deleter", "pods", Some(none), none, false),
        ("non-pod-deleter", "pods/status", Some(none), one, false),
        ("non-pod-deleter", "pods", Some(none), one, true),
        ("non-pod-deleter", "not-pods", Some(none), one, false),
    ] {
        let said = evaluate(user, resource, old, new);
        let place = format!("{user} {resource} {old:?} {new:?}: {said:?}");
        assert_eq!(said.is_some(), fails, "{place}");
        let expected = format!("{CANNOT_DELETE}: no rule of access allows it, <nil>");
        assert!(said.is_none_or(|said| said == expected), "{place}");
    }
}

/// A reference of kube-apiserver's test. None is nil.
fn owner(kind: &str, name: &str, blocks: Option<bool>) -> Json {
    let version = if kind == "DaemonSet" { "apps/v1" } else { "v1" };
    let mut owner = json!({"apiVersion": version, "kind": kind, "name": name});
    if let Some(blocks) = blocks {
        owner["blockOwnerDeletion"] = json!(blocks);
    }
    owner
}

/// The rows of `TestBlockOwnerDeletionAdmission` in the same file. The row with a mapper that hangs has no counterpart:
/// the plugin asks nobody about kinds.
#[test]
fn answers_about_blocked_deletions_like_kube_apiserver() {
    let rc1 = |blocks| owner("ReplicationController", "rc1", blocks);
    let rc2 = |blocks| owner("ReplicationController", "rc2", blocks);
    let ds1 = |blocks| owner("DaemonSet", "ds1", blocks);
    let node = |blocks| owner("Node", "node1", blocks);
    let (yes, no) = (Some(true), Some(false));
    for (user, old, new, fails) in [
        ("super", None, vec![], false),
        ("super", None, vec![rc1(no), rc2(no)], false),
        ("super", None, vec![rc1(yes), rc2(yes), node(yes)], false),
        ("non-rc-deleter", None, vec![], false),
        ("non-rc-deleter", None, vec![rc1(no), rc2(None)], false),
        ("non-node-deleter", None, vec![node(no)], false),
        ("non-rc-deleter", None, vec![rc1(yes), rc2(no)], true),
        ("non-rc-deleter", None, vec![ds1(yes)], false),
        ("non-node-deleter", None, vec![node(yes)], true),
        (
            "super",
            Some(vec![rc1(None), node(None)]),
            vec![rc1(no), node(no)],
            false,
        ),
        (
            "super",
            Some(vec![rc1(no), node(no)]),
            vec![rc1(yes), node(yes)],
            false,
        ),
        ("super", Some(vec![]), vec![rc1(yes), node(yes)], false),
        (
            "non-rc-deleter",
            Some(vec![rc1(None)]),
            vec![rc1(no)],
            false,
        ),
        ("non-rc-deleter", Some(vec![rc1(no)]), vec![rc1(yes)], true),
        (
            "non-rc-deleter",
            Some(vec![rc1(None)]),
            vec![rc1(yes)],
            true,
        ),
        (
            "non-node-deleter",
            Some(vec![node(None)]),
            vec![node(yes)],
            true,
        ),
        ("non-rc-deleter", Some(vec![rc1(yes)]), vec![rc1(no)], false),
        (
            "non-node-deleter",
            Some(vec![node(yes)]),
            vec![node(no)],
            false,
        ),
        ("non-rc-deleter", Some(vec![ds1(no)]), vec![ds1(yes)], false),
        (
            "non-rc-deleter",
            Some(vec![]),
            vec![rc1(no), rc2(None)],
            false,
        ),
        ("non-rc-deleter", Some(vec![]), vec![rc1(yes)], true),
        ("non-rc-deleter", Some(vec![]), vec![ds1(yes)], false),
        ("non-node-deleter", Some(vec![]), vec![node(yes)], true),
    ] {
        let said = evaluate(user, "pods", old.as_deref(), &new);
        let place = format!("{user} {old:?} {new:?}: {said:?}");
        assert_eq!(said.is_some(), fails, "{place}");
        let expected = format!("{CANNOT_BLOCK}: no rule of access allows it, <nil>");
        assert!(said.is_none_or(|said| said == expected), "{place}");
    }
}

#[test]
fn custom_kinds_are_found_in_their_definitions() {
    let owner = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "name": "a", "blockOwnerDeletion": true});
    let said = |owner| evaluate("non-deleter", "pods", None, &[owner]);
    let expected = format!("{CANNOT_BLOCK}: no rule of access allows it, <nil>");
    assert_eq!(said(owner("example.com/v1", "Mouse")), Some(expected));
    for (version, kind) in [
        ("example.com/v2", "Mouse"),
        ("example.com/v1", "Rat"),
        ("v1", "Mouse"),
    ] {
        let expected = format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} Kind \
             {kind}: no matches for kind \"{kind}\" in version \"{version}\""
        );
        assert_eq!(said(owner(version, kind)), Some(expected));
    }
}

#[test]
#[should_panic(expected = "kube-apiserver does not answer")]
fn nobody_is_allowed_anything_without_an_answer() {
    let review = TestReview::update(pod(&[]), pod(&[json!({"name": "first"})]));
    drop(review.access_unavailable().validate::<OwnerReferences>());
}

#[test]
fn settings_schema_is_json() {
    let schema: Json =
        serde_json::from_str(&manifest::<OwnerReferences>().settings_schema.unwrap()).unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
