//! Objects of a given size, and reviews of them.

use serde_json::{Value, json};

/// Containers of a Pod that has room for more than one. Every image has a different registry.
pub const CONTAINERS: usize = 5;
/// The uid of every review.
pub const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// Pods below this size have one container and little else.
const SMALL_BYTES: usize = 4_000;

/// Creates a Pod of exactly this size, or of the smallest possible size. The Pod has at most five containers, and
/// environment variables fill the remaining bytes.
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

/// Creates a review of a CREATE of the object, as kube-apiserver sends it.
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
    fn pod_has_requested_size() {
        for bytes in [250, 5_000, 100_000, 1_000_000] {
            let length = pod(bytes).to_string().len();
            // The smallest useful Pod is a little larger than 250 bytes.
            assert!(length == bytes || bytes == 250 && length < 300, "{length}");
        }
    }
}
