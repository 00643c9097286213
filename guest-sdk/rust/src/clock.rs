//! The `clock` capability. A plugin that reads it is refused unless its configuration grants `clock`, so that no
//! policy decides by a clock that stands still.

use std::time::{Duration, SystemTime};

use crate::host;

/// The host's wall clock. May step backwards when the host's clock is set.
#[must_use]
pub fn now() -> SystemTime {
    let now = host::now();
    SystemTime::UNIX_EPOCH + Duration::new(now.seconds, now.nanoseconds)
}
