//! RFC 6901 JSON Pointers, read strictly.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use memchr::memchr;

use super::Json;

/// A well-formed JSON Pointer. `""` is the whole document.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pointer(Arc<str>);

/// Why a text is not a JSON Pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// The text is not empty and does not start with a slash.
    #[error("a JSON Pointer must be empty or start with `/`")]
    NoLeadingSlash,
    /// A `~` is followed by something other than `0` or `1`.
    #[error("in a JSON Pointer, `~` must be followed by `0` (for `~`) or `1` (for `/`)")]
    BadEscape,
}

/// The meaning of a token in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayIndex {
    /// The element at that position.
    At(usize),
    /// The token `-`: the place after the last element.
    End,
}

// === impl Pointer ===

impl Pointer {
    /// Returns the pointer to the whole document.
    #[must_use]
    pub fn root() -> Self {
        Self(Arc::from(""))
    }

    /// Parses a pointer strictly.
    ///
    /// # Errors
    /// When the text is not a JSON Pointer.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        Self::check(text)?;
        Ok(Self(Arc::from(text)))
    }

    /// Checks that a text is a JSON Pointer.
    ///
    /// # Errors
    /// When the text is not a JSON Pointer.
    pub fn check(text: &str) -> Result<(), PointerError> {
        if !(text.is_empty() || text.starts_with('/')) {
            return Err(PointerError::NoLeadingSlash);
        }
        let mut rest = text.as_bytes();
        while let Some(escape) = memchr(b'~', rest) {
            if !matches!(rest.get(escape + 1), Some(b'0' | b'1')) {
                return Err(PointerError::BadEscape);
            }
            rest = &rest[escape + 2..];
        }
        Ok(())
    }

    /// Creates a pointer from tokens that are not escaped yet.
    pub fn from_tokens<T: AsRef<str>>(tokens: impl IntoIterator<Item = T>) -> Self {
        let mut text = String::new();
        for token in tokens {
            push_token(&mut text, token.as_ref());
        }
        Self(Arc::from(text))
    }

    /// Returns the text, including escapes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the whole document.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the tokens, unescaped.
    pub fn tokens(&self) -> impl Iterator<Item = Cow<'_, str>> + Clone {
        tokens(&self.0)
    }

    /// Returns the pointer to a member or element below this one.
    #[must_use]
    pub fn child(&self, token: &str) -> Self {
        let mut text = String::with_capacity(self.0.len() + token.len() + 1);
        text.push_str(&self.0);
        push_token(&mut text, token);
        Self(Arc::from(text))
    }

    /// Returns the container and the last token. None for the whole document.
    #[must_use]
    pub fn split_last(&self) -> Option<(Self, Cow<'_, str>)> {
        let (parent, last) = self.0.rsplit_once('/')?;
        Some((Self(Arc::from(parent)), unescape(last)))
    }

    /// Whether this is `other` or an ancestor of it.
    #[must_use]
    pub fn is_prefix_of(&self, other: &Self) -> bool {
        other
            .0
            .strip_prefix(&*self.0)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

// === impl Json ===

impl Json {
    /// Returns the value at a pointer given as text. Allocates only to build a container, and to resolve escapes in a name.
    ///
    /// # Errors
    /// When the text is not a JSON Pointer.
    pub fn at(&self, pointer: &str) -> Result<Option<&Json>, PointerError> {
        Pointer::check(pointer)?;
        Ok(self.walk(pointer))
    }

    /// Returns the value at a pointer.
    #[must_use]
    pub fn lookup(&self, pointer: &Pointer) -> Option<&Json> {
        self.walk(&pointer.0)
    }

    /// Returns the member or element that a token names in this value.
    #[must_use]
    pub fn child(&self, token: &str) -> Option<&Json> {
        match self {
            Self::Object(members) => members.get(token),
            Self::Array(elements) => match array_index(token)? {
                ArrayIndex::At(index) => elements.get(index),
                ArrayIndex::End => None,
            },
            _ => None,
        }
    }

    /// Returns the value at a pointer that is well-formed.
    fn walk(&self, pointer: &str) -> Option<&Json> {
        let mut here = self;
        let mut rest = pointer.strip_prefix('/');
        while let Some(text) = rest {
            // Names are short, and for them this loop is faster than `split`.
            let mut has_escape = false;
            let end = text.bytes().position(|byte| {
                has_escape |= byte == b'~';
                byte == b'/'
            });
            let token = &text[..end.unwrap_or(text.len())];
            here = match has_escape {
                true => here.child(&unescape(token))?,
                false => here.child(token)?,
            };
            rest = end.map(|end| &text[end + 1..]);
        }
        Some(here)
    }
}

/// Parses an array index of RFC 6901: digits without a leading zero, or `-`.
#[must_use]
pub fn array_index(token: &str) -> Option<ArrayIndex> {
    match token.as_bytes() {
        b"-" => Some(ArrayIndex::End),
        b"0" => Some(ArrayIndex::At(0)),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {
            token.parse().ok().map(ArrayIndex::At)
        }
        _ => None,
    }
}

fn tokens(pointer: &str) -> impl Iterator<Item = Cow<'_, str>> + Clone {
    pointer.split('/').skip(1).map(unescape)
}

