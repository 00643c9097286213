//! Conversions between types, `size` and `type`.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{Native, text};
use crate::error::{EvalError, Result};
use crate::meter::Meter;
use crate::value::Value;

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    Some(match (name, is_member) {
        ("size", _) => size,
        ("type", false) => |args, _| Ok(Value::Type(Arc::from(args[0].type_name()))),
        ("dyn", false) => |args, _| Ok(args[0].clone()),
        ("int", false) => to_int,
        ("uint", false) => to_uint,
        ("double", false) => to_double,
        ("bool", false) => to_bool,
        ("string", false) => |args, meter| {
            meter.charge_text(args[0].size())?;
            text_of(&args[0]).map(Value::text)
        },
        ("bytes", false) => |args, meter| {
            meter.charge_text(args[0].size())?;
            match &args[0] {
                Value::Bytes(_) => Ok(args[0].clone()),
                other => Ok(Value::Bytes(Arc::from(text(other)?.as_bytes()))),
            }
        },
        ("timestamp", false) => |args, _| match &args[0] {
            Value::Timestamp(_) => Ok(args[0].clone()),
            Value::Int(seconds) => Timestamp::from_second(*seconds)
                .map(Value::Timestamp)
                .map_err(|_| EvalError::new("timestamp overflow")),
            other => {
                let written = text(other)?;
                parse_timestamp(written).map(Value::Timestamp)
            }
        },
        ("duration", false) => |args, _| match &args[0] {
            Value::Duration(_) => Ok(args[0].clone()),
            other => parse_duration(text(other)?).map(Value::Duration),
        },
        _ => return None,
    })
}

fn size(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let size = match &args[0] {
        Value::String(text) => {
            meter.charge_text(text.len())?;
            text.chars().count()
        }
        Value::Bytes(_) | Value::List(_) | Value::Map(_) => args[0].size(),
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn overflow(what: &'static str) -> EvalError {
    EvalError::new(what)
}

fn to_int(args: &[Value], meter: &mut Meter) -> Result<Value> {
    meter.charge_text(args[0].size())?;
    let number = match &args[0] {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| overflow("integer overflow"))?,
        Value::Double(value) => {
            // The nearest doubles beyond the range of an int.
            if !(*value > -9_223_372_036_854_775_808.0 && *value < 9_223_372_036_854_775_808.0) {
                return Err(overflow("integer overflow"));
            }
            #[expect(clippy::cast_possible_truncation, reason = "CEL cuts the fraction off")]
            let whole = *value as i64;
            whole
        }
        Value::Timestamp(time) => time.as_second(),
        other => {
            let text = text(other)?;
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let parsed = text.parse().ok().filter(|_| !digits.is_empty());
            parsed.ok_or_else(|| {
                EvalError::new(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))
            })?
        }
    };
    Ok(Value::Int(number))
}

fn to_uint(args: &[Value], meter: &mut Meter) -> Result<Value> {
    meter.charge_text(args[0].size())?;
    let number = match &args[0] {
        Value::Uint(value) => *value,
        Value::Int(value) => {
            u64::try_from(*value).map_err(|_| overflow("unsigned integer overflow"))?
        }
        Value::Double(value) => {
            if !(*value >= 0.0 && *value < 18_446_744_073_709_551_616.0) {
                return Err(overflow("unsigned integer overflow"));
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "CEL cuts the fraction off, and the range was checked"
            )]
            let whole = *value as u64;
            whole
        }
        other => {
            let text = text(other)?;
            let parsed = text.parse().ok().filter(|_| !text.starts_with('+'));
            parsed.ok_or_else(|| {
                EvalError::new(format!(
                    "strconv.ParseUint: parsing {text:?}: invalid syntax"
                ))
            })?
        }
    };
    Ok(Value::Uint(number))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "CEL rounds integers to the nearest double"
)]
fn to_double(args: &[Value], meter: &mut Meter) -> Result<Value> {
    meter.charge_text(args[0].size())?;
    let number = match &args[0] {
        Value::Double(value) => *value,
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        other => {
            let text = text(other)?;
            text.parse().map_err(|_| {
                EvalError::new(format!(
                    "strconv.ParseFloat: parsing {text:?}: invalid syntax"
                ))
            })?
        }
    };
    Ok(Value::Double(number))
}

