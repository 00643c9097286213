//! Reads typed values from the parsed document, and collects problems in a list.
//!
//! serde stops at the first error and does not know key paths. Here every getter returns a value or records a problem,
//! and reading continues in both cases.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::limit::{Limit, Unit};
use super::problem::Collector;
use super::schema::{Shape, Values};

/// Longer values are cut in messages.
const SHOWN_CHARACTERS: usize = 60;

/// A value and its key path.
pub struct Node<'a> {
    path: String,
    value: &'a Value,
    problems: &'a Collector,
}

/// The members of an object. It remembers the keys that were read, so that the remaining keys are known to be mistakes.
pub struct Fields<'a> {
    path: String,
    members: Option<&'a Map<String, Value>>,
    known: Vec<&'static str>,
    problems: &'a Collector,
}

// === impl Node ===

impl<'a> Node<'a> {
    /// Creates the node of a whole document.
    pub fn root(value: &'a Value, problems: &'a Collector) -> Self {
        Self {
            path: String::new(),
            value,
            problems,
        }
    }

    /// Creates the node of a part of a document that is read alone.
    pub fn at(path: &str, value: &'a Value, problems: &'a Collector) -> Self {
        Self {
            path: path.to_owned(),
            value,
            problems,
        }
    }

    /// The key path, such as `plugins[0].match`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value as it was read.
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// Records that something else was expected here.
    pub fn reject(&self, expected: &str) {
        self.problems.add(
            self.path.clone(),
            format!("got {}, expected {expected}", shown(self.value)),
        );
    }

    /// Notes a form of value that the reader accepts here, for the schema. The other methods note their own form.
    pub fn accepts(&self, shape: Shape) {
        self.problems.note_shape(&self.path, || shape);
    }

