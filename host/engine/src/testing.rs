//! Reviews for the tests of this crate.

use serde_json::{Value, json};
use tollgate_admission::review::decode::decode;
use tollgate_admission::review::request::AdmissionRequest;

/// A request to create a Pod in the namespace `shop`. With `null`, the object is missing.
pub(crate) fn request(object: &Value) -> AdmissionRequest {
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "web", "namespace": "shop",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": object,
        }
    });
    let review = decode(review.to_string().as_bytes(), 32).expect("the review can be read");
    review.request
}
