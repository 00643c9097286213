//! A number that tells one running server from another.

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::{BuildHasher, Hasher},
};

use http::HeaderName;

/// The header of `/readyz` with the server's [`Instance`].
pub const INSTANCE: HeaderName = HeaderName::from_static("tollgate-instance");

/// The header of `/readyz` that tells whether every plugin without which requests are denied is loaded.
pub const COMPLETE: HeaderName = HeaderName::from_static("tollgate-complete");

/// A random number that identifies a running server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Instance(u64);

// === impl Instance ===

impl Instance {
    /// Creates a new number from the system's random source.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a default would be taken to be the same each time"
    )]
    pub fn new() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}