    /// Returns the members of an object, or records the problem.
    pub fn object(&self) -> Option<Fields<'a>> {
        self.accepts(Shape::Object);
        let members = self.value.as_object();
        if members.is_none() {
            self.reject("an object");
        }
        if let (Some(trace), Some(_)) = (self.problems.trace(), members) {
            trace.note_object(&self.path);
        }
        Some(Fields {
            path: self.path.clone(),
            members: Some(members?),
            known: Vec::new(),
            problems: self.problems,
        })
    }

    /// Returns the members of an object whose keys the reader does not know. For any other value, the caller records the
    /// problem.
    pub fn members(&self, values: Values) -> Option<&'a Map<String, Value>> {
        self.accepts(Shape::Members(values));
        self.value.as_object()
    }

    /// Returns the elements of a list.
    pub fn elements(&self, of: &str) -> Option<Vec<Node<'a>>> {
        self.accepts(Shape::List);
        let Some(elements) = self.value.as_array() else {
            self.reject(&format!("a list of {of}"));
            return None;
        };
        let node = |(index, value)| Node {
            path: format!("{}[{index}]", self.path),
            value,
            problems: self.problems,
        };
        Some(elements.iter().enumerate().map(node).collect())
    }

    pub(crate) fn text(&self, expected: &str) -> Option<&'a str> {
        self.accepts(Shape::Text);
        let text = self.value.as_str();
        if text.is_none() {
            self.reject(expected);
        }
        text
    }

    /// Reads text. Text that looks like a number or a boolean has to be in quotes.
    pub fn quotable_text(&self, expected: &str) -> Option<&'a str> {
        match self.value {
            Value::Number(_) | Value::Bool(_) => {
                self.text(&format!("{expected}; put it in quotes"))
            }
            _ => self.text(expected),
        }
    }

    /// Returns a boolean, or records the problem.
    pub fn boolean(&self) -> Option<bool> {
        self.accepts(Shape::Boolean);
        let value = self.value.as_bool();
        if value.is_none() {
            self.reject("true or false");
        }
        value
    }

    /// Returns a whole number that is not negative, or records the problem.
    pub fn integer(&self, expected: &str) -> Option<u64> {
        self.accepts(Shape::Integer);
        let value = self.value.as_u64();
        if value.is_none() {
            self.reject(expected);
        }
        value
    }

    /// Reads one of a few words, with exact spelling.
    pub fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        self.problems.note_shape(&self.path, || {
            Shape::Words(words.iter().map(|(word, _)| (*word).to_owned()).collect())
        });
        let given = self.value.as_str();
        if let Some((_, value)) = words.iter().find(|(word, _)| Some(*word) == given) {
            return Some(*value);
        }
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.reject(&choice(&names, given));
        None
    }

    /// Reads an amount within the bounds of its limit, in the limit's unit.
    pub(crate) fn amount(&self, limit: &Limit) -> Option<u64> {
        self.accepts(Shape::Amount(*limit));
        let text = match self.value {
            Value::String(text) => Cow::from(text),
            Value::Number(number) => Cow::from(number.to_string()),
            _ => Cow::from(""),
        };
        let Some(amount) = limit.unit.parse(&text) else {
            self.reject(limit.unit.expected());
            return None;
        };
        if amount < limit.minimum || amount > limit.maximum {
            let (minimum, maximum) = (
                limit.unit.format(limit.minimum),
                limit.unit.format(limit.maximum),
            );
            self.problems.add(
                self.path.clone(),
                format!("got {text}, expected {minimum} to {maximum}"),
            );
            return None;
        }
        Some(amount)
    }

    /// Reads a count, such as `250`, `5k` or `100M`, as limits are written.
    pub fn count(&self) -> Option<u64> {
        self.accepts(Shape::Integer);
        self.accepts(Shape::Text);
        let text = match self.value {
            Value::String(text) => Cow::from(text),
            Value::Number(number) => Cow::from(number.to_string()),
            _ => Cow::from(""),
        };
        let count = Unit::Count.parse(&text);
        if count.is_none() {
            self.reject(Unit::Count.expected());
        }
        count
    }

    pub(crate) fn socket_address(&self) -> Option<SocketAddr> {
        let expected = "an IP address and a port, such as 0.0.0.0:8443 or [::]:8443";
        let address = self.text(expected)?.parse().ok();
        if address.is_none() {
            self.reject(expected);
        }
        address
    }

    /// Reads a path. A relative path starts at the configuration file's folder.
    pub fn path_in(&self, folder: &Path) -> Option<PathBuf> {
        match self.text("a path")? {
            "" => {
                self.reject("a path");
                None
            }
            path => Some(join(folder, path)),
        }
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Records a problem at one of the keys.
    pub fn problem(&self, key: &str, message: impl Into<String>) {
        self.problems.add(child(&self.path, key), message);
    }

    /// Returns whether the key is written, with any value.
    pub fn has(&self, key: &str) -> bool {
        self.members
            .is_some_and(|members| members.contains_key(key))
    }

    /// Returns whether this is an object without members.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_some_and(serde_json::Map::is_empty)
    }

    /// Records a problem: the object is empty, and something else was expected.
    pub fn reject(&self, expected: &str) {
        self.problems.add(
            self.path.clone(),
            format!("got an empty object, expected {expected}"),
        );
    }

    /// Returns the value of a key that may be missing.
    pub fn optional(&mut self, key: &'static str) -> Option<Node<'a>> {
        self.knows(key);
        let value = self.members?.get(key)?;
        let node = Node {
            path: child(&self.path, key),
            value,
            problems: self.problems,
        };
        if value.is_null() {
            self.problem(
                key,
                "got nothing, expected a value; leave the key out to get its default",
            );
            return None;
        }
        Some(node)
    }

    /// Returns the value of a key that must exist.
    pub fn required(&mut self, key: &'static str, expected: &str) -> Option<Node<'a>> {
        self.knows(key);
        if let (Some(trace), Some(_)) = (self.problems.trace(), self.members) {
            trace.note_required(&self.path, key);
        }
        match self.members.and_then(|members| members.get(key)) {
            None => {
                self.problem(key, format!("missing, expected {expected}"));
                None
            }
            Some(Value::Null) => {
                self.problem(key, format!("got nothing, expected {expected}"));
                None
            }
            Some(value) => Some(Node {
                path: child(&self.path, key),
                value,
                problems: self.problems,
            }),
        }
    }

    /// Returns the members under an optional key. A missing key is read like an empty object.
    pub(crate) fn section(&mut self, key: &'static str) -> Fields<'a> {
        let fields = self.optional(key).and_then(|node| node.object());
        fields.unwrap_or_else(|| Fields {
            path: child(&self.path, key),
            members: None,
            known: Vec::new(),
            problems: self.problems,
        })
    }

    fn knows(&mut self, key: &'static str) {
        self.known.push(key);
        if let Some(trace) = self.problems.trace() {
            trace.note_key(&self.path, key);
        }
    }

    /// Reads the amount of a limit, or returns the fallback.
    pub(crate) fn amount(&mut self, limit: &Limit, fallback: u64) -> u64 {
        self.optional(limit.name())
            .and_then(|node| node.amount(limit))
            .unwrap_or(fallback)
    }

    /// Reads the amount of a limit whose bounds fit into 32 bits.
    pub(crate) fn amount_u32(&mut self, limit: &Limit, fallback: u32) -> u32 {
        u32::try_from(self.amount(limit, u64::from(fallback))).unwrap_or(fallback)
    }

    /// Reads the duration of a limit, or returns the fallback.
    pub(crate) fn duration(&mut self, limit: &Limit, fallback: Duration) -> Duration {
        debug_assert_eq!(limit.unit, Unit::Duration);
        let amount = self
            .optional(limit.name())
            .and_then(|node| node.amount(limit));
        amount.map_or(fallback, Duration::from_nanos)
    }

    /// Ends the object. Each key that was not read is a problem.
    pub fn finish(self) {
        let Some(members) = self.members else { return };
        let mut unknown: Vec<&str> = members
            .keys()
            .map(String::as_str)
            .filter(|key| !self.known.contains(key))
            .collect();
        // serde_json's order depends on a feature that any crate in the build may turn on.
        unknown.sort_unstable();
        for key in unknown {
            let hint = match closest(key, &self.known) {
                Some(known) => format!("did you mean {known}?"),
                None => format!("expected {}", list(&self.known)),
            };
            self.problem(key, format!("unknown key, {hint}"));
        }
    }
}

/// Formats words as `a, b or c`, and suggests the word that was probably meant.
pub(crate) fn choice(words: &[&str], given: Option<&str>) -> String {
    match given.and_then(|given| closest(given, words)) {
        Some(word) => format!("{}; did you mean {word}?", list(words)),
        None => list(words),
    }
}

/// Joins a path to a folder. An absolute path stays as it is. A leading `./` is removed, to keep messages short.
pub fn join(folder: &Path, path: &str) -> PathBuf {
    folder.join(path.strip_prefix("./").unwrap_or(path))
}

/// Formats a value for a message: one short line with escaped control characters.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => quoted(text),
        Value::Object(_) => "an object".to_owned(),
        Value::Array(elements) if elements.is_empty() => "an empty list".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Escapes control and formatting characters of a text for a message. Quotes stay as they are.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\'' | '"' => escaped.push(character),
            other => escaped.extend(other.escape_debug()),
        }
    }
    escaped
}

/// Quotes, escapes and cuts a text for a message.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Returns the path of a member.
pub fn child(path: &str, key: &str) -> String {
    let plain = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{}]", quoted(key)),
    }
}

fn list(words: &[&str]) -> String {
    match words {
        [] => "no keys".to_owned(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Returns the word that was probably meant: one that differs only in case and separators, or by a typing mistake.
fn closest<'w>(given: &str, words: &[&'w str]) -> Option<&'w str> {
    fn plain(word: &str) -> String {
        word.chars()
            .filter(|c| !matches!(c, '-' | '_'))
            .flat_map(char::to_lowercase)
            .collect()
    }
    // The comparison is quadratic, and no key is this long.
    if given.len() > SHOWN_CHARACTERS {
        return None;
    }
    let plain_words: Vec<String> = words.iter().map(|word| plain(word)).collect();
    let candidates: Vec<&str> = plain_words.iter().map(String::as_str).collect();
    let best = *similar::get_close_matches(plain(given).as_str(), &candidates, 1, 0.75).first()?;
    let index = candidates.iter().position(|candidate| *candidate == best)?;
    words.get(index).copied()
}
