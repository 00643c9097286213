//! Documents as JSON text, without what stands at certain places.
//!
//! Only the way to those places is walked; everything beside it is taken from the host as it is. That costs little, and
//! no document nests too deep for it, as one might for a parser on the small stack of a plugin.

use tollgate_sdk::prelude::*;

const REDACTED: &str = "\"[redacted]\"";

/// The places to leave out, as the tokens of their pointers; `*` is any element or member.
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

    /// The document, which is there. Once there is more text than enough, the rest may be missing.
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
    /// Prints what is at a place; the places to leave out are seen from there.
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

/// The places as seen from one level further down.
fn below<'p>(places: &[&'p [String]], token: &str) -> Vec<&'p [String]> {
    let places = places.iter().filter_map(|place| place.split_first());
    places
        .filter(|(first, _)| *first == "*" || *first == token)
        .map(|(_, rest)| rest)
        .collect()
}
