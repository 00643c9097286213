//! The OpenAPI schema of a template's parameters: defaults, and validation as kube-apiserver does it for the constraint.

use regex_lite::Regex;
use serde_json::{Map, Value as Json};

use crate::{Pointer, Problems};

/// Sets the defaults of a schema where the value has nothing.
pub fn set_defaults(schema: &Json, value: &mut Json) {
    match value {
        Json::Object(members) => {
            for (name, property) in object(schema, "properties") {
                if let (false, Some(default)) =
                    (members.contains_key(name), property.get("default"))
                {
                    members.insert(name.clone(), default.clone());
                }
                if let Some(member) = members.get_mut(name) {
                    set_defaults(property, member);
                }
            }
            if let Some(additional) = schema
                .get("additionalProperties")
                .filter(|additional| additional.is_object())
            {
                let properties = object(schema, "properties");
                let others = members
                    .iter_mut()
                    .filter(|(name, _)| !properties.contains_key(*name));
                others.for_each(|(_, member)| set_defaults(additional, member));
            }
        }
        Json::Array(elements) => {
            if let Some(items) = schema.get("items") {
                elements
                    .iter_mut()
                    .for_each(|element| set_defaults(items, element));
            }
        }
        _ => {}
    }
}

/// Compares a value with a schema. Members that the schema does not know are allowed.
pub fn validate(schema: &Json, value: &Json, at: &Pointer, problems: &mut Problems) {
    // kube-apiserver takes a null for a parameter that is not there.
    if value.is_null() {
        return;
    }
    if let Some(expected) = wrong_type(schema, value) {
        problems.at(
            at.clone(),
            format!("expected {expected}, got {}", type_of(value)),
        );
        return;
    }
    if let Some(values) = schema.get("enum").and_then(Json::as_array)
        && !values.contains(value)
    {
        let values: Vec<String> = values.iter().map(Json::to_string).collect();
        problems.at(at.clone(), format!("expected one of {}", values.join(", ")));
    }
    combined(schema, value, at, problems);
    match value {
        Json::Object(members) => validate_object(schema, members, at, problems),
        Json::Array(elements) => validate_array(schema, elements, at, problems),
        Json::String(text) => validate_text(schema, text, at, problems),
        Json::Number(number) => {
            validate_number(schema, number.as_f64().unwrap_or_default(), at, problems);
        }
        Json::Null | Json::Bool(_) => {}
    }
}

fn validate_object(
    schema: &Json,
    members: &Map<String, Json>,
    at: &Pointer,
    problems: &mut Problems,
) {
    let required = schema.get("required").and_then(Json::as_array);
    for name in required.into_iter().flatten().filter_map(Json::as_str) {
        if !members.contains_key(name) {
            problems.at(at.clone(), format!("{name} is required"));
        }
    }
    bounds(
        schema,
        ["minProperties", "maxProperties"],
        members.len(),
        "members",
        at,
        problems,
    );
    let properties = object(schema, "properties");
    for (name, member) in members {
        let within = at.child(name);
        match (properties.get(name), schema.get("additionalProperties")) {
            (Some(property), _) => validate(property, member, &within, problems),
            (None, Some(additional @ Json::Object(_))) => {
                validate(additional, member, &within, problems);
            }
            (None, Some(Json::Bool(false))) => {
                problems.at(within, "the schema has no such parameter".to_owned());
            }
            (None, _) => {}
        }
    }
}

fn validate_array(schema: &Json, elements: &[Json], at: &Pointer, problems: &mut Problems) {
    bounds(
        schema,
        ["minItems", "maxItems"],
        elements.len(),
        "elements",
        at,
        problems,
    );
    if schema.get("uniqueItems") == Some(&Json::Bool(true)) {
        let twice = (1..elements.len()).find(|&index| elements[..index].contains(&elements[index]));
        if let Some(index) = twice {
            problems.at(
                at.child(index),
                "is in the list already, and elements must be unique".to_owned(),
            );
        }
    }
    if let Some(items) = schema.get("items") {
        for (index, element) in elements.iter().enumerate() {
            validate(items, element, &at.child(index), problems);
        }
    }
}

