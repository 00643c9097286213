//! Checks the status of a denial.

use serde_json::{Map, Value};

use super::Violations;

const MEMBERS: [&str; 8] = [
    "kind",
    "apiVersion",
    "metadata",
    "status",
    "message",
    "reason",
    "details",
    "code",
];
const DETAILS: [&str; 6] = [
    "name",
    "group",
    "kind",
    "uid",
    "causes",
    "retryAfterSeconds",
];
const CAUSE: [&str; 3] = ["reason", "message", "field"];

/// The reasons of `metav1.StatusReason`, each with its code. With another code, clients disagree on the cause:
/// `IsForbidden` and similar functions of client-go read the reason first.
const REASONS: [(&str, u64); 18] = [
    ("BadRequest", 400),
    ("Unauthorized", 401),
    ("Forbidden", 403),
    ("NotFound", 404),
    ("MethodNotAllowed", 405),
    ("NotAcceptable", 406),
    ("AlreadyExists", 409),
    ("Conflict", 409),
    ("Gone", 410),
    ("Expired", 410),
    ("RequestEntityTooLarge", 413),
    ("UnsupportedMediaType", 415),
    ("Invalid", 422),
    ("TooManyRequests", 429),
    ("InternalError", 500),
    ("ServerTimeout", 500),
    ("ServiceUnavailable", 503),
    ("Timeout", 504),
];

/// The values of `metav1.CauseType` and `field.ErrorType`.
const CAUSE_TYPES: [&str; 13] = [
    "FieldValueNotFound",
    "FieldValueRequired",
    "FieldValueDuplicate",
    "FieldValueInvalid",
    "FieldValueNotSupported",
    "FieldValueForbidden",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
    "InternalError",
    "UnexpectedServerResponse",
    "FieldManagerConflict",
    "ResourceVersionTooLarge",
];

/// Checks the status and returns it.
pub(super) fn check(
    allowed: bool,
    status: Option<&Value>,
    violations: &mut Violations,
) -> Option<Value> {
    let status = status.filter(|status| !status.is_null());
    if allowed {
        if status.is_some() {
            violations.add("an allowed request has a response.status, which is dropped");
        }
        return None;
    }
    let Some(members) = status.and_then(Value::as_object) else {
        violations
            .add("a refused request has no response.status: the user reads `without explanation`");
        return None;
    };
    check_members("response.status", members, &MEMBERS, violations);
    check_code(members, violations);
    if members
        .get("message")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        violations.add("response.status.message is empty or not a string");
    }
    if members
        .get("status")
        .is_some_and(|status| status != "Failure")
    {
        violations.add("response.status.status is not Failure");
    }
    if members
        .get("metadata")
        .is_some_and(|metadata| !metadata.is_object())
    {
        violations.add("response.status.metadata is not an object");
    }
    let causes = members
        .get("details")
        .map_or(0, |details| check_details(details, violations));
    if members.get("reason").and_then(Value::as_str) == Some("Invalid") && causes == 0 {
        violations.add(
            "response.status.reason is Invalid without causes, of which kubectl shows nothing else",
        );
    }
    status.cloned()
}

fn check_code(status: &Map<String, Value>, violations: &mut Violations) {
    let Some(code) = status.get("code").and_then(Value::as_u64) else {
        violations.add("response.status.code is absent or not a whole number: it becomes 400");
        return;
    };
    if !(400..=599).contains(&code) {
        violations.add(format!("response.status.code is {code}, not 400 to 599"));
    }
    let Some(reason) = status.get("reason") else {
        return;
    };
    let known = reason
        .as_str()
        .and_then(|reason| REASONS.iter().find(|(known, _)| *known == reason));
    match known {
        None => violations.add(format!(
            "response.status.reason {reason} is not a StatusReason"
        )),
        Some((_, belongs))
            if REASONS.iter().any(|(_, known)| *known == code) && *belongs != code =>
        {
            violations.add(format!(
                "response.status.reason {reason} belongs to code {belongs}, not to {code}"
            ));
        }
        Some(_) => {}
    }
}

/// Checks the details and returns the number of causes.
fn check_details(details: &Value, violations: &mut Violations) -> usize {
    let Some(members) = details.as_object() else {
        violations.add("response.status.details is not an object");
        return 0;
    };
    check_members("response.status.details", members, &DETAILS, violations);
    for name in ["name", "group", "kind", "uid"] {
        if members.get(name).is_some_and(|text| !text.is_string()) {
            violations.add(format!("response.status.details.{name} is not a string"));
        }
    }
    if members
        .get("retryAfterSeconds")
        .is_some_and(|seconds| !seconds.is_i64())
    {
        violations.add("response.status.details.retryAfterSeconds is not a whole number");
    }
    let Some(causes) = members.get("causes") else {
        return 0;
    };
    let Some(causes) = causes.as_array() else {
        violations.add("response.status.details.causes is not an array");
        return 0;
    };
    for (index, cause) in causes.iter().enumerate() {
        check_cause(index, cause, violations);
    }
    causes.len()
}

fn check_cause(index: usize, cause: &Value, violations: &mut Violations) {
    let place = format!("response.status.details.causes[{index}]");
    let Some(members) = cause.as_object() else {
        violations.add(format!("{place} is not an object"));
        return;
    };
    check_members(&place, members, &CAUSE, violations);
    if members
        .get("message")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        violations.add(format!("{place}.message is empty or not a string"));
    }
    if members.get("reason").is_some_and(|reason| {
        !reason
            .as_str()
            .is_some_and(|reason| CAUSE_TYPES.contains(&reason))
    }) {
        violations.add(format!("{place}.reason is not a CauseType"));
    }
    match members.get("field").map(Value::as_str) {
        None => {}
        Some(Some(field)) if !field.is_empty() && !field.starts_with('/') => {}
        Some(_) => violations.add(format!(
            "{place}.field is not a field path such as spec.containers[0].image"
        )),
    }
}

fn check_members(
    place: &str,
    members: &Map<String, Value>,
    known: &[&str],
    violations: &mut Violations,
) {
    for name in members
        .keys()
        .filter(|name| !known.contains(&name.as_str()))
    {
        violations.add(format!(
            "{place}.{name} is not known to Kubernetes and is dropped"
        ));
    }
}
