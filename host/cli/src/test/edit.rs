//! `set` and `unset`: a case's own changes to an object that several cases share.

use serde_json::{Map, Value};

/// Sets the value at a JSON Pointer. Missing objects on the way are created, and `-` appends to a list.
pub(super) fn set(document: &mut Value, pointer: &str, value: &Value) -> Result<(), String> {
    let mut place = document;
    for token in tokens(pointer)? {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        place = match place {
            Value::Object(members) => members.entry(token).or_insert(Value::Null),
            Value::Array(elements) => {
                let length = elements.len();
                if token == "-" {
                    elements.push(Value::Null);
                    elements.last_mut().ok_or("the list is empty")?
                } else {
                    index(&token)
                        .and_then(|index| elements.get_mut(index))
                        .ok_or_else(|| outside(pointer, &token, length))?
                }
            }
            _ => {
                return Err(format!(
                    "the parent of {token:?} in {pointer} is neither an object nor a list"
                ));
            }
        };
    }
    *place = value.clone();
    Ok(())
}

/// Removes the value at a JSON Pointer.
pub(super) fn unset(document: &mut Value, pointer: &str) -> Result<(), String> {
    let mut tokens = tokens(pointer)?;
    let nothing = || format!("found nothing at {pointer}");
    let last = tokens.pop().ok_or("cannot remove the whole object")?;
    let mut place = document;
    for token in tokens {
        place = match place {
            Value::Object(members) => members.get_mut(&token).ok_or_else(nothing)?,
            Value::Array(elements) => index(&token)
                .and_then(|index| elements.get_mut(index))
                .ok_or_else(nothing)?,
            _ => return Err(nothing()),
        };
    }
    let removed = match place {
        Value::Object(members) => members.remove(&last),
        Value::Array(elements) => index(&last)
            .filter(|index| *index < elements.len())
            .map(|index| elements.remove(index)),
        _ => None,
    };
    removed.map(drop).ok_or_else(nothing)
}

fn tokens(pointer: &str) -> Result<Vec<String>, String> {
    tollgate_json::document::Pointer::parse(pointer)
        .map(|pointer| pointer.tokens().map(|token| token.into_owned()).collect())
        .map_err(|error| {
            format!("{pointer:?} is not a JSON Pointer such as /spec/replicas: {error}")
        })
}

fn index(token: &str) -> Option<usize> {
    let is_index = token == "0"
        || (!token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit()));
    token.parse().ok().filter(|_| is_index)
}

fn outside(pointer: &str, token: &str, length: usize) -> String {
    format!(
        "{token:?} of {pointer} is not in the list, which has {length} elements; expected an index, or - to add an \
         element"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sets_values_and_creates_missing_parents() {
        let mut pod = json!({"spec": {"containers": [{"image": "a"}]}});
        set(&mut pod, "/spec/containers/0/image", &json!("b")).unwrap();
        set(&mut pod, "/spec/containers/-", &json!({"image": "c"})).unwrap();
        set(
            &mut pod,
            "/metadata/labels/app.kubernetes.io~1name",
            &json!("web"),
        )
        .unwrap();
        assert_eq!(
            pod,
            json!({"spec": {"containers": [{"image": "b"}, {"image": "c"}]},
                   "metadata": {"labels": {"app.kubernetes.io/name": "web"}}})
        );
        unset(&mut pod, "/spec/containers/1").unwrap();
        unset(&mut pod, "/metadata").unwrap();
        assert_eq!(pod, json!({"spec": {"containers": [{"image": "b"}]}}));
    }

    #[test]
    fn rejects_pointers_to_missing_places() {
        let mut pod = json!({"spec": {"containers": []}});
        assert!(
            set(&mut pod, "/spec/containers/3", &json!(1))
                .unwrap_err()
                .contains("not in the list, which has 0 elements")
        );
        assert!(
            set(&mut pod, "spec", &json!(1))
                .unwrap_err()
                .contains("not a JSON Pointer")
        );
        assert!(
            unset(&mut pod, "/spec/none")
                .unwrap_err()
                .contains("nothing at /spec/none")
        );
    }
}
