//! Prints documents as JSON text, without the values at certain places.
//!
//! The code visits only the ways to these places, and takes everything else from the host unchanged. That is cheap, and
//! works for any depth. A parser on a plugin's small stack could run out of stack.

use tollgate_sdk::prelude::*;

const REDACTED: &str = "\"[redacted]\"";

/// The places to leave out, as the tokens of their pointers. `*` matches any element or member.
pub(crate) struct Redaction(Vec<Vec<String>>);

struct Printer {
    document: Document,
    text: String,
    enough: usize,
}

// === impl Redaction ===

impl Redaction {
    pub(crate) fn new<'p>(places: impl Iterator<Item = &'p Pointer>) -> Self {
        Self(places.map(|place| place.tokens().collect()).collect())
    }

    /// Prints an existing document. After `enough` bytes, the rest may be missing.
    pub(crate) fn print(&self, document: Document, enough: usize) -> String {
        let mut printer = Printer {
            document,
            text: String::new(),
            enough,
        };
        let places: Vec<&[String]> = self.0.iter().map(Vec::as_slice).collect();
        printer.value(&Pointer::root(), &places);
        printer.text
    }
}

// === impl Printer ===

impl Printer {
    /// Prints the value at a place. `places` are relative to it.
    fn value(&mut self, at: &Pointer, places: &[&[String]]) {
        if places.iter().any(|place| place.is_empty()) {
            self.text += REDACTED;
            return;
        }
        let document = self.document;
        let walked = if places.is_empty() {
            None
        } else {
            document.get(at)
        };
        match walked {
            Some(Value::Object(_)) => {
                self.text += "{";
                for (index, name) in document.keys(at).unwrap_or_default().iter().enumerate() {
                    if self.text.len() > self.enough {
                        break;
                    }
                    self.text += if index == 0 { "" } else { "," };
                    self.text += &serde_json::Value::from(name.as_str()).to_string();
                    self.text += ":";
                    self.value(&at.child(name), &below(places, name));
                }
                self.text += "}";
            }
            Some(Value::Array(length)) => {
                self.text += "[";
                for index in 0..length {
                    if self.text.len() > self.enough {
                        break;
                    }
                    self.text += if index == 0 { "" } else { "," };
                    self.value(&at.child(index), &below(places, &index.to_string()));
                }
                self.text += "]";
            }
            _ => self.text += &document.json(at).unwrap_or_default(),
        }
    }
}

/// Returns the places relative to one level further down.
fn below<'p>(places: &[&'p [String]], token: &str) -> Vec<&'p [String]> {
    let places = places.iter().filter_map(|place| place.split_first());
    places
        .filter(|(first, _)| *first == "*" || *first == token)
        .map(|(_, rest)| rest)
        .collect()
}
