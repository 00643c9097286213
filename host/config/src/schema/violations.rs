//! Validates a document against a schema that [`super::render`] wrote.

use regex::Regex;
use serde_json::Value;

use crate::read::child;

/// Lists where a document violates a schema, by key path. An empty list means that the document is valid.
///
/// This understands the keywords that Tollgate's schemas contain, and no others. A form in `anyOf` is reported as a
/// whole.
#[must_use]
pub fn violations(schema: &Value, document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, document, "", &mut found);
    found
}

fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    if let Some(forms) = schema["anyOf"].as_array() {
        let fits = |form: &Value| violations(form, value).is_empty();
        if !forms.iter().any(fits) {
            found.push(format!("{path}: none of {} forms", forms.len()));
        }
    }
    let problem = keywords(schema, value).err();
    found.extend(problem.map(|problem| format!("{path}: {problem}")));
    if let Some(elements) = value.as_array() {
        for (index, element) in elements.iter().enumerate() {
            check(
                &schema["items"],
                element,
                &format!("{path}[{index}]"),
                found,
            );
        }
    }
    if let Some(members) = value.as_object() {
        for (key, value) in members {
            let path = child(path, key);
            match (
                schema["properties"].get(key),
                &schema["additionalProperties"],
            ) {
                (Some(schema), _) => check(schema, value, &path, found),
                (None, Value::Bool(false)) => found.push(format!("{path}: unknown key")),
                (None, schema) => check(schema, value, &path, found),
            }
        }
    }
}

/// Checks the value itself, without its members and elements.
fn keywords(schema: &Value, value: &Value) -> Result<(), String> {
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect::<Vec<_>>(),
    };
    if !types.is_empty() && !types.iter().any(|kind| is_a(kind, value)) {
        return Err(format!("expected {}", types.join(" or ")));
    }
    let allowed = schema["enum"].as_array();
    if allowed.is_some_and(|allowed| !allowed.contains(value)) {
        return Err("expected another word".to_owned());
    }
    if schema.get("const").is_some_and(|only| only != value) {
        return Err("expected another value".to_owned());
    }
    let pattern = schema["pattern"].as_str().zip(value.as_str());
    if let Some((pattern, text)) = pattern {
        let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
        if !regex.is_match(text) {
            return Err(format!("does not match {pattern}"));
        }
    }
    let bound = |key: &str| schema[key].as_f64().zip(value.as_f64());
    let is_outside = bound("minimum").is_some_and(|(bound, value)| value < bound)
        || bound("maximum").is_some_and(|(bound, value)| value > bound);
    if is_outside {
        return Err("outside of its bounds".to_owned());
    }
    let required = schema["required"].as_array().into_iter().flatten();
    let mut missing = required
        .filter_map(Value::as_str)
        .filter(|key| value.is_object() && value.get(key).is_none());
    match missing.next() {
        Some(key) => Err(format!("lacks {key}")),
        None => Ok(()),
    }
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "null" => value.is_null(),
        _ => false,
    }
}
