//! Checks an answer against kube-apiserver's rules for admission webhooks. It shares no code with the host.
//!
//! The rules follow `VerifyAdmissionResponse`, `callAttrMutatingHook`, `ToStatusErr`, the warning recorder and the
//! audit annotations of kubernetes/apiserver. Parts of an answer that kube-apiserver would drop or change without an
//! error also count as violations, such as a warning with a control character or a status of an allowed request. The
//! reason is that an answer must arrive as the host meant it.

mod patch;
mod status;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The kind of webhook that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A mutating webhook.
    Mutate,
    /// A validating webhook.
    Validate,
}

/// An answer without violations.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The operations of the patch. Empty without a patch.
    pub patch: Vec<Value>,
    /// The request's object with the patch applied. None without a patch.
    pub patched_object: Option<Value>,
    /// The status of a denial.
    pub status: Option<Value>,
    /// The warnings.
    pub warnings: Vec<String>,
    /// The audit annotations.
    pub audit_annotations: BTreeMap<String, String>,
}

/// All violations found so far.
#[derive(Default)]
struct Violations(Vec<String>);

/// Limit for all warnings together, from `warning.go`. Above it, each warning is cut to 256 and the rest is dropped.
const MAX_WARNING_TOTAL: usize = 4 * 1024;
/// Limit for the part of a key after the slash, from `IsQualifiedName`.
const MAX_KEY: usize = 63;

const RESPONSE_MEMBERS: [&str; 7] = [
    "uid",
    "allowed",
    "status",
    "patch",
    "patchType",
    "auditAnnotations",
    "warnings",
];

/// Checks the answer to `review`, the whole AdmissionReview that was sent.
///
/// # Errors
/// Returns every violation as text.
pub fn check(
    endpoint: Endpoint,
    review: &Value,
    http_status: u16,
    content_type: &str,
    body: &[u8],
) -> Result<Checked, Vec<String>> {
    let mut violations = Violations::default();
    check_http(http_status, content_type, &mut violations);
    let checked = check_body(endpoint, review, body, &mut violations);
    match checked {
        Some(checked) if violations.0.is_empty() => Ok(checked),
        _ => Err(violations.0),
    }
}

fn check_http(http_status: u16, content_type: &str, violations: &mut Violations) {
    if !(200..=206).contains(&http_status) {
        violations.add(format!(
            "HTTP status is {http_status}: outside 200 to 206 it is a failed call"
        ));
    }
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        violations.add(format!(
            "Content-Type is `{content_type}`, not application/json"
        ));
    }
}

fn check_body(
    endpoint: Endpoint,
    review: &Value,
    body: &[u8],
    violations: &mut Violations,
) -> Option<Checked> {
    if body.is_empty() {
        violations.add("the body is empty");
        return None;
    }
    let answer: Value = match serde_json::from_slice(body) {
        Ok(answer) => answer,
        Err(error) => {
            violations.add(format!("the body is not JSON: {error}"));
            return None;
        }
    };
    // v1beta1 is lenient here. A host that answers in the same version does not need that.
    if answer["apiVersion"] != review["apiVersion"] {
        violations.add(format!(
            "apiVersion is {}, but was asked in {}",
            answer["apiVersion"], review["apiVersion"]
        ));
    }
    if answer["kind"] != "AdmissionReview" {
        violations.add(format!("kind is {}, not AdmissionReview", answer["kind"]));
    }
    let Some(response) = answer["response"].as_object() else {
        violations.add("response is absent or not an object");
        return None;
    };
    for name in response
        .keys()
        .filter(|name| !RESPONSE_MEMBERS.contains(&name.as_str()))
    {
        violations.add(format!(
            "response.{name} is no member of an AdmissionResponse"
        ));
    }
    let request = &review["request"];
    if response.get("uid").and_then(Value::as_str) != request["uid"].as_str() {
        violations.add(format!(
            "response.uid is {:?}, but the request's is {}",
            response.get("uid"),
            request["uid"]
        ));
    }
    let allowed = response.get("allowed").and_then(Value::as_bool);
    let Some(allowed) = allowed else {
        violations.add("response.allowed is absent or not a boolean");
        return None;
    };
    let (patch, patched_object) = patch::check(endpoint, request, allowed, response, violations);
    Some(Checked {
        allowed,
        patch,
        patched_object,
        status: status::check(allowed, response.get("status"), violations),
        warnings: check_warnings(response, violations),
        audit_annotations: check_audit_annotations(response, violations),
    })
}

fn check_warnings(response: &Map<String, Value>, violations: &mut Violations) -> Vec<String> {
    let Some(warnings) = response.get("warnings") else {
        return Vec::new();
    };
    let Some(warnings) = warnings.as_array() else {
        violations.add("response.warnings is not an array");
        return Vec::new();
    };
    let mut texts: Vec<String> = Vec::new();
    let mut total = 0;
    for (index, warning) in warnings.iter().enumerate() {
        let Some(text) = warning.as_str() else {
            violations.add(format!("response.warnings[{index}] is not a string"));
            continue;
        };
        total += text.chars().count();
        if text.is_empty() {
            violations.add(format!("response.warnings[{index}] is empty and dropped"));
        }
        if text.chars().any(char::is_control) {
            violations.add(format!(
                "response.warnings[{index}] has a control character and is dropped"
            ));
        }
        if texts.iter().any(|known| known == text) {
            violations.add(format!(
                "response.warnings[{index}] repeats an earlier one and is dropped"
            ));
        }
        texts.push(text.to_owned());
    }
    if total > MAX_WARNING_TOTAL {
        violations.add(format!(
            "response.warnings have {total} runes in all, more than {MAX_WARNING_TOTAL}, so that they are cut"
        ));
    }
    texts
}

fn check_audit_annotations(
    response: &Map<String, Value>,
    violations: &mut Violations,
) -> BTreeMap<String, String> {
    let Some(annotations) = response.get("auditAnnotations") else {
        return BTreeMap::new();
    };
    let Some(annotations) = annotations.as_object() else {
        violations.add("response.auditAnnotations is not an object");
        return BTreeMap::new();
    };
    let mut checked = BTreeMap::new();
    for (key, value) in annotations {
        if !is_qualified_name(key) {
            violations.add(format!("audit annotation key `{key}` is not a qualified name without a slash and is dropped"));
        }
        match value.as_str() {
            Some(value) => {
                checked.insert(key.clone(), value.to_owned());
            }
            None => violations.add(format!("audit annotation `{key}` is not a string")),
        }
    }
    checked
}

/// Checks the part after the slash as `IsQualifiedName` does. kube-apiserver prepends the webhook's name.
fn is_qualified_name(key: &str) -> bool {
    let ends = |character: Option<char>| {
        character.is_some_and(|character| character.is_ascii_alphanumeric())
    };
    key.len() <= MAX_KEY
        && ends(key.chars().next())
        && ends(key.chars().next_back())
        && key
            .chars()
            .all(|character| character.is_ascii_alphanumeric() || "-_.".contains(character))
}

// === impl Violations ===

impl Violations {
    fn add(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }
}

#[cfg(test)]
mod tests;
