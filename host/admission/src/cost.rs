//! The calls of a plugin and their cost.

use std::time::Duration;

/// The export through which a plugin was called.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// `mutate`.
    Mutate,
    /// `validate`.
    Validate,
}

/// The cost of a plugin's calls in one turn. In most turns there is one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Wall time.
    pub duration: Duration,
    /// CPU time.
    pub cpu_time: Duration,
    /// Fuel consumed by all calls.
    pub fuel: u64,
    /// Highest fuel of one call. Limits count each call on its own.
    pub fuel_of_one_call: u64,
    /// Number of these calls that did not run, because the answer of an earlier call was known to be theirs.
    pub reused: u32,
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
