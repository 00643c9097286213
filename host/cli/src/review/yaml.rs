//! Reads YAML as kubectl does: YAML 1.1, in which `yes` is a boolean and `0644` is octal, in names and in values.
//!
//! This module builds documents from parser events, because no library resolves names. kubectl combines two libraries:
//! go-yaml decides the type of a plain scalar, and `sigs.k8s.io/yaml` converts names to text.

mod scalar;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::{anyhow, bail};
use serde_saphyr::granit_parser::{ErrorKind, Event, Marker, Parser, options};
use tollgate_json::document::{Json, Object};

use self::scalar::Scalar;
use super::input::{MAX_DEPTH, MOST_VALUES};

/// Size of one value when text is counted. Text counts as one more value for every full 64 bytes, which also bounds
/// aliases of long texts.
const BYTES_PER_VALUE: usize = 64;

/// The number of lines of quoted texts that are indented in one stream.
const MOST_INDENTED: usize = 100;
/// More than any indentation in a document that is not too deep.
const MAX_INDENT: usize = 256;

/// Why a stream cannot be read.
enum Unread {
    /// A line of a quoted text is not indented more than its key. go-yaml accepts that, and the parser does not.
    Indentation(usize),
    Invalid(anyhow::Error),
}

/// The state of reading a stream.
#[derive(Default)]
struct Composer {
    documents: Vec<Json>,
    /// The open sequences and mappings, outermost first.
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    /// The number of values so far, including those that aliases stand for.
    values: usize,
}

/// A sequence or mapping that has not ended.
struct Open {
    anchor: usize,
    /// The number of values before this one.
    values: usize,
    /// The depth of the deepest value inside.
    depth: usize,
    content: Content,
}

enum Content {
    Sequence(Vec<Json>),
    Mapping {
        members: Object,
        /// The names that are written here and not merged in.
        own: HashSet<Arc<str>>,
        key: Option<Key>,
    },
}

enum Key {
    Name(Arc<str>),
    /// `<<`
    Merge,
}

/// A complete value.
#[derive(Clone)]
struct Node {
    json: Json,
    /// The scalar, for use as a member name.
    scalar: Option<Scalar>,
    values: usize,
    depth: usize,
}

/// Returns the documents of a stream, without empty ones.
pub(super) fn documents(text: &str) -> anyhow::Result<Vec<Json>> {
    let mut text = Cow::Borrowed(text);
    let mut indented = 0;
    loop {
        match compose(&text) {
            Err(Unread::Indentation(line)) if indented < MOST_INDENTED => {
                text = Cow::Owned(indent(&text, line));
                indented += 1;
            }
            Err(Unread::Indentation(line)) => {
                bail!("line {line}: a line of a quoted text must be indented more than its key")
            }
            Err(Unread::Invalid(error)) => return Err(error),
            Ok(documents) => return Ok(documents),
        }
    }
}

/// Indents a line. In a quoted text of several lines, spaces at the beginning of a line do not count.
fn indent(text: &str, line: usize) -> String {
    let lines = text.split_inclusive('\n').enumerate();
    let lines = lines.map(|(index, content)| match index + 1 == line {
        true => format!("{:MAX_INDENT$}{content}", ""),
        false => content.to_owned(),
    });
    lines.collect()
}

fn compose(text: &str) -> Result<Vec<Json>, Unread> {
    let depth = MAX_DEPTH as usize;
    let options = options! { flow_nesting_limit: depth, block_nesting_limit: depth };
    let mut composer = Composer::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| match error.kind() {
            ErrorKind::InvalidQuotedScalarIndent => Unread::Indentation(error.marker().line()),
            _ => Unread::Invalid(at(error.marker(), &error.info())),
        })?;
        composer
            .take(event)
            .map_err(|message| Unread::Invalid(at(&span.start, &message)))?;
    }
    Ok(composer.documents)
}

fn at(marker: &Marker, message: &str) -> anyhow::Error {
    anyhow!(
        "line {}, column {}: {message}",
        marker.line(),
        marker.col() + 1
    )
}

// === impl Composer ===

impl Composer {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_merge = text == "<<" && scalar::is_plain(style) && tag.is_none();
                if is_merge && self.wants_key() {
                    self.key(Key::Merge);
                    return Ok(());
                }
                let scalar = Scalar::read(&text, style, tag.as_deref())?;
                let values = 1 + text.len() / BYTES_PER_VALUE;
                self.count(values)?;
                let json = if self.wants_key() {
                    Json::Null
                } else {
                    scalar.to_json()?
                };
                let node = Node {
                    json,
                    scalar: Some(scalar),
                    values,
                    depth: 0,
                };
                self.complete(anchor, node)
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let mut node = node.ok_or("the alias refers to a value that contains it")?;
                self.count(node.values)?;
                if let (Some(scalar), false) = (&node.scalar, self.wants_key()) {
                    node.json = scalar.to_json()?;
                }
                self.complete(0, node)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(anchor, Content::Sequence(Vec::new())),
            Event::MappingStart(_, anchor, _) => self.begin(
                anchor,
                Content::Mapping {
                    members: Object::default(),
                    own: HashSet::new(),
                    key: None,
                },
            ),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::DocumentEnd => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn wants_key(&self) -> bool {
        let innermost = self.open.last().map(|open| &open.content);
        matches!(innermost, Some(Content::Mapping { key: None, .. }))
    }

