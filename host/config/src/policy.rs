//! Policies for mutators that change each other's values, and for violations that existed before the request.

use std::fmt;

/// Whether a mutator is called again after a later plugin changed the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReinvocationPolicy {
    /// The mutator is called once.
    #[default]
    Never,
    /// The mutator is called once more.
    IfNeeded,
}

/// The effect of a mutator changing a value that an earlier mutator wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Conflicts {
    /// The later value wins, and the conflict is recorded.
    #[default]
    Last,
    /// The conflict is a fault of the later mutator.
    Deny,
}

/// The effect of a denial whose reason existed before the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExistingViolations {
    /// The denial counts like any other.
    #[default]
    Deny,
    /// An UPDATE that adds no violation passes with a warning.
    Allow,
}

// === impl ReinvocationPolicy, Conflicts, ExistingViolations ===

impl ReinvocationPolicy {
    pub(crate) const WORDS: &'static [(&'static str, Self)] =
        &[("Never", Self::Never), ("IfNeeded", Self::IfNeeded)];

    /// Returns the policy as Kubernetes writes it.
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

    /// Returns the policy as it is written in a configuration file.
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

    /// Returns the policy as it is written in a configuration file.
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
