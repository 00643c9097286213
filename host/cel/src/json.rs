//! JSON text and CEL values.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::value::{Key, Value};

/// A value has no JSON form. The text names the type.
#[derive(Debug)]
pub struct NoJson(pub String);

/// Reads JSON text. None if it is not JSON. Integers that fit become `int`, and other numbers `double`.
#[must_use]
pub fn parse(text: &str) -> Option<Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Reader.deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    Some(value)
}

/// Reads a value of serde_json.
#[must_use]
pub fn from_json(value: &serde_json::Value) -> Value {
    Reader.deserialize(value).unwrap_or(Value::Null)
}

/// Writes a value as JSON text.
///
/// # Errors
/// If the value, or a value in it, has no JSON form.
pub fn write(value: &Value) -> Result<String, NoJson> {
    let mut text = String::new();
    append(&mut text, value)?;
    Ok(text)
}

fn append(out: &mut String, value: &Value) -> Result<(), NoJson> {
    match value {
        Value::Null | Value::Optional(None) => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => write!(out, "{value}").expect("writing to a string does not fail"),
        Value::Uint(value) => write!(out, "{value}").expect("writing to a string does not fail"),
        Value::Double(value) if value.is_finite() => {
            out.push_str(&serde_json::Value::from(*value).to_string());
        }
        Value::Double(_) => return Err(NoJson("double".to_owned())),
        Value::String(text) => quote(out, text),
        Value::Bytes(bytes) => quote(out, &crate::functions::convert::base64(bytes)),
        Value::Timestamp(_) | Value::Duration(_) => {
            let text = crate::functions::convert::text_of(value);
            quote(out, &text.unwrap_or_default());
        }
        Value::List(list) => {
            out.push('[');
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                append(out, element)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                match key {
                    Key::String(key) => quote(out, key),
                    Key::Bool(key) => quote(out, &key.to_string()),
                    Key::Int(key) => quote(out, &key.to_string()),
                    Key::Uint(key) => quote(out, &key.to_string()),
                }
                out.push(':');
                append(out, value)?;
            }
            out.push('}');
        }
        Value::Struct(object) => {
            out.push('{');
            for (index, (name, value)) in object.fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                quote(out, name);
                out.push(':');
                append(out, value)?;
            }
            out.push('}');
        }
        Value::Optional(Some(value)) => append(out, value)?,
        other => return Err(NoJson(other.type_name().to_owned())),
    }
    Ok(())
}

fn quote(out: &mut String, text: &str) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// Reads a value without a tree of serde_json in between.
struct Reader;

impl<'de> DeserializeSeed<'de> for Reader {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "kube-apiserver reads integers beyond 64 bits as doubles, too"
    )]
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Double(value as f64), Value::Int))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Double(value))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(Arc::from(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(Reader)? {
            list.push(element);
        }
        Ok(Value::list(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(name) = members.next_key::<std::borrow::Cow<'de, str>>()? {
            let value = members.next_value_seed(Reader)?;
            map.push((Key::String(Arc::from(&*name)), value));
        }
        Ok(Value::map(map))
    }
}
