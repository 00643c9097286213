//! One plugin of a scan.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use tollgate_admission::Endpoint;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_cluster::Served;
use tollgate_config::{Capability, Config, Match};
use tollgate_gate::plugin::{Plugin, PluginState};

use crate::finding::{Covered, Finding, Verdict};
use crate::inventory;
use crate::key::Key;

/// A plugin with the key of its results.
pub struct Judge {
    pub(crate) plugin: Arc<Plugin>,
    /// None if a result cannot be used again: the plugin reads the time or other objects, or is not loaded.
    pub(super) key: Option<Key>,
    /// The faults in a row.
    faults: AtomicU32,
}

/// A review of one object.
pub(super) struct Subject {
    pub(super) body: Bytes,
    /// None if the object is too deep or too large to be shown to plugins.
    pub(super) request: Option<AdmissionRequest>,
}

// === impl Judge ===

impl Judge {
    pub(super) fn new(plugin: &Arc<Plugin>, config: &Config, now: SystemTime) -> Self {
        Self {
            plugin: plugin.clone(),
            key: key(plugin, config, now),
            faults: AtomicU32::new(0),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.plugin.config.name.as_str()
    }

    pub(super) fn mode(&self) -> &'static str {
        self.plugin.config.mode.as_str()
    }

    /// Returns the plugin's rules. None if they are not known, or the plugin is disabled.
    pub(crate) fn matching(&self) -> Option<&Match> {
        match &self.plugin.state {
            PluginState::Loaded(loaded) => Some(&loaded.matching),
            PluginState::Failed { .. } => self.plugin.config.matching.as_ref(),
            PluginState::Disabled => None,
        }
    }

    /// Whether the plugin's rules could match the creation of an object of the resource.
    pub(super) fn could_match(&self, resource: &Served) -> bool {
        let is_disabled = matches!(self.plugin.state, PluginState::Disabled);
        !is_disabled
            && self.matching().is_none_or(|matching| {
                let mut rules = matching.rules().iter();
                rules.any(|rule| inventory::matches(rule, resource))
            })
    }

    /// Returns the endpoints at which the plugin may have something to say. The pipeline decides whether it has.
    pub(super) fn endpoints(&self, subject: &Subject) -> Vec<Endpoint> {
        let could_match = |matching: &Match| {
            let request = subject.request.as_ref();
            request.is_none_or(|request| matching.matches(request).is_some())
        };
        match &self.plugin.state {
            PluginState::Disabled => Vec::new(),
            // One error for each object is enough.
            PluginState::Failed { .. } => {
                let matching = self.plugin.config.matching.as_ref();
                match matching.is_none_or(could_match) {
                    true => vec![Endpoint::Validate],
                    false => Vec::new(),
                }
            }
            PluginState::Loaded(loaded) if could_match(&loaded.matching) => {
                let interfaces = loaded.interfaces();
                let exports = [
                    (interfaces.mutating, Endpoint::Mutate),
                    (interfaces.validating, Endpoint::Validate),
                ];
                let exported = exports.into_iter().filter(|(is_exported, _)| *is_exported);
                exported.map(|(_, endpoint)| endpoint).collect()
            }
            PluginState::Loaded(_) => Vec::new(),
        }
    }

    /// Notes the exceptions that cover the object. The first active one is the one that applied.
    pub(super) fn covered(&self, subject: &Subject, found: &mut Finding, now: SystemTime) {
        let Some(request) = &subject.request else {
            return;
        };
        let mut is_open = found.verdict == Verdict::Skip;
        for (index, exception) in self.plugin.config.exceptions.iter().enumerate() {
            if !exception.covers(request) {
                continue;
            }
            let applied = is_open && exception.is_active(now);
            is_open &= !applied;
            if applied {
                found.exception = Some(exception.label(index));
            }
            found.covered.push(Covered { index, applied });
        }
    }

    /// Takes note of whether the plugin answered.
    pub(super) fn answered(&self, is_answer: bool) {
        if is_answer {
            self.faults.store(0, Ordering::Relaxed);
        } else {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns why the plugin is not called any more in this scan. A plugin that always runs to its limits would keep the
    /// scan busy for hours.
    pub(super) fn given_up(&self, most_faults: Option<u32>) -> Option<String> {
        let most = most_faults?;
        (self.faults.load(Ordering::Relaxed) >= most)
            .then(|| format!("not called: the plugin had {most} faults in a row in this scan"))
    }
}

/// Returns the key of a plugin's results: its code, its entry with settings and exceptions, and which of the exceptions
/// have not expired.
fn key(plugin: &Plugin, config: &Config, now: SystemTime) -> Option<Key> {
    let entry = &plugin.config;
    let reads_time = entry.capabilities.contains(&Capability::Clock);
    let reads_objects = !entry.lookups.is_empty();
    let asks_about_rights = entry.capabilities.contains(&Capability::Access);
    if reads_time
        || reads_objects
        || asks_about_rights
        || !matches!(plugin.state, PluginState::Loaded(_))
    {
        return None;
    }
    // What the file says about listeners and folders is no part of a result.
    let document = config.document(std::iter::once(entry));
    let [entry_text, requests] = ["plugins", "requests"].map(|key| document[key].to_string());
    let active = entry.exceptions.iter();
    let active: String = active
        .map(|exception| if exception.is_active(now) { 'a' } else { 'e' })
        .collect();
    let version = env!("CARGO_PKG_VERSION");
    let digest = plugin.digest.as_deref()?;
    Some(Key::of(&[version, digest, &entry_text, &requests, &active]))
}
