//! Collects the parts of an object that are kept.

use std::fmt::Write as _;

use super::{Active, Effect, Projected, Projection};

/// The parts of an object that are kept so far.
#[derive(Default)]
pub(super) struct Output {
    /// The text of the kept fields.
    pub(super) text: String,
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
    keys: Vec<(u8, String)>,
}

/// A value without members or elements.
#[derive(Clone, Copy)]
pub(super) enum Scalar<'v> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'v str),
}

// === impl Output ===

impl Output {
    /// Takes the key or the name that a scalar is.
    pub(super) fn take(&mut self, projection: &Projection, ended: Active, value: Scalar<'_>) {
        for number in ended.numbers() {
            let Some(text) = value.key() else { return };
            match projection.rules[number].effect {
                Effect::Keep => {}
                Effect::Key(index) => self.keys.push((index, text)),
                Effect::Name => self.name = Some(text),
                Effect::Namespace => self.namespace = Some(text),
                Effect::ResourceVersion => self.resource_version = Some(text),
            }
        }
    }

    /// Returns the object. None if it has no name.
    pub(super) fn finish(mut self) -> Option<Projected> {
        self.keys.sort_unstable();
        self.keys.dedup();
        if self.text.is_empty() {
            self.text.push_str("{}");
        }
        Some(Projected {
            namespace: self.namespace.filter(|namespace| !namespace.is_empty()),
            name: self.name.filter(|name| !name.is_empty())?,
            resource_version: self.resource_version,
            fields: self.text,
            keys: self.keys,
        })
    }
}

/// Writes a text as JSON.
pub(super) fn write_text(out: &mut String, text: &str) {
    out.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[plain..at]);
        match escape {
            "" => drop(write!(out, "\\u{byte:04x}")),
            escape => out.push_str(escape),
        }
        plain = at + 1;
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

// === impl Scalar ===

impl Scalar<'_> {
    pub(super) fn write(self, out: &mut String) {
        match self {
            Self::Text(text) => write_text(out, text),
            Self::Null => out.push_str("null"),
            Self::Float(number) => match serde_json::Number::from_f64(number) {
                Some(number) => drop(write!(out, "{number}")),
                None => out.push_str("null"),
            },
            Self::Bool(value) => drop(write!(out, "{value}")),
            Self::Unsigned(number) => drop(write!(out, "{number}")),
            Self::Signed(number) => drop(write!(out, "{number}")),
        }
    }

    /// The value as a key: texts, numbers and booleans, as text.
    fn key(self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.to_owned()),
            other => {
                let mut text = String::new();
                other.write(&mut text);
                Some(text)
            }
        }
    }
}
