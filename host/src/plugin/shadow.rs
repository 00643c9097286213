//! A plugin's candidate, and what comparing the two has come to.

use std::sync::Arc;

use serde_json::Value;

use super::set::{Plugin, PluginState};
use crate::comparison::Tally;
use crate::engine::Guest;

/// A candidate in the set of live plugins. It runs behind the answers and decides nothing.
pub(crate) struct Shadow {
    /// Its own configuration, code and state.
    pub(crate) plugin: Arc<Plugin>,
    /// Goes on for as long as the code of both is the same.
    pub(crate) tally: Arc<Tally>,
    /// What was compared: the plugin's code, and the candidate's.
    compared: Option<(Arc<Guest>, Arc<Guest>)>,
}

// === impl Shadow ===

impl Shadow {
    /// A candidate of `live`, with nothing compared yet.
    pub(super) fn new(plugin: Arc<Plugin>, live: Option<&Arc<Plugin>>) -> Self {
        let compared = live.and_then(guest).zip(guest(&plugin));
        Self {
            plugin,
            tally: Arc::new(Tally::new()),
            compared,
        }
    }

    /// The name of the plugin whose candidate it is.
    pub(crate) fn live_name(&self) -> &str {
        self.plugin.config.name.entry()
    }

    /// Whether there is anything to compare: code of both.
    pub(crate) fn is_ready(&self) -> bool {
        self.compared.is_some()
    }

    /// The same, with an earlier tally where both are what they were then.
    pub(super) fn continuing(&self, earlier: &Self) -> Self {
        let same = match (&self.compared, &earlier.compared) {
            (Some((live, candidate)), Some((earlier_live, earlier_candidate))) => {
                Arc::ptr_eq(live, earlier_live) && Arc::ptr_eq(candidate, earlier_candidate)
            }
            _ => false,
        };
        let tally = if same { &earlier.tally } else { &self.tally };
        Self {
            plugin: self.plugin.clone(),
            tally: tally.clone(),
            compared: self.compared.clone(),
        }
    }

    /// What `/plugins` says of it: itself, and what has been counted.
    pub(super) fn status(&self) -> Value {
        let mut status = self.plugin.status();
        if let Some(status) = status.as_object_mut() {
            // The plugin's own, or without a meaning.
            for key in [
                "name",
                "mode",
                "failurePolicy",
                "reinvocationPolicy",
                "conflicts",
                "existingViolations",
                "exceptions",
                "match",
            ] {
                status.remove(key);
            }
        }
        if self.is_ready() {
            status["comparison"] = self.tally.summary(&self.plugin.config.limits);
        }
        status
    }

    /// What `/candidates` says of it.
    pub(super) fn comparison(&self, live: &Plugin) -> Value {
        let mut told = self.tally.summary(&self.plugin.config.limits);
        told["plugin"] = self.live_name().into();
        told["live"] = identity(live);
        told["candidate"] = identity(&self.plugin);
        told["differences"] = self.tally.differences().into();
        told
    }
}

fn guest(plugin: &Arc<Plugin>) -> Option<Arc<Guest>> {
    match &plugin.state {
        PluginState::Loaded(loaded) => Some(loaded.guest.clone()),
        PluginState::Failed { .. } | PluginState::Disabled => None,
    }
}

fn identity(plugin: &Plugin) -> Value {
    let mut identity = serde_json::json!({
        "source": plugin.config.source.to_string(),
        "digest": &*plugin.digest,
    });
    if let PluginState::Loaded(loaded) = &plugin.state {
        identity["version"] = loaded.manifest.version.as_str().into();
    }
    identity
}
