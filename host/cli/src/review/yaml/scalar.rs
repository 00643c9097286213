//! Reads scalars by go-yaml's rules, and converts them to member names by the rules of `sigs.k8s.io/yaml`.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_saphyr::granit_parser::{ScalarStyle, Tag};
use tollgate_json::document::{Json, Number};

/// A value without parts.
#[derive(Clone)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Integer(i64),
    /// An integer that is too large for `Integer`.
    Unsigned(u64),
    Float(f64),
    Text(Arc<str>),
}

const CORE: &str = "tag:yaml.org,2002:";

/// Returns whether the scalar is written without quotes and not as a block.
pub(super) fn is_plain(style: ScalarStyle) -> bool {
    style == ScalarStyle::Plain
}

// === impl Scalar ===

impl Scalar {
    pub(super) fn read(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Self, String> {
        let tag = tag.map(|tag| (tag.handle(), tag.suffix()));
        let scalar = match tag {
            None if is_plain(style) => return Ok(Self::resolved(text)),
            Some((CORE, "binary")) => return Self::decoded(text),
            Some((CORE, kind @ ("null" | "bool" | "int" | "float"))) => {
                let scalar = Self::resolved(text);
                let fits = match &scalar {
                    Self::Null => kind == "null",
                    Self::Bool(_) => kind == "bool",
                    Self::Integer(_) | Self::Unsigned(_) => matches!(kind, "int" | "float"),
                    Self::Float(_) => kind == "float",
                    Self::Text(_) => false,
                };
                if !fits {
                    return Err("the value does not fit its tag".to_owned());
                }
                scalar
            }
            _ => Self::Text(text.into()),
        };
        Ok(scalar)
    }

    fn decoded(text: &str) -> Result<Self, String> {
        let text: String = text.split_whitespace().collect();
        let bytes = STANDARD.decode(text).ok();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or("!!binary is not UTF-8 text in base64")?;
        Ok(Self::Text(text.into()))
    }

    /// Reads a plain scalar.
    fn resolved(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                return Self::Bool(true);
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off"
            | "OFF" => return Self::Bool(false),
            ".nan" | ".NaN" | ".NAN" => return Self::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
                return Self::Float(f64::INFINITY);
            }
            "-.inf" | "-.Inf" | "-.INF" => return Self::Float(f64::NEG_INFINITY),
            _ => {}
        }
        let number = match text.as_bytes().first() {
            Some(b'.') => float(text),
            Some(b'+' | b'-' | b'0'..=b'9') => {
                let digits = text.replace('_', "");
                integer(&digits).or_else(|| float(&digits))
            }
            _ => None,
        };
        number.unwrap_or_else(|| Self::Text(text.into()))
    }

    pub(super) fn to_json(&self) -> Result<Json, String> {
        let number = |text: &str| Json::Number(Number::from_text(text));
        Ok(match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Integer(value) => number(&value.to_string()),
            Self::Unsigned(value) => number(&value.to_string()),
            Self::Float(value) if !value.is_finite() => {
                return Err("JSON has no such number; put it in quotes if it is text".to_owned());
            }
            Self::Float(value) => number(&number_text(*value)),
            Self::Text(text) => Json::Text(text.clone()),
        })
    }

    /// Converts the scalar to the name of a member.
    pub(super) fn to_name(&self) -> Result<String, String> {
        let refused = |what: &str| {
            Err(format!(
                "{what} cannot be the name of a member; put it in quotes if it is text"
            ))
        };
        match self {
            Self::Null => refused("null"),
            Self::Unsigned(value) => refused(&value.to_string()),
            Self::Bool(value) => Ok(value.to_string()),
            Self::Integer(value) => Ok(value.to_string()),
            Self::Float(value) => Ok(name_of(*value)),
            Self::Text(text) => Ok(text.to_string()),
        }
    }
}

/// Reads an integer like Go's `ParseInt` and `ParseUint` with base 0.
fn integer(text: &str) -> Option<Scalar> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let prefix = rest.get(..2).unwrap_or_default().to_ascii_lowercase();
    let (radix, digits) = match prefix.as_str() {
        "0x" => (16, &rest[2..]),
        "0o" => (8, &rest[2..]),
        "0b" => (2, &rest[2..]),
        _ if rest.len() > 1 && rest.starts_with('0') => (8, &rest[1..]),
        _ => (10, rest),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    if let Ok(value) = i64::try_from(sign * value) {
        return Some(Scalar::Integer(value));
    }
    let is_unsigned = rest.len() == text.len();
    u64::try_from(value)
        .ok()
        .filter(|_| is_unsigned)
        .map(Scalar::Unsigned)
}

/// Reads digits, with or without a point and an exponent. A value that is too large for a double is text.
fn float(text: &str) -> Option<Scalar> {
    let is_one = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E'));
    let value: f64 = text.parse().ok().filter(|_| is_one)?;
    value.is_finite().then_some(Scalar::Float(value))
}

/// Writes a double as Go does in JSON.
fn number_text(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if (1e-6..1e21).contains(&size) {
        value.to_string()
    } else {
        let text = format!("{value:e}");
        if text.contains("e-") {
            text
        } else {
            text.replace('e', "e+")
        }
    }
}

/// Writes a number as a member name, as `sigs.k8s.io/yaml` does: in single precision, as short as possible, in Go's
/// format `g`.
fn name_of(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "that is how it is named")]
    let value = value as f32;
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        let sign = if value > 0.0 { '+' } else { '-' };
        return format!("{sign}Inf");
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
