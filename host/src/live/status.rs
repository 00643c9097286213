//! What the keeper has to tell beside the plugins that serve.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::trouble::{Trouble, timestamp};
use crate::config::PluginName;
use crate::plugin::{PluginSet, PluginState};

/// Shared between the keeper, which writes it, and whoever asks.
#[derive(Debug)]
pub(super) struct Status(Mutex<State>);

/// What is told.
#[derive(Debug)]
pub(super) struct State {
    /// The configuration file or folder.
    pub(super) origin: String,
    /// When it was last read and found to be valid.
    pub(super) read: OffsetDateTime,
    /// What is wrong with it now; what it said before is in force.
    pub(super) invalid: Option<String>,
    /// The keys that have changed and are not in force before a restart.
    pub(super) needs_restart: Vec<&'static str>,
    /// What is wanted and cannot be loaded, with where it is wanted from.
    pub(super) troubles: BTreeMap<PluginName, (String, Trouble)>,
}

// === impl Status ===

impl Status {
    pub(super) fn new(origin: String) -> Self {
        Self(Mutex::new(State {
            origin,
            read: OffsetDateTime::now_utc(),
            invalid: None,
            needs_restart: Vec::new(),
            troubles: BTreeMap::new(),
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to what `/plugins` says of the plugins that serve.
    pub(super) fn tell(&self, page: &mut Value) {
        let state = self.lock();
        let mut configuration = json!({
            "source": state.origin,
            "read": timestamp(state.read),
            "needsRestart": state.needs_restart,
        });
        if let Some(reason) = &state.invalid {
            configuration["invalid"] = reason.as_str().into();
        }
        page["state"] = if state.is_degraded() {
            "degraded".into()
        } else {
            "ok".into()
        };
        page["configuration"] = configuration;
        let Some(plugins) = page["plugins"].as_array_mut() else {
            return;
        };
        for (name, (source, trouble)) in &state.troubles {
            let serving = plugins
                .iter_mut()
                .find(|plugin| plugin["name"] == name.entry());
            let serving = match serving {
                // Only the candidate is told to be in trouble: what its plugin answers does not depend on it.
                Some(plugin) if name.candidate_of().is_some() => {
                    let candidate = &mut plugin["candidate"];
                    if candidate.is_null() {
                        *candidate = json!({ "source": source, "state": "pending" });
                    }
                    Some(candidate)
                }
                serving => serving,
            };
            match serving {
                Some(plugin) => {
                    if plugin["state"] == "loaded" {
                        plugin["state"] = "degraded".into();
                    }
                    plugin["wanted"] = trouble.tell();
                    plugin["wanted"]["source"] = source.as_str().into();
                }
                // Nothing of it serves, and nothing that serves has changed for its sake.
                None => plugins.push(json!({
                    "name": name.as_str(),
                    "source": source,
                    "state": "pending",
                    "wanted": trouble.tell(),
                })),
            }
        }
    }

    /// For `/readyz?verbose`, beside what is said of those that are live and were never loaded.
    pub(super) fn lines(&self, live: &PluginSet) -> Vec<String> {
        let state = self.lock();
        let invalid = state.invalid.iter().map(|reason| {
            format!("the configuration cannot be used, what it said before is in force: {reason}")
        });
        let restart = (!state.needs_restart.is_empty()).then(|| {
            let keys = state.needs_restart.join(", ");
            format!("changed and not in force before a restart: {keys}")
        });
        let troubles = state.troubles.iter().filter_map(|(name, (_, trouble))| {
            let reason = &trouble.reason;
            if let Some(plugin) = name.candidate_of() {
                return Some(format!(
                    "the candidate of plugin {plugin} is not as configured, which changes no answer: {reason}"
                ));
            }
            match live.get(name.as_str()).map(|plugin| &plugin.state) {
                Some(PluginState::Loaded(_)) => Some(format!(
                    "plugin {name} is not as configured, what was loaded before serves: {reason}"
                )),
                Some(PluginState::Failed { .. }) => None,
                Some(PluginState::Disabled) | None => Some(format!(
                    "plugin {name} is not asked about anything, because it is not there yet: {reason}"
                )),
            }
        });
        invalid.chain(restart).chain(troubles).collect()
    }
}

// === impl State ===

impl State {
    pub(super) fn trouble(&self, name: &PluginName) -> Option<&Trouble> {
        self.troubles.get(name).map(|(_, trouble)| trouble)
    }

    /// Whether something of this name failed and is to be tried again.
    pub(super) fn is_due(&self, name: &PluginName) -> bool {
        self.trouble(name).is_some_and(Trouble::is_due)
    }

    /// Whether something is wanted that does not serve, other than what a restart would bring.
    pub(super) fn is_degraded(&self) -> bool {
        self.invalid.is_some() || !self.troubles.is_empty()
    }
}
