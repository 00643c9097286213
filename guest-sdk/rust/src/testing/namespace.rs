//! The Namespace that a policy sees, by the host's rules.

use serde_json::{Map, Value as Json, json};

use super::TestReview;
use crate::Operation;

/// Members of a Namespace's metadata that the host shows.
const METADATA: [&str; 11] = [
    "name",
    "generateName",
    "uid",
    "labels",
    "annotations",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "finalizers",
];

/// Returns the Namespace of a review. None if the object is cluster-scoped.
///
/// # Panics
/// If the object is in a namespace and the test does not say which labels that has. The host would end the call.
pub(super) fn of(review: &TestReview) -> Option<Json> {
    let resource = &review.request.resource;
    let is_namespace = resource.group.is_empty() && resource.resource == "namespaces";
    let is_stored_later = review.request.sub_resource.is_none()
        && matches!(
            review.request.operation,
            Operation::Create | Operation::Update
        );
    let itself = if is_stored_later {
        review.object.as_ref()
    } else {
        review.old_object.as_ref()
    };
    let itself = itself.filter(|_| is_namespace);
    if let Some(namespace) = itself.or(review.namespace.as_ref()) {
        return Some(shown(namespace));
    }
    assert!(
        !is_namespace && review.request.namespace.is_none(),
        "a test of a policy that reads the namespace sets it: TestReview::namespace_object"
    );
    None
}

fn shown(namespace: &Json) -> Json {
    let metadata: Map<String, Json> = METADATA
        .iter()
        .filter_map(|name| {
            let value = namespace.get("metadata")?.get(*name)?;
            Some(((*name).to_owned(), value.clone()))
        })
        .collect();
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}
