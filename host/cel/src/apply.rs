//! Applies a configuration to an object with the semantics of server-side apply.
//!
//! Objects are merged by field. A list with map keys is merged by those keys, and a set by its elements. As in
//! kube-apiserver, a policy cannot set lists, maps and objects that are atomic, because values that the policy does not
//! name would get lost.
//!
//! `schema.txt` has the fields of Kubernetes' own kinds, from the schema of its apply configurations. Of other kinds,
//! only `metadata` has a known schema: every list in them counts as atomic.

use std::sync::Arc;

use crate::patch::plain;
use crate::value::{Key, Map, Value};

/// One line per type: its name, `!` if it is atomic, and its fields. A field is `name`, or `name=` and its shape.
const SCHEMA: &str = include_str!("apply/schema.txt");
/// The default of the field `protocol`, which is a key of lists of ports.
const PROTOCOL: (&str, &str) = ("protocol", "TCP");

/// The shape of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    /// A scalar, or a value of unknown shape.
    Scalar,
    /// An object of a type.
    Type(Line),
    /// An object without known fields.
    Unknown,
    /// A map from names to values of one shape, and whether it is atomic.
    Map(&'static str, bool),
    /// A list that is replaced as a whole.
    Atomic(&'static str),
    /// A list without equal elements.
    Set,
    /// A list of objects with keys.
    Keyed(&'static str, &'static str),
}

/// The line of a type.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line(&'static str);

/// Merges a configuration into an object of a kind.
///
/// # Errors
/// The text of kube-apiserver's error.
pub fn apply(
    group: &str,
    version: &str,
    kind: &str,
    object: &Value,
    configuration: &Value,
) -> Result<Value, String> {
    let shape = root(group, version, kind);
    let configuration = plain(configuration.clone());
    check(shape, &configuration, &mut String::new())
        .map_err(|error| format!("failed to convert patch object to typed object: {error}"))?;
    let mut atomics = Vec::new();
    find_atomics(shape, &configuration, &mut String::new(), &mut atomics);
    if !atomics.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    Ok(merge(shape, object, &configuration))
}

fn root(group: &str, version: &str, kind: &str) -> Shape {
    let label = match group {
        "" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    // A group of somebody else may begin with the same label.
    let is_kubernetes = !group.contains('.') || group.ends_with(".k8s.io");
    let name = format!("{label}.{version}.{kind}");
    match Line::find(&name).filter(|_| is_kubernetes) {
        Some(line) => Shape::Type(line),
        None => Shape::Unknown,
    }
}

// === impl Line ===

impl Line {
    /// Finds the line of a type. The lines are sorted by name.
    fn find(name: &str) -> Option<Self> {
        let (mut low, mut high) = (0, SCHEMA.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let start = SCHEMA[..middle]
                .rfind('\n')
                .map_or(0, |newline| newline + 1);
            let end = SCHEMA[middle..]
                .find('\n')
                .map_or(SCHEMA.len(), |newline| middle + newline);
            let line = &SCHEMA[start..end];
            let known = line.split(' ').next().unwrap_or_default();
            match known.cmp(name) {
                std::cmp::Ordering::Equal => return Some(Self(line)),
                std::cmp::Ordering::Less => low = end + 1,
                std::cmp::Ordering::Greater => high = start,
            }
        }
        None
    }

    fn is_atomic(self) -> bool {
        self.0.split(' ').nth(1) == Some("!")
    }

    /// Returns the shape of a field. None if the type has no such field.
    fn field(self, name: &str) -> Option<Shape> {
        let fields = self.0.split(' ').skip(1);
        for field in fields {
            let (known, shape) = field.split_once('=').unwrap_or((field, ""));
            if known == name {
                return Some(Shape::parse(shape));
            }
        }
        None
    }
}

// === impl Shape ===

impl Shape {
    fn parse(text: &'static str) -> Self {
        if text.is_empty() {
            return Self::Scalar;
        }
        if let Some(element) = text.strip_prefix("[]") {
            return Self::Atomic(element);
        }
        if text.starts_with("<>") {
            return Self::Set;
        }
        if let Some(value) = text.strip_prefix("{!}") {
            return Self::Map(value, true);
        }
        if let Some(value) = text.strip_prefix("{}") {
            return Self::Map(value, false);
        }
        if let Some((keys, element)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        {
            return Self::Keyed(keys, element);
        }
        Line::find(text).map_or(Self::Scalar, Self::Type)
    }

    /// Returns the shape of a member of an object. None if the type has no such field.
    fn member(self, name: &str) -> Option<Self> {
        match self {
            Self::Type(line) => line.field(name),
            Self::Map(value, _) => Some(Self::parse(value)),
            Self::Unknown if name == "metadata" => {
                Some(Line::find("meta.v1.ObjectMeta").map_or(Self::Unknown, Self::Type))
            }
            Self::Unknown | Self::Scalar => Some(Self::Unknown),
            Self::Atomic(_) | Self::Set | Self::Keyed(..) => None,
        }
    }

    fn element(self) -> Self {
        match self {
            Self::Atomic(element) | Self::Keyed(_, element) => Self::parse(element),
            _ => Self::Scalar,
        }
    }

    /// Whether a list of this shape is replaced as a whole.
    fn is_atomic_list(self) -> bool {
        matches!(self, Self::Atomic(_) | Self::Unknown)
    }

    /// Whether an object of this shape is replaced as a whole.
    fn is_atomic_map(self) -> bool {
        match self {
            Self::Map(_, is_atomic) => is_atomic,
            Self::Type(line) => line.is_atomic(),
            _ => false,
        }
    }
}

/// Checks that a configuration fits the schema.
fn check(shape: Shape, value: &Value, path: &mut String) -> Result<(), String> {
    let length = path.len();
    match value {
        Value::Map(map) => {
            for (key, value) in map.iter() {
                let Key::String(name) = key else {
                    return Err(format!("{path}: a key is not a string"));
                };
                path.push('.');
                path.push_str(name);
                let member = shape.member(name);
                let member =
                    member.ok_or_else(|| format!("{path}: field not declared in schema"))?;
                check(member, value, path)?;
                path.truncate(length);
            }
            Ok(())
        }
        Value::List(list) => {
            if let Shape::Type(_) | Shape::Map(..) = shape {
                return Err(format!("{path}: expected map, got list"));
            }
            for (index, element) in list.iter().enumerate() {
                if let Shape::Keyed(keys, _) = shape {
                    for key in keys.split(',') {
                        if element.field(key).is_none() && key != PROTOCOL.0 {
                            return Err(format!(
                                "{path}: element {index}: associative list with keys has an element that omits key \
                                 field {key:?} (and doesn't have default value)"
                            ));
                        }
                    }
                }
                path.push_str(&format!("[{index}]"));
                check(shape.element(), element, path)?;
                path.truncate(length);
            }
            let has_twin = matches!(shape, Shape::Keyed(..))
                && list.iter().enumerate().any(|(index, element)| {
                    list[..index]
                        .iter()
                        .any(|other| same(shape, element, other))
                });
            if has_twin {
                return Err(format!("{path}: duplicate entries for key"));
            }
            Ok(())
        }
        Value::Null => Ok(()),
        scalar => match shape {
            Shape::Type(_) | Shape::Map(..) => Err(format!(
                "{path}: expected map, got &{{{}}}",
                scalar.type_name()
            )),
            Shape::Atomic(_) | Shape::Set | Shape::Keyed(..) => Err(format!(
                "{path}: expected list, got &{{{}}}",
                scalar.type_name()
            )),
            Shape::Scalar | Shape::Unknown => Ok(()),
        },
    }
}

/// Collects the places of atomic lists, maps and objects.
fn find_atomics(shape: Shape, value: &Value, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    match value {
        Value::Map(map) => {
            if shape.is_atomic_map() {
                found.push(path.clone());
            }
            for (key, value) in map.iter() {
                let Key::String(name) = key else { continue };
                // kube-apiserver looks into objects with known fields, and not into maps.
                let member = match shape {
                    Shape::Type(line) => line.field(name),
                    Shape::Unknown => shape.member(name),
                    _ => None,
                };
                let Some(member) = member else { continue };
                path.push('.');
                path.push_str(name);
                find_atomics(member, value, path, found);
                path.truncate(length);
            }
        }
        Value::List(list) => {
            if shape.is_atomic_list() {
                found.push(path.clone());
            }
            for (index, element) in list.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                find_atomics(shape.element(), element, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn merge(shape: Shape, live: &Value, patch: &Value) -> Value {
    match (live, patch) {
        (Value::Map(live), Value::Map(patch)) if !shape.is_atomic_map() => {
            let mut merged: Map = (**live).clone();
            for (key, value) in patch.iter() {
                let Key::String(name) = key else { continue };
                let member = shape.member(name).unwrap_or(Shape::Unknown);
                let place = merged.entry(name);
                *place = merge(member, place, value);
            }
            Value::Map(Arc::new(merged))
        }
        (Value::List(live), Value::List(patch)) => match shape {
            Shape::Keyed(..) | Shape::Set => merge_lists(shape, live, patch),
            _ => Value::List(Arc::clone(patch)),
        },
        _ => patch.clone(),
    }
}

/// Whether two elements of a list are the same: by their keys, or in a set by their value.
fn same(shape: Shape, left: &Value, right: &Value) -> bool {
    let Shape::Keyed(keys, _) = shape else {
        return left == right;
    };
    let default = Value::text(PROTOCOL.1);
    let key = |element: &Value, key: &str| {
        let found = element.field(key).cloned();
        found.unwrap_or_else(|| {
            if key == PROTOCOL.0 {
                default.clone()
            } else {
                Value::Null
            }
        })
    };
    keys.split(',')
        .all(|name| key(left, name) == key(right, name))
}

/// Merges lists by keys. The order is that of structured-merge-diff: elements of the object stay in their order, unless
/// the configuration has them in another one.
fn merge_lists(shape: Shape, live: &[Value], patch: &[Value]) -> Value {
    let find =
        |list: &[Value], element: &Value| list.iter().position(|other| same(shape, other, element));
    let in_live: Vec<Option<usize>> = patch.iter().map(|element| find(live, element)).collect();
    let in_patch: Vec<Option<usize>> = live.iter().map(|element| find(patch, element)).collect();
    // The elements of both lists, in the order of the configuration.
    let mut shared: std::collections::VecDeque<usize> = (0..patch.len())
        .filter(|index| in_live[*index].is_some())
        .collect();
    let mut is_merged = vec![false; patch.len()];
    let mut merged = Vec::with_capacity(live.len() + patch.len());
    let joined = |index: usize| {
        let patched = &patch[index];
        let found = in_live[index].map(|at| &live[at]);
        found.map_or_else(
            || patched.clone(),
            |found| merge(shape.element(), found, patched),
        )
    };
    let (mut left, mut right) = (0, 0);
    while left < live.len() || right < patch.len() {
        if left < live.len() && right < patch.len() {
            if in_patch[left] == Some(right) {
                is_merged[right] = true;
                merged.push(joined(right));
                left += 1;
                right += 1;
                shared.pop_front();
                continue;
            }
            let is_later = in_patch[left].is_some()
                && shared
                    .front()
                    .is_some_and(|next| in_patch[left] != Some(*next));
            if is_later {
                left += 1;
                continue;
            }
        }
        if left < live.len() {
            match in_patch[left] {
                None => {
                    merged.push(live[left].clone());
                    left += 1;
                    continue;
                }
                Some(index) if is_merged[index] => left += 1,
                Some(_) => {}
            }
        }
        if right < patch.len() {
            is_merged[right] = true;
            merged.push(joined(right));
            if shared.front() == Some(&right) {
                shared.pop_front();
            }
            right += 1;
        }
    }
    Value::list(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_the_schema_is_found() {
        for line in SCHEMA.lines() {
            let name = line.split(' ').next().unwrap();
            assert_eq!(Line::find(name), Some(Line(line)), "{name}");
        }
        assert_eq!(Line::find("core.v1.Missing"), None);
        assert_eq!(Line::find(""), None);
        assert_eq!(Line::find("zzz"), None);
    }
}
