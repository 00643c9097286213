//! JSON text into a document, within a depth.

use std::fmt;
use std::sync::Arc;

use jiter::{Jiter, JiterError, JiterErrorType, JsonErrorType, Peek};

use super::{Json, Number, Object};

/// Why a text is not a document that the host takes. Carries a position, never the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// What was wrong.
    pub kind: ParseErrorKind,
    /// The byte at which it was noticed.
    pub offset: usize,
}

/// What was wrong with a JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// Containers are nested deeper than the limit.
    TooDeep {
        /// The limit.
        max_depth: u32,
    },
    /// It has more values than the host takes in.
    TooMany {
        /// The limit.
        max_values: u32,
    },
    /// It is not JSON (RFC 8259).
    Syntax(&'static str),
}

/// Reads one JSON document. Of members with the same name the last one counts, as in Go.
///
/// # Errors
/// When the text is not JSON, or is nested deeper than `max_depth`.
pub fn parse(text: &[u8], max_depth: u32) -> Result<Json, ParseError> {
    parse_up_to(text, max_depth, MAX_VALUES)
}

/// [`parse`] with as many values as the caller has room for.
///
/// # Errors
/// When the text is not JSON, is nested deeper than `max_depth`, or has more than `max_values`.
pub fn parse_up_to(text: &[u8], max_depth: u32, max_values: u32) -> Result<Json, ParseError> {
    let mut reader = Reader {
        jiter: Jiter::new(text),
        max_depth,
        max_values,
        values: 0,
    };
    let peek = reader.jiter.peek()?;
    let value = reader.value(peek, 0)?;
    reader.jiter.finish()?;
    Ok(value)
}

/// Reads members of the object at the top of a text that may be cut off or be nested too deep further on:
/// every member that could be read is handed to `take`, in order, until it returns false or the text gives out.
/// With `inside` set, the members of the top-level member of that name are read instead of the top level's.
///
/// A request that is too large to take still has to be told apart by its head: this is how.
pub fn parse_prefix_member(
    text: &[u8],
    inside: &str,
    max_depth: u32,
    mut take: impl FnMut(&str, Option<Json>) -> bool,
) {
    let mut reader = Reader {
        jiter: Jiter::new(text),
        max_depth,
        max_values: MAX_VALUES,
        values: 0,
    };
    let _: Result<(), ParseError> = reader.prefix(inside, &mut take);
}

/// JSON values in one document. Text of three bytes, `{},`, becomes some hundred in memory, so a cap on bytes alone
/// would not bound what a review takes; the largest object that Kubernetes takes, at three bytes a value, is below.
pub const MAX_VALUES: u32 = 2_000_000;

struct Reader<'j> {
    jiter: Jiter<'j>,
    max_depth: u32,
    max_values: u32,
    values: u32,
}

// === impl Reader ===

