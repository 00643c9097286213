//! The functions of CEL and of Kubernetes' libraries.
//!
//! [`signatures`](crate::signatures) declares them. Each file here implements one library.

pub(crate) mod authz;
pub(crate) mod convert;
pub(crate) mod format;
pub(crate) mod lists;
pub(crate) mod net;
pub(crate) mod optional;
pub(crate) mod printf;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod sets;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

use crate::error::{EvalError, Result};
use crate::meter::Meter;
use crate::value::Value;

/// The implementation of a function. The target of a member function is the first argument.
pub(crate) type Native = fn(&[Value], &mut Meter) -> Result<Value>;

/// Returns the implementation of a function, by its name and whether it is called on a target.
pub(crate) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    let libraries = [
        authz::lookup,
        convert::lookup,
        format::lookup,
        lists::lookup,
        net::lookup,
        optional::lookup,
        printf::lookup,
        quantity::lookup,
        regex::lookup,
        semver::lookup,
        sets::lookup,
        strings::lookup,
        time::lookup,
        url::lookup,
    ];
    // Several libraries may have a function of the same name. They then share one implementation.
    shared(name, is_member).or_else(|| {
        libraries
            .iter()
            .find_map(|library| library(name, is_member))
    })
}

/// Returns the implementation of a function that more than one library has.
fn shared(name: &str, is_member: bool) -> Option<Native> {
    Some(match (name, is_member) {
        ("indexOf", true) => |args, meter| match &args[0] {
            Value::List(_) => lists::index_of(args, meter),
            _ => strings::index_of(args, meter),
        },
        ("lastIndexOf", true) => |args, meter| match &args[0] {
            Value::List(_) => lists::last_index_of(args, meter),
            _ => strings::last_index_of(args, meter),
        },
        ("reverse", true) => |args, meter| match &args[0] {
            Value::List(_) => lists::reverse(args, meter),
            _ => Err(EvalError::no_such_overload()),
        },
        ("isGreaterThan" | "isLessThan" | "compareTo", true) => {
            let (greater, less) = (name == "isGreaterThan", name == "isLessThan");
            match (greater, less) {
                (true, _) => |args, _| Ok(Value::Bool(order(args)? == 1)),
                (_, true) => |args, _| Ok(Value::Bool(order(args)? == -1)),
                _ => |args, _| Ok(Value::Int(order(args)?)),
            }
        }
        _ => return None,
    })
}

/// Compares two quantities or two versions.
fn order(args: &[Value]) -> Result<i64> {
    let order = match (&args[0], &args[1]) {
        (Value::Quantity(left), Value::Quantity(right)) => left.compare(right),
        (Value::Semver(left), Value::Semver(right)) => left.compare(right),
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(order as i64)
}

pub(crate) fn text(value: &Value) -> Result<&str> {
    value.as_text().ok_or_else(EvalError::no_such_overload)
}

pub(crate) fn integer(value: &Value) -> Result<i64> {
    match value {
        Value::Int(value) => Ok(*value),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(crate) fn list(value: &Value) -> Result<&[Value]> {
    match value {
        Value::List(list) => Ok(list),
        _ => Err(EvalError::no_such_overload()),
    }
}
