//! The objects of a review: the few fields that `match` looks at, and the whole as `input.review`.

use regorus::Value as Rego;
use tollgate_gatekeeper::Subject;
use tollgate_sdk::{Document, Review};

/// The members of `input.review` with the Namespace of the object. The second one is older.
pub(crate) const NAMESPACE_MEMBERS: [&str; 2] = ["namespaceObject", "_unstable"];

/// Returns the object and the old object. A constraint is about a review when its match selects either of them.
pub(crate) fn subjects(review: &Review) -> Vec<Subject> {
    let request = review.request();
    let of = |document: Document| {
        let labels = document.read("/metadata/labels").ok().flatten();
        let namespace = request.namespace.as_deref().unwrap_or_default();
        Subject::read(
            [&request.kind.group, &request.kind.kind],
            namespace,
            labels,
            &|pointer| document.text(pointer).unwrap_or_default(),
        )
    };
    [review.object(), review.old_object()]
        .into_iter()
        .filter(|document| document.exists())
        .map(of)
        .collect()
}

/// Returns `input.review`: the AdmissionRequest, with the Namespace under the names that Gatekeeper has for it.
///
/// # Panics
/// If the host's JSON is none.
pub(crate) fn input(review: &Review, namespace: Option<Rego>) -> Rego {
    let mut request = parse(review.request_document()).unwrap_or_else(Rego::new_object);
    let old_object = parse(review.old_object());
    // Gatekeeper shows the object that is deleted as `object`, too.
    let object = parse(review.object()).or_else(|| old_object.clone());
    let members = request.as_object_mut().expect("a request is a JSON object");
    for (key, value) in [
        ("object", object),
        ("oldObject", old_object),
        ("options", parse(review.options())),
        (NAMESPACE_MEMBERS[0], namespace.clone()),
    ] {
        members.insert(Rego::from(key), value.unwrap_or(Rego::Null));
    }
    if let Some(namespace) = namespace {
        let mut unstable = Rego::new_object();
        if let Ok(members) = unstable.as_object_mut() {
            members.insert(Rego::from("namespace"), namespace);
        }
        members.insert(Rego::from(NAMESPACE_MEMBERS[1]), unstable);
    }
    request
}

/// Reads a document of the review. None if it is absent.
pub(crate) fn parse(document: Document) -> Option<Rego> {
    let text = document.json("")?;
    Some(Rego::from_json_str(&text).expect("the host gives valid JSON"))
}
