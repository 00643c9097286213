use serde_json::{Value, json};

use super::*;
use crate::review::decode::decode;

fn request(resource: &str, request: Value) -> AdmissionRequest {
    let mut review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "web",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": resource},
        }
    });
    for (name, value) in request.as_object().into_iter().flatten() {
        review["request"][name] = value.clone();
    }
    let review = decode(review.to_string().as_bytes(), 32).expect("the review can be read");
    review.request
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    })
}

fn tier(of: &OfRequest<'_>) -> Option<String> {
    let OfRequest::Known(namespace) = of else {
        panic!("{of:?}");
    };
    let labels = namespace.document().member("metadata")?.member("labels")?;
    Some(labels.member("tier")?.as_text()?.to_owned())
}

#[test]
fn shows_metadata_and_nothing_more() {
    let object = json!({
        "kind": "Namespace", "apiVersion": "v1",
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        "metadata": {
            "annotations": {"team": "a"}, "managedFields": [{"manager": "kubectl"}], "labels": {"a": "b"},
            "ownerReferences": [], "name": "shop", "uid": "1",
        },
    });
    assert_eq!(
        Namespace::of(&Json::from(object)).document().to_text(),
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","uid":"1","labels":{"a":"b"},"annotations":{"team":"a"}}}"#
    );
}

#[test]
fn cluster_scoped_object_has_no_namespace() {
    for (resource, namespace) in [("nodes", Value::Null), ("nodes", json!(""))] {
        let request = request(resource, json!({ "namespace": namespace }));
        assert_eq!(request.namespace_of(None), OfRequest::None);
    }
}

#[test]
fn namespaced_object_awaits_lookup_and_keeps_its_first_result() {
    let request = request("pods", json!({"namespace": "shop"}));
    assert_eq!(request.namespace_of(None), OfRequest::Awaited("shop"));
    let found = |tier: &str| {
        let object = Json::from(namespace("shop", &json!({ "tier": tier })));
        Lookup::Found(Namespace::of(&object))
    };
    request.take_lookup(found("gold"));
    request.take_lookup(found("lead"));
    assert_eq!(tier(&request.namespace_of(None)).as_deref(), Some("gold"));
}

#[test]
fn namespace_that_cannot_be_looked_up_is_never_absent() {
    for (lookup, expected) in [
        (
            Lookup::NotFound {
                place: Arc::from("in the cluster"),
            },
            "the namespace `shop` does not exist in the cluster",
        ),
        (
            Lookup::Unavailable {
                reason: Arc::from("no connection"),
            },
            "cannot look up the namespace `shop`: no connection",
        ),
    ] {
        let request = request("pods", json!({"namespace": "shop"}));
        request.take_lookup(lookup);
        let failed = OfRequest::Failed(expected.to_owned());
        assert_eq!(request.namespace_of(None), failed);
    }
}

#[test]
fn namespace_is_in_itself() {
    let (old, new) = (json!({"tier": "old"}), json!({"tier": "new"}));
    let objects = |old: Option<&Value>, new: Option<&Value>| {
        let object = |labels: Option<&Value>| labels.map(|labels| namespace("shop", labels));
        json!({"oldObject": object(old), "object": object(new), "name": "shop", "namespace": "shop"})
    };
    for (operation, sub_resource, objects, expected) in [
        ("CREATE", "", objects(None, Some(&new)), "new"),
        ("UPDATE", "", objects(Some(&old), Some(&new)), "new"),
        // kube-apiserver reads the stored Namespace in these cases, which is the old object.
        ("UPDATE", "finalize", objects(Some(&old), Some(&new)), "old"),
        ("DELETE", "", objects(Some(&old), None), "old"),
    ] {
        let mut about = objects;
        about["operation"] = json!(operation);
        about["subResource"] = json!(sub_resource);
        let request = request("namespaces", about);
        let of = request.namespace_of(request.object.as_ref());
        assert_eq!(tier(&of).as_deref(), Some(expected), "{operation}");
    }
    let request = request("namespaces", json!({"operation": "DELETE", "name": "shop"}));
    assert_eq!(request.namespace_of(None), OfRequest::Awaited("shop"));
}

#[test]
fn reads_namespaces_from_a_mixed_list() {
    let objects = [
        namespace("shop", &json!({"tier": "gold"})),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}),
        namespace("bank", &Value::Null),
    ]
    .map(Json::from);
    let list = FixedNamespaces::from_objects("in the list", &objects).expect("the list is valid");
    assert_eq!(list.len(), 2);
    assert!(matches!(list.known("bank"), Some(Lookup::Found(_))));
    let Some(Lookup::NotFound { place }) = list.known("web") else {
        panic!("a Pod is no Namespace");
    };
    assert_eq!(&*place, "in the list");
}

#[test]
fn refuses_lists_that_mean_less_than_they_say() {
    for (objects, expected) in [
        (
            vec![json!({"apiVersion": "v1", "kind": "Namespace"})],
            "a Namespace has no `metadata.name`",
        ),
        (
            vec![
                namespace("a", &Value::Null),
                namespace("a", &json!({"tier": "gold"})),
            ],
            "the Namespace `a` is there twice",
        ),
        (
            vec![namespace("a", &json!({"frozen": true}))],
            "the label `frozen` of the Namespace `a` is not a string: write it in quotes, as Kubernetes requires",
        ),
    ] {
        let objects: Vec<Json> = objects.into_iter().map(Json::from).collect();
        let error = FixedNamespaces::from_objects("in the list", &objects);
        assert_eq!(error.expect_err("it is refused").to_string(), expected);
    }
}

#[test]
fn only_namespaced_objects_are_in_a_namespace() {
    let kind = |group: &str, kind: &str| json!({"group": group, "version": "v1", "kind": kind});
    for (resource, more, expected) in [
        ("pods", json!({"namespace": "team-a"}), true),
        (
            "pods",
            json!({"namespace": "team-a", "subResource": "exec"}),
            true,
        ),
        ("pods", json!({"namespace": "team-b"}), false),
        ("pods", json!({"namespace": ""}), false),
        ("nodes", json!({}), false),
        // kube-apiserver sends a Namespace with its own name as its namespace.
        (
            "namespaces",
            json!({"namespace": "team-a", "name": "team-a", "kind": kind("", "Namespace")}),
            false,
        ),
        (
            "namespaces",
            json!({"namespace": "team-a", "subResource": "finalize"}),
            false,
        ),
        (
            "others",
            json!({"namespace": "team-a", "kind": kind("", "Namespace")}),
            false,
        ),
        (
            "others",
            json!({"namespace": "team-a", "kind": kind("example.com", "Namespace")}),
            true,
        ),
    ] {
        let request = request(resource, more.clone());
        assert_eq!(
            request.is_in_namespace("team-a"),
            expected,
            "{resource} {more}"
        );
        assert!(!request.is_in_namespace(""), "{resource} {more}");
    }
}
