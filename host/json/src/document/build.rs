//! Builds one level of an indexed text.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::memchr2;

use super::index::{Index, Span};
use super::level::{Content, Level, Shown};
use super::{Json, Number, Object};

/// Up to this number of names, comparing all of them is faster than sorting.
const FEW_NAMES: usize = 24;

/// Reads the values directly inside of a container. The text was checked by the pass that indexed it.
struct Reader<'s> {
    index: &'s Arc<Index>,
    text: &'s [u8],
    at: usize,
    /// The next container inside.
    container: u32,
}

impl Content for Vec<Json> {
    fn build(span: &Span) -> Self {
        let mut elements = Self::with_capacity(span.container().values());
        let mut reader = Reader::new(span.index(), span.position());
        while reader.enter(b']') {
            elements.push(reader.value());
        }
        elements
    }
}

impl Content for Object {
    fn build(span: &Span) -> Self {
        let capacity = span.container().values();
        let mut members =
            Self::with_capacity_and_hasher(capacity, foldhash::fast::RandomState::default());
        let mut reader = Reader::new(span.index(), span.position());
        while reader.enter(b'}') {
            let name = Arc::from(&*reader.text());
            reader.colon();
            let value = reader.value();
            members.insert(name, value);
        }
        members
    }
}

/// Reads the members of an object, in order and with repeated names, and builds nothing.
pub(super) fn look_over<'s>(span: &'s Span, mut take: impl FnMut(&str, Shown<'s>)) {
    let mut reader = Reader::new(span.index(), span.position());
    while reader.enter(b'}') {
        let name = reader.text();
        reader.colon();
        let value = match reader.text[reader.at] {
            b'"' => Shown::Text(reader.text()),
            _ => Shown::Other(reader.value()),
        };
        take(&name, value);
    }
}

// === impl Reader ===

impl<'s> Reader<'s> {
    fn new(index: &'s Arc<Index>, container: u32) -> Self {
        Self {
            index,
            text: index.text(),
            at: index.container(container).start as usize + 1,
            container: container + 1,
        }
    }

    /// Goes to the next value or name. Returns false at the end of the container.
    fn enter(&mut self, end: u8) -> bool {
        self.space();
        if self.text[self.at] == b',' {
            self.at += 1;
            self.space();
        }
        self.text[self.at] != end
    }

    fn space(&mut self) {
        while self.text[self.at] <= b' ' {
            self.at += 1;
        }
    }

    fn colon(&mut self) {
        self.space();
        self.at += 1;
        self.space();
    }

    fn value(&mut self) -> Json {
        match self.text[self.at] {
            b'"' => Json::Text(Arc::from(&*self.text())),
            b'{' => Json::Object(Arc::new(self.container())),
            b'[' => Json::Array(Arc::new(self.container())),
            b't' => self.literal("true", Json::Bool(true)),
            b'f' => self.literal("false", Json::Bool(false)),
            b'n' => self.literal("null", Json::Null),
            _ => self.number(),
        }
    }

    fn container<T>(&mut self) -> Level<T> {
        let level = Level::unbuilt(self.index, self.container);
        self.skip_container();
        level
    }

    fn skip_container(&mut self) {
        let container = self.index.container(self.container);
        self.at = container.end as usize;
        self.container = container.next;
    }

    /// Skips a value.
    fn skip(&mut self) {
        match self.text[self.at] {
            b'"' => drop(self.quoted()),
            b'{' | b'[' => self.skip_container(),
            _ => {
                let rest = &self.text[self.at..];
                let is_part = |byte: &u8| !matches!(byte, b',' | b'}' | b']' | ..=b' ');
                self.at += rest.iter().take_while(|byte| is_part(byte)).count();
            }
        }
    }

    /// Reads a string as it is written, without its quotes. Returns whether it has no escapes, too.
    fn quoted(&mut self) -> (&'s [u8], bool) {
        let start = self.at + 1;
        let end_of_plain = |from: usize| {
            let found = memchr2(b'"', b'\\', &self.text[from..]);
            from + found.expect("the text was checked")
        };
        let mut end = end_of_plain(start);
        let is_plain = self.text[end] == b'"';
        while self.text[end] == b'\\' {
            // What follows the backslash and the next byte is plain or begins another escape.
            end = end_of_plain(end + 2);
        }
        self.at = end + 1;
        (&self.text[start..end], is_plain)
    }

    fn literal(&mut self, text: &str, value: Json) -> Json {
        self.at += text.len();
        value
    }

    fn number(&mut self) -> Json {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        self.at += length;
        Json::Number(Number::from_text(utf8(&rest[..length])))
    }

    fn text(&mut self) -> Cow<'s, str> {
        let start = self.at;
        let (plain, is_plain) = self.quoted();
        if is_plain {
            return Cow::Borrowed(utf8(plain));
        }
        let quoted = &self.text[start..self.at];
        let text: String = serde_json::from_slice(quoted).expect("the text was checked");
        Cow::Owned(text)
    }
}

/// Whether a container is an object in which two members have the same name. The names are written as the host writes
/// them, so two that are the same look the same.
pub(super) fn repeats_name(index: &Arc<Index>, container: u32) -> bool {
    let here = index.container(container);
    if index.text()[here.start as usize] != b'{' || here.values() < 2 {
        return false;
    }
    let mut names = Vec::with_capacity(here.values());
    let mut reader = Reader::new(index, container);
    while reader.enter(b'}') {
        names.push(reader.quoted().0);
        reader.colon();
        reader.skip();
    }
    if names.len() <= FEW_NAMES {
        let is_before = |(index, name): (usize, &&[u8])| names[..index].contains(name);
        return names.iter().enumerate().any(is_before);
    }
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

fn utf8(text: &[u8]) -> &str {
    str::from_utf8(text).expect("the text was checked")
}
