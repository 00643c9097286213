//! Places in objects.

use std::borrow::Cow;
use std::fmt;

use tollgate_json::document::Pointer;

use crate::read::Node;

/// A JSON Pointer in which a token `*` stands for every element of a list and every member of an object.
///
/// The pattern has at least one token. A list is passed by `*` alone, so a number is the name of a member.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPattern(Box<str>);

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {PATTERN_EXPECTED}")]
pub struct FieldPatternError;

const PATTERN_EXPECTED: &str =
    "a place in the objects, such as /metadata/labels or \"/spec/rules/*/host\"";
/// Deeper patterns mean nothing: kube-apiserver accepts no object with that many levels that a plugin could read.
const MOST_TOKENS: usize = 32;

// === impl FieldPattern ===

impl FieldPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// When the text is not a JSON Pointer, is the whole object, or is deeper than 32 levels.
    pub fn parse(text: &str) -> Result<Self, FieldPatternError> {
        let levels = text.bytes().filter(|byte| *byte == b'/').count();
        let is_pointer = Pointer::check(text).is_ok();
        if !is_pointer || levels == 0 || levels > MOST_TOKENS {
            return Err(FieldPatternError);
        }
        Ok(Self(text.into()))
    }

    /// Returns the pattern as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Lists the tokens without their escapes.
    pub fn tokens(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.0.split('/').skip(1).map(|token| {
            if token.contains('~') {
                Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
            } else {
                Cow::Borrowed(token)
            }
        })
    }

    pub(super) fn read(node: &Node<'_>) -> Option<Self> {
        let pattern = Self::parse(node.text(PATTERN_EXPECTED)?).ok();
        if pattern.is_none() {
            node.reject(PATTERN_EXPECTED);
        }
        pattern
    }
}

impl fmt::Display for FieldPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for FieldPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}
