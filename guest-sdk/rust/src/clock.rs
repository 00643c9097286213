//! The `clock` capability. The host does not load a plugin that reads the clock unless its configuration grants
//! `clock`. So no policy decides by a clock that stands still.

use std::time::{Duration, SystemTime};

use crate::host;

/// Returns the time of the host's wall clock. It may step backwards when somebody sets the host's clock.
#[must_use]
pub fn now() -> SystemTime {
    let now = host::now();
    SystemTime::UNIX_EPOCH + Duration::new(now.seconds, now.nanoseconds)
}
