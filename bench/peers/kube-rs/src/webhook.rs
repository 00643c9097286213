//! The answer to a review: kube-rs' admission types around the check.

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube_core::DynamicObject;
use kube_core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use serde_json::json;

use crate::labels::RequiredLabels;

/// What the server does with a body.
pub(crate) enum Webhook {
    /// Reads the review and checks its Pod.
    Checks(RequiredLabels),
    /// Answers with these bytes whatever the body has.
    Floor(Bytes),
}

// === impl Webhook ===

impl Webhook {
    /// Creates a webhook with one check.
    pub(crate) fn new(policy: RequiredLabels) -> Self {
        Self::Checks(policy)
    }

    /// Creates a webhook that allows every review as if it had this uid.
    pub(crate) fn floor(uid: &str) -> Self {
        let answer = json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "response": { "uid": uid, "allowed": true },
        });
        Self::Floor(answer.to_string().into())
    }

    /// Turns the body of a review into the body of its answer. The error is the text of a `400 Bad Request`.
    pub(crate) fn answer(&self, body: &[u8]) -> Result<Bytes, String> {
        match self {
            Self::Checks(policy) => {
                let answer = review(policy, body)?;
                let text = serde_json::to_vec(&answer).map_err(|error| error.to_string())?;
                Ok(text.into())
            }
            Self::Floor(answer) => Ok(answer.clone()),
        }
    }
}

fn review(policy: &RequiredLabels, body: &[u8]) -> Result<AdmissionReview<DynamicObject>, String> {
    let review: AdmissionReview<Pod> =
        serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let request: AdmissionRequest<Pod> = review
        .try_into()
        .map_err(|_none| "the review has no request".to_owned())?;
    let response = AdmissionResponse::from(&request);
    let checked = match (&request.operation, &request.object) {
        (Operation::Create | Operation::Update, Some(pod)) => policy.check(pod),
        _ => Ok(()),
    };
    let response = match checked {
        Ok(()) => response,
        Err(problems) => response.deny(problems),
    };
    Ok(response.into_review())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn webhook() -> Webhook {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        let text = r#"{"plugins": [{"settings": {"labels": {"team": "[a-z]+"}}}]}"#;
        std::fs::write(&file, text).unwrap();
        Webhook::new(RequiredLabels::read(&file).unwrap())
    }

    fn body(operation: &str, labels: &Value) -> Vec<u8> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels}});
        let (object, old_object) = match operation {
            "DELETE" => (Value::Null, pod),
            _ => (pod, Value::Null),
        };
        let review = json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "1",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "operation": operation,
                "userInfo": {"username": "jane"},
                "object": object,
                "oldObject": old_object,
            },
        });
        review.to_string().into_bytes()
    }

    fn response(webhook: &Webhook, body: &[u8]) -> Value {
        let answer: Value = serde_json::from_slice(&webhook.answer(body).unwrap()).unwrap();
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        answer["response"].clone()
    }

    #[test]
    fn denies_pods_without_the_label() {
        for (operation, labels, allowed) in [
            ("CREATE", json!({"team": "blue"}), true),
            ("CREATE", json!({"team": "Blue"}), false),
            ("UPDATE", json!({}), false),
            ("DELETE", json!({}), true),
        ] {
            let response = response(&webhook(), &body(operation, &labels));
            assert_eq!(response["allowed"], allowed, "{operation} {labels}");
            assert_eq!(response["uid"], "1");
            let message = response["status"]["message"].as_str().unwrap_or_default();
            assert_eq!(message.contains("label team"), !allowed, "{response}");
        }
    }

    #[test]
    fn rejects_body_that_is_no_review_of_a_pod() {
        for body in [
            "",
            "{}",
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#,
        ] {
            assert!(webhook().answer(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn floor_allows_without_looking() {
        let floor = Webhook::floor("705ab4f5");
        let response = response(&floor, b"no JSON");
        assert_eq!(response, json!({"uid": "705ab4f5", "allowed": true}));
    }
}
