//! Regular expressions for settings. A review looks at each byte of a value once and allocates nothing.
//!
//! ```
//! use tollgate_sdk::pattern::Pattern;
//!
//! let team = Pattern::whole("[a-z]+(-[a-z]+)*")?;
//! assert!(team.matches("blue-green"));
//! assert!(!team.matches("blue green"));
//! # Ok::<(), tollgate_sdk::pattern::PatternError>(())
//! ```
//!
//! The syntax is that of the crate `regex-lite`: the one of `regex` without tables of Unicode. `.` is any character,
//! and `\d`, `\w`, `\s`, `\b` and `(?i)` know ASCII only.
//!
//! Create patterns in [`Policy::configure`](crate::Policy::configure). That is expensive, and the host keeps the result
//! for all reviews.

mod automaton;

use std::fmt;

use automaton::Automaton;
use regex_lite::Regex;

/// A regular expression that is ready for reviews.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    matcher: Matcher,
}

/// Why a text is no regular expression.
#[derive(Clone, Debug)]
pub struct PatternError(regex_lite::Error);

#[derive(Clone)]
enum Matcher {
    Automaton(Box<Automaton>),
    /// For the expressions that have no small automaton, such as those with `\b` or `(?i)`.
    Regex(Regex),
}

/// The part of a value that an expression describes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Within,
}

// === impl Pattern ===

impl Pattern {
    /// A pattern that describes the whole value.
    ///
    /// # Errors
    /// The text is no regular expression.
    pub fn whole(text: &str) -> Result<Self, PatternError> {
        Self::new(text, Extent::Whole)
    }

    /// A pattern that describes a part of the value, as long as `^` and `$` say nothing else.
    ///
    /// # Errors
    /// The text is no regular expression.
    pub fn within(text: &str) -> Result<Self, PatternError> {
        Self::new(text, Extent::Within)
    }

    /// Whether the value matches.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        match &self.matcher {
            Matcher::Automaton(automaton) => automaton.matches(value),
            Matcher::Regex(regex) => regex.is_match(value),
        }
    }

    /// The text that the pattern was made of.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn new(text: &str, extent: Extent) -> Result<Self, PatternError> {
        // The text is compiled alone first. `a)|(b` would be valid between the anchors, and would escape them.
        let regex = Regex::new(text).map_err(PatternError)?;
        let matcher = match Automaton::new(text, extent) {
            Some(automaton) => Matcher::Automaton(Box::new(automaton)),
            None => Matcher::Regex(prepared(regex, text, extent)?),
        };
        Ok(Self {
            text: text.to_owned(),
            matcher,
        })
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Pattern").field(&self.text).finish()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// The expression for this extent.
fn prepared(regex: Regex, text: &str, extent: Extent) -> Result<Regex, PatternError> {
    let regex = match extent {
        Extent::Whole => Regex::new(&format!("^(?:{text})$"))
            // A comment, with the flag `x`, ends with its line.
            .or_else(|_| Regex::new(&format!("^(?:{text}\n)$"))),
        Extent::Within => Ok(regex),
    };
    let regex = regex.map_err(PatternError)?;
    // The memory of the first match is then part of the snapshot, and no review allocates it.
    regex.is_match("");
    Ok(regex)
}

// === impl PatternError ===

impl fmt::Display for PatternError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::error::Error for PatternError {}

#[cfg(test)]
mod tests;
