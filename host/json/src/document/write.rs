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
        let fits = self.write_within(limit, &mut bytes);
        let text =
            || String::from_utf8(bytes).expect("strings are UTF-8 and everything else is ASCII");
        fits.then(text)
    }

    /// Appends the compact JSON text.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_within(usize::MAX, out);
    }

    /// Appends the compact JSON text. Stops and returns false when it is clear that `out` gets more bytes than `limit`.
    fn write_within(&self, limit: usize, out: &mut Vec<u8>) -> bool {
        let left = limit.saturating_sub(out.len());
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::Number(Number::Integer(integer)) => {
                write!(out, "{integer}").expect("a Vec takes every write")
            }
            Self::Number(Number::Text(text)) => return copy_within(text.as_bytes(), left, out),
            Self::Text(text) if text.len() > left => return false,
            Self::Text(text) => write_text(text, out),
            Self::Array(elements) => {
                if let Some(text) = elements.compact() {
                    return copy_within(text, left, out);
                }
                out.push(b'[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    if !element.write_within(limit, out) {
                        return false;
                    }
                }
                out.push(b']');
            }
            Self::Object(members) => {
                if let Some(text) = members.compact() {
                    return copy_within(text, left, out);
                }
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
                    if !value.write_within(limit, out) {
                        return false;
                    }
                }
                out.push(b'}');
            }
        }
        out.len() <= limit
    }
}

fn copy_within(text: &[u8], left: usize, out: &mut Vec<u8>) -> bool {
    if text.len() > left {
        return false;
    }
    out.extend_from_slice(text);
    true
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string always serialises into a Vec");
}
