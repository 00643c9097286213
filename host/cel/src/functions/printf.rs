//! `string.format`.

use std::fmt::Write as _;

use super::convert::text_of;
use super::{Native, list, text};
use crate::error::{EvalError, Result};
use crate::meter::Meter;
use crate::value::{Key, Value};

/// The digits after the point when a clause does not say how many.
const DIGITS: usize = 6;
/// The most digits after the point.
const MOST_DIGITS: usize = 1000;

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    (name == "format" && is_member).then_some(format as Native)
}

fn format(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let (pattern, values) = (text(&args[0])?, list(&args[1])?);
    meter.charge_text(pattern.len())?;
    let mut out = String::new();
    let mut rest = pattern;
    let mut values = values.iter().enumerate();
    let mut used = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            out.push('%');
            rest = behind;
            continue;
        }
        let Some((index, value)) = values.next() else {
            return Err(EvalError::new(format!("index {used} out of range")));
        };
        used = index + 1;
        if rest.is_empty() {
            return Err(EvalError::new("unexpected end of string"));
        }
        let (clause, digits, behind) = clause(rest)?;
        let formatted = formatted(clause, digits, value)
            .map_err(|error| EvalError::new(format!("error during formatting: {error}")))?;
        meter.charge_text(formatted.len())?;
        out.push_str(&formatted);
        rest = behind;
    }
    out.push_str(rest);
    Ok(Value::text(out))
}

/// Reads a clause: its letter, its precision and the text behind it.
fn clause(text: &str) -> Result<(char, usize, &str)> {
    let failed =
        |problem: String| EvalError::new(format!("could not parse formatting clause: {problem}"));
    let mut digits = DIGITS;
    let mut rest = text;
    if let Some(behind) = text.strip_prefix('.') {
        let end = behind.find(|character: char| !character.is_ascii_digit());
        let end = end.ok_or_else(|| {
            failed(
                "error while parsing precision: could not find end of precision specifier"
                    .to_owned(),
            )
        })?;
        digits = behind[..end]
            .parse()
            .ok()
            .filter(|digits| *digits <= MOST_DIGITS)
            .ok_or_else(|| {
                failed(
                    "error while parsing precision: error while converting precision to integer"
                        .to_owned(),
                )
            })?;
        rest = &behind[end..];
    }
    let mut characters = rest.chars();
    match characters.next() {
        Some(letter @ ('s' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o')) => {
            Ok((letter, digits, characters.as_str()))
        }
        Some(letter) => Err(failed(format!(
            "unrecognized formatting clause \"{letter}\""
        ))),
        None => Err(failed("unexpected end of string".to_owned())),
    }
}

fn formatted(clause: char, digits: usize, value: &Value) -> std::result::Result<String, String> {
    let given = || value.type_name();
    Ok(match (clause, value) {
        ('s', value) => string(value)?,
        ('d', Value::Int(value)) => value.to_string(),
        ('d', Value::Uint(value)) => value.to_string(),
        ('d', _) => {
            return Err(format!(
                "decimal clause can only be used on integers, was given {}",
                given()
            ));
        }
        ('b', Value::Int(value)) => signed(*value, |magnitude| format!("{magnitude:b}")),
        ('b', Value::Uint(value)) => format!("{value:b}"),
        ('b', Value::Bool(value)) => u8::from(*value).to_string(),
        ('b', _) => {
            return Err(format!(
                "only integers and bools can be formatted as binary, was given {}",
                given()
            ));
        }
        ('o', Value::Int(value)) => signed(*value, |magnitude| format!("{magnitude:o}")),
        ('o', Value::Uint(value)) => format!("{value:o}"),
        ('o', _) => {
            return Err(format!(
                "octal clause can only be used on integers, was given {}",
                given()
            ));
        }
        ('x' | 'X', value) => {
            let digits = match value {
                Value::Int(value) => signed(*value, |magnitude| format!("{magnitude:x}")),
                Value::Uint(value) => format!("{value:x}"),
                Value::String(text) => hex(text.as_bytes()),
                Value::Bytes(bytes) => hex(bytes),
                _ => {
                    return Err(format!(
                        "only integers, byte buffers, and strings can be formatted as hex, was given {}",
                        given()
                    ));
                }
            };
            if clause == 'X' {
                digits.to_uppercase()
            } else {
                digits
            }
        }
        ('f', value) => match number(value) {
            Some(number) => fixed(number, digits),
            None => {
                return Err(format!(
                    "fixed-point clause can only be used on doubles, was given {}",
                    given()
                ));
            }
        },
        (_, value) => match number(value) {
            Some(number) => scientific(number, digits),
            None => {
                return Err(format!(
                    "scientific clause can only be used on doubles, was given {}",
                    given()
                ));
            }
        },
    })
}

fn signed(value: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", digits(value.unsigned_abs()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
        text
    })
}

