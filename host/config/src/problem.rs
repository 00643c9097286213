//! Problems in a configuration, in words for its author.
//!
//! Problems are collected, because an author wants the whole list at once.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;

use super::schema::{Shape, Trace};

/// A problem and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A key path such as `plugins[2].limits.fuel`, or a line and column if no key is known yet.
    pub place: String,
    /// The given value, the expected value, and the remedy.
    pub message: String,
}

/// Maximum number of problems that are shown. More would not help, and a plugin's mistakes must not flood the
/// log.
const MOST_SHOWN: usize = 200;

/// All problems, displayed one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

/// The reason why no configuration could be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file or folder cannot be read.
    #[error("cannot read the {what} {}", path.display())]
    Read {
        /// The kind of source: `configuration file` or `plugin folder`.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The configuration was read and is invalid.
    #[error("{origin}: {problems}")]
    Invalid {
        /// The file or folder, or `configuration` for text without a file.
        origin: String,
        /// All problems in it.
        problems: Problems,
    },
}

/// A list that readers add their problems to.
///
/// It is behind a `RefCell`, so that nested readers can share it while each reads its own branch of the document.
#[derive(Debug, Default)]
pub struct Collector {
    problems: RefCell<Vec<Problem>>,
    /// The keys and forms that the readers ask for. None unless a schema is derived from the readers.
    trace: Option<Box<Trace>>,
}

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
    /// Iterates over the problems, in the order of the document as far as possible.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// Creates a list with one problem.
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
    pub fn add(&self, place: impl Into<String>, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem {
            place: place.into(),
            message: message.into(),
        });
    }

    /// Adds the problems of another list at other places, each once.
    pub(crate) fn add_at(&self, others: Self, place: impl Fn(&str) -> String) {
        let mut problems = self.problems.borrow_mut();
        for problem in others.problems.into_inner() {
            let problem = Problem {
                place: place(&problem.place),
                ..problem
            };
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }

    /// Returns the value if there was no problem.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        let problems = self.problems.into_inner();
        match value {
            Some(value) if problems.is_empty() => Ok(value),
            _ => Err(Problems(problems)),
        }
    }

    /// Creates a list that also notes what the readers ask for.
    pub(crate) fn tracing(trace: Trace) -> Self {
        Self {
            problems: RefCell::default(),
            trace: Some(Box::new(trace)),
        }
    }

    /// Returns what the readers have asked for.
    pub(crate) fn into_trace(self) -> Trace {
        self.trace.map(|trace| *trace).unwrap_or_default()
    }

    /// Returns what the readers have asked for so far, if it is noted.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    /// Notes the form of value that a reader expects at a place.
    pub(crate) fn note_shape(&self, path: &str, shape: impl FnOnce() -> Shape) {
        if let Some(trace) = &self.trace {
            trace.note_shape(path, shape());
        }
    }
}
