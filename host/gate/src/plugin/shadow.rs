//! A plugin's shadow, and the comparison between the two.

use std::sync::Arc;

use serde_json::Value;
use tollgate_engine::Guest;

use super::rollout::Tally;
use super::set::{Plugin, PluginState};
use crate::shadow::Counts;

/// A shadow in the set of serving plugins. Its calls run after the answers and decide nothing.
pub(crate) struct Shadow {
    /// The shadow's own configuration, code and state.
    pub(crate) plugin: Arc<Plugin>,
    /// The comparison's counters, which continue while the code of both versions stays the same.
    pub(crate) counts: Arc<Counts>,
    /// The code that is compared: the serving plugin's, then the shadow's.
    compared: Option<(Arc<Guest>, Arc<Guest>)>,
    /// Counts for the step of a rollout that compares; none if the shadow is none of a rollout.
    pub(crate) tally: Option<Arc<Tally>>,
}

// === impl Shadow ===

impl Shadow {
    /// Creates a shadow of `live`, without any comparisons yet.
    pub(super) fn new(plugin: Arc<Plugin>, live: Option<&Arc<Plugin>>) -> Self {
        let compared = live.and_then(guest).zip(guest(&plugin));
        Self {
            plugin,
            counts: Arc::new(Counts::new()),
            compared,
            tally: None,
        }
    }

    /// Name of the plugin that this is the shadow of.
    pub(crate) fn live_name(&self) -> &str {
        self.plugin.config.name.entry()
    }

    /// Whether the code of both versions is loaded, so that they can be compared.
    pub(crate) fn is_ready(&self) -> bool {
        self.compared.is_some()
    }

    /// Takes over the counters of an earlier shadow if the code of both versions is unchanged.
    pub(super) fn continuing(&self, earlier: &Self) -> Self {
        let same = match (&self.compared, &earlier.compared) {
            (Some((live, shadow)), Some((earlier_live, earlier_shadow))) => {
                Arc::ptr_eq(live, earlier_live) && Arc::ptr_eq(shadow, earlier_shadow)
            }
            _ => false,
        };
        let counts = if same { &earlier.counts } else { &self.counts };
        Self {
            plugin: self.plugin.clone(),
            counts: counts.clone(),
            compared: self.compared.clone(),
            tally: self.tally.clone(),
        }
    }

    /// The same shadow, whose comparisons count for a rollout, too.
    pub(super) fn tallied(&self, tally: Arc<Tally>) -> Self {
        Self {
            plugin: self.plugin.clone(),
            counts: self.counts.clone(),
            compared: self.compared.clone(),
            tally: Some(tally),
        }
    }

    /// The shadow's entry in `/plugins`: its status and a summary of the comparison.
    pub(super) fn status(&self) -> Value {
        let mut status = self.plugin.own_status();
        if let Some(status) = status.as_object_mut() {
            status.remove("name");
        }
        if self.is_ready() {
            status["comparison"] = self.counts.summary(&self.plugin.config.limits);
        }
        status
    }

    /// The shadow's entry in `/shadows`.
    pub(super) fn comparison(&self, live: &Plugin) -> Value {
        let mut summary = self.counts.summary(&self.plugin.config.limits);
        summary["plugin"] = self.live_name().into();
        summary["live"] = identity(live);
        summary["shadow"] = identity(&self.plugin);
        summary["differences"] = self.counts.differences().into();
        summary
    }
}

fn guest(plugin: &Arc<Plugin>) -> Option<Arc<Guest>> {
    match &plugin.state {
        PluginState::Loaded(loaded) => loaded.guest.clone(),
        PluginState::Failed { .. } | PluginState::Disabled => None,
    }
}

fn identity(plugin: &Plugin) -> Value {
    let mut identity = serde_json::json!({
        "source": plugin.config.source.to_string(),
        "digest": plugin.digest.as_deref().unwrap_or_default(),
    });
    if let PluginState::Loaded(loaded) = &plugin.state {
        identity["version"] = loaded.manifest.version.as_str().into();
    }
    identity
}
