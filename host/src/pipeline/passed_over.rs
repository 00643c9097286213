//! Plugins that were not called for a reason that cannot be found out afterwards: it depends on the object, on the
//! user's groups or on the load of the host. An entry takes a few bytes, and becomes text only when an operator asks
//! for it.

use std::borrow::Cow;

use super::matching::Mismatch;
use crate::config::Match;

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

// === impl Mismatch ===

impl Mismatch {
    fn describe(self, matching: Option<&Match>) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Phase => "it does not take part in this phase",
            Self::Rules => "none of its rules matches",
            Self::Namespaces => {
                "a rule matches, but `namespaces` or `excludeNamespaces` excludes this namespace"
            }
            Self::Users => "a rule matches, but `excludeUsers` lists this user",
            Self::Groups => "a rule matches, but `excludeGroups` lists a group of this user",
            Self::Labels => "a rule matches, but its `objectSelector` does not",
            Self::Condition(index) => {
                let condition = matching.and_then(|matching| matching.conditions.get(index));
                let Some(condition) = condition else {
                    return Cow::Borrowed(
                        "a rule matches, but one of its `matchConditions` is false",
                    );
                };
                return Cow::Owned(format!(
                    "a rule matches, but its matchCondition `{}` is false",
                    condition.name()
                ));
            }
        })
    }
}
