//! What happens when plugins come into each other's way, and to what is wrong already.

use std::fmt;

/// Whether a mutator is called again when a later plugin changed the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReinvocationPolicy {
    /// It is called once.
    #[default]
    Never,
    /// It is called once more.
    IfNeeded,
}

/// What a mutator's change of something that an earlier one wrote means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Conflicts {
    /// The later one's value stands; it is recorded.
    #[default]
    Last,
    /// It is a fault of the later one.
    Deny,
}

/// What a denial means whose reason was there before the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExistingViolations {
    /// The same as any other.
    #[default]
    Deny,
    /// An UPDATE passes with a warning when it adds none.
    Allow,
}

// === impl ReinvocationPolicy, Conflicts, ExistingViolations ===

impl ReinvocationPolicy {
    pub(crate) const WORDS: &'static [(&'static str, Self)] =
        &[("Never", Self::Never), ("IfNeeded", Self::IfNeeded)];

    /// As Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::IfNeeded => "IfNeeded",
        }
    }
}

impl Conflicts {
    pub(crate) const WORDS: &'static [(&'static str, Self)] =
        &[("last", Self::Last), ("deny", Self::Deny)];

    /// As it is written in a configuration file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Deny => "deny",
        }
    }
}

impl ExistingViolations {
    pub(crate) const WORDS: &'static [(&'static str, Self)] =
        &[("deny", Self::Deny), ("allow", Self::Allow)];

    /// As it is written in a configuration file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}

impl fmt::Display for ReinvocationPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for ExistingViolations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
