//! Builds one level of an indexed text.

use std::sync::Arc;

use super::index::Span;
use super::level::{Content, Level};
use super::scan::plain_end;
use super::{Json, Number, Object};

/// Reads the values directly inside of a container. The text was checked by the pass that indexed it.
struct Reader<'s> {
    span: &'s Span,
    text: &'s [u8],
    at: usize,
    /// The next container inside.
    container: u32,
}

impl Content for Vec<Json> {
    fn build(span: &Span) -> Self {
        let mut elements = Self::with_capacity(span.container().values as usize);
        let mut reader = Reader::new(span);
        while reader.enter(b']') {
            elements.push(reader.value());
        }
        elements
    }
}

impl Content for Object {
    fn build(span: &Span) -> Self {
        let capacity = span.container().values as usize;
        let mut members =
            Self::with_capacity_and_hasher(capacity, foldhash::fast::RandomState::default());
        let mut reader = Reader::new(span);
        while reader.enter(b'}') {
            let name = reader.text();
            reader.space();
            reader.at += 1; // the colon
            reader.space();
            let value = reader.value();
            members.insert(name, value);
        }
        members
    }
}

// === impl Reader ===

impl<'s> Reader<'s> {
    fn new(span: &'s Span) -> Self {
        Self {
            span,
            text: span.whole(),
            at: span.container().start as usize + 1,
            container: span.position() + 1,
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

    fn value(&mut self) -> Json {
        match self.text[self.at] {
            b'"' => Json::Text(self.text()),
            b'{' => Json::Object(Arc::new(self.container())),
            b'[' => Json::Array(Arc::new(self.container())),
            b't' => self.literal("true", Json::Bool(true)),
            b'f' => self.literal("false", Json::Bool(false)),
            b'n' => self.literal("null", Json::Null),
            _ => self.number(),
        }
    }

    fn container<T>(&mut self) -> Level<T> {
        let index = self.span.index();
        let level = Level::unbuilt(index, self.container);
        let container = index.container(self.container);
        self.at = container.end as usize;
        self.container = container.next;
        level
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

    fn text(&mut self) -> Arc<str> {
        let start = self.at + 1;
        let mut end = plain_end(self.text, start);
        let is_plain = self.text[end] == b'"';
        while self.text[end] == b'\\' {
            // What follows the backslash and the next byte are plain or begin another escape.
            end = plain_end(self.text, end + 2);
        }
        self.at = end + 1;
        if is_plain {
            return Arc::from(utf8(&self.text[start..end]));
        }
        let quoted = &self.text[start - 1..=end];
        let text: String = serde_json::from_slice(quoted).expect("the text was checked");
        Arc::from(text)
    }
}

fn utf8(text: &[u8]) -> &str {
    str::from_utf8(text).expect("the text was checked")
}
