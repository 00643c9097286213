//! What is wrong with a configuration, in words for the person who wrote it.
//!
//! Problems are collected, not returned one by one: whoever corrects a file wants the whole list.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A key path such as `plugins[2].limits.fuel`, or a line and column where there is no key yet.
    pub place: String,
    /// What was given, what was expected, what to do.
    pub message: String,
}

/// Nobody reads on, and a plugin's mistakes must not flood the log.
const MOST_SHOWN: usize = 200;

/// Everything that is wrong; displayed one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file or folder cannot be read.
    #[error("cannot read the {what} {}", path.display())]
    Read {
        /// What was to be read: `configuration file`, `plugin folder`.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// It was read, and is wrong.
    #[error("{origin}: {problems}")]
    Invalid {
        /// The file or folder, or `configuration` for text without a file.
        origin: String,
        /// All that is wrong with it.
        problems: Problems,
    },
}

/// Where a reader puts the problems that it meets.
///
/// Behind a `RefCell` so that nested readers can share one while each is on its own branch of the document.
#[derive(Debug, Default)]
pub(crate) struct Collector(RefCell<Vec<Problem>>);

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.place, self.message)
        }
    }
}

// === impl Problems ===

impl Problems {
    /// Each problem, in the order of the document as far as there is one.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// A list of one.
    pub(crate) fn one(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self(vec![Problem {
            place: place.into(),
            message: message.into(),
        }])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("1 problem")?,
            count => write!(f, "{count} problems")?,
        }
        for problem in self.0.iter().take(MOST_SHOWN) {
            write!(f, "\n  {problem}")?;
        }
        match self.0.len().saturating_sub(MOST_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

impl std::error::Error for Problems {}

// === impl Collector ===

impl Collector {
    /// Adds a problem.
    pub(crate) fn add(&self, place: impl Into<String>, message: impl Into<String>) {
        self.0.borrow_mut().push(Problem {
            place: place.into(),
            message: message.into(),
        });
    }

    /// The value, when nothing was wrong.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        let problems = self.0.into_inner();
        match value {
            Some(value) if problems.is_empty() => Ok(value),
            _ => Err(Problems(problems)),
        }
    }
}
