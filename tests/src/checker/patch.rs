//! Checks a patch: its form, that it applies, and that it does not change the object's identity.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{Endpoint, Violations};

/// Fields that a patch must not change. Otherwise kube-apiserver rejects the user's request.
const IDENTITY: [&str; 5] = [
    "/apiVersion",
    "/kind",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/uid",
];

/// Checks the patch, and returns the operations and the patched object.
pub(super) fn check(
    endpoint: Endpoint,
    request: &Value,
    allowed: bool,
    response: &Map<String, Value>,
    violations: &mut Violations,
) -> (Vec<Value>, Option<Value>) {
    let patch = response.get("patch").filter(|patch| !patch.is_null());
    let patch_type = response
        .get("patchType")
        .filter(|patch_type| !patch_type.is_null());
    if endpoint == Endpoint::Validate {
        if patch.is_some() || patch_type.is_some() {
            violations
                .add("a validating webhook may not return response.patch or response.patchType");
        }
        return (Vec::new(), None);
    }
    let patch = match (patch, patch_type) {
        (None, None) => return (Vec::new(), None),
        (Some(patch), Some(patch_type)) => {
            if patch_type != "JSONPatch" {
                violations.add(format!("response.patchType is {patch_type}, not JSONPatch"));
            }
            patch
        }
        _ => {
            violations.add("response.patch and response.patchType come together or not at all");
            return (Vec::new(), None);
        }
    };
    if !allowed {
        violations.add("a refused request has a response.patch");
    }
    let Some(operations) = decode(patch, violations) else {
        return (Vec::new(), None);
    };
    let object = &request["object"];
    if object.is_null() {
        violations.add("there is a patch, but no object that it could be applied to");
        return (operations, None);
    }
    let before = violations.0.len();
    for (index, operation) in operations.iter().enumerate() {
        check_operation(index, operation, violations);
    }
    if violations.0.len() > before {
        return (operations, None);
    }
    let patched = apply(object, &operations, violations);
    if let Some(patched) = &patched {
        check_object(object, patched, violations);
    }
    (operations, patched)
}

fn decode(patch: &Value, violations: &mut Violations) -> Option<Vec<Value>> {
    let Some(text) = patch.as_str().filter(|text| !text.is_empty()) else {
        violations.add("response.patch is empty or not a string");
        return None;
    };
    let Ok(bytes) = STANDARD.decode(text) else {
        violations.add("response.patch is not base64");
        return None;
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Array(operations)) => Some(operations),
        Ok(_) => {
            violations.add("response.patch is not a JSON array");
            None
        }
        Err(error) => {
            violations.add(format!("response.patch is not JSON: {error}"));
            None
        }
    }
}

/// Allows only operations that RFC 6902 and kube-apiserver's library understand alike.
fn check_operation(index: usize, operation: &Value, violations: &mut Violations) {
    let Some(members) = operation.as_object() else {
        violations.add(format!("patch[{index}] is not an object"));
        return;
    };
    let name = members
        .get("op")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let expected: &[&str] = match name {
        "add" | "replace" => &["op", "path", "value"],
        "remove" => &["op", "path"],
        _ => {
            violations.add(format!(
                "patch[{index}].op is `{name}`, not add, remove or replace"
            ));
            return;
        }
    };
    for member in expected
        .iter()
        .filter(|member| !members.contains_key(**member))
    {
        violations.add(format!("patch[{index}], a {name}, has no {member}"));
    }
    for member in members
        .keys()
        .filter(|member| !expected.contains(&member.as_str()))
    {
        violations.add(format!("patch[{index}], a {name}, has a {member}"));
    }
    match members.get("path").and_then(Value::as_str) {
        None => violations.add(format!("patch[{index}].path is not a string")),
        Some("") if name != "replace" => {
            violations.add(format!(
                "patch[{index}] is a {name} of the root, which kube-apiserver cannot apply"
            ));
        }
        Some(path) if !is_pointer(path) => {
            violations.add(format!("patch[{index}].path is not a JSON Pointer"))
        }
        Some(_) => {}
    }
}

fn is_pointer(path: &str) -> bool {
    (path.is_empty() || path.starts_with('/'))
        && path
            .split('~')
            .skip(1)
            .all(|rest| rest.starts_with('0') || rest.starts_with('1'))
}

fn apply(object: &Value, operations: &[Value], violations: &mut Violations) -> Option<Value> {
    let patch: json_patch::Patch = match serde_json::from_value(Value::Array(operations.to_vec())) {
        Ok(patch) => patch,
        Err(error) => {
            violations.add(format!("response.patch is not a JSON Patch: {error}"));
            return None;
        }
    };
    let mut patched = object.clone();
    match json_patch::patch(&mut patched, &patch) {
        Ok(()) => Some(patched),
        Err(error) => {
            violations.add(format!(
                "response.patch does not apply to the object: {error}"
            ));
            None
        }
    }
}

fn check_object(object: &Value, patched: &Value, violations: &mut Violations) {
    if !patched.is_object() {
        violations.add("the patched object is not an object");
        return;
    }
    for pointer in IDENTITY {
        if object.pointer(pointer) != patched.pointer(pointer) {
            violations.add(format!("the patch changes {pointer}"));
        }
    }
    // Metadata that was already odd in the request is not the answer's fault.
    if object.get("metadata") != patched.get("metadata") {
        check_metadata(patched.get("metadata"), violations);
    }
}

/// Reports metadata that Kubernetes could not decode into an `ObjectMeta`.
fn check_metadata(metadata: Option<&Value>, violations: &mut Violations) {
    let Some(metadata) = metadata.and_then(Value::as_object) else {
        violations.add("the patched object's metadata is not an object");
        return;
    };
    for name in ["labels", "annotations"] {
        let is_string_map = match metadata.get(name) {
            None | Some(Value::Null) => true,
            Some(Value::Object(members)) => members.values().all(Value::is_string),
            Some(_) => false,
        };
        if !is_string_map {
            violations.add(format!(
                "the patched object's metadata.{name} is not a map from string to string"
            ));
        }
    }
    for (name, is_element) in [
        ("finalizers", Value::is_string as fn(&Value) -> bool),
        ("ownerReferences", Value::is_object),
    ] {
        let is_list = match metadata.get(name) {
            None | Some(Value::Null) => true,
            Some(Value::Array(elements)) => elements.iter().all(is_element),
            Some(_) => false,
        };
        if !is_list {
            violations.add(format!(
                "the patched object's metadata.{name} cannot be decoded"
            ));
        }
    }
}
