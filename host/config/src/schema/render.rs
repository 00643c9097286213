//! Writes what a reader asks for as a JSON Schema, draft 7, which editors support best.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Description;
use super::trace::{Place, Shape, Trace, Values, below};
use crate::limit::{Limit, Unit};

/// The head of a schema.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The name under which the schema is published.
    pub name: &'a str,
    /// The title, which editors show.
    pub title: &'a str,
    /// The descriptions of the keys.
    pub descriptions: &'a [&'a [Description]],
}

/// Keys of which an entry has one: its code, or the members of its group.
const ALTERNATIVES: [&str; 2] = ["source", "group"];

/// Returns the schema of everything that a reader asks for.
#[must_use]
pub fn render(head: Head<'_>, trace: &Trace) -> Value {
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": super::address(head.name),
        "title": head.title,
    });
    extend(&mut schema, place(head, trace, ""));
    schema
}

/// Returns the description of a place: that of the longest end of its path.
fn description<'a>(tables: &[&'a [Description]], path: &str) -> Option<&'a Description> {
    let mut end = path;
    loop {
        let mut all = tables.iter().flat_map(|table| table.iter());
        if let Some(found) = all.find(|(key, _)| *key == end) {
            return Some(found);
        }
        end = end.split_once('.')?.1;
    }
}

/// Compares descriptions with keys: returns the paths without a description, and the ends that no path has.
#[must_use]
pub fn described<'a>(trace: &Trace, tables: &[&'a [Description]]) -> (Vec<String>, Vec<&'a str>) {
    let mut missing = Vec::new();
    let mut used = BTreeSet::new();
    for path in trace
        .paths()
        .into_iter()
        .filter(|path| !path.ends_with("[]"))
    {
        match description(tables, &path) {
            Some((end, _)) => drop(used.insert(*end)),
            None => missing.push(path),
        }
    }
    let all = tables.iter().flat_map(|table| table.iter());
    let unused = all.map(|(end, _)| *end).filter(|end| !used.contains(end));
    (missing, unused.collect())
}

fn place(head: Head<'_>, trace: &Trace, path: &str) -> Value {
    let found = trace.place(path);
    let mut schema = json!({});
    if let Some((_, text)) = description(head.descriptions, path) {
        schema["description"] = json!(text);
    }
    let has_words = found
        .shapes
        .iter()
        .any(|shape| matches!(shape, Shape::Words(_)));
    // The words are the texts that the reader accepts.
    let shapes = found
        .shapes
        .iter()
        .filter(|shape| !(has_words && **shape == Shape::Text));
    let mut forms: Vec<Value> = shapes
        .map(|shape| form(head, trace, path, &found, shape))
        .collect();
    match forms.len() {
        1 => extend(&mut schema, forms.remove(0)),
        _ => schema["anyOf"] = forms.into(),
    }
    schema
}

fn form(head: Head<'_>, trace: &Trace, path: &str, found: &Place, shape: &Shape) -> Value {
    match shape {
        Shape::Object => object(head, trace, path, found),
        Shape::Members(Values::Any) => json!({ "type": "object" }),
        Shape::Members(Values::Text) => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        Shape::Members(Values::TextOrNull) => {
            json!({ "type": "object", "additionalProperties": { "type": ["string", "null"] } })
        }
        Shape::List => json!({
            "type": "array",
            "items": place(head, trace, &format!("{path}[]")),
        }),
        Shape::Objects => json!({ "type": "array", "items": { "type": "object" } }),
        Shape::Text => json!({ "type": "string" }),
        Shape::Boolean => json!({ "type": "boolean" }),
        Shape::Integer => json!({ "type": "integer", "minimum": 0 }),
        Shape::Amount(limit) => amount(limit, path),
        Shape::Words(words) => json!({ "enum": words }),
    }
}

fn object(head: Head<'_>, trace: &Trace, path: &str, found: &Place) -> Value {
    let properties: Map<String, Value> = found
        .keys
        .iter()
        .map(|key| ((*key).to_owned(), place(head, trace, &below(path, key))))
        .collect();
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    let required: Vec<&str> = found.required().collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    require_alternative(&mut schema);
    schema
}

/// Makes the schema of an object require one of the keys that exclude each other, if it has all of them.
pub fn require_alternative(schema: &mut Value) {
    let keys = &schema["properties"];
    if ALTERNATIVES.iter().all(|key| keys.get(key).is_some()) {
        schema["anyOf"] = ALTERNATIVES
            .map(|key| json!({ "required": [key] }))
            .to_vec()
            .into();
    }
}

/// Returns the schema of an amount. Editors check a number against its bounds. The reader checks an amount with a unit.
fn amount(limit: &Limit, path: &str) -> Value {
    let number = json!({ "type": "integer", "minimum": limit.minimum, "maximum": limit.maximum });
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let forms = match limit.unit {
        Unit::Count => json!([number, text("^[0-9.]+[kMGT]?$")]),
        Unit::Bytes => json!([number, text("^[0-9.]+([KMGT]i|[kMGT])?$")]),
        Unit::Duration => json!([
            text("^([+-]?0|[+-]?([0-9.]+(ns|us|µs|μs|ms|s|m|h))+)$"),
            { "const": 0 },
        ]),
        Unit::Percent => json!([number, text("^[0-9]+$")]),
    };
    let mut schema = json!({ "anyOf": forms });
    // Elsewhere, the default is the value of this key.
    if limit.key == path {
        schema["default"] = match limit.unit {
            Unit::Percent => json!(limit.default),
            unit => json!(unit.format(limit.default)),
        };
    }
    schema
}

fn extend(schema: &mut Value, more: Value) {
    if let (Some(schema), Value::Object(more)) = (schema.as_object_mut(), more) {
        schema.extend(more);
    }
}
