//! Parses JSON text into a document, within limits on depth, values and memory.

use std::fmt;
use std::sync::Arc;

use jiter::{Jiter, JiterError, JiterErrorType, JsonErrorType, Peek};

use super::room::{self, Meter};
use super::{Account, Json, NoRoom, Number, Object};

/// Why a text is not a document that the host accepts. Holds a position, never the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The kind of the problem.
    pub kind: ParseErrorKind,
    /// The byte at which the problem was noticed.
    pub offset: usize,
}

/// A problem with a JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// Containers are nested deeper than the limit.
    TooDeep {
        /// The limit that was exceeded.
        max_depth: u32,
    },
    /// The text has more values than the host accepts.
    TooMany {
        /// The limit that was exceeded.
        max_values: u32,
    },
    /// The memory for the document is not available.
    NoRoom(NoRoom),
    /// The text is not JSON (RFC 8259).
    Syntax(&'static str),
}

/// Parses one JSON document. If members have the same name, the last one counts, as in Go.
///
/// # Errors
/// When the text is not JSON, is nested deeper than `max_depth`, or has more than [`MAX_VALUES`].
pub fn parse(text: &[u8], max_depth: u32) -> Result<Json, ParseError> {
    parse_up_to(text, max_depth, MAX_VALUES)
}

/// Like [`parse`], but with the caller's limit on the number of values.
///
/// # Errors
/// When the text is not JSON, is nested deeper than `max_depth`, or has more than `max_values`.
pub fn parse_up_to(text: &[u8], max_depth: u32, max_values: u32) -> Result<Json, ParseError> {
    read(text, max_depth, max_values, &Account::unlimited())
}

/// Like [`parse`], but charges an account for the memory before it is allocated. The account then holds the
/// document's memory.
///
/// # Errors
/// When the text is not JSON, is nested deeper than `max_depth`, has more than [`MAX_VALUES`], or the account has no
/// room for it.
pub fn parse_within(text: &[u8], max_depth: u32, account: &Account) -> Result<Json, ParseError> {
    read(text, max_depth, MAX_VALUES, account)
}

fn read(
    text: &[u8],
    max_depth: u32,
    max_values: u32,
    account: &Account,
) -> Result<Json, ParseError> {
    let mut reader = Reader::new(text, max_depth, max_values, account);
    let document = reader.document(text);
    match &document {
        Ok(_) => reader.meter.give_back(escapes(text)),
        Err(_) => reader.meter.undo(),
    }
    document
}

/// Reads the first members of a text that may be cut off, or be nested too deep further on. The host uses it to
/// identify a review that is too large to accept.
///
/// Members of the top-level object go to `take`, in order, until the member `inside`. Then only the members of
/// `inside` are read. Each of those goes to `take` twice: first without its value, then with it. Reading ends when
/// `take` returns false, or when the text ends or cannot be read.
pub fn parse_prefix_member(
    text: &[u8],
    inside: &str,
    max_depth: u32,
    account: &Account,
    mut take: impl FnMut(&str, Option<Json>) -> bool,
) {
    let mut reader = Reader::new(text, max_depth, MAX_VALUES, account);
    let _: Result<(), ParseError> = reader.prefix(inside, &mut take);
}

/// Maximum number of JSON values in one document. Three bytes of text, `{},`, take about a hundred bytes of memory,
/// so a limit on bytes would not bound the memory of a review. The largest object that Kubernetes accepts stays
/// below this limit, even at three bytes a value.
pub const MAX_VALUES: u32 = 2_000_000;

struct Reader<'j> {
    jiter: Jiter<'j>,
    max_depth: u32,
    max_values: u32,
    values: u32,
    meter: Meter<'j>,
}

/// For texts up to this length, the memory for resolving escapes is not accounted for.
const ESCAPES_BYTES: usize = 64 << 10;

// === impl Reader ===

impl<'j> Reader<'j> {
    fn new(text: &'j [u8], max_depth: u32, max_values: u32, account: &'j Account) -> Self {
        Self {
            jiter: Jiter::new(text),
            max_depth,
            max_values,
            values: 0,
            meter: Meter::new(account),
        }
    }