    fn key(&mut self, name: Key) {
        if let Some(Open {
            content: Content::Mapping { key, .. },
            ..
        }) = self.open.last_mut()
        {
            *key = Some(name);
        }
    }

    fn count(&mut self, values: usize) -> Result<(), String> {
        self.values = self.values.saturating_add(values);
        if self.values > MOST_VALUES as usize {
            return Err(format!(
                "more than {MOST_VALUES} values, including those of aliases; review it in parts"
            ));
        }
        Ok(())
    }

    fn begin(&mut self, anchor: usize, content: Content) -> Result<(), String> {
        if self.wants_key() {
            return Err("a list or a mapping cannot be the name of a member".to_owned());
        }
        let values = self.values;
        self.count(1)?;
        self.open.push(Open {
            anchor,
            values,
            depth: 0,
            content,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let json = match open.content {
            Content::Sequence(elements) => Json::from(elements),
            Content::Mapping { members, .. } => Json::from(members),
        };
        let node = Node {
            json,
            scalar: None,
            values: self.values - open.values,
            depth: open.depth + 1,
        };
        self.complete(open.anchor, node)
    }

    /// Puts a complete value into its parent, or into the list of documents.
    fn complete(&mut self, anchor: usize, node: Node) -> Result<(), String> {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        if self.open.len() + node.depth > MAX_DEPTH as usize {
            return Err(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        let Some(open) = self.open.last_mut() else {
            if !node.json.is_null() {
                self.documents.push(node.json);
            }
            return Ok(());
        };
        open.depth = open.depth.max(node.depth);
        match &mut open.content {
            Content::Sequence(elements) => elements.push(node.json),
            Content::Mapping { members, own, key } => match key.take() {
                None => {
                    let scalar = node.scalar.as_ref();
                    let scalar =
                        scalar.ok_or("a list or a mapping cannot be the name of a member")?;
                    let name: Arc<str> = scalar.to_name()?.into();
                    if !own.insert(name.clone()) {
                        return Err(format!(
                            "the member {:?} appears twice, as kubectl reads it",
                            &*name
                        ));
                    }
                    *key = Some(Key::Name(name));
                }
                Some(Key::Name(name)) => {
                    members.insert(name, node.json);
                }
                Some(Key::Merge) => merge(members, &node.json)?,
            },
        }
        Ok(())
    }
}

/// Merges members as go-yaml does. Merged members replace earlier ones. If the value is a list, its first mapping wins.
fn merge(members: &mut Object, value: &Json) -> Result<(), String> {
    const EXPECTED: &str = "`<<` needs a mapping or a list of mappings";
    match value {
        Json::Object(others) => {
            for (name, value) in others.iter() {
                members.insert(name.clone(), value.clone());
            }
        }
        Json::Array(elements) => {
            for element in elements.iter().rev() {
                if element.as_object().is_none() {
                    return Err(EXPECTED.to_owned());
                }
                merge(members, element)?;
            }
        }
        _ => return Err(EXPECTED.to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match documents(text) {
            Ok(documents) => {
                let texts: Vec<String> = documents.iter().map(Json::to_text).collect();
                texts.join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    /// The expected values are the output of `kubectl annotate --local -o json`.
    #[test]
    fn reads_names_and_values_as_kubectl_does() {
        for (text, name, value) in [
            ("on", "true", "true"),
            ("n", "false", "false"),
            ("Y", "true", "true"),
            ("YES", "true", "true"),
            ("yEs", "yEs", "\"yEs\""),
            ("truE", "truE", "\"truE\""),
            ("'on'", "on", "\"on\""),
            ("!!str on", "on", "\"on\""),
            ("! 5", "5", "\"5\""),
            ("!!int '7'", "7", "7"),
            ("!!binary aGk=", "hi", "\"hi\""),
            ("010", "8", "8"),
            ("-010", "-8", "-8"),
            ("08", "8", "8"),
            ("0_7", "7", "7"),
            ("00", "0", "0"),
            ("-0", "0", "0"),
            ("+1", "1", "1"),
            ("0x1F", "31", "31"),
            ("-0x10", "-16", "-16"),
            ("0b11", "3", "3"),
            ("0o10", "8", "8"),
            ("1_000", "1000", "1000"),
            ("_1", "_1", "\"_1\""),
            ("1_0.5", "10.5", "10.5"),
            ("010.5", "10.5", "10.5"),
            ("1.0", "1", "1"),
            ("1.", "1", "1"),
            ("1.50", "1.5", "1.5"),
            (".5", "0.5", "0.5"),
            ("-.5", "-0.5", "-0.5"),
            ("1e3", "1000", "1000"),
            ("1E3", "1000", "1000"),
            ("1e5", "100000", "100000"),
            ("1e6", "1e+06", "1000000"),
            ("1e-5", "1e-05", "0.00001"),
            ("1e-7", "1e-07", "1e-7"),
            ("1e20", "1e+20", "100000000000000000000"),
            ("1e21", "1e+21", "1e+21"),
            ("1e400", "1e400", "\"1e400\""),
            ("1e-400", "0", "0"),
            ("123456789.0", "1.2345679e+08", "123456789"),
            ("16777217.5", "1.6777218e+07", "16777217.5"),
            ("9007199254740993", "9007199254740993", "9007199254740993"),
            (
                "18446744073709551616",
                "1.8446744e+19",
                "18446744073709552000",
            ),
            ("2001-01-01", "2001-01-01", "\"2001-01-01\""),
            ("12:30", "12:30", "\"12:30\""),
            ("nan", "nan", "\"nan\""),
            ("=", "=", "\"=\""),
        ] {
            let expected = format!("{{\"v\":{value},\"k\":{{\"{name}\":0}}}}");
            assert_eq!(
                read(&format!("v: {text}\nk:\n  {text}: 0\n")),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn rejects_with_position_what_kubectl_rejects() {
        for (text, said) in [
            (
                "a: 1\n~: 2\n",
                "line 2, column 1: null cannot be the name of a member; put it in quotes if it is text",
            ),
            (
                "12345678901234567890: 2\n",
                "line 1, column 1: 12345678901234567890 cannot be the name of a member; put it in quotes if it is \
                 text",
            ),
            (
                "a: .inf\n",
                "line 1, column 4: JSON has no such number; put it in quotes if it is text",
            ),
            (
                "a: !!int x\n",
                "line 1, column 10: the value does not fit its tag",
            ),
            (
                "? [a]\n: b\n",
                "line 1, column 3: a list or a mapping cannot be the name of a member",
            ),
            (
                "<<: 5\n",
                "line 1, column 5: `<<` needs a mapping or a list of mappings",
            ),
            (
                "&a [*a]\n",
                "line 1, column 5: the alias refers to a value that contains it",
            ),
        ] {
            assert_eq!(read(text), said, "{text}");
        }
    }

    #[test]
    fn rejects_names_that_kubectl_considers_equal() {
        for text in [
            "a: 1\na: 2\n",
            "on: 1\nyes: 2\n",
            "1.0: 1\n1: 2\n",
            "on: 1\n'true': 2\n",
        ] {
            let said = read(text);
            assert!(said.starts_with("line 2, column 1: the member"), "{said}");
        }
    }

    #[test]
    fn expands_aliases_and_merge_keys_repeatedly() {
        assert_eq!(
            read(
                "a: &a {x: &x yes}\nb: {<<: *a, z: *x}\nc: {x: 1, <<: [{x: 2}, {x: 3, *x : 4}]}\n\"<<\": 1\n"
            ),
            r#"{"a":{"x":true},"b":{"x":true,"z":true},"c":{"x":2,"true":4},"<<":1}"#
        );
        let uses = "- *a\n".repeat(10_000);
        assert!(read(&format!("a: &a {{x: 1}}\nb:\n{uses}")).ends_with("{\"x\":1}]}"));
        // An anchor is valid only in its own document.
        assert!(read("a: &a 1\n---\nb: *a\n").starts_with("line 3"));
    }

    #[test]
    fn rejects_alias_bomb_with_reason() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..20 {
            let before = format!("*a{}", level - 1);
            let nine = [before.as_str(); 9].join(", ");
            bomb += &format!("a{level}: &a{level} [{nine}]\n");
        }
        let said = read(&bomb);
        assert!(
            said.contains("more than 20000000 values, including those of aliases"),
            "{said}"
        );
        let text = "x".repeat(1_000_000);
        let uses = "- *a\n".repeat(2_000);
        let said = read(&format!("a: &a {text}\nb:\n{uses}"));
        assert!(said.contains("more than 20000000 values"), "{said}");
        let mut stairs = "a0: &a0 []\n".to_owned();
        for level in 1..2_000 {
            stairs += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
        }
        assert!(read(&stairs).contains("nested deeper than 1000 levels"));
    }
}
