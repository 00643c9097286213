//! Records why plugins were not called, for reasons that cannot be found out afterwards. Such a reason depends on the
//! object, on the user's groups or on the load of the host. An entry takes a few bytes, and becomes text only when an
//! operator asks for it.

use std::borrow::Cow;

use tollgate_config::Match;

use tollgate_config::matching::Mismatch;

/// A plugin that was not called, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// Index of the plugin in its plugin set.
    plugin: usize,
    reason: Reason,
}

/// Why a plugin was not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The plugin's `match` excludes the request.
    Match(Mismatch),
    /// The host was out of room, and the plugin's mode is `warn`.
    NoRoom,
}

// === impl PassedOver ===

impl PassedOver {
    pub(super) fn new(plugin: usize, reason: Reason) -> Self {
        Self { plugin, reason }
    }

    /// Creates an entry. Returns none if the reason can be found again from the configuration and the recorded names.
    pub(super) fn by_match(plugin: usize, mismatch: Mismatch) -> Option<Self> {
        match mismatch {
            Mismatch::Phase | Mismatch::Rules => None,
            other => Some(Self::new(plugin, Reason::Match(other))),
        }
    }

    pub(super) fn is_of(&self, plugin: usize) -> bool {
        self.plugin == plugin
    }

    pub(super) fn reason(&self) -> Reason {
        self.reason
    }
}

// === impl Reason ===

impl Reason {
    /// Describes the reason in words. `matching` is the plugin's `match`.
    pub(super) fn describe(self, matching: Option<&Match>) -> Cow<'static, str> {
        match self {
            Self::NoRoom => Cow::Borrowed("the host had no room for the call (mode warn)"),
            Self::Match(mismatch) => mismatch.describe(matching),
        }
    }
}