fn unescape(token: &str) -> Cow<'_, str> {
    let Some(mut escape) = memchr(b'~', token.as_bytes()) else {
        return Cow::Borrowed(token);
    };
    let mut text = String::with_capacity(token.len());
    let mut rest = token;
    loop {
        text.push_str(&rest[..escape]);
        let code = rest.as_bytes().get(escape + 1);
        text.push(if code == Some(&b'1') { '/' } else { '~' });
        rest = rest.get(escape + 2..).unwrap_or_default();
        let Some(next) = memchr(b'~', rest.as_bytes()) else {
            break;
        };
        escape = next;
    }
    text.push_str(rest);
    Cow::Owned(text)
}

pub(super) fn push_token(text: &mut String, token: &str) {
    text.push('/');
    if token.contains(['~', '/']) {
        text.push_str(&token.replace('~', "~0").replace('/', "~1"));
    } else {
        text.push_str(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_examples_of_rfc_6901() {
        let document = Json::from(serde_json::json!({
            "foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8,
            "~1/~": 9
        }));
        for (pointer, expected) in [
            ("/", 0),
            ("/a~1b", 1),
            ("/c%d", 2),
            ("/e^f", 3),
            ("/g|h", 4),
            ("/i\\j", 5),
            ("/k\"l", 6),
            ("/ ", 7),
            ("/m~0n", 8),
            ("/~01~1~0", 9),
        ] {
            assert_eq!(
                document.at(pointer).unwrap().unwrap().to_text(),
                expected.to_string(),
                "{pointer}"
            );
        }
        for pointer in ["//", "/foo/", "/foo//0", "/foo/0/", "/foo/2", "/fo"] {
            assert_eq!(document.at(pointer).unwrap(), None, "{pointer}");
        }
        assert_eq!(document.at("/foo/0").unwrap().unwrap().to_text(), "\"bar\"");
        assert!(document.at("").unwrap().unwrap().as_object().is_some());
    }

    #[test]
    fn rejects_invalid_pointers() {
        for (text, error) in [
            ("a", PointerError::NoLeadingSlash),
            ("/~", PointerError::BadEscape),
            ("/~2", PointerError::BadEscape),
            ("/a~/b", PointerError::BadEscape),
        ] {
            assert_eq!(Pointer::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn reads_array_indices_strictly() {
        assert_eq!(array_index("0"), Some(ArrayIndex::At(0)));
        assert_eq!(array_index("10"), Some(ArrayIndex::At(10)));
        assert_eq!(array_index("-"), Some(ArrayIndex::End));
        for token in ["", "01", "+1", "-1", "1e0", "99999999999999999999999"] {
            assert_eq!(array_index(token), None, "{token}");
        }
    }

    #[test]
    fn prefix_ends_at_token_boundary() {
        let pointer = |text| Pointer::parse(text).unwrap();
        assert!(pointer("/a").is_prefix_of(&pointer("/a/b")));
        assert!(pointer("").is_prefix_of(&pointer("/a")));
        assert!(!pointer("/a").is_prefix_of(&pointer("/ab")));
    }
}