    fn document(&mut self, text: &[u8]) -> Result<Json, ParseError> {
        // The buffer in which escapes are resolved may grow to twice the length of the longest string.
        self.take(escapes(text))?;
        let peek = self.jiter.peek()?;
        let value = self.value(peek, 0)?;
        self.jiter.finish()?;
        Ok(value)
    }

    /// Takes memory that is about to be allocated.
    #[inline]
    fn take(&mut self, bytes: u64) -> Result<(), ParseError> {
        match self.meter.take(bytes) {
            Ok(()) => Ok(()),
            Err(no_room) => Err(self.no_room(no_room)),
        }
    }

    #[cold]
    fn no_room(&self, no_room: NoRoom) -> ParseError {
        ParseError {
            kind: ParseErrorKind::NoRoom(no_room),
            offset: self.jiter.current_index(),
        }
    }

    fn value(&mut self, peek: Peek, depth: u32) -> Result<Json, ParseError> {
        self.values += 1;
        if self.values > self.max_values {
            let kind = ParseErrorKind::TooMany {
                max_values: self.max_values,
            };
            return Err(ParseError {
                kind,
                offset: self.jiter.current_index(),
            });
        }
        match peek {
            Peek::Null => {
                self.jiter.known_null()?;
                Ok(Json::Null)
            }
            Peek::True | Peek::False => Ok(Json::Bool(self.jiter.known_bool(peek)?)),
            Peek::String => {
                let text = self.jiter.known_str()?;
                match self.meter.take(room::text(text.len())) {
                    Ok(()) => Ok(Json::Text(Arc::from(text))),
                    Err(no_room) => Err(self.no_room(no_room)),
                }
            }
            Peek::Array => self.array(depth + 1),
            Peek::Object => self.object(depth + 1),
            _ => self.number(peek),
        }
    }

    fn number(&mut self, peek: Peek) -> Result<Json, ParseError> {
        let offset = self.jiter.current_index();
        let bytes = self.jiter.known_number_bytes(peek)?;
        // jiter can read `NaN` and the like as numbers, but RFC 8259 has none.
        match std::str::from_utf8(bytes) {
            Ok(text) if matches!(text.as_bytes().last(), Some(b'0'..=b'9')) => {
                let number = Number::from_text(text);
                if let Number::Text(text) = &number {
                    let bytes = room::text(text.len());
                    self.take(bytes)?;
                }
                Ok(Json::Number(number))
            }
            _ => Err(ParseError {
                kind: ParseErrorKind::Syntax("not a number"),
                offset,
            }),
        }
    }

    fn array(&mut self, depth: u32) -> Result<Json, ParseError> {
        self.check(depth)?;
        self.take(const { room::array(0) })?;
        let mut elements = Vec::new();
        let mut capacity = 0;
        let mut next = self.jiter.known_array()?;
        while let Some(peek) = next {
            let value = self.value(peek, depth)?;
            if elements.len() == capacity {
                capacity = self.grow_array(capacity)?;
            }
            elements.push(value);
            next = self.jiter.array_step()?;
        }
        debug_assert_eq!(elements.capacity(), capacity);
        Ok(elements.into())
    }

    /// Accounts for the growth of an array before it grows. Returns the new capacity.
    fn grow_array(&mut self, capacity: usize) -> Result<usize, ParseError> {
        if capacity == 0 {
            self.take(const { room::elements(4) })?;
            return Ok(4);
        }
        let larger = 2 * capacity;
        self.take(room::elements(larger))?;
        self.meter.give_back(room::elements(capacity));
        Ok(larger)
    }

    fn object(&mut self, depth: u32) -> Result<Json, ParseError> {
        self.check(depth)?;
        self.take(const { room::object(0) })?;
        let mut members = Object::default();
        let mut capacity = 0;
        let mut name = self.jiter.known_object()?;
        while let Some(key) = name {
            let key = match self.meter.take(room::text(key.len())) {
                Ok(()) => Arc::from(key),
                Err(no_room) => return Err(self.no_room(no_room)),
            };
            let peek = self.jiter.peek()?;
            let value = self.value(peek, depth)?;
            // A name that is there already replaces its value, so the object does not grow.
            if members.len() == capacity && !members.contains_key(&key) {
                capacity = self.grow_object(capacity)?;
            }
            members.insert(key, value);
            name = self.jiter.next_key()?;
        }
        debug_assert_eq!(members.capacity(), capacity);
        Ok(members.into())
    }

