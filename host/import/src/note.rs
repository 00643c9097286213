//! Notes for the report: what happened to a document, with its place.

use std::fmt;

/// The result for a document, or for a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The file.
    pub file: String,
    /// The line in the file, from 1.
    pub line: usize,
    /// Kind and name of the document.
    pub subject: String,
    /// The result.
    pub effect: Effect,
    /// The reason, and what to do.
    pub text: String,
}

/// The result of importing a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// A plugin does the same.
    Translated,
    /// A plugin does nearly the same.
    Differs,
    /// Tollgate cannot do this. The configuration has nothing for it.
    Impossible,
    /// The document is no policy.
    Skipped,
    /// The document cannot be parsed.
    Broken,
}

// === impl Effect ===

impl Effect {
    /// Returns the effect in one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Translated => "translated",
            Self::Differs => "differs",
            Self::Impossible => "cannot",
            Self::Skipped => "skipped",
            Self::Broken => "broken",
        }
    }

    /// Whether a policy is not enforced because of this.
    #[must_use]
    pub fn is_loss(self) -> bool {
        matches!(self, Self::Impossible | Self::Broken)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            subject,
            effect,
            text,
        } = self;
        write!(f, "{:<10}  {file}:{line}: ", effect.as_str())?;
        if !subject.is_empty() {
            write!(f, "{subject}: ")?;
        }
        f.write_str(text)
    }
}
