//! Kubernetes' quantities, such as `1500m` and `2Gi`.

use std::cmp::Ordering;

use super::{Native, text};
use crate::error::{EvalError, Result};
use crate::value::Value;

/// Units of a quantity in one whole: a quantity has nine decimal places.
const NANO: i128 = 1_000_000_000;
/// The most digits that Kubernetes keeps in an integer.
const MOST_DIGITS: usize = 18;

/// A quantity.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// The number in units of 1e-9.
    nanos: i128,
    /// Whether Kubernetes holds it as an integer with a decimal scale. Only such a quantity can be an integer.
    is_scaled: bool,
}

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    Some(match (name, is_member) {
        ("quantity", false) => |args, _| {
            let quantity = Quantity::parse(text(&args[0])?).map_err(EvalError::new)?;
            Ok(Value::Quantity(quantity.into()))
        },
        ("isQuantity", false) => {
            |args, _| Ok(Value::Bool(Quantity::parse(text(&args[0])?).is_ok()))
        }
        ("sign", _) => |args, _| Ok(Value::Int(of(&args[0])?.nanos.signum() as i64)),
        ("isInteger", true) => |args, _| Ok(Value::Bool(of(&args[0])?.integer().is_some())),
        ("asInteger", true) => |args, _| {
            let integer = of(&args[0])?.integer();
            let none = || EvalError::new("cannot convert value to integer");
            integer.map(Value::Int).ok_or_else(none)
        },
        ("asApproximateFloat", true) => |args, _| Ok(Value::Double(of(&args[0])?.approximate())),
        ("add", true) => |args, _| combine(args, i128::checked_add),
        ("sub", true) => |args, _| combine(args, i128::checked_sub),
        _ => return None,
    })
}

fn of(value: &Value) -> Result<&Quantity> {
    match value {
        Value::Quantity(quantity) => Ok(quantity),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn combine(args: &[Value], operation: fn(i128, i128) -> Option<i128>) -> Result<Value> {
    let left = of(&args[0])?;
    let right = match &args[1] {
        Value::Int(integer) => Quantity {
            nanos: i128::from(*integer) * NANO,
            is_scaled: true,
        },
        other => of(other)?.clone(),
    };
    let nanos = operation(left.nanos, right.nanos);
    let quantity = Quantity {
        nanos: nanos.ok_or_else(|| EvalError::new("quantity overflow"))?,
        is_scaled: left.is_scaled && right.is_scaled,
    };
    Ok(Value::Quantity(quantity.into()))
}

// === impl Quantity ===

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// The text of Kubernetes' error.
    pub fn parse(written: &str) -> std::result::Result<Self, &'static str> {
        const WRONG: &str = "quantities must match the regular expression \
                             '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";
        let (is_negative, unsigned) = match written.as_bytes().first() {
            Some(b'-') => (true, &written[1..]),
            Some(b'+') => (false, &written[1..]),
            _ => (false, written),
        };
        let end = unsigned
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if number.is_empty() || number == "." || fraction.contains('.') {
            return Err(WRONG);
        }
        let (base, exponent) = scale(suffix).ok_or(WRONG_SUFFIX)?;
        let whole = whole.trim_start_matches('0');
        let kept = fraction.trim_end_matches('0');
        let is_scaled =
            whole.len() + fraction.len() < MOST_DIGITS && (base == 10 || fraction.is_empty());
        let digits = format!("{whole}{kept}");
        let digits: i128 = if digits.is_empty() {
            0
        } else {
            digits.parse().unwrap_or(i128::MAX)
        };
        let magnitude = if base == 2 {
            let factor = 1i128 << exponent;
            scaled(digits.saturating_mul(factor), 9 - kept.len() as i32)
        } else {
            scaled(digits, exponent + 9 - kept.len() as i32)
        };
        if magnitude == i128::MAX {
            return Err("the quantity has more digits than this implementation keeps");
        }
        // kube-apiserver caps binary quantities at the largest integer.
        let magnitude = if base == 2 {
            magnitude.min(i128::from(i64::MAX) * NANO)
        } else {
            magnitude
        };
        Ok(Self {
            nanos: if is_negative { -magnitude } else { magnitude },
            is_scaled,
        })
    }

    /// Compares two quantities by their number.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    fn integer(&self) -> Option<i64> {
        if !self.is_scaled || self.nanos % NANO != 0 {
            return None;
        }
        i64::try_from(self.nanos / NANO).ok()
    }

    #[expect(clippy::cast_precision_loss, reason = "the result is approximate")]
    fn approximate(&self) -> f64 {
        if self.nanos % NANO == 0 {
            (self.nanos / NANO) as f64
        } else {
            self.nanos as f64 / NANO as f64
        }
    }
}

/// Multiplies by a power of ten. Rounds away from zero, and stops at the largest number.
fn scaled(digits: i128, exponent: i32) -> i128 {
    if digits == 0 {
        return 0;
    }
    let power = 10i128.checked_pow(exponent.unsigned_abs());
    match (power, exponent >= 0) {
        (Some(power), true) => digits.saturating_mul(power),
        (None, true) => i128::MAX,
        (Some(power), false) => digits / power + i128::from(digits % power != 0),
        (None, false) => 1,
    }
}

/// Returns base and exponent of a suffix.
fn scale(suffix: &str) -> Option<(u8, i32)> {
    Some(match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            (10, digits.parse().ok()?)
        }
    })
}
