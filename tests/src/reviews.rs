//! AdmissionReviews in the form that kube-apiserver sends.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::binary::workspace;
use crate::left_out;

/// A review under construction.
#[derive(Clone, Debug)]
pub struct Review(Value);

// === impl Review ===

impl Review {
    /// Creates a review of a `CREATE` of an object in the namespace `default`.
    #[must_use]
    pub fn create(object: Value) -> Self {
        Self::new("CREATE", object, Value::Null)
    }

    /// Creates a review of an `UPDATE` of an object.
    #[must_use]
    pub fn update(object: Value, old_object: Value) -> Self {
        Self::new("UPDATE", object, old_object)
    }

    /// Creates a review of a `DELETE` of an object.
    #[must_use]
    pub fn delete(old_object: Value) -> Self {
        Self::new("DELETE", Value::Null, old_object)
    }

    /// Creates a review of a `CONNECT` to a Pod's `exec`.
    #[must_use]
    pub fn exec(name: &str) -> Self {
        let options = json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdin": true, "container": "app", "command": ["sh"]});
        let mut review = Self::new("CONNECT", options, Value::Null);
        let request = &mut review.0["request"];
        request["resource"] = json!({"group": "", "version": "v1", "resource": "pods"});
        request["requestResource"] = request["resource"].clone();
        request["subResource"] = json!("exec");
        request["requestSubResource"] = json!("exec");
        request["name"] = json!(name);
        request["options"] = Value::Null;
        review
    }

    /// Turns the review into `admission.k8s.io/v1beta1`.
    #[must_use]
    pub fn v1beta1(mut self) -> Self {
        self.0["apiVersion"] = json!("admission.k8s.io/v1beta1");
        self
    }

    /// Sets the uid.
    #[must_use]
    pub fn uid(mut self, uid: &str) -> Self {
        self.0["request"]["uid"] = json!(uid);
        self
    }

    /// Returns the review.
    #[must_use]
    pub fn build(self) -> Value {
        self.0
    }

    fn new(operation: &str, object: Value, old_object: Value) -> Self {
        let about = if object.is_null() {
            &old_object
        } else {
            &object
        };
        let kind = about["kind"].as_str().unwrap_or("Pod").to_owned();
        let (group, version) = about["apiVersion"]
            .as_str()
            .unwrap_or("v1")
            .rsplit_once('/')
            .unwrap_or(("", "v1"));
        let kind_of = json!({"group": group, "version": version, "kind": kind});
        let resource = json!({"group": group, "version": version, "resource": format!("{}s", kind.to_lowercase())});
        let options = match operation {
            "CREATE" => json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
            "UPDATE" => json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}),
            "DELETE" => json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}),
            _ => Value::Null,
        };
        Self(json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "kind": kind_of,
                "resource": resource,
                "requestKind": kind_of,
                "requestResource": resource,
                "name": about["metadata"]["name"],
                "namespace": "default",
                "operation": operation,
                "userInfo": {"username": "jane", "uid": "014fbff9a07c", "groups": ["system:authenticated"]},
                "object": object,
                "oldObject": old_object,
                "dryRun": false,
                "options": options,
            },
        }))
    }
}

/// Creates a Pod with one container.
#[must_use]
pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": "9a3b4c5d-0000-4000-8000-0123456789ab",
            "creationTimestamp": "2024-05-01T10:00:00Z", "labels": {"app": name},
        },
        "spec": {
            "containers": [{"name": "app", "image": "registry.example.com/app:1.4", "resources": {}}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
        },
        "status": {},
    })
}

/// Creates a ConfigMap with the given data.
#[must_use]
pub fn config_map(name: &str, data: Map<String, Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
}

/// Creates a Secret as `kubectl apply` does, with content in `data`, in `stringData` and in an annotation. `data` is
/// given in base64, as it is sent.
#[must_use]
pub fn secret(name: &str, data: &str, string_data: &str, last_applied: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name, "namespace": "default", "labels": {"app": "shop"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": last_applied},
        },
        "type": "Opaque",
        "data": {"password": data},
        "stringData": {"token": string_data},
    })
}

/// Creates a Pod with a field of nested arrays, `levels` deep.
#[must_use]
pub fn nested_pod(name: &str, levels: usize) -> Value {
    let mut nested = json!("the bottom");
    for _ in 0..levels {
        nested = Value::Array(vec![nested]);
    }
    let mut pod = pod(name);
    pod["spec"]["nested"] = nested;
    pod
}

/// A review from a file.
#[derive(Clone, Debug)]
pub struct SharedReview {
    /// The file's name.
    pub name: String,
    /// The review in the file.
    pub review: Value,
}

/// Returns the reviews in `shared/reviews` beside the workspace, by name. These reviews are not part of the project. If
/// the folder is missing, this reports that on standard error and returns none.
///
/// # Panics
/// Panics if one of them is not JSON.
#[must_use]
pub fn shared_reviews() -> Vec<SharedReview> {
    let folder: PathBuf = workspace().join("../shared/reviews");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        left_out(&format!(
            "there are no reviews in {}: only the suite's own were sent",
            folder.display()
        ));
        return Vec::new();
    };
    let mut reviews: Vec<SharedReview> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .map(|path| {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let text = std::fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let review = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            SharedReview { name, review }
        })
        .collect();
    reviews.sort_by(|one, other| one.name.cmp(&other.name));
    reviews
}

/// The members of an AdmissionRequest in the order in which Go writes them. The host may rely on the members that
/// select plugins coming before the object.
const REQUEST_MEMBERS: [&str; 15] = [
    "uid",
    "kind",
    "resource",
    "subResource",
    "requestKind",
    "requestResource",
    "requestSubResource",
    "name",
    "namespace",
    "operation",
    "userInfo",
    "object",
    "oldObject",
    "dryRun",
    "options",
];

/// Writes the review as kube-apiserver does: members in Go's order, and `<`, `>` and `&` escaped.
#[must_use]
pub fn as_sent(review: &Value) -> Vec<u8> {
    let request = &review["request"];
    let members = REQUEST_MEMBERS
        .iter()
        .filter_map(|name| Some(format!("\"{name}\":{}", request.get(name)?)));
    let members: Vec<String> = members.collect();
    let text = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"request\":{{{}}}}}",
        review["kind"],
        review["apiVersion"],
        members.join(",")
    );
    // In JSON, these three characters occur only within strings.
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .into_bytes()
}
