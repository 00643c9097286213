//! Notes what a reader asks for.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::limit::Limit;
use crate::problem::Collector;

/// A form of value that a reader accepts.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// An object. The reader asks for its keys.
    Object,
    /// An object with keys that the reader does not know.
    Members(Values),
    /// A list. The reader looks at its elements.
    List,
    /// A list of objects with keys that the reader does not know.
    Objects,
    /// A text.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A whole number that is not negative.
    Integer,
    /// An amount within the bounds of a limit.
    Amount(Limit),
    /// One of these words.
    Words(Vec<String>),
}

/// The values in an object with unknown keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Any value.
    Any,
    /// Texts.
    Text,
    /// Texts, or null.
    TextOrNull,
}

/// Everything that a reader has asked for, by the path of the place. The path of an element ends in `[]`.
#[derive(Debug, Default)]
pub struct Trace(RefCell<BTreeMap<String, Place>>);

/// The keys and forms that a reader has asked for at one place.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// The accepted forms, in the order in which the reader tried them.
    pub(super) shapes: Vec<Shape>,
    /// The keys of the object, in the order in which the reader asked for them.
    pub(super) keys: Vec<&'static str>,
    /// How often the reader has found an object here.
    objects: u32,
    /// How often the reader insisted on a key of such an object.
    required: BTreeMap<&'static str, u32>,
}

// === impl Trace ===

impl Trace {
    pub(crate) fn note_shape(&self, path: &str, shape: Shape) {
        self.at(path, |place| {
            if !place.shapes.contains(&shape) {
                place.shapes.push(shape);
            }
        });
    }

    pub(crate) fn note_object(&self, path: &str) {
        self.at(path, |place| place.objects += 1);
    }

    pub(crate) fn note_key(&self, path: &str, key: &'static str) {
        self.at(path, |place| {
            if !place.keys.contains(&key) {
                place.keys.push(key);
            }
        });
    }

    pub(crate) fn note_required(&self, path: &str, key: &'static str) {
        self.at(path, |place| *place.required.entry(key).or_default() += 1);
    }

    fn at(&self, path: &str, note: impl FnOnce(&mut Place)) {
        // The documents have one element in each list.
        let path = path.replace("[0]", "[]");
        note(self.0.borrow_mut().entry(path).or_default());
    }

    /// Returns the notes about a place.
    pub(super) fn place(&self, path: &str) -> Place {
        self.0.borrow().get(path).cloned().unwrap_or_default()
    }

    /// Lists the paths of all places, except the document itself.
    #[must_use]
    pub fn paths(&self) -> BTreeSet<String> {
        let places = self.0.borrow();
        let mut paths = BTreeSet::new();
        for (path, place) in places.iter() {
            paths.extend(place.keys.iter().map(|key| below(path, key)));
            if place.shapes.contains(&Shape::List) {
                paths.insert(format!("{path}[]"));
            }
        }
        paths
    }
}

// === impl Place ===

impl Place {
    /// Lists the keys that every object here needs. A key that the reader needs only beside another one is not listed.
    pub(super) fn required(&self) -> impl Iterator<Item = &'static str> {
        let is_always = |(_, count): &(_, &u32)| **count == self.objects;
        self.required.iter().filter(is_always).map(|(key, _)| *key)
    }
}

/// Returns the path of a key below a place.
pub(super) fn below(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// Runs a reader over documents until it asks for nothing new.
///
/// Every document is one of `bases` with a value at one place. The bases hold the values without which the reader does
/// not look at others.
pub fn derive(bases: &[Value], read: impl Fn(&Value, &Collector)) -> Trace {
    let mut trace = Trace::default();
    let mut tried = BTreeSet::new();
    let run = |document: &Value, trace| {
        let collector = Collector::tracing(trace);
        read(document, &collector);
        collector.into_trace()
    };
    for base in bases {
        trace = run(base, trace);
    }
    loop {
        let paths = trace.paths();
        let new: Vec<&String> = paths.difference(&tried).collect();
        if new.is_empty() {
            return trace;
        }
        for path in new {
            for base in bases {
                for sample in samples() {
                    let mut document = base.clone();
                    *place_in(&mut document, path) = sample;
                    trace = run(&document, trace);
                }
            }
        }
        tried = paths;
    }
}

/// One value of each form.
fn samples() -> [Value; 7] {
    [
        json!({}),
        json!([{}]),
        json!(["x"]),
        json!("x"),
        json!(true),
        json!(false),
        json!(1),
    ]
}

/// Returns a place in a document, and creates it if it does not exist.
pub(super) fn place_in<'v>(document: &'v mut Value, path: &str) -> &'v mut Value {
    let mut value = document;
    for part in path.split('.') {
        let key = part.trim_end_matches("[]");
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        value = &mut value[key];
        for _ in 0..(part.len() - key.len()) / 2 {
            if value.as_array().is_none_or(Vec::is_empty) {
                *value = json!([null]);
            }
            value = &mut value[0];
        }
    }
    value
}
