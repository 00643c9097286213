//! Lists, maps and constructed objects.

use std::sync::Arc;

use cel::common::ast::{EntryExpr, ListExpr, MapExpr, StructExpr};

use super::{Checked, Compiler, Problem, Typed};
use crate::node::Node;
use crate::types::{Bindings, STRING, Type};

/// The name of the type of a JSON Patch operation.
pub(crate) const JSON_PATCH: &str = "JSONPatch";
/// The name of the type of the object.
pub(crate) const OBJECT: &str = "Object";

impl Compiler<'_> {
    pub(super) fn list(&mut self, list: &ListExpr) -> Checked<Typed> {
        let mut kind: Option<Type> = None;
        let mut elements = Vec::with_capacity(list.elements.len());
        for (index, element) in list.elements.iter().enumerate() {
            let element = self.node(element)?;
            let is_optional = list.optional_indices.contains(&index);
            let found = if is_optional {
                content(element.kind)
            } else {
                element.kind
            };
            kind = Some(match kind {
                None => found,
                Some(kind) => kind.join(found),
            });
            elements.push((element.node, is_optional));
        }
        let kind = kind.unwrap_or(Type::Dyn);
        Ok(Typed::new(Node::List(elements), Type::List(Box::new(kind))))
    }

    pub(super) fn map(&mut self, map: &MapExpr) -> Checked<Typed> {
        let mut kinds: Option<(Type, Type)> = None;
        let mut entries = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(Problem::new("", "a map has an entry without a key"));
            };
            let (key, value) = (self.node(&entry.key)?, self.node(&entry.value)?);
            let found = if entry.optional {
                content(value.kind)
            } else {
                value.kind
            };
            kinds = Some(match kinds {
                None => (key.kind, found),
                Some((keys, values)) => (keys.join(key.kind), values.join(found)),
            });
            entries.push((key.node, value.node, entry.optional));
        }
        let (key, value) = kinds.unwrap_or((Type::Dyn, Type::Dyn));
        let kind = Type::Map(Box::new(key), Box::new(value));
        Ok(Typed::new(Node::Map(entries), kind))
    }

    pub(super) fn object(&mut self, object: &StructExpr) -> Checked<Typed> {
        let name = object.type_name.trim_start_matches('.');
        let is_object = name == OBJECT || name.starts_with("Object.");
        if !self.environment.constructs || !(is_object || name == JSON_PATCH) {
            return Err(Problem::undeclared(name));
        }
        let mut fields = Vec::with_capacity(object.entries.len());
        for entry in &object.entries {
            let EntryExpr::StructField(field) = &entry.expr else {
                return Err(Problem::new(name, "an object has an entry without a field"));
            };
            let value = self.node(&field.value)?;
            if name == JSON_PATCH {
                check_operation(&field.field, &value.kind)?;
            }
            fields.push((Arc::from(field.field.as_str()), value.node, field.optional));
        }
        let node = Node::Struct(Arc::from(name), fields);
        Ok(Typed::new(node, Type::Struct(name.to_owned())))
    }
}

/// Checks a field of a JSON Patch operation.
fn check_operation(field: &str, kind: &Type) -> Checked<()> {
    match field {
        "op" | "path" | "from" if Bindings::default().accept(&STRING, kind) => Ok(()),
        "op" | "path" | "from" => Err(Problem::new(
            field,
            format!("expected type of field '{field}' is 'string' but provided type is '{kind}'"),
        )),
        "value" => Ok(()),
        _ => Err(Problem::new(field, format!("undefined field '{field}'"))),
    }
}

/// Returns the type of the content of an optional value.
fn content(kind: Type) -> Type {
    match kind {
        Type::Optional(inner) => *inner,
        _ => Type::Dyn,
    }
}
