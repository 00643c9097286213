//! Numbers as Go reads and writes them.

use regorus::Value;

/// Converts like OPA's `to_number`, which reads strings as Go does: `00`, `+1`, `.5` and `1.` are numbers. Undefined for what
/// is no number.
pub(crate) fn to_number(mut arguments: Vec<Value>) -> Value {
    match arguments.pop() {
        Some(Value::Null | Value::Bool(false)) => Value::from(0_u64),
        Some(Value::Bool(true)) => Value::from(1_u64),
        Some(number @ Value::Number(_)) => number,
        Some(Value::String(text)) => of_text(&text),
        _ => Value::Undefined,
    }
}

fn of_text(text: &str) -> Value {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    // Rust also reads the names of infinity and of what is no number.
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Value::Undefined;
    }
    let Ok(number) = text.parse::<f64>() else {
        return Value::Undefined;
    };
    if !number.is_finite() {
        return Value::Undefined;
    }
    // As JSON, so that a number that a float cannot hold keeps its digits.
    let whole = digits.trim_start_matches('0');
    let whole = if whole.starts_with(|c: char| c.is_ascii_digit()) {
        whole.to_owned()
    } else {
        format!("0{whole}")
    };
    let sign = if text.starts_with('-') { "-" } else { "" };
    let json = format!("{sign}{whole}");
    Value::from_json_str(&json).unwrap_or_else(|_| Value::from(number))
}

/// Writes a float as Go's `%v` does: with an exponent from a million on, and below a ten-thousandth.
pub(crate) fn shortest(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}
