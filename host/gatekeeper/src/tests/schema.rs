use serde_json::{Value as Json, json};

use crate::schema::{set_defaults, validate};
use crate::{Pointer, Problem, Problems};

fn problems(schema: Json, value: Json) -> Vec<String> {
    let mut problems = Problems::new();
    validate(&schema, &value, &Pointer::root(), &mut problems);
    let text = |Problem { pointer, message }| format!("{pointer}: {message}");
    problems.into_iter().map(text).collect()
}

#[test]
fn defaults_reach_into_lists_and_objects() {
    let schema = json!({ "type": "object", "properties": {
        "strict": { "type": "boolean", "default": true },
        "ranges": { "type": "array", "items": { "properties": { "min": { "default": 1 } } } },
    } });
    let mut value = json!({ "ranges": [{}, { "min": 3 }] });
    set_defaults(&schema, &mut value);
    assert_eq!(
        value,
        json!({ "strict": true, "ranges": [{ "min": 1 }, { "min": 3 }] })
    );
}

#[test]
fn names_the_place_of_each_problem() {
    let schema = json!({ "type": "object", "required": ["labels"], "properties": {
        "labels": { "type": "array", "minItems": 1, "items": { "type": "string", "pattern": "^[a-z]+$" } },
        "count": { "type": "integer", "minimum": 1, "maximum": 5 },
        "mode": { "enum": ["a", "b"] },
    } });
    let value = json!({ "labels": ["ok", "Bad", 3], "count": 9, "mode": "c" });
    assert_eq!(
        problems(schema.clone(), value),
        [
            "/count: expected at most 5",
            "/labels/1: does not match ^[a-z]+$",
            "/labels/2: expected a string, got a number",
            "/mode: expected one of \"a\", \"b\"",
        ]
    );
    assert_eq!(
        problems(schema.clone(), json!({})),
        [": labels is required"]
    );
    assert_eq!(
        problems(schema, json!({ "labels": [] })),
        ["/labels: expected at least 1 elements, got 0"]
    );
}

#[test]
fn additional_properties_are_checked_where_the_schema_says_so() {
    let closed = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    assert_eq!(
        problems(closed, json!({ "x": 1 })),
        ["/x: the schema has no such parameter"]
    );
    let texts = json!({ "additionalProperties": { "type": "string" } });
    assert_eq!(
        problems(texts, json!({ "x": 1 })),
        ["/x: expected a string, got a number"]
    );
    assert!(problems(json!({ "type": "object" }), json!({ "x": 1 })).is_empty());
}

#[test]
fn integer_or_string_takes_both() {
    let schema = json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] });
    assert!(problems(schema.clone(), json!(80)).is_empty());
    assert!(problems(schema.clone(), json!("http")).is_empty());
    assert_eq!(problems(schema, json!(true)).len(), 1);
}