    /// Accounts for the growth of an object before it grows. Returns the new capacity.
    fn grow_object(&mut self, capacity: usize) -> Result<usize, ParseError> {
        if capacity == 0 {
            self.take(const { room::members(3) })?;
            return Ok(3);
        }
        let larger = if capacity == 3 { 7 } else { 2 * capacity };
        self.take(room::members(larger))?;
        self.meter.give_back(room::members(capacity));
        Ok(larger)
    }

    fn check(&self, depth: u32) -> Result<(), ParseError> {
        if depth > self.max_depth {
            let kind = ParseErrorKind::TooDeep {
                max_depth: self.max_depth,
            };
            return Err(ParseError {
                kind,
                offset: self.jiter.current_index(),
            });
        }
        Ok(())
    }

    fn prefix(
        &mut self,
        inside: &str,
        take: &mut impl FnMut(&str, Option<Json>) -> bool,
    ) -> Result<(), ParseError> {
        let mut name: Option<String> = self.jiter.next_object()?.map(str::to_owned);
        while let Some(key) = name {
            if key == inside {
                return self.prefix_members(take);
            }
            let peek = self.jiter.peek()?;
            let value = self.value(peek, 1)?;
            if !take(&key, Some(value)) {
                return Ok(());
            }
            name = self.jiter.next_key()?.map(str::to_owned);
        }
        Ok(())
    }

    fn prefix_members(
        &mut self,
        take: &mut impl FnMut(&str, Option<Json>) -> bool,
    ) -> Result<(), ParseError> {
        let mut name: Option<String> = self.jiter.next_object()?.map(str::to_owned);
        while let Some(key) = name {
            // Announce the member before reading it: `take` needs to know of it even if it cannot be read.
            if !take(&key, None) {
                return Ok(());
            }
            let peek = self.jiter.peek()?;
            let value = self.value(peek, 2)?;
            if !take(&key, Some(value)) {
                return Ok(());
            }
            name = self.jiter.next_key()?.map(str::to_owned);
        }
        Ok(())
    }
}

/// Returns the memory that resolving escapes can take, in bytes.
fn escapes(text: &[u8]) -> u64 {
    if text.len() > ESCAPES_BYTES && memchr::memchr(b'\\', text).is_some() {
        2 * text.len() as u64
    } else {
        0
    }
}

// === impl ParseError ===

impl From<JiterError> for ParseError {
    fn from(error: JiterError) -> Self {
        let what = match error.error_type {
            JiterErrorType::JsonError(kind) => describe(&kind),
            JiterErrorType::WrongType { .. } => "unexpected type of value",
        };
        Self {
            kind: ParseErrorKind::Syntax(what),
            offset: error.index,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ParseErrorKind::TooMany { max_values } => {
                write!(f, "more than {max_values} values at byte {}", self.offset)
            }
            ParseErrorKind::TooDeep { max_depth } => {
                write!(
                    f,
                    "nested deeper than {max_depth} levels at byte {}",
                    self.offset
                )
            }
            ParseErrorKind::NoRoom(no_room) => write!(f, "{no_room}"),
            ParseErrorKind::Syntax(what) => write!(f, "not JSON: {what} at byte {}", self.offset),
        }
    }
}

impl std::error::Error for ParseError {}

