//! The path that a mutator changes: `spec.containers[name: *].image`.

use std::fmt;

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A field of an object.
    Field(String),
    /// The elements of a list with a key. Without a value, all elements.
    Item {
        key: String,
        value: Option<KeyValue>,
    },
}

/// The value of the key of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyValue {
    Text(String),
    Integer(i64),
}

/// Reads a path.
///
/// # Errors
/// The position in characters from 1, and the expectation there.
pub(super) fn parse(text: &str) -> Result<Vec<Step>, String> {
    let mut scanner = Scanner {
        characters: text.chars().collect(),
        at: 0,
    };
    let mut steps = Vec::new();
    loop {
        let field = scanner.word().ok_or_else(|| scanner.expected("a field"))?;
        steps.push(Step::Field(field));
        if scanner.takes('[') {
            steps.push(scanner.item()?);
        }
        if scanner.is_at_end() {
            return Ok(steps);
        }
        if !scanner.takes('.') {
            return Err(scanner.expected("`.`, `[` or the end"));
        }
    }
}

struct Scanner {
    characters: Vec<char>,
    at: usize,
}

// === impl Scanner ===

impl Scanner {
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\r' | '\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.peek().is_none()
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.skip_space();
        let takes = self.peek() == Some(wanted);
        self.at += usize::from(takes);
        takes
    }

    fn expected(&self, what: &str) -> String {
        format!("expected {what} at position {}", self.at + 1)
    }

    /// Takes the characters for which a test holds.
    fn run(&mut self, holds: impl Fn(char) -> bool) -> String {
        let begin = self.at;
        while self.peek().is_some_and(&holds) {
            self.at += 1;
        }
        self.characters[begin..self.at].iter().collect()
    }

    /// Takes a name, or a text in quotes. A name does not begin with a digit.
    fn word(&mut self) -> Option<String> {
        self.skip_space();
        let first = self.peek()?;
        if let '"' | '\'' = first {
            return self.quoted(first);
        }
        if first.is_ascii_digit() {
            return None;
        }
        let is_of_name = |character: char| {
            character.is_ascii_alphanumeric() || character == '_' || character == '-'
        };
        Some(self.run(is_of_name)).filter(|name| !name.is_empty())
    }

    fn quoted(&mut self, quote: char) -> Option<String> {
        let begin = self.at;
        self.at += 1;
        let mut text = String::new();
        while let Some(character) = self.peek() {
            self.at += 1;
            match character {
                _ if character == quote => return Some(text),
                '\\' => {
                    text.extend(self.peek());
                    self.at += 1;
                }
                _ => text.push(character),
            }
        }
        self.at = begin;
        None
    }

    /// Takes the rest of `[key: value]` or `[key: *]`.
    fn item(&mut self) -> Result<Step, String> {
        let key = self.word().ok_or_else(|| self.expected("a key"))?;
        if !self.takes(':') {
            return Err(self.expected("`:`"));
        }
        let value = match self.takes('*') {
            true => None,
            false => Some(self.key_value()?),
        };
        match self.takes(']') {
            true => Ok(Step::Item { key, value }),
            false => Err(self.expected("`]`")),
        }
    }

    fn key_value(&mut self) -> Result<KeyValue, String> {
        if let Some(text) = self.word() {
            return Ok(KeyValue::Text(text));
        }
        let digits = self.run(|character| character.is_ascii_digit());
        let number = digits.parse().map(KeyValue::Integer);
        number.map_err(|_| self.expected("a name, a number or `*`"))
    }
}

// === impl KeyValue ===

impl KeyValue {
    pub(super) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Integer(number) => (*number).into(),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => f.write_str(name),
            Self::Item { key, value: None } => write!(f, "[{key}: *]"),
            Self::Item {
                key,
                value: Some(KeyValue::Text(text)),
            } => write!(f, "[{key}: {text}]"),
            Self::Item {
                key,
                value: Some(KeyValue::Integer(number)),
            } => write!(f, "[{key}: {number}]"),
        }
    }
}
