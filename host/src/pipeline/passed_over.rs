//! Plugins that a request passed over for a reason that nobody can find out afterwards, as it depends on the object, on
//! the user's groups or on how busy the host was. A few bytes each; made words of when somebody asks.

use std::borrow::Cow;

use super::matching::Mismatch;
use crate::config::Match;

/// A plugin that was not called, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// Its place among the plugins of the request.
    plugin: usize,
    reason: Reason,
}

/// Why a plugin was not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its `match` is not for the request.
    Match(Mismatch),
    /// The host was out of room, and its mode is `warn`.
    NoRoom,
}

// === impl PassedOver ===

impl PassedOver {
    pub(super) fn new(plugin: usize, reason: Reason) -> Self {
        Self { plugin, reason }
    }

    /// None where the configuration and the names that are kept will tell as much.
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
    /// In words, for a plugin that is asked about these.
    pub(super) fn describe(self, matching: Option<&Match>) -> Cow<'static, str> {
        match self {
            Self::NoRoom => Cow::Borrowed("the host had no room for it (mode warn)"),
            Self::Match(mismatch) => mismatch.describe(matching),
        }
    }
}

// === impl Mismatch ===

impl Mismatch {
    fn describe(self, matching: Option<&Match>) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Phase => "it has no part in this",
            Self::Rules => "none of its rules matches",
            Self::Namespaces => {
                "a rule matches, and `namespaces` or `excludeNamespaces` leaves out this namespace"
            }
            Self::Users => "a rule matches, and `excludeUsers` has this user",
            Self::Groups => "a rule matches, and `excludeGroups` has a group of this user",
            Self::Labels => "a rule matches, and its `objectSelector` does not",
            Self::Condition(index) => {
                let condition = matching.and_then(|matching| matching.conditions.get(index));
                let Some(condition) = condition else {
                    return Cow::Borrowed(
                        "a rule matches, and one of its `matchConditions` is false",
                    );
                };
                return Cow::Owned(format!(
                    "a rule matches, and its matchCondition `{}` is false",
                    condition.name()
                ));
            }
        })
    }
}
