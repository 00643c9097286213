//! Writes a document as JSON text.

use std::io::Write as _;

use super::{Json, Number};

// === impl Json ===

impl Json {
    /// Returns the compact JSON text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut bytes = Vec::with_capacity(128);
        self.write(&mut bytes);
        String::from_utf8(bytes).expect("strings are UTF-8 and everything else is ASCII")
    }

    /// Returns the compact JSON text, or `None` if it has more bytes than `limit`. A longer document is not written to its
    /// end.
    #[must_use]
    pub fn to_text_within(&self, limit: usize) -> Option<String> {
        let mut bytes = Vec::new();
        let fits = self.write_within(limit, &mut bytes) && bytes.len() <= limit;
        let text =
            || String::from_utf8(bytes).expect("strings are UTF-8 and everything else is ASCII");
        fits.then(text)
    }

    /// Appends the compact JSON text. Stops and returns false when it is clear that there are more bytes than `limit`.
    fn write_within(&self, limit: usize, out: &mut Vec<u8>) -> bool {
        let left = limit.saturating_sub(out.len());
        match self {
            Self::Text(text) if text.len() > left => false,
            Self::Number(Number::Text(text)) if text.len() > left => false,
            Self::Array(elements) if elements.compact().is_none() => {
                out.push(b'[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    if out.len() > limit || !element.write_within(limit, out) {
                        return false;
                    }
                }
                out.push(b']');
                true
            }
            Self::Object(members) if members.compact().is_none() => {
                out.push(b'{');
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    if name.len() > left {
                        return false;
                    }
                    write_text(name, out);
                    out.push(b':');
                    if out.len() > limit || !value.write_within(limit, out) {
                        return false;
                    }
                }
                out.push(b'}');
                true
            }
            Self::Array(elements) => copy_within(elements.compact(), left, out),
            Self::Object(members) => copy_within(members.compact(), left, out),
            short => {
                short.write(out);
                true
            }
        }
    }

    /// Appends the compact JSON text.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::Number(Number::Integer(integer)) => {
                write!(out, "{integer}").expect("a Vec takes every write")
            }
            Self::Number(Number::Text(text)) => out.extend_from_slice(text.as_bytes()),
            Self::Text(text) => write_text(text, out),
            Self::Array(elements) => {
                if let Some(text) = elements.compact() {
                    return out.extend_from_slice(text);
                }
                out.push(b'[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    element.write(out);
                }
                out.push(b']');
            }
            Self::Object(members) => {
                if let Some(text) = members.compact() {
                    return out.extend_from_slice(text);
                }
                out.push(b'{');
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    write_text(name, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

fn copy_within(text: Option<&[u8]>, left: usize, out: &mut Vec<u8>) -> bool {
    match text {
        Some(text) if text.len() <= left => {
            out.extend_from_slice(text);
            true
        }
        _ => false,
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string always serialises into a Vec");
}
