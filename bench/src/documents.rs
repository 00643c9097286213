//! Objects of a given size, and the reviews around them.

use serde_json::{Value, json};

/// The number of containers of a large Pod, each with an image from its own registry.
pub const CONTAINERS: usize = 5;
/// The uid of the review. The other fields around the object are like those of kube-apiserver on CREATE.
pub const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// The size below which a Pod has one container, and little else.
const SMALL_BYTES: usize = 4_000;

/// Creates a Pod of exactly that many bytes, if one fits. It has up to five containers, and more environment variables
/// in each with more room.
#[must_use]
pub fn pod(bytes: usize) -> Value {
    let container = |index: usize| {
        json!({
            "name": format!("container-{index}"),
            "image": format!("registry-{index}.example.com/shop/front-end:1.4.{index}"),
            "ports": [{ "containerPort": 8080, "name": "http", "protocol": "TCP" }],
            "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
            "imagePullPolicy": "IfNotPresent",
            "terminationMessagePath": "/dev/termination-log",
            "env": [],
        })
    };
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "shop",
            "namespace": "default",
            "labels": { "app.kubernetes.io/name": "shop", "team": "blue" },
        },
        "spec": { "containers": [{ "name": "app", "image": "registry-0.example.com/app:1.4" }] },
    });
    if bytes > SMALL_BYTES {
        pod["spec"]["containers"] = (0..CONTAINERS).map(container).collect();
        let mut length = pod.to_string().len();
        for index in 0.. {
            let variable = json!({
                "name": format!("SHOP_FRONT_END_SETTING_{index}"),
                "value": format!("the value of setting {index} of the front end"),
            });
            // Includes the comma before it.
            length += variable.to_string().len() + 1;
            if length + 32 > bytes {
                break;
            }
            let environment = pod["spec"]["containers"][index % CONTAINERS]["env"].as_array_mut();
            environment.expect("`env` is a list").push(variable);
        }
    }
    pod["metadata"]["annotations"] = json!({ "note": "" });
    let missing = bytes.saturating_sub(pod.to_string().len());
    pod["metadata"]["annotations"]["note"] = "x".repeat(missing).into();
    pod
}

/// Creates the request for the creation of the object, as kube-apiserver sends it.
#[must_use]
pub fn review(object: &Value) -> Vec<u8> {
    let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
    let resource = json!({ "group": "", "version": "v1", "resource": "pods" });
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": object["metadata"]["name"],
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": { "username": "jane", "groups": ["system:authenticated"] },
            "object": object,
            "oldObject": null,
            "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" },
        },
    });
    review.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_the_size_that_was_asked_for() {
        for bytes in [250, 5_000, 100_000, 1_000_000] {
            let length = pod(bytes).to_string().len();
            // The smallest useful Pod is a little larger than 250 bytes.
            assert!(length == bytes || bytes == 250 && length < 300, "{length}");
        }
    }
}