fn to_bool(args: &[Value], _: &mut Meter) -> Result<Value> {
    match &args[0] {
        Value::Bool(_) => Ok(args[0].clone()),
        other => match text(other)? {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            text => Err(EvalError::new(format!(
                "strconv.ParseBool: parsing {text:?}: invalid syntax"
            ))),
        },
    }
}

/// Returns the text of `string(value)`.
pub(crate) fn text_of(value: &Value) -> Result<String> {
    Ok(match value {
        Value::String(text) => text.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => double(*value),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => {
                return Err(EvalError::new(
                    "invalid UTF-8 in bytes, cannot convert to string",
                ));
            }
        },
        Value::Timestamp(time) => time.to_string(),
        Value::Duration(duration) => seconds(*duration),
        Value::Ip(ip) => ip.to_string(),
        Value::Cidr(cidr) => cidr.to_string(),
        _ => return Err(EvalError::no_such_overload()),
    })
}

/// Returns a duration as a decimal number of seconds, such as `1.5s`.
fn seconds(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, rest) = (
        nanos.unsigned_abs() / 1_000_000_000,
        nanos.unsigned_abs() % 1_000_000_000,
    );
    if rest == 0 {
        return format!("{sign}{whole}s");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{whole}.{}s", fraction.trim_end_matches('0'))
}

/// Writes a double like Go's `%g`: with an exponent below 1e-4 and from 1e21 on.
pub(crate) fn double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{value}")
}

/// Encodes bytes as standard base64.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .fold(0u32, |word, byte| (word << 8) | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for index in 0..4 {
            if index <= chunk.len() {
                let digit = (word >> (18 - 6 * index)) & 63;
                text.push(char::from(ALPHABET[digit as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

fn parse_timestamp(written: &str) -> Result<Timestamp> {
    let wrong = || EvalError::new(format!("parsing time {written:?} as RFC 3339"));
    // RFC 3339 has a `T` and a zone, and jiff accepts more.
    let bytes = written.as_bytes();
    if bytes.get(10) != Some(&b'T') || !has_zone(written) {
        return Err(wrong());
    }
    let time: Timestamp = written.parse().map_err(|_| wrong())?;
    let year = time.to_zoned(jiff::tz::TimeZone::UTC).year();
    if !(1..=9999).contains(&year) {
        return Err(EvalError::new("timestamp overflow"));
    }
    Ok(time)
}

/// Whether the text ends with `Z` or an offset such as `+02:00`.
fn has_zone(written: &str) -> bool {
    let bytes = written.as_bytes();
    if bytes.last() == Some(&b'Z') {
        return true;
    }
    let Some(start) = bytes.len().checked_sub(6) else {
        return false;
    };
    let offset = &bytes[start..];
    matches!(offset[0], b'+' | b'-')
        && offset[3] == b':'
        && [1, 2, 4, 5]
            .iter()
            .all(|index: &usize| offset[*index].is_ascii_digit())
}

/// Reads a duration as Go writes it: `1h30m`, `1.5s`, `-2ms`.
pub(crate) fn parse_duration(written: &str) -> Result<SignedDuration> {
    let wrong = || EvalError::new(format!("time: invalid duration {written:?}"));
    let (is_negative, mut rest) = match written.as_bytes().first() {
        Some(b'-') => (true, &written[1..]),
        Some(b'+') => (false, &written[1..]),
        _ => (false, written),
    };
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .ok_or_else(|| EvalError::new(format!("time: missing unit in duration {written:?}")))?;
        let (number, behind) = rest.split_at(number_end);
        let unit_end = behind
            .find(|character: char| character.is_ascii_digit() || character == '.')
            .unwrap_or(behind.len());
        let (unit, next) = behind.split_at(unit_end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            other => {
                let message = format!("time: unknown unit {other:?} in duration {written:?}");
                return Err(EvalError::new(message));
            }
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err(wrong());
        }
        let digits = |digits: &str| -> Result<i128> {
            if digits.is_empty() {
                return Ok(0);
            }
            digits.parse().map_err(|_| wrong())
        };
        let fraction = &fraction[..fraction.len().min(18)];
        let part = digits(whole)?.checked_mul(unit).ok_or_else(wrong)?
            + digits(fraction)? * unit / 10i128.pow(fraction.len() as u32);
        nanos = nanos.checked_add(part).ok_or_else(wrong)?;
        rest = next;
    }
    let nanos = if is_negative { -nanos } else { nanos };
    i64::try_from(nanos)
        .map(SignedDuration::from_nanos)
        .map_err(|_| wrong())
}
