//! The request's fields, derived from an object or read from a review.

use serde_json::{Value as Json, json};

use super::TestReview;
use crate::{AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation};

const UID: &str = "00000000-0000-4000-8000-000000000000";

pub(super) fn derive(operation: Operation, object: Option<&Json>) -> (AdmissionRequest, Json) {
    let text = |pointer: &str| object.and_then(|object| object.pointer(pointer)?.as_str());
    let api_version = text("/apiVersion").unwrap_or("v1");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = text("/kind").unwrap_or_default();
    let resource = plural(kind);
    let name = text("/metadata/name").unwrap_or_default();
    let namespace = text("/metadata/namespace");
    let mut document = json!({
        "uid": UID,
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": resource},
        "requestKind": {"group": group, "version": version, "kind": kind},
        "requestResource": {"group": group, "version": version, "resource": resource},
        "name": name,
        "operation": operation.as_str(),
        "userInfo": {"username": "kubernetes-admin", "groups": ["system:authenticated"]},
        "dryRun": false,
    });
    if let Some(namespace) = namespace {
        document["namespace"] = json!(namespace);
    }
    let request = AdmissionRequest {
        uid: UID.to_owned(),
        operation,
        kind: GroupVersionKind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        },
        resource: GroupVersionResource {
            group: group.to_owned(),
            version: version.to_owned(),
            resource,
        },
        sub_resource: None,
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
        dry_run: false,
    };
    (request, document)
}

pub(super) fn from_review(mut review: Json) -> TestReview {
    let mut document = review["request"].take();
    let members = document
        .as_object_mut()
        .expect("an AdmissionReview has a request");
    let mut take = |name: &str| members.remove(name).filter(|part| !part.is_null());
    let (object, old_object, options) = (take("object"), take("oldObject"), take("options"));
    let text = |pointer: &str| {
        document
            .pointer(pointer)
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let some = |pointer: &str| Some(text(pointer)).filter(|text| !text.is_empty());
    let operation = match text("/operation").as_str() {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        "CONNECT" => Operation::Connect,
        other => panic!("the request's operation is `{other}`"),
    };
    let request = AdmissionRequest {
        uid: text("/uid"),
        operation,
        kind: GroupVersionKind {
            group: text("/kind/group"),
            version: text("/kind/version"),
            kind: text("/kind/kind"),
        },
        resource: GroupVersionResource {
            group: text("/resource/group"),
            version: text("/resource/version"),
            resource: text("/resource/resource"),
        },
        sub_resource: some("/subResource"),
        name: text("/name"),
        namespace: some("/namespace"),
        dry_run: document["dryRun"] == json!(true),
    };
    TestReview {
        request,
        document,
        object,
        old_object,
        options,
        namespace: None,
        now: None,
        #[cfg(feature = "access")]
        access: super::access::Access::default(),
        #[cfg(feature = "images")]
        images: super::images::Images::default(),
        #[cfg(feature = "cluster")]
        lookups: super::lookups::Lookups::default(),
        settings: json!({}),
    }
}

/// Forms English plurals like Kubernetes. For other plurals, use `TestReview::resource`.
fn plural(kind: &str) -> String {
    let singular = kind.to_ascii_lowercase();
    if singular == "endpoints" {
        return singular;
    }
    match singular.as_bytes() {
        [] => singular,
        [.., b'a' | b'e' | b'i' | b'o' | b'u', b'y'] => singular + "s",
        [.., b'y'] => format!("{}ies", &singular[..singular.len() - 1]),
        [.., b's' | b'x'] | [.., b'c' | b's', b'h'] => singular + "es",
        _ => singular + "s",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_derived_from_kinds() {
        for (kind, resource) in [
            ("Pod", "pods"),
            ("NetworkPolicy", "networkpolicies"),
            ("Ingress", "ingresses"),
            ("Endpoints", "endpoints"),
            ("Gateway", "gateways"),
        ] {
            assert_eq!(plural(kind), resource);
        }
    }

    #[test]
    fn a_whole_review_is_read() {
        let review = TestReview::from_review(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "u", "operation": "UPDATE", "subResource": "status", "namespace": "a", "dryRun": true,
                "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
                "object": {"a": 1}, "oldObject": {"a": 2}, "options": null}}),
        );
        assert_eq!(review.request.kind.kind, "Deployment");
        assert_eq!(review.request.sub_resource.as_deref(), Some("status"));
        assert!(review.request.dry_run);
        assert_eq!(
            (review.object, review.old_object, review.options),
            (Some(json!({"a": 1})), Some(json!({"a": 2})), None)
        );
        assert_eq!(review.document.get("object"), None);
    }
}
