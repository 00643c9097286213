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
    /// What comes from a registry just now, with where from.
    pub(super) fetching: BTreeMap<PluginName, String>,
    /// What the first set waits for, with where it is wanted from; none when that serves.
    pub(super) starting: Option<BTreeMap<PluginName, String>>,
}

// === impl Status ===

impl Status {
    /// `starting`: what is waited for before the first set serves, with its source.
    pub(super) fn new(origin: String, starting: BTreeMap<PluginName, String>) -> Self {
        Self(Mutex::new(State {
            origin,
            read: OffsetDateTime::now_utc(),
            invalid: None,
            needs_restart: Vec::new(),
            troubles: BTreeMap::new(),
            fetching: BTreeMap::new(),
            starting: Some(starting),
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
        page["state"] = match (&state.starting, state.is_degraded()) {
            (Some(_), _) => "starting".into(),
            (None, true) => "degraded".into(),
            (None, false) => "ok".into(),
        };
        page["configuration"] = configuration;
        let Some(plugins) = page["plugins"].as_array_mut() else {
            return;
        };
        for (name, (source, trouble)) in &state.troubles {
            let (plugin, serves) = place(plugins, name, source);
            if plugin["state"] == "loaded" {
                plugin["state"] = "degraded".into();
            }
            plugin["wanted"] = trouble.tell();
            if serves {
                plugin["wanted"]["source"] = source.as_str().into();
            }
        }
        for (name, source) in &state.fetching {
            let (plugin, _) = place(plugins, name, source);
            if plugin["wanted"].is_null() {
                plugin["wanted"] = json!({ "source": source });
            }
            plugin["wanted"]["state"] = "fetching".into();
        }
        for (name, source) in state.starting.iter().flatten() {
            let (plugin, _) = place(plugins, name, source);
            plugin["state"] = "loading".into();
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
        let fetching = state.fetching.iter().map(|(name, source)| {
            format!("what is wanted of plugin {name} is being fetched from {source}; what was there before goes on")
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
        let told = invalid.chain(restart).chain(fetching).chain(troubles);
        told.collect()
    }

    /// For `/readyz` before the first set serves: what is waited for.
    pub(super) fn start(&self) -> String {
        let state = self.lock();
        let waits = state.starting.iter().flatten();
        let waits: Vec<String> = waits
            .map(|(name, source)| format!("{name} ({source})"))
            .collect();
        format!(
            "the plugins are being loaded, and reviews answered with 503; waiting for: {}",
            waits.join(", ")
        )
    }
}

/// Where `/plugins` tells of a plugin or a candidate, and whether something of it is there already.
fn place<'p>(
    plugins: &'p mut Vec<Value>,
    name: &PluginName,
    source: &str,
) -> (&'p mut Value, bool) {
    let entry = name.entry();
    let found = plugins.iter().position(|plugin| plugin["name"] == entry);
    let Some(index) = found else {
        // Nothing of it serves, and nothing that serves has changed for its sake.
        plugins.push(json!({ "name": name.as_str(), "source": source, "state": "pending" }));
        let last = plugins.len() - 1;
        return (&mut plugins[last], false);
    };
    let plugin = &mut plugins[index];
    if name.candidate_of().is_none() {
        return (plugin, true);
    }
    // Only the candidate is told to be in trouble: what its plugin answers does not depend on it.
    let candidate = &mut plugin["candidate"];
    if candidate.is_null() {
        *candidate = json!({ "source": source, "state": "pending" });
    }
    (candidate, true)
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

    /// What a reload came to, in a word.
    pub(super) fn result(&self, swapped: bool) -> &'static str {
        match (self.is_degraded(), swapped) {
            (true, _) => "failed",
            (false, true) => "applied",
            (false, false) => "unchanged",
        }
    }

    /// Whether something is wanted that does not serve, other than what a restart would bring.
    pub(super) fn is_degraded(&self) -> bool {
        self.invalid.is_some() || !self.troubles.is_empty()
    }
}
