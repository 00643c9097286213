//! Problems of settings, with their places.

use std::fmt;

/// The place of a value in the settings, as a JSON pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pointer(String);

/// A problem with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place.
    pub pointer: Pointer,
    /// The problem.
    pub message: String,
}

/// Collects problems, so that one load reports all of them.
#[derive(Debug, Default)]
pub struct Problems(Vec<Problem>);

// === impl Pointer ===

impl Pointer {
    /// Returns the place of the whole settings.
    #[must_use]
    pub const fn root() -> Self {
        Self(String::new())
    }

    /// Returns the place of a member or an element.
    #[must_use]
    pub fn child(&self, token: impl fmt::Display) -> Self {
        let token = token.to_string().replace('~', "~0").replace('/', "~1");
        Self(format!("{}/{token}", self.0))
    }

    /// Returns the place of a value below several members.
    #[must_use]
    pub fn below(&self, tokens: &[&str]) -> Self {
        let child = |place: Self, token: &&str| place.child(token);
        tokens.iter().fold(self.clone(), child)
    }

    /// Returns the JSON pointer.
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

// === impl Problems ===

impl Problems {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a problem.
    pub fn at(&mut self, pointer: Pointer, message: impl Into<String>) {
        self.0.push(Problem {
            pointer,
            message: message.into(),
        });
    }

    /// Returns the number of problems.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no problem.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
