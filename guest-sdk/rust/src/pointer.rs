//! JSON Pointers that are well formed by construction. The SDK ends the call when it gets a malformed one.

mod check;

use std::fmt;

pub(crate) use self::check::checked;
#[doc(hidden)]
pub use self::check::literal;

/// An RFC 6901 JSON Pointer. The empty pointer is the whole document.
///
/// ```
/// use tollgate_sdk::{Pointer, pointer};
///
/// let label = pointer!["metadata", "labels", "app.kubernetes.io/name"];
/// assert_eq!(label.as_str(), "/metadata/labels/app.kubernetes.io~1name");
/// assert_eq!(Pointer::from("/spec/containers/0").child("image"), pointer!["spec", "containers", 0, "image"]);
/// ```
///
/// In settings, a text that is not a pointer is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(try_from = "Checked")]
pub struct Pointer(String);

/// Pointers that a policy reads together with [`Document::get_all`](crate::Document::get_all). Each is checked once.
///
/// Create them in [`Policy::configure`](crate::Policy::configure). The host keeps them for all reviews.
///
/// ```
/// use tollgate_sdk::{Document, Pointers, Value};
///
/// fn pointers() -> Pointers {
///     Pointers::new(["/metadata/labels/team", "/spec/replicas"])
/// }
///
/// fn values(object: Document, pointers: &Pointers) -> Vec<Option<Value>> {
///     object.get_all(pointers)
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pointers(Vec<String>);

/// The reason why a text is not a [`Pointer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerError {
    /// The text is not empty and does not begin with a slash.
    NoLeadingSlash,
    /// A `~` is followed by neither 0 nor 1.
    BadEscape,
}

/// Text from outside that may or may not be a pointer.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Checked(String);

/// Creates a [`Pointer`] from tokens, and escapes them: `pointer!["metadata", "labels", key]`. A token is any type that
/// implements `Display`.
#[macro_export]
macro_rules! pointer {
    ($($token:expr),* $(,)?) => {{
        #[allow(unused_mut, reason = "without tokens nothing is pushed")]
        let mut pointer = $crate::Pointer::root();
        $(pointer.push(&$token);)*
        pointer
    }};
}

// === impl Pointers ===

impl Pointers {
    /// Creates a list from pointers, in their order.
    ///
    /// # Panics
    /// If one of them is malformed.
    #[track_caller]
    pub fn new<P: Into<Pointer>>(pointers: impl IntoIterator<Item = P>) -> Self {
        let mut texts = Vec::new();
        // A closure has a place of its own, so the check is in a loop.
        for pointer in pointers {
            let Pointer(text) = pointer.into();
            checked(&text);
            texts.push(text);
        }
        Self(texts)
    }

    /// The texts of the pointers.
    pub(crate) fn texts(&self) -> &[String] {
        &self.0
    }
}

// === impl Pointer ===

impl Pointer {
    /// Returns the pointer to the whole document.
    #[must_use]
    pub const fn root() -> Self {
        Self(String::new())
    }

    /// Appends a token: a member's name or an element's index, not escaped.
    pub fn push(&mut self, token: impl fmt::Display) {
        use fmt::Write as _;

        self.0.push('/');
        write!(Escaped(&mut self.0), "{token}").expect("a String takes every write");
    }

    /// Returns the place one level below this one.
    #[must_use]
    pub fn child(&self, token: impl fmt::Display) -> Self {
        let mut child = self.clone();
        child.push(token);
        child
    }

    /// Returns the container of this place. None for the whole document.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(Self(parent.to_owned()))
    }

    /// The last token, unescaped: a member's name or an element's index. None for the whole document.
    #[must_use]
    pub fn last(&self) -> Option<String> {
        let (_, last) = self.0.rsplit_once('/')?;
        Some(unescaped(last))
    }

    /// The tokens, unescaped: members' names and elements' indices. None for the whole document.
    pub fn tokens(&self) -> impl Iterator<Item = String> {
        self.0.split('/').skip(1).map(unescaped)
    }

    /// Whether this is the whole document.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The text, escapes included.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Pointer {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Takes the text unchanged, with its escapes. A malformed pointer ends the call when it is used. [`at!`](crate::at)
/// checks a literal at compile time.
impl From<&str> for Pointer {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Takes the text unchanged, with its escapes, such as the pointer of a [`Node`](crate::Node).
impl From<String> for Pointer {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&String> for Pointer {
    fn from(text: &String) -> Self {
        Self(text.clone())
    }
}

impl From<&Self> for Pointer {
    fn from(pointer: &Self) -> Self {
        pointer.clone()
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> Self {
        pointer.0
    }
}

impl PartialEq<str> for Pointer {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Pointer {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl TryFrom<Checked> for Pointer {
    type Error = PointerError;

    fn try_from(Checked(text): Checked) -> Result<Self, PointerError> {
        match check::error(text.as_bytes()) {
            Some(error) => Err(error),
            None => Ok(Self(text)),
        }
    }
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

// === impl PointerError ===

impl fmt::Display for PointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is no JSON Pointer: ")?;
        f.write_str(match self {
            Self::NoLeadingSlash => "it must begin with a slash",
            Self::BadEscape => "behind a `~` must stand 0 or 1",
        })
    }
}

impl std::error::Error for PointerError {}

// === impl Escaped ===

struct Escaped<'t>(&'t mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Nearly every token has neither of these two characters, and is copied at once.
        let mut rest = text;
        while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'~' | b'/')) {
            let (before, from) = rest.split_at(at);
            self.0.push_str(before);
            self.0
                .push_str(if from.starts_with('~') { "~0" } else { "~1" });
            rest = &from[1..];
        }
        self.0.push_str(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_escaped_and_unescaped() {
        let pointer = pointer!["a/b", "m~n", "~1", 0, ""];
        assert_eq!(pointer!["a~/b//ü~"], "/a~0~1b~1~1ü~0");
        assert_eq!(pointer, "/a~1b/m~0n/~01/0/");
        assert_eq!(pointer!["~1"].last().as_deref(), Some("~1"));
        assert_eq!(pointer.last().as_deref(), Some(""));
        let tokens: Vec<_> = pointer.tokens().collect();
        assert_eq!(tokens, ["a/b", "m~n", "~1", "0", ""]);
        assert_eq!(Pointer::root().tokens().count(), 0);
    }

    #[test]
    fn the_parent_of_a_top_level_member_is_the_document() {
        assert_eq!(pointer!["a", "b"].parent(), Some(pointer!["a"]));
        assert_eq!(pointer!["a"].parent(), Some(Pointer::root()));
        assert_eq!(pointer![].parent(), None);
        assert_eq!(Pointer::root().last(), None);
    }

    #[test]
    fn settings_hold_well_formed_pointers_only() {
        let read = |text: &str| serde_json::from_value::<Pointer>(text.into());
        assert_eq!(read("/a~1b/*").unwrap(), "/a~1b/*");
        assert!(read("").unwrap().is_root());
        for (text, error) in [
            ("a/b", "is no JSON Pointer: it must begin with a slash"),
            ("/a~b", "is no JSON Pointer: behind a `~` must stand 0 or 1"),
            ("/a~", "is no JSON Pointer: behind a `~` must stand 0 or 1"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), error);
        }
    }
}
