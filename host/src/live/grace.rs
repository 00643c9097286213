//! How long a start keeps traffic away because of plugins without which requests would be denied.

use std::time::Duration;

use tokio::time::Instant;

use crate::plugin::PluginSet;

/// The time in which they are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    end: Instant,
}

// === impl Grace ===

impl Grace {
    /// From now on.
    pub(super) fn new(length: Duration) -> Self {
        Self {
            end: Instant::now() + length,
        }
    }

    /// When it is over.
    pub(super) fn end(self) -> Instant {
        self.end
    }

    /// For `/readyz`: what is still waited for; none where nothing is.
    pub(super) fn waiting(self, live: &PluginSet) -> Option<String> {
        let left = self.end.saturating_duration_since(Instant::now());
        let names = awaited(live).filter(|_| !left.is_zero())?;
        Some(format!(
            "waiting for another {} s at most (startupGrace) for plugins under failurePolicy Fail that are not loaded: {names}; \
             whatever they would be asked about is denied",
            left.as_secs() + 1
        ))
    }
}

/// Their names; none where there are none.
pub(super) fn awaited(live: &PluginSet) -> Option<String> {
    let names: Vec<&str> = live.awaited().map(|config| config.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