impl Reader<'_> {
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
            Peek::String => Ok(Json::Text(Arc::from(self.jiter.known_str()?))),
            Peek::Array => self.array(depth + 1),
            Peek::Object => self.object(depth + 1),
            _ => self.number(peek),
        }
    }

    fn number(&mut self, peek: Peek) -> Result<Json, ParseError> {
        let offset = self.jiter.current_index();
        let bytes = self.jiter.known_number_bytes(peek)?;
        // jiter reads `NaN` and the like as numbers where it is told to; RFC 8259 has none.
        match std::str::from_utf8(bytes) {
            Ok(text) if matches!(text.as_bytes().last(), Some(b'0'..=b'9')) => {
                Ok(Json::Number(Number::from_text(text)))
            }
            _ => Err(ParseError {
                kind: ParseErrorKind::Syntax("not a number"),
                offset,
            }),
        }
    }

    fn array(&mut self, depth: u32) -> Result<Json, ParseError> {
        self.check(depth)?;
        let mut elements = Vec::new();
        let mut next = self.jiter.known_array()?;
        while let Some(peek) = next {
            elements.push(self.value(peek, depth)?);
            next = self.jiter.array_step()?;
        }
        Ok(Json::Array(Arc::new(elements)))
    }

    fn object(&mut self, depth: u32) -> Result<Json, ParseError> {
        self.check(depth)?;
        let mut members = Object::default();
        let mut name: Option<Arc<str>> = self.jiter.known_object()?.map(Arc::from);
        while let Some(key) = name {
            let peek = self.jiter.peek()?;
            let value = self.value(peek, depth)?;
            members.insert(key, value);
            name = self.jiter.next_key()?.map(Arc::from);
        }
        Ok(Json::Object(Arc::new(members)))
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
            // Announced before it is read: its being there is worth knowing even where it cannot be read.
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

// === impl ParseError ===

impl From<JiterError> for ParseError {
    fn from(error: JiterError) -> Self {
        let what = match error.error_type {
            JiterErrorType::JsonError(kind) => describe(&kind),
            JiterErrorType::WrongType { .. } => "a value of another type was expected",
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
        | JsonErrorType::EofWhileParsingValue => "the text ends too early",
        JsonErrorType::ExpectedColon => "`:` expected",
        JsonErrorType::ExpectedListCommaOrEnd => "`,` or `]` expected",
        JsonErrorType::ExpectedObjectCommaOrEnd => "`,` or `}` expected",
        JsonErrorType::ExpectedSomeIdent | JsonErrorType::ExpectedSomeValue => "a value expected",
        JsonErrorType::InvalidEscape | JsonErrorType::UnexpectedEndOfHexEscape => {
            "an invalid escape"
        }
        JsonErrorType::InvalidNumber | JsonErrorType::NumberOutOfRange => "an invalid number",
        JsonErrorType::InvalidUnicodeCodePoint | JsonErrorType::LoneLeadingSurrogateInHexEscape => {
            "invalid Unicode"
        }
        JsonErrorType::ControlCharacterWhileParsingString => "a control character in a string",
        JsonErrorType::KeyMustBeAString => "a member name in quotes expected",
        JsonErrorType::TrailingComma => "a trailing comma",
        JsonErrorType::TrailingCharacters => "something behind the document",
        _ => "a syntax error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_what_it_read() {
        for text in [
            r#"{"b":1,"a":[true,false,null,"x\"\\\n\u0001é"],"":{}}"#,
            "[9007199254740993,1.0,-0,1e400,12345678901234567890123,0]",
            "\"<&>\"",
        ] {
            assert_eq!(parse(text.as_bytes(), 8).unwrap().to_text(), text);
        }
    }

    #[test]
    fn of_two_members_of_one_name_the_last_counts() {
        assert_eq!(
            parse(br#"{"a":1,"b":2,"a":3}"#, 8).unwrap().to_text(),
            r#"{"a":3,"b":2}"#
        );
    }

    #[test]
    fn refuses_what_is_not_json() {
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
    fn refuses_what_is_nested_too_deep() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(8).as_bytes(), 8).is_ok());
        let error = parse(nested(1000).as_bytes(), 8).unwrap_err();
        assert_eq!(error.to_string(), "nested deeper than 8 levels at byte 8");
    }

    #[test]
    fn refuses_what_has_too_many_values() {
        let text = format!("[{}0]", "0,".repeat(MAX_VALUES as usize));
        let error = parse(text.as_bytes(), 8).unwrap_err();
        assert!(
            matches!(error.kind, ParseErrorKind::TooMany { .. }),
            "{error}"
        );
    }

    #[test]
    fn reads_the_head_of_a_text_that_is_cut_off() {
        let text = br#"{"kind":"AdmissionReview","request":{"uid":"1","name":"n","object":{"data":"aaaaaaa"#;
        let mut seen = Vec::new();
        parse_prefix_member(text, "request", 8, |name, value| {
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
