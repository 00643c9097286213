//! Generates JSON documents, and documents that are similar to given ones.

use serde_json::{Map, Number, Value, json};

use crate::choices::Choices;

/// Names that are special in pointers, in arrays or in Kubernetes.
const NAMES: &[&str] = &[
    "a",
    "b",
    "name",
    "metadata",
    "labels",
    "spec",
    "containers",
    "image",
    "",
    "~",
    "/",
    "~1",
    "~0/",
    "0",
    "1",
    "-",
    "-1",
    "01",
    "value",
    "ü",
    "\u{1f600}",
    "<&>",
    "\"\\",
    "\n",
    "finalizers",
    "status",
];
const TEXTS: &[&str] = &[
    "",
    "x",
    "y",
    "registry.test/app:1",
    "é",
    "<script>",
    "\u{2028}",
    "1",
    "true",
];
const MAX_DEPTH: u32 = 6;

/// Generates a document.
pub fn value(choices: &mut Choices<'_>) -> Value {
    nested(choices, 0)
}

/// Generates a document whose top level is an object, as in Kubernetes.
pub fn object(choices: &mut Choices<'_>) -> Value {
    Value::Object(members(choices, 0))
}

fn nested(choices: &mut Choices<'_>, depth: u32) -> Value {
    let kind = if depth >= MAX_DEPTH {
        choices.below(8)
    } else {
        choices.below(16)
    };
    match kind {
        0 => Value::Null,
        1 => Value::from(choices.chance(50)),
        2 | 3 => Value::from(choices.below(4)),
        4 => Value::Number(number(choices)),
        5..8 => Value::from(*choices.pick(TEXTS)),
        8..11 => {
            let count = choices.below(6);
            (0..count).map(|_| nested(choices, depth + 1)).collect()
        }
        11 | 12 => {
            // A list as in Kubernetes, in which some names occur twice.
            let count = choices.below(6);
            let named = |choices: &mut Choices<'_>| {
                let mut element = members(choices, depth + 2);
                let name = *choices.pick(&["p", "q", "r", "s"]);
                element.insert("name".to_owned(), Value::from(name));
                Value::Object(element)
            };
            (0..count).map(|_| named(choices)).collect()
        }
        _ => Value::Object(members(choices, depth)),
    }
}

fn members(choices: &mut Choices<'_>, depth: u32) -> Map<String, Value> {
    let count = choices.below(6);
    (0..count)
        .map(|_| {
            let name = (*choices.pick(NAMES)).to_owned();
            (name, nested(choices, depth + 1))
        })
        .collect()
}

fn number(choices: &mut Choices<'_>) -> Number {
    let number = choices.long();
    match choices.below(4) {
        0 => Number::from(number),
        1 => Number::from(number.cast_signed()),
        // The number has few digits, because `serde_json` rounds the last of many digits.
        _ => Number::from_f64(f64::from(number as i32) / 16.0).unwrap_or_else(|| Number::from(1)),
    }
}

/// Returns the same document after some changes.
pub fn changed(before: &Value, choices: &mut Choices<'_>) -> Value {
    let mut after = before.clone();
    for _ in 0..choices.below(4) {
        change(&mut after, choices);
    }
    after
}

fn change(root: &mut Value, choices: &mut Choices<'_>) {
    let mut here = root;
    for _ in 0..choices.below(5) {
        let count = match here {
            Value::Array(elements) => elements.len(),
            Value::Object(members) => members.len(),
            _ => 0,
        };
        if count == 0 {
            break;
        }
        let place = choices.below(count);
        here = match here {
            Value::Array(elements) => &mut elements[place],
            Value::Object(members) => members.values_mut().nth(place).expect("it is within"),
            other => other,
        };
    }
    let with = nested(choices, 3);
    match here {
        Value::Array(elements) => {
            let place = choices.below(elements.len() + 1);
            match choices.below(6) {
                0 => elements.insert(place, with),
                1 => elements.reverse(),
                2 => elements.rotate_left(place),
                3 => elements.truncate(place),
                4 if place < elements.len() => elements.insert(0, elements[place].clone()),
                _ if place < elements.len() => drop(elements.remove(place)),
                _ => elements.push(with),
            }
        }
        Value::Object(members) => {
            let name = *choices.pick(NAMES);
            match choices.below(4) {
                0 | 1 => drop(members.insert(name.to_owned(), with)),
                2 => {
                    let place = choices.below(members.len());
                    let name = members.keys().nth(place).cloned();
                    name.map(|name| members.remove(&name));
                }
                _ => members.clear(),
            }
        }
        other => *other = with,
    }
}

/// Generates a pointer to a place in a document, or to a missing place.
pub fn pointer(document: &Value, choices: &mut Choices<'_>) -> String {
    let mut here = document;
    let mut pointer = String::new();
    for _ in 0..choices.below(5) {
        let token = match here {
            Value::Array(elements) if !elements.is_empty() && choices.chance(85) => {
                let place = choices.below(elements.len());
                here = &elements[place];
                place.to_string()
            }
            Value::Object(members) if !members.is_empty() && choices.chance(85) => {
                let place = choices.below(members.len());
                let (name, value) = members.iter().nth(place).expect("it is within");
                here = value;
                name.clone()
            }
            Value::Array(elements) if choices.chance(60) => elements.len().to_string(),
            _ => (*choices.pick(NAMES)).to_owned(),
        };
        pointer.push('/');
        pointer.push_str(&token.replace('~', "~0").replace('/', "~1"));
    }
    pointer
}

/// Generates a JSON Patch that may apply to a document.
pub fn operations(document: &Value, choices: &mut Choices<'_>) -> Value {
    let count = choices.below(5);
    (0..count)
        .map(|_| {
            let path = pointer(document, choices);
            let from = pointer(document, choices);
            match choices.below(8) {
                0 | 1 => json!({"op": "add", "path": path, "value": nested(choices, 3)}),
                2 => json!({"op": "replace", "path": path, "value": nested(choices, 3)}),
                3 => json!({"op": "remove", "path": path}),
                4 => json!({"op": "move", "from": from, "path": path}),
                5 => json!({"op": "copy", "from": from, "path": path}),
                6 => json!({"op": "test", "path": path, "value": document.pointer(&path)}),
                _ => json!({"op": "test", "path": path, "value": nested(choices, 4)}),
            }
        })
        .collect()
}
