//! Optional values.

use super::Native;
use crate::error::{EvalError, Result};
use crate::value::Value;

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    Some(match (name, is_member) {
        ("optional.of", false) => |args, _| Ok(Value::some(args[0].clone())),
        ("optional.none", false) => |_, _| Ok(Value::Optional(None)),
        ("optional.ofNonZeroValue", false) => |args, _| {
            Ok(if args[0].is_zero() {
                Value::Optional(None)
            } else {
                Value::some(args[0].clone())
            })
        },
        ("hasValue", true) => |args, _| Ok(Value::Bool(content(&args[0])?.is_some())),
        ("value", true) => |args, _| {
            let value = content(&args[0])?.cloned();
            value.ok_or_else(|| EvalError::new("optional.none() dereference"))
        },
        ("or", true) => |args, _| {
            let chosen = if content(&args[0])?.is_some() {
                &args[0]
            } else {
                &args[1]
            };
            Ok(chosen.clone())
        },
        ("orValue", true) => |args, _| Ok(content(&args[0])?.unwrap_or(&args[1]).clone()),
        _ => return None,
    })
}

fn content(value: &Value) -> Result<Option<&Value>> {
    match value {
        Value::Optional(content) => Ok(content.as_deref()),
        _ => Err(EvalError::no_such_overload()),
    }
}
