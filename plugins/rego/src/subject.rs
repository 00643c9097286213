//! The objects of a review: the few fields that `match` looks at, and the whole as `input.review`.

use regorus::Value as Rego;
use serde_json::{Map, Value as Json};
use tollgate_sdk::{Document, Review};

use crate::matching::Subject;

/// Returns the object and the old object. A constraint is about a review when its match selects either of them.
pub(crate) fn subjects(review: &Review) -> Vec<Subject> {
    let request = review.request();
    let of = |document: Document| {
        if !document.exists() {
            return None;
        }
        let text = |pointer: &str| document.text(pointer).unwrap_or_default();
        let namespace = text("/metadata/namespace");
        let labels: Option<Map<String, Json>> = document.read("/metadata/labels").ok().flatten();
        Some(Subject {
            group: request.kind.group.clone(),
            kind: request.kind.kind.clone(),
            name: text("/metadata/name"),
            generate_name: text("/metadata/generateName"),
            namespace: match namespace.is_empty() {
                true => request.namespace.clone().unwrap_or_default(),
                false => namespace,
            },
            labels: labels.unwrap_or_default(),
        })
    };
    [review.object(), review.old_object()]
        .into_iter()
        .filter_map(of)
        .collect()
}

/// Returns `input.review`: the AdmissionRequest, with the Namespace under `_unstable` where it is known.
///
/// # Panics
/// If the host's JSON is none.
pub(crate) fn input(review: &Review, namespaces: Option<&Map<String, Json>>) -> Rego {
    let mut request = parse(review.request_document()).unwrap_or_else(Rego::new_object);
    let old_object = parse(review.old_object());
    // Gatekeeper shows the object that is deleted as `object`, too.
    let object = parse(review.object()).or_else(|| old_object.clone());
    let name = review.request_document().text("/namespace");
    let namespace = name.and_then(|name| namespaces?.get(&name));
    let members = request.as_object_mut().expect("a request is a JSON object");
    for (key, value) in [
        ("object", object),
        ("oldObject", old_object),
        ("options", parse(review.options())),
    ] {
        members.insert(Rego::from(key), value.unwrap_or(Rego::Null));
    }
    if let Some(namespace) = namespace {
        let unstable = serde_json::json!({ "namespace": namespace });
        members.insert(Rego::from("_unstable"), Rego::from(unstable));
    }
    request
}

fn parse(document: Document) -> Option<Rego> {
    let text = document.json("")?;
    Some(Rego::from_json_str(&text).expect("the host gives valid JSON"))
}
