//! What is in force: one place for each plugin, and the code that serves there.

use std::sync::Arc;

use crate::config::{FailurePolicy, Mode, PluginConfig};

/// A plugin's code, ready to be called. Opaque here: nothing in the decisions depends on WebAssembly. Cloning is cheap.
pub(crate) trait Code: Clone {
    /// Whether both are the same code in memory.
    fn is(&self, other: &Self) -> bool;

    /// Whether it can be asked as this entry says.
    ///
    /// # Errors
    /// The reason why it cannot: without rules, nobody knows when to ask it.
    fn fits(&self, config: &PluginConfig) -> Result<(), String>;
}

/// Code, and the bytes that it was made of.
#[derive(Clone, Debug)]
pub(crate) struct Loaded<C> {
    pub(crate) digest: Arc<str>,
    pub(crate) code: C,
    /// Why the registry may have another version by now.
    pub(crate) stale: Option<String>,
}

/// A plugin in force: the entry that it goes by, and what serves of it.
#[derive(Clone, Debug)]
pub(crate) struct Place<C> {
    pub(crate) config: PluginConfig,
    pub(crate) serving: Serving<C>,
}

/// What serves of a plugin.
#[derive(Clone, Debug)]
pub(crate) enum Serving<C> {
    /// It is called.
    Code(Loaded<C>),
    /// There is nothing to call: its failurePolicy decides.
    Failed { reason: String, digest: Arc<str> },
    /// It is not asked about anything.
    Disabled,
}

// === impl Place ===

impl<C: Code> Place<C> {
    pub(super) fn new(config: PluginConfig, serving: Serving<C>) -> Self {
        Self { config, serving }
    }

    pub(super) fn code(&self) -> Option<&Loaded<C>> {
        match &self.serving {
            Serving::Code(loaded) => Some(loaded),
            Serving::Failed { .. } | Serving::Disabled => None,
        }
    }

    pub(super) fn is_failed(&self) -> bool {
        matches!(self.serving, Serving::Failed { .. })
    }

    /// Whether a request is denied because there is nothing to call.
    pub(super) fn denies_by_fault(&self) -> bool {
        self.is_failed()
            && enforces(&self.config)
            && self.config.failure_policy == FailurePolicy::Fail
    }

    /// Whether a request is treated the same in both. Why nothing can be called does not matter to it.
    pub(super) fn serves_like(&self, other: &Self) -> bool {
        let same = match (&self.serving, &other.serving) {
            (Serving::Code(one), Serving::Code(other)) => {
                one.digest == other.digest && one.code.is(&other.code)
            }
            (Serving::Failed { .. }, Serving::Failed { .. })
            | (Serving::Disabled, Serving::Disabled) => true,
            _ => false,
        };
        same && self.config == other.config
    }

    /// The same, and for the same reason.
    pub(super) fn is(&self, other: &Self) -> bool {
        let same = match (&self.serving, &other.serving) {
            (
                Serving::Failed { reason, digest },
                Serving::Failed {
                    reason: other_reason,
                    digest: other_digest,
                },
            ) => reason == other_reason && digest == other_digest,
            _ => true,
        };
        same && self.serves_like(other)
    }
}

/// Whether a plugin's denials deny.
pub(super) fn enforces(config: &PluginConfig) -> bool {
    config.enabled && config.mode == Mode::Enforce && !config.is_candidate()
}
