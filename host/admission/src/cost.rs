//! The calls of a plugin, and what they cost.

use std::time::Duration;

/// The export through which a plugin was called.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// `mutate`.
    Mutate,
    /// `validate`.
    Validate,
}

/// The cost of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Wall time.
    pub duration: Duration,
    /// CPU time.
    pub cpu_time: Duration,
    /// Fuel consumed.
    pub fuel: u64,
}

// === impl Phase ===

impl Phase {
    /// Returns `mutate` or `validate`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}
