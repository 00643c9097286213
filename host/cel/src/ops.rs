//! The operators of CEL.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::SignedDuration;

use crate::error::{EvalError, Result};
use crate::meter::Meter;
use crate::value::{Key, Value, compare_numbers};

/// Compares two values by their order.
pub(crate) fn compare(left: &Value, right: &Value) -> Result<Ordering> {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.cmp(right),
        (Value::Duration(left), Value::Duration(right)) => left.cmp(right),
        (Value::Double(number), other) | (other, Value::Double(number))
            if number.is_nan() && is_number(other) =>
        {
            return Err(EvalError::new("NaN values cannot be ordered"));
        }
        _ => return compare_numbers(left, right).ok_or_else(EvalError::no_such_overload),
    };
    Ok(order)
}

fn is_number(value: &Value) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

/// Charges for an equality, which walks over the smaller value.
pub(crate) fn charge_equality(left: &Value, right: &Value, meter: &mut Meter) -> Result<()> {
    meter.charge_text(left.size().min(right.size()))
}

fn overflow() -> EvalError {
    EvalError::new("integer overflow")
}

fn unsigned_overflow() -> EvalError {
    EvalError::new("unsigned integer overflow")
}

fn duration_overflow() -> EvalError {
    EvalError::new("duration overflow")
}

fn timestamp_overflow() -> EvalError {
    EvalError::new("timestamp overflow")
}

/// Implements `left + right`.
pub(crate) fn add(left: &Value, right: &Value, meter: &mut Meter) -> Result<Value> {
    Ok(match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            Value::Int(left.checked_add(*right).ok_or_else(overflow)?)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            Value::Uint(left.checked_add(*right).ok_or_else(unsigned_overflow)?)
        }
        (Value::Double(left), Value::Double(right)) => Value::Double(left + right),
        (Value::String(left), Value::String(right)) => {
            meter.charge_text(left.len() + right.len())?;
            let mut text = String::with_capacity(left.len() + right.len());
            text.push_str(left);
            text.push_str(right);
            Value::text(text)
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            meter.charge_text(left.len() + right.len())?;
            Value::Bytes(Arc::from([&**left, &**right].concat()))
        }
        (Value::List(left), Value::List(right)) => {
            meter.charge_text(left.len() + right.len())?;
            Value::list(left.iter().chain(right.iter()).cloned().collect())
        }
        (Value::Duration(left), Value::Duration(right)) => {
            Value::Duration(left.checked_add(*right).ok_or_else(duration_overflow)?)
        }
        (Value::Timestamp(time), Value::Duration(duration))
        | (Value::Duration(duration), Value::Timestamp(time)) => Value::Timestamp(
            time.checked_add(*duration)
                .map_err(|_| timestamp_overflow())?,
        ),
        _ => return Err(EvalError::no_such_overload()),
    })
}

/// Implements `left - right`.
pub(crate) fn subtract(left: &Value, right: &Value) -> Result<Value> {
    Ok(match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            Value::Int(left.checked_sub(*right).ok_or_else(overflow)?)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            Value::Uint(left.checked_sub(*right).ok_or_else(unsigned_overflow)?)
        }
        (Value::Double(left), Value::Double(right)) => Value::Double(left - right),
        (Value::Duration(left), Value::Duration(right)) => {
            Value::Duration(left.checked_sub(*right).ok_or_else(duration_overflow)?)
        }
        (Value::Timestamp(time), Value::Duration(duration)) => Value::Timestamp(
            time.checked_sub(*duration)
                .map_err(|_| timestamp_overflow())?,
        ),
        (Value::Timestamp(left), Value::Timestamp(right)) => {
            let nanos = left.as_nanosecond() - right.as_nanosecond();
            let nanos = i64::try_from(nanos).map_err(|_| duration_overflow())?;
            Value::Duration(SignedDuration::from_nanos(nanos))
        }
        _ => return Err(EvalError::no_such_overload()),
    })
}

/// Implements `left * right`.
pub(crate) fn multiply(left: &Value, right: &Value) -> Result<Value> {
    Ok(match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            Value::Int(left.checked_mul(*right).ok_or_else(overflow)?)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            Value::Uint(left.checked_mul(*right).ok_or_else(unsigned_overflow)?)
        }
        (Value::Double(left), Value::Double(right)) => Value::Double(left * right),
        _ => return Err(EvalError::no_such_overload()),
    })
}

/// Implements `left / right`.
pub(crate) fn divide(left: &Value, right: &Value) -> Result<Value> {
    Ok(match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            return Err(EvalError::new("division by zero"));
        }
        (Value::Int(left), Value::Int(right)) => {
            Value::Int(left.checked_div(*right).ok_or_else(overflow)?)
        }
        (Value::Uint(left), Value::Uint(right)) => Value::Uint(left / right),
        (Value::Double(left), Value::Double(right)) => Value::Double(left / right),
        _ => return Err(EvalError::no_such_overload()),
    })
}

/// Implements `left % right`.
pub(crate) fn modulo(left: &Value, right: &Value) -> Result<Value> {
    Ok(match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            return Err(EvalError::new("modulus by zero"));
        }
        (Value::Int(left), Value::Int(right)) => {
            Value::Int(left.checked_rem(*right).ok_or_else(overflow)?)
        }
        (Value::Uint(left), Value::Uint(right)) => Value::Uint(left % right),
        _ => return Err(EvalError::no_such_overload()),
    })
}

/// Implements `-value`.
pub(crate) fn negate(value: &Value) -> Result<Value> {
    Ok(match value {
        Value::Int(value) => Value::Int(value.checked_neg().ok_or_else(overflow)?),
        Value::Double(value) => Value::Double(-value),
        Value::Duration(value) => {
            Value::Duration(value.checked_neg().ok_or_else(duration_overflow)?)
        }
        _ => return Err(EvalError::no_such_overload()),
    })
}

/// Implements `value in container`.
pub(crate) fn contains(value: &Value, container: &Value, meter: &mut Meter) -> Result<bool> {
    match container {
        Value::List(list) => {
            for element in list.iter() {
                meter.charge(1)?;
                if element == value {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Map(map) => Ok(Key::of(value).is_some_and(|key| map.get(&key).is_some())),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Implements `container[index]`.
pub(crate) fn index(container: &Value, index: &Value) -> Result<Value> {
    find(container, index)?.ok_or_else(|| match container {
        Value::List(_) => EvalError::new(format!("index out of bounds: {}", shown(index))),
        _ => EvalError::no_such_key(&shown(index)),
    })
}

/// Returns the element at an index, or none if there is no such element.
pub(crate) fn find(container: &Value, index: &Value) -> Result<Option<Value>> {
    match container {
        Value::List(list) => {
            let place = match Key::of(index) {
                Some(Key::Int(place)) => usize::try_from(place).ok(),
                Some(Key::Uint(place)) => usize::try_from(place).ok(),
                _ => {
                    let message = format!("unsupported index type '{}' in list", index.type_name());
                    return Err(EvalError::new(message));
                }
            };
            Ok(place.and_then(|place| list.get(place)).cloned())
        }
        Value::Map(map) => match Key::of(index) {
            Some(key) => Ok(map.get(&key).cloned()),
            None => Err(EvalError::no_such_overload()),
        },
        Value::Struct(object) => Ok(index.as_text().and_then(|name| object.field(name)).cloned()),
        Value::Optional(None) => Ok(None),
        Value::Optional(Some(inner)) => find(inner, index),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn shown(index: &Value) -> String {
    crate::functions::convert::text_of(index).unwrap_or_else(|_| index.type_name().to_owned())
}
