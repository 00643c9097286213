//! The places: one for each plugin in effect, with its entry and the code that serves.

use std::sync::Arc;

use tollgate_config::stamp::Stamp;
use tollgate_config::{FailurePolicy, Mode, PluginConfig};

/// A plugin's code, ready to be called. Opaque to the reconciler, whose decisions do not depend on WebAssembly. Cloning
/// is cheap.
pub(crate) trait Code: Clone {
    /// Whether both are the same code in memory.
    fn is(&self, other: &Self) -> bool;

    /// Whether the code can be called as this entry says.
    ///
    /// # Errors
    /// The reason why not. Without rules, Tollgate does not know when to call the plugin.
    fn fits(&self, config: &PluginConfig) -> Result<(), String>;
}

/// Code, with the digest of the bytes that it was made from.
#[derive(Clone, Debug)]
pub(crate) struct Loaded<C> {
    pub(crate) digest: Arc<str>,
    pub(crate) code: C,
    /// The reason why the registry may have another version by now.
    pub(crate) stale: Option<String>,
    /// The stamps of the keys and trusted roots that its load has read; `None` if they are not known.
    pub(crate) keys: Option<Arc<[Option<Stamp>]>>,
}

/// A plugin in effect: the entry that applies, and the code that serves.
#[derive(Clone, Debug)]
pub(crate) struct Place<C> {
    pub(crate) config: PluginConfig,
    pub(crate) serving: Serving<C>,
}

/// The part of a plugin that serves.
#[derive(Clone, Debug)]
pub(crate) enum Serving<C> {
    /// The plugin has code, which is called.
    Code(Loaded<C>),
    /// The plugin has no code to call, so its failurePolicy decides.
    Failed {
        reason: String,
        /// Digest of the unusable bytes; `None` if the bytes are not the reason.
        digest: Option<Arc<str>>,
    },
    /// The plugin is disabled and is not called.
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

    /// Whether requests are denied because the plugin has no code to call.
    pub(super) fn denies_by_fault(&self) -> bool {
        self.is_failed()
            && enforces(&self.config)
            && self.config.failure_policy == FailurePolicy::Fail
    }

    /// Whether both places treat requests the same way. The reasons for missing code may differ.
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

    /// Whether both places treat requests the same way, and code is missing for the same reason.
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

/// Whether the plugin's denials deny requests. A rollout may have made the plugin enforce already.
pub(in crate::live) fn enforces(config: &PluginConfig) -> bool {
    let is_meant_to = config.mode == Mode::Enforce || config.rollout.is_some();
    config.enabled && is_meant_to && !config.is_shadow()
}