/// Returns the number of a double, or of the text for a number that is none.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn special(value: f64) -> Option<String> {
    if value.is_nan() {
        return Some("NaN".to_owned());
    }
    value
        .is_infinite()
        .then(|| if value > 0.0 { "∞" } else { "-∞" }.to_owned())
}

/// Writes a number like kube-apiserver in its locale: with a comma between groups of three digits.
fn fixed(value: f64, digits: usize) -> String {
    if let Some(special) = special(value) {
        return special;
    }
    let plain = format!("{:.digits$}", value.abs());
    let (whole, fraction) = match plain.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (plain.as_str(), String::new()),
    };
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    format!("{sign}{grouped}{fraction}")
}

/// Writes a number like kube-apiserver in its locale: with a power of ten.
fn scientific(value: f64, digits: usize) -> String {
    const SUPERSCRIPT: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    if let Some(special) = special(value) {
        return special;
    }
    let plain = format!("{value:.digits$e}");
    let (mantissa, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(digits) => ("⁻", digits),
        None => ("", exponent),
    };
    let power = format!("{exponent:0>2}");
    let power: String = power
        .bytes()
        .filter_map(|digit| SUPERSCRIPT.get(usize::from(digit.wrapping_sub(b'0'))))
        .collect();
    format!("{mantissa}\u{202f}×\u{202f}10{sign}{power}")
}

fn string(value: &Value) -> std::result::Result<String, String> {
    match value {
        Value::List(list) => {
            let elements: std::result::Result<Vec<_>, _> = list.iter().map(element).collect();
            Ok(format!("[{}]", elements?.join(", ")))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map.iter() {
                let key = match key {
                    Key::String(key) => format!("{key:?}"),
                    other => text_of(&other.to_value()).map_err(|error| error.to_string())?,
                };
                entries.push(format!("{key}:{}", element(value)?));
            }
            entries.sort();
            Ok(format!("{{{}}}", entries.join(", ")))
        }
        Value::Null => Ok("null".to_owned()),
        Value::Type(name) => Ok(name.to_string()),
        Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Bool(_)
        | Value::String(_)
        | Value::Timestamp(_)
        | Value::Bytes(_)
        | Value::Duration(_) => text_of(value).map_err(|error| error.to_string()),
        other => Err(format!(
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
             and timestamps, was given {}",
            other.type_name()
        )),
    }
}

/// Writes an element of a list or a map as a literal.
fn element(value: &Value) -> std::result::Result<String, String> {
    Ok(match value {
        Value::String(text) => format!("{text:?}"),
        Value::Bytes(_) => format!("b{:?}", string(value)?),
        Value::Timestamp(_) => format!("timestamp({:?})", string(value)?),
        Value::Duration(_) => format!("duration({:?})", string(value)?),
        Value::Double(number) if number.is_finite() => format!("{number:.DIGITS$}"),
        Value::Double(_) => format!("{:?}", string(value)?),
        other => string(other)?,
    })
}
