//! Splits text into documents. Each is parsed alone, so that a broken one loses no other.

use serde_json::Value;

use crate::{Effect, Note};

/// The parser's words for a line of a quoted text that is not indented more than its key.
const INDENTATION: &str = "invalid indentation in multiline quoted scalar";
/// The number of such lines in a document that are indented.
const MOST_INDENTED: usize = 100;
/// More than the indentation of any document.
const MAX_INDENT: usize = 256;

/// A document with its place.
#[derive(Clone, Debug)]
pub struct Document {
    /// The file.
    pub file: String,
    /// The line of the first key, from 1.
    pub line: usize,
    /// The content.
    pub value: Value,
    /// The text, from the line on.
    text: String,
}

/// The documents of all files.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The documents that can be read.
    pub documents: Vec<Document>,
    /// The other ones.
    pub broken: Vec<Note>,
}

/// Adds the documents of a file. The items of a List become documents.
pub fn parse(file: &str, text: &str, into: &mut Parsed) {
    for (line, part) in split(text) {
        let value = match read(&part) {
            Ok(value) => value,
            Err(error) => {
                let within = line_in(&error);
                let error = error.without_snippet();
                let message = error.to_string();
                into.broken.push(Note {
                    file: file.to_owned(),
                    line: line + within.saturating_sub(1),
                    subject: String::new(),
                    effect: Effect::Broken,
                    text: format!(
                        "is not valid YAML: {}",
                        message.lines().next().unwrap_or_default()
                    ),
                });
                continue;
            }
        };
        flatten(file, line, &part, value, &mut into.documents);
    }
}

/// Reads a document. kubectl accepts a line of a quoted text that is not indented more than its key, and the parser does
/// not. Such a line is indented first. Spaces at its beginning do not count.
fn read(text: &str) -> Result<Value, serde_saphyr::Error> {
    let mut text = text.to_owned();
    for _ in 0..MOST_INDENTED {
        match serde_saphyr::from_str(&text) {
            Err(error) if error.to_string().contains(INDENTATION) => {
                let line = line_in(&error);
                let lines = text.split_inclusive('\n').enumerate();
                let lines = lines.map(|(index, content)| match index + 1 == line {
                    true => format!("{:MAX_INDENT$}{content}", ""),
                    false => content.to_owned(),
                });
                text = lines.collect();
            }
            read => return read,
        }
    }
    serde_saphyr::from_str(&text)
}

/// Returns the line of an error, or 0.
fn line_in(error: &serde_saphyr::Error) -> usize {
    let location = error.without_snippet().location();
    location.map_or(0, |location| usize::try_from(location.line()).unwrap_or(0))
}

/// Splits a stream at its `---` lines, and drops empty documents. Lines count from 1.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut parts = vec![(1, String::new())];
    for (index, line) in text.lines().enumerate() {
        let is_marker = line == "---" || line.starts_with("--- ");
        if is_marker {
            parts.push((index + 2, String::new()));
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    let mut begun = Vec::new();
    for (line, part) in parts {
        let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let Some(blank) = part.lines().position(|line| !is_blank(line)) else {
            continue;
        };
        let content: Vec<&str> = part.lines().skip(blank).collect();
        begun.push((line + blank, content.join("\n") + "\n"));
    }
    begun
}

fn flatten(file: &str, line: usize, text: &str, mut value: Value, into: &mut Vec<Document>) {
    let is_list = value["kind"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("List"));
    if is_list && let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) {
        let parts = items_of(text, items.len());
        for (index, item) in items.into_iter().enumerate() {
            match parts.get(index) {
                Some((at, part)) => flatten(file, line + at, part, item, into),
                None => flatten(file, line, text, item, into),
            }
        }
        return;
    }
    into.push(Document {
        file: file.to_owned(),
        line,
        value,
        text: text.to_owned(),
    });
}

/// Splits the text of a list into its items, each with the number of lines before it. Empty if the text does not show
/// where the items begin.
fn items_of(text: &str, count: usize) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let Some(items) = lines.iter().position(|line| line.trim_end() == "items:") else {
        return Vec::new();
    };
    let indent_of = |line: &str| line.len() - line.trim_start().len();
    let within = lines.iter().enumerate().skip(items + 1);
    let begins = within.filter(|(_, line)| line.trim_start().starts_with("- "));
    let Some(indent) = begins.clone().map(|(_, line)| indent_of(line)).next() else {
        return Vec::new();
    };
    let begins = begins.filter(|(_, line)| indent_of(line) == indent);
    let begins: Vec<usize> = begins.map(|(index, _)| index).collect();
    if begins.len() != count {
        return Vec::new();
    }
    let ends = begins.iter().skip(1).copied().chain([lines.len()]);
    let parts = begins.iter().zip(ends);
    parts
        .map(|(&begin, end)| (begin, lines[begin..end].join("\n")))
        .collect()
}

// === impl Document ===

impl Document {
    /// Returns the API group.
    #[must_use]
    pub fn group(&self) -> &str {
        let version = self.text_at("/apiVersion");
        version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the kind, or an empty text.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.text_at("/kind")
    }

    /// Returns the name, or an empty text.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text_at("/metadata/name")
    }

    /// Returns the string at a pointer, or an empty text.
    #[must_use]
    pub fn text_at(&self, pointer: &str) -> &str {
        let value = self.value.pointer(pointer);
        value.and_then(Value::as_str).unwrap_or_default()
    }

    /// Makes a note about the document.
    #[must_use]
    pub fn note(&self, effect: Effect, text: impl Into<String>) -> Note {
        Note {
            file: self.file.clone(),
            line: self.line,
            subject: format!("{} {}", self.kind(), self.name()).trim().to_owned(),
            effect,
            text: text.into(),
        }
    }

    /// Makes a note about the first line with a text.
    #[must_use]
    pub fn note_at(&self, part: &str, effect: Effect, text: impl Into<String>) -> Note {
        self.note_at_nth(part, 0, effect, text)
    }

    /// Makes a note about one of the lines with a text, counted from 0. About the last of them if there are fewer.
    #[must_use]
    pub fn note_at_nth(
        &self,
        part: &str,
        index: usize,
        effect: Effect,
        text: impl Into<String>,
    ) -> Note {
        let lines = self.text.lines().enumerate();
        let with_text = lines.filter(|(_, line)| line.contains(part));
        let found = with_text.take(index + 1).last();
        Note {
            line: self.line + found.map_or(0, |(number, _)| number),
            ..self.note(effect, text)
        }
    }
}
