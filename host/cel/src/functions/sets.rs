//! The sets extension. The cost is the product of both sizes, as in cel-go.

use super::{Native, list};
use crate::error::Result;
use crate::meter::Meter;
use crate::value::Value;

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    if is_member {
        return None;
    }
    Some(match name {
        "sets.contains" => |args, meter| Ok(Value::Bool(contains(&args[0], &args[1], meter)?)),
        "sets.equivalent" => |args, meter| {
            let both = contains(&args[0], &args[1], meter)? && contains(&args[1], &args[0], meter)?;
            Ok(Value::Bool(both))
        },
        "sets.intersects" => |args, meter| {
            let (left, right) = (list(&args[0])?, list(&args[1])?);
            meter.charge(left.len() as u64 * right.len() as u64)?;
            Ok(Value::Bool(
                left.iter().any(|element| right.contains(element)),
            ))
        },
        _ => return None,
    })
}

/// Whether the first list has every element of the second one.
fn contains(list_value: &Value, part: &Value, meter: &mut Meter) -> Result<bool> {
    let (list, part) = (list(list_value)?, list(part)?);
    meter.charge(list.len() as u64 * part.len() as u64)?;
    Ok(part.iter().all(|element| list.contains(element)))
}
