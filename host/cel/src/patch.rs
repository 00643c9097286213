//! JSON Patch on values: applying one, and the difference between two values.

use std::sync::Arc;

use crate::value::{Key, Map, Value, escaped, unescaped};

/// An operation of a JSON Patch, RFC 6902.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The kind: add, remove, replace, move, copy or test.
    pub op: String,
    /// The pointer of the place.
    pub path: String,
    /// The pointer of the source of move and copy.
    pub from: String,
    /// The value of add, replace and test.
    pub value: Option<Value>,
}

/// A patch cannot be applied.
#[derive(Debug, PartialEq)]
pub enum PatchError {
    /// An operation `test` failed. Kubernetes then leaves the object as it is.
    Test,
    /// The text of the error, as Kubernetes words it.
    Message(String),
}

/// Applies operations in order.
///
/// # Errors
/// The first operation that cannot be applied. The value is then unusable.
pub fn apply(value: &Value, operations: &[Operation]) -> Result<Value, PatchError> {
    let mut value = value.clone();
    for operation in operations {
        one(&mut value, operation)?;
    }
    Ok(value)
}

fn one(root: &mut Value, operation: &Operation) -> Result<(), PatchError> {
    let (op, path) = (operation.op.as_str(), operation.path.as_str());
    let from = operation.from.as_str();
    let failed = |text: String| PatchError::Message(text);
    let inner = |place: &str, problem: String| {
        PatchError::Message(format!("error in {op} for path: '{place}': {problem}"))
    };
    match op {
        "add" => {
            let value = operation.value.clone().unwrap_or(Value::Null);
            if !path.is_empty() && parent(root, path).is_none() {
                return Err(failed(format!(
                    "add operation does not apply: doc is missing path: \"{path}\": missing value"
                )));
            }
            put(root, path, value, true).map_err(|problem| inner(path, problem))
        }
        "replace" => {
            let value = operation.value.clone().unwrap_or(Value::Null);
            if root.at(path).is_none() {
                let what = match parent(root, path) {
                    None => "path",
                    Some(_) => "key",
                };
                return Err(failed(format!(
                    "replace operation does not apply: doc is missing {what}: {path}: missing value"
                )));
            }
            put(root, path, value, false).map_err(|problem| inner(path, problem))
        }
        "remove" => {
            if parent(root, path).is_none() {
                return Err(failed(format!(
                    "remove operation does not apply: doc is missing path: \"{path}\": missing value"
                )));
            }
            take(root, path)
                .map(drop)
                .map_err(|problem| inner(path, problem))
        }
        "move" => {
            if parent(root, from).is_none() {
                return Err(failed(format!(
                    "move operation does not apply: doc is missing from path: {from}: missing value"
                )));
            }
            let value = take(root, from).map_err(|problem| inner(from, problem))?;
            if !path.is_empty() && parent(root, path).is_none() {
                return Err(failed(format!(
                    "move operation does not apply: doc is missing destination path: {path}: missing value"
                )));
            }
            put(root, path, value, true).map_err(|problem| inner(path, problem))
        }
        "copy" => {
            let value = root.at(from).cloned().ok_or_else(|| {
                failed(format!(
                    "copy operation does not apply: doc is missing from path: {from}: missing value"
                ))
            })?;
            if !path.is_empty() && parent(root, path).is_none() {
                return Err(failed(format!(
                    "copy operation does not apply: doc is missing destination path: {path}: missing value"
                )));
            }
            put(root, path, value, true).map_err(|problem| {
                failed(format!("error while adding value during copy: {problem}"))
            })
        }
        "test" => {
            if !path.is_empty() && parent(root, path).is_none() {
                return Err(failed(format!(
                    "test operation does not apply: is missing path: {path}: missing value"
                )));
            }
            let found = root.at(path).unwrap_or(&Value::Null);
            let wanted = operation.value.as_ref().unwrap_or(&Value::Null);
            if plain_equal(found, wanted) {
                Ok(())
            } else {
                Err(PatchError::Test)
            }
        }
        _ => Err(failed(format!("Unexpected kind: {op}"))),
    }
}

/// Whether two values have the same JSON form.
fn plain_equal(left: &Value, right: &Value) -> bool {
    match (crate::json::write(left), crate::json::write(right)) {
        (Ok(left), Ok(right)) => left == right,
        _ => false,
    }
}

/// Returns the parent of a place and the place's name in it.
fn parent<'v>(root: &'v mut Value, path: &str) -> Option<(&'v mut Value, String)> {
    let (parent, name) = path.rsplit_once('/')?;
    let mut value = root;
    for token in parent.split('/').skip(1) {
        let token = unescaped(token);
        value = match value {
            Value::List(list) => Arc::make_mut(list).get_mut(token.parse::<usize>().ok()?)?,
            Value::Map(map) => Arc::make_mut(map).field_mut(&token)?,
            _ => return None,
        };
    }
    Some((value, unescaped(name)))
}

