//! Selection of fields. Fields of documents are joined to one path, so that only its end is read.

use std::sync::Arc;

use super::{Checked, Problem, Typed};
use crate::node::{Document, Node, Path};
use crate::types::{BOOL, STRING, Type};
use crate::value::escaped;

/// Compiles `operand.field`, or with `is_test` `has(operand.field)`.
pub(super) fn select(operand: Typed, field: &str, is_test: bool) -> Checked<Typed> {
    let kind = field_type(&operand.kind, field)?;
    let is_optional = matches!(operand.kind, Type::Optional(_));
    let kind = if is_test { BOOL } else { kind };
    let node = match operand.node {
        Node::Path(path) if !(is_test && is_optional) => {
            let path = extended(path, field);
            if is_test {
                Node::HasPath(path)
            } else {
                Node::Path(path)
            }
        }
        node if is_test => Node::Has(Box::new(node), Arc::from(field)),
        node => Node::Select(Box::new(node), Arc::from(field)),
    };
    Ok(Typed::new(node, kind))
}

/// Compiles `operand.?field`.
pub(super) fn select_optional(operand: Typed, field: &str) -> Checked<Typed> {
    let kind = match field_type(&operand.kind, field)? {
        optional @ Type::Optional(_) => optional,
        kind => Type::Optional(Box::new(kind)),
    };
    let node = match operand.node {
        Node::Path(mut path) => {
            let required = path.required.unwrap_or(path.names.len());
            path = extended(path, field);
            path.required = Some(required);
            Node::Path(path)
        }
        node => Node::SelectOptional(Box::new(node), Arc::from(field)),
    };
    Ok(Typed::new(node, kind))
}

fn extended(mut path: Path, field: &str) -> Path {
    // kube-apiserver spells the last letters of this field in capitals.
    let member = match (path.document, field) {
        (Document::Namespace, "UID") => "uid",
        _ => field,
    };
    path.pointer.push('/');
    path.pointer.push_str(&escaped(member));
    path.names.push(Arc::from(field));
    path
}

fn field_type(operand: &Type, field: &str) -> Checked<Type> {
    Ok(match operand {
        Type::Dyn | Type::Parameter(_) => Type::Dyn,
        Type::Map(_, value) => (**value).clone(),
        Type::Optional(inner) => match field_type(inner, field)? {
            optional @ Type::Optional(_) => optional,
            kind => Type::Optional(Box::new(kind)),
        },
        Type::Struct(name) if name == "JSONPatch" => match field {
            "op" | "path" | "from" => STRING,
            "value" => Type::Dyn,
            _ => return Err(undefined(field)),
        },
        Type::Struct(_) => Type::Dyn,
        Type::Record(record) => {
            let found = record.fields.iter().find(|(name, _)| *name == field);
            found.ok_or_else(|| undefined(field))?.1.to_type()
        }
        Type::Named(_) | Type::List(_) => {
            return Err(Problem::new(
                field,
                format!("type '{operand}' does not support field selection"),
            ));
        }
    })
}

fn undefined(field: &str) -> Problem {
    Problem::new(field, format!("undefined field '{field}'"))
}