fn describe(kind: &JsonErrorType) -> &'static str {
    match kind {
        JsonErrorType::EofWhileParsingList
        | JsonErrorType::EofWhileParsingObject
        | JsonErrorType::EofWhileParsingString
        | JsonErrorType::EofWhileParsingValue => "unexpected end of the text",
        JsonErrorType::ExpectedColon => "expected `:`",
        JsonErrorType::ExpectedListCommaOrEnd => "expected `,` or `]`",
        JsonErrorType::ExpectedObjectCommaOrEnd => "expected `,` or `}`",
        JsonErrorType::ExpectedSomeIdent | JsonErrorType::ExpectedSomeValue => "expected a value",
        JsonErrorType::InvalidEscape | JsonErrorType::UnexpectedEndOfHexEscape => {
            "an invalid escape"
        }
        JsonErrorType::InvalidNumber | JsonErrorType::NumberOutOfRange => "an invalid number",
        JsonErrorType::InvalidUnicodeCodePoint | JsonErrorType::LoneLeadingSurrogateInHexEscape => {
            "invalid Unicode"
        }
        JsonErrorType::ControlCharacterWhileParsingString => "a control character in a string",
        JsonErrorType::KeyMustBeAString => "expected a member name in quotes",
        JsonErrorType::TrailingComma => "a trailing comma",
        JsonErrorType::TrailingCharacters => "unexpected text after the document",
        _ => "a syntax error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_survive_round_trip() {
        for text in [
            r#"{"b":1,"a":[true,false,null,"x\"\\\n\u0001é"],"":{}}"#,
            "[9007199254740993,1.0,-0,1e400,12345678901234567890123,0]",
            "\"<&>\"",
        ] {
            assert_eq!(parse(text.as_bytes(), 8).unwrap().to_text(), text);
        }
    }

    #[test]
    fn last_of_duplicate_members_counts() {
        assert_eq!(
            parse(br#"{"a":1,"b":2,"a":3}"#, 8).unwrap().to_text(),
            r#"{"a":3,"b":2}"#
        );
    }

    #[test]
    fn duplicate_member_of_full_object_charges_nothing() {
        // An object grows when it has 3, 7, 14, … members.
        for members in [3, 7, 14] {
            let all: Vec<String> = (0..members).map(|name| format!("\"{name}\":1")).collect();
            let text = format!("{{{},\"0\":2}}", all.join(","));
            let Ok(Json::Object(object)) = parse(text.as_bytes(), 8) else {
                panic!("{text}");
            };
            assert_eq!((object.len(), object.capacity()), (members, members));
        }
    }

    #[test]
    fn rejects_invalid_json() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\":}",
            "01",
            "1.",
            "NaN",
            "-Infinity",
            "Infinity",
            "'a'",
            "{} {}",
            "\"\u{1}\"",
            "nul",
            "+1",
            ".5",
            "-",
        ] {
            let error = parse(text.as_bytes(), 8).unwrap_err();
            assert!(
                matches!(error.kind, ParseErrorKind::Syntax(_)),
                "{text}: {error}"
            );
        }
        assert!(parse(b"\"\xff\"", 8).is_err());
        assert!(parse(br#""\ud800""#, 8).is_err());
    }

    #[test]
    fn rejects_too_deep_nesting() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(8).as_bytes(), 8).is_ok());
        let error = parse(nested(1000).as_bytes(), 8).unwrap_err();
        assert_eq!(error.to_string(), "nested deeper than 8 levels at byte 8");
    }

    #[test]
    fn rejects_too_many_values() {
        let text = format!("[{}0]", "0,".repeat(MAX_VALUES as usize));
        let error = parse(text.as_bytes(), 8).unwrap_err();
        assert!(
            matches!(error.kind, ParseErrorKind::TooMany { .. }),
            "{error}"
        );
    }

    #[test]
    fn reads_head_of_truncated_text() {
        let text = br#"{"kind":"AdmissionReview","request":{"uid":"1","name":"n","object":{"data":"aaaaaaa"#;
        let mut seen = Vec::new();
        parse_prefix_member(text, "request", 8, &Account::unlimited(), |name, value| {
            seen.push((name.to_owned(), value.map(|value| value.to_text())));
            true
        });
        let expected: Vec<(String, Option<String>)> = [
            ("kind", Some("\"AdmissionReview\"")),
            ("uid", None),
            ("uid", Some("\"1\"")),
            ("name", None),
            ("name", Some("\"n\"")),
            ("object", None),
        ]
        .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)))
        .to_vec();
        assert_eq!(seen, expected);
    }
}