/// Sets a place. The parent exists.
fn put(root: &mut Value, path: &str, value: Value, inserts: bool) -> Result<(), String> {
    if path.is_empty() {
        *root = plain(value);
        return Ok(());
    }
    let Some((parent, name)) = parent(root, path) else {
        return Err("missing value".to_owned());
    };
    match parent {
        Value::Map(map) => {
            *Arc::make_mut(map).entry(&name) = plain(value);
            Ok(())
        }
        Value::List(list) => {
            let list = Arc::make_mut(list);
            let index = match name.as_str() {
                "-" => list.len(),
                name => name.parse().map_err(|_| {
                    format!("value was not a proper array index: '{name}': invalid syntax")
                })?,
            };
            if !inserts && index < list.len() {
                list[index] = plain(value);
            } else if inserts && index <= list.len() {
                list.insert(index, plain(value));
            } else {
                return Err(invalid_index(index));
            }
            Ok(())
        }
        _ => Err("unknown object type".to_owned()),
    }
}

fn invalid_index(index: usize) -> String {
    format!("Unable to access invalid index: {index}: invalid index referenced")
}

/// Removes a place and returns its value. The parent exists.
fn take(root: &mut Value, path: &str) -> Result<Value, String> {
    let Some((parent, name)) = parent(root, path) else {
        return Err("missing value".to_owned());
    };
    match parent {
        Value::Map(map) => Arc::make_mut(map)
            .remove(&name)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {name}: missing value")),
        Value::List(list) => {
            let index: usize = name.parse().map_err(|_| {
                format!("value was not a proper array index: '{name}': invalid syntax")
            })?;
            let list = Arc::make_mut(list);
            if index >= list.len() {
                return Err(invalid_index(index));
            }
            Ok(list.remove(index))
        }
        _ => Err("unknown object type".to_owned()),
    }
}

/// Turns constructed objects into maps, so that later operations can go into them.
#[must_use]
pub fn plain(value: Value) -> Value {
    match value {
        Value::Struct(object) => {
            let fields = object.fields.iter();
            let entries =
                fields.map(|(name, value)| (Key::String(Arc::clone(name)), plain(value.clone())));
            Value::map(entries.collect())
        }
        Value::List(list) if list.iter().any(is_constructed) => {
            Value::list(list.iter().cloned().map(plain).collect())
        }
        Value::Map(map) if map.iter().any(|(_, value)| is_constructed(value)) => {
            let entries = map.iter().cloned();
            Value::map(entries.map(|(key, value)| (key, plain(value))).collect())
        }
        Value::Optional(content) => {
            content.map_or(Value::Null, |content| plain((*content).clone()))
        }
        other => other,
    }
}

fn is_constructed(value: &Value) -> bool {
    match value {
        Value::Struct(_) | Value::Optional(_) => true,
        Value::List(list) => list.iter().any(is_constructed),
        Value::Map(map) => map.iter().any(|(_, value)| is_constructed(value)),
        _ => false,
    }
}

/// Returns operations that make the second value of the first one. Equal parts stay untouched.
#[must_use]
pub fn difference(before: &Value, after: &Value) -> Vec<Operation> {
    let mut operations = Vec::new();
    compare(before, after, &mut String::new(), &mut operations);
    operations
}

fn compare(before: &Value, after: &Value, path: &mut String, out: &mut Vec<Operation>) {
    match (before, after) {
        (Value::Map(before), Value::Map(after)) => {
            if !Arc::ptr_eq(before, after) {
                compare_maps(before, after, path, out);
            }
        }
        (Value::List(before), Value::List(after)) if before.len() <= after.len() => {
            let length = path.len();
            for (index, value) in after.iter().enumerate() {
                path.push_str(&format!("/{index}"));
                match before.get(index) {
                    Some(before) => compare(before, value, path, out),
                    None => out.push(operation("add", path, Some(value))),
                }
                path.truncate(length);
            }
        }
        (before, after) => {
            if !plain_equal(before, after) {
                out.push(operation("replace", path, Some(after)));
            }
        }
    }
}

fn compare_maps(before: &Map, after: &Map, path: &mut String, out: &mut Vec<Operation>) {
    let length = path.len();
    for (key, value) in after.iter() {
        let Key::String(name) = key else { continue };
        path.push('/');
        path.push_str(&escaped(name));
        match before.field(name) {
            Some(before) => compare(before, value, path, out),
            None => out.push(operation("add", path, Some(value))),
        }
        path.truncate(length);
    }
    for (key, _) in before.iter() {
        let Key::String(name) = key else { continue };
        if after.field(name).is_none() {
            path.push('/');
            path.push_str(&escaped(name));
            out.push(operation("remove", path, None));
            path.truncate(length);
        }
    }
}

fn operation(op: &str, path: &str, value: Option<&Value>) -> Operation {
    Operation {
        op: op.to_owned(),
        path: path.to_owned(),
        from: String::new(),
        value: value.cloned(),
    }
}
