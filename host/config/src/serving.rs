//! The plugins that serve on this replica, as other crates see them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plugin::{PluginConfig, PluginName};
use super::rule::Match;

/// The plugins of this replica at one moment: those in effect, and the difference to the desired ones.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    /// The plugins in effect, in order, without shadow versions.
    pub plugins: Vec<ServingPlugin>,
    /// Plugins whose desired version cannot be loaded, each with the reason.
    pub troubles: BTreeMap<PluginName, String>,
    /// The plugins in `troubles` whose artifact is not signed as required.
    pub unsigned: BTreeSet<PluginName>,
    /// Plugins whose desired version is being loaded.
    pub loading: BTreeSet<PluginName>,
    /// Plugins that are kept at their previous configuration because another plugin does not serve as desired, each
    /// with what to do.
    pub held: BTreeMap<PluginName, String>,
    /// The problems of the configuration file, if it is not valid.
    pub invalid: Option<String>,
}

/// A plugin in effect.
#[derive(Clone, Debug)]
pub struct ServingPlugin {
    /// The entry that applies.
    pub config: Arc<PluginConfig>,
    /// SHA-256 of the plugin's bytes as `sha256:…`. None if they could not be read, or are not needed.
    pub digest: Option<Arc<str>>,
    /// Whether the plugin is called.
    pub state: ServingState,
}

/// Whether a plugin in effect is called.
#[derive(Clone, Debug)]
pub enum ServingState {
    /// The plugin is called.
    Loaded {
        /// The requests that the plugin is called for.
        matching: Match,
        /// Whether the plugin mutates.
        mutates: bool,
        /// Whether the plugin validates.
        validates: bool,
    },
    /// The plugin has no code. Its `failurePolicy` decides.
    Failed {
        /// The reason.
        reason: String,
    },
    /// The configuration disables the plugin.
    Disabled,
}

// === impl Serving ===

impl Serving {
    /// Finds a plugin in effect.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ServingPlugin> {
        self.plugins
            .iter()
            .find(|plugin| plugin.config.name.as_str() == name)
    }
}