fn validate_text(schema: &Json, text: &str, at: &Pointer, problems: &mut Problems) {
    let length = text.chars().count();
    bounds(
        schema,
        ["minLength", "maxLength"],
        length,
        "characters",
        at,
        problems,
    );
    if let Some(pattern) = schema.get("pattern").and_then(Json::as_str) {
        match Regex::new(pattern) {
            Ok(regex) if regex.is_match(text) => {}
            Ok(_) => problems.at(at.clone(), format!("does not match {pattern}")),
            Err(_) => problems.at(
                at.clone(),
                format!("the pattern of the schema is not a regular expression: {pattern}"),
            ),
        }
    }
}

fn validate_number(schema: &Json, number: f64, at: &Pointer, problems: &mut Problems) {
    let bound = |key: &str| schema.get(key).and_then(Json::as_f64);
    let excludes = |key: &str| schema.get(key) == Some(&Json::Bool(true));
    if let Some(minimum) = bound("minimum")
        && (number < minimum || (excludes("exclusiveMinimum") && number <= minimum))
    {
        problems.at(at.clone(), format!("expected at least {minimum}"));
    }
    if let Some(maximum) = bound("maximum")
        && (number > maximum || (excludes("exclusiveMaximum") && number >= maximum))
    {
        problems.at(at.clone(), format!("expected at most {maximum}"));
    }
    if let Some(step) = bound("multipleOf")
        && step != 0.0
        && (number / step).fract().abs() > 1e-9
    {
        problems.at(at.clone(), format!("expected a multiple of {step}"));
    }
}

/// Checks `allOf`, `anyOf`, `oneOf` and `not`.
fn combined(schema: &Json, value: &Json, at: &Pointer, problems: &mut Problems) {
    let list = |key: &str| schema.get(key).and_then(Json::as_array);
    let holds = |schema: &Json| {
        let mut problems = Problems::new();
        validate(schema, value, at, &mut problems);
        problems.is_empty()
    };
    for one in list("allOf").into_iter().flatten() {
        validate(one, value, at, problems);
    }
    if let Some(any) = list("anyOf")
        && !any.iter().any(holds)
    {
        problems.at(
            at.clone(),
            "fits none of the schemas under `anyOf`".to_owned(),
        );
    }
    if let Some(one) = list("oneOf")
        && one.iter().filter(|schema| holds(schema)).count() != 1
    {
        problems.at(
            at.clone(),
            "must fit exactly one of the schemas under `oneOf`".to_owned(),
        );
    }
    if schema.get("not").is_some_and(holds) {
        problems.at(at.clone(), "must not fit the schema under `not`".to_owned());
    }
}

fn bounds(
    schema: &Json,
    [least, most]: [&str; 2],
    got: usize,
    what: &str,
    at: &Pointer,
    problems: &mut Problems,
) {
    let bound = |key: &str| schema.get(key).and_then(Json::as_u64);
    let got = got as u64;
    if let Some(least) = bound(least).filter(|least| got < *least) {
        problems.at(
            at.clone(),
            format!("expected at least {least} {what}, got {got}"),
        );
    }
    if let Some(most) = bound(most).filter(|most| got > *most) {
        problems.at(
            at.clone(),
            format!("expected at most {most} {what}, got {got}"),
        );
    }
}

/// Returns the type that the schema asks for, if the value has another one.
fn wrong_type(schema: &Json, value: &Json) -> Option<&'static str> {
    if schema.get("x-kubernetes-int-or-string") == Some(&Json::Bool(true)) {
        let fits = value.is_string() || is_integer(value);
        return (!fits).then_some("an integer or a string");
    }
    let (fits, expected) = match schema.get("type")?.as_str()? {
        "object" => (value.is_object(), "an object"),
        "array" => (value.is_array(), "a list"),
        "string" => (value.is_string(), "a string"),
        "boolean" => (value.is_boolean(), "true or false"),
        "integer" => (is_integer(value), "an integer"),
        "number" => (value.is_number(), "a number"),
        _ => return None,
    };
    (!fits).then_some(expected)
}

fn is_integer(value: &Json) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

fn object<'a>(schema: &'a Json, key: &str) -> &'a Map<String, Json> {
    static NONE: std::sync::LazyLock<Map<String, Json>> = std::sync::LazyLock::new(Map::new);
    schema.get(key).and_then(Json::as_object).unwrap_or(&NONE)
}
