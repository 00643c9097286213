//! JSON Pointers and patterns in a parsed document, by the host's rules.

use serde_json::Value as Json;

use crate::{Node, Pointer, Value};

/// Splits a pointer.
///
/// # Panics
/// On a malformed pointer. Otherwise a typo would read as "absent".
pub(crate) fn tokens(pointer: &str) -> Vec<String> {
    assert!(
        pointer.is_empty() || pointer.starts_with('/'),
        "`{pointer}` is no JSON Pointer: no leading slash"
    );
    let mut bytes = pointer.bytes();
    while let Some(byte) = bytes.next() {
        assert!(
            byte != b'~' || matches!(bytes.next(), Some(b'0' | b'1')),
            "`{pointer}` is no JSON Pointer: `~` is followed by neither 0 nor 1"
        );
    }
    pointer
        .split('/')
        .skip(1)
        .map(|token| token.replace("~1", "/").replace("~0", "~"))
        .collect()
}

/// Returns the value at a pointer.
pub(crate) fn at<'d>(document: &'d Json, tokens: &[String]) -> Option<&'d Json> {
    let mut here = document;
    for token in tokens {
        here = child(here, token)?;
    }
    Some(here)
}

/// Returns the member names of an object.
pub(crate) fn keys(value: &Json) -> Option<Vec<String>> {
    Some(value.as_object()?.keys().cloned().collect())
}

/// Returns every place that matches a pattern.
pub(crate) fn select(document: &Json, pattern: &[String]) -> Vec<Node> {
    let mut nodes = Vec::new();
    walk(pattern, document, &Pointer::root(), &mut nodes);
    nodes
}

fn child<'d>(value: &'d Json, token: &str) -> Option<&'d Json> {
    match value {
        Json::Object(members) => members.get(token),
        Json::Array(elements) => {
            let is_index = token == "0"
                || (!token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit()));
            elements.get(token.parse::<usize>().ok().filter(|_| is_index)?)
        }
        _ => None,
    }
}

fn walk(tokens: &[String], here: &Json, at: &Pointer, nodes: &mut Vec<Node>) {
    let Some((token, rest)) = tokens.split_first() else {
        nodes.push(Node {
            pointer: at.to_string(),
            value: describe(here),
        });
        return;
    };
    match here {
        Json::Array(elements) if token == "*" => {
            for (index, element) in elements.iter().enumerate() {
                walk(rest, element, &at.child(index), nodes);
            }
        }
        Json::Object(members) if token == "*" => {
            for (name, value) in members {
                walk(rest, value, &at.child(name), nodes);
            }
        }
        _ => {
            if let Some(value) = child(here, token) {
                walk(rest, value, &at.child(token), nodes);
            }
        }
    }
}

/// Returns a value as the contract has it: arrays and objects as their length.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the host accepts no document with four thousand million elements"
)]
pub(crate) fn describe(value: &Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(boolean) => Value::Boolean(*boolean),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::Integer(integer),
            None => Value::Number(
                number
                    .as_f64()
                    .expect("a JSON number is a double, if rounded"),
            ),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(elements) => Value::Array(elements.len() as u32),
        Json::Object(members) => Value::Object(members.len() as u32),
    }
}
