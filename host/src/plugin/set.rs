//! The plugins as they are at one moment: what one request sees from its start to its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use super::protocol::Manifest;
use super::shadow::Shadow;
use crate::config::{
    Exception, FailurePolicy, Limits, Match, Mode, PluginConfig, format_bytes, format_count,
    format_duration,
};
use crate::engine::{ConfiguredBy, Guest, Phase, UNLOADED, kinds};
use crate::metrics::{Metrics, PluginMetrics};
use crate::registry::Hold;

/// All plugins, in the order in which mutators run, and the candidates of some of them.
#[derive(Default)]
pub struct PluginSet {
    plugins: Vec<Arc<Plugin>>,
    shadows: Vec<Arc<Shadow>>,
}

/// A configured plugin, loaded or not.
pub struct Plugin {
    /// What the configuration says of it.
    pub config: PluginConfig,
    /// SHA-256 of the file as `sha256:…`; empty where the file could not be read.
    pub digest: Arc<str>,
    /// Whether it can be called.
    pub state: PluginState,
    /// Where its calls are counted.
    pub metrics: PluginMetrics,
}

/// Whether a plugin can be called.
pub enum PluginState {
    /// It can.
    Loaded(Box<LoadedPlugin>),
    /// It is not to be: it is not asked about anything.
    Disabled,
    /// It cannot; what it would have matched gets its failurePolicy.
    Failed {
        /// Why.
        reason: String,
    },
}

/// What a plugin is asked about.
pub(crate) enum Asked<'p> {
    /// It is not asked.
    Nothing,
    /// What matches.
    About(&'p Match),
    /// Every request.
    Everything,
}

/// A plugin's code, whatever it is asked about.
pub(crate) struct PluginCode {
    pub(crate) guest: Arc<Guest>,
    pub(crate) manifest: Manifest,
    /// Keeps what it was made of in the cache of what was pulled.
    pub(crate) _hold: Hold,
}

/// A plugin that can be called.
pub struct LoadedPlugin {
    /// What is called. Shared where only the configuration around it has changed.
    pub guest: Arc<Guest>,
    /// What it says of itself.
    pub manifest: Manifest,
    /// What it is asked about: from the configuration, else from the manifest.
    pub matching: Match,
}

// === impl PluginSet ===

impl PluginSet {
    /// A set in the given order. Candidates find their plugins.
    #[must_use]
    pub fn new(plugins: Vec<Arc<Plugin>>) -> Self {
        let (candidates, plugins): (Vec<_>, Vec<_>) = plugins
            .into_iter()
            .partition(|plugin| plugin.config.is_candidate());
        let mut set = Self {
            plugins,
            shadows: Vec::new(),
        };
        let shadows = candidates.into_iter().map(|candidate| {
            let live = set.get(candidate.config.name.entry());
            Arc::new(Shadow::new(candidate, live))
        });
        set.shadows = shadows.collect();
        set
    }

    /// The same, with what has been compared where both that are compared are what they were in an earlier set.
    pub(crate) fn continuing(mut self, earlier: &Self) -> Self {
        for shadow in &mut self.shadows {
            let name = shadow.live_name();
            let mut before = earlier.shadows.iter();
            if let Some(before) = before.find(|before| before.live_name() == name) {
                *shadow = Arc::new(shadow.continuing(before));
            }
        }
        self
    }

    /// The plugins in order, without candidates.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        self.plugins.iter()
    }

    /// The plugins in order, and then the candidates.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        let candidates = self.shadows.iter().map(|shadow| &shadow.plugin);
        self.plugins.iter().chain(candidates)
    }

    /// A plugin or a candidate by name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Plugin>> {
        self.all()
            .find(|plugin| plugin.config.name.as_str() == name)
    }

    /// A plugin's candidate, where both can be called.
    pub(crate) fn shadow_of(&self, plugin: &Plugin) -> Option<&Arc<Shadow>> {
        // Most sets have none.
        self.shadows
            .iter()
            .find(|shadow| shadow.live_name() == plugin.config.name.as_str())
            .filter(|shadow| shadow.is_ready())
    }

    /// A plugin by name; never a candidate.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Plugin>> {
        self.plugins
            .iter()
            .find(|plugin| plugin.config.name.as_str() == name)
    }

    /// Those for which traffic is better kept away for a while: what they would have been asked about is denied, because
    /// they were never loaded.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = &PluginConfig> {
        let awaited = self.plugins.iter().filter(|plugin| {
            matches!(plugin.state, PluginState::Failed { .. })
                && plugin.config.failure_policy == FailurePolicy::Fail
                && plugin.config.mode == Mode::Enforce
        });
        awaited.map(|plugin| &plugin.config)
    }

    /// Tells the metrics what serves from now on, in the place of the earlier set.
    pub(crate) fn announce(&self, earlier: &Self, metrics: &Metrics) {
        let (now, before) = (self.serving(), earlier.serving());
        for (name, digest, version) in before.difference(&now) {
            metrics.plugin_unloaded(name, digest, version);
        }
        for (name, digest, version) in now.difference(&before) {
            metrics.plugin_loaded(name, digest, version);
        }
        for plugin in self.iter() {
            plugin.begin_metrics();
        }
    }

    /// Names, digests and versions.
    fn serving(&self) -> BTreeSet<(&str, &str, &str)> {
        let loaded = self.plugins.iter().filter_map(|plugin| {
            let PluginState::Loaded(loaded) = &plugin.state else {
                return None;
            };
            let name = plugin.config.name.as_str();
            Some((name, &*plugin.digest, loaded.manifest.version.as_str()))
        });
        loaded.collect()
    }

    /// For `/plugins`.
    #[must_use]
    pub fn status(&self) -> serde_json::Value {
        let plugins = self.plugins.iter().map(|plugin| {
            let mut status = plugin.status();
            let name = plugin.config.name.as_str();
            let mut shadows = self.shadows.iter();
            if let Some(shadow) = shadows.find(|shadow| shadow.live_name() == name) {
                status["candidate"] = shadow.status();
            }
            status
        });
        serde_json::json!({ "plugins": plugins.collect::<Vec<_>>() })
    }

    /// For `/candidates`.
    pub(crate) fn comparisons(&self) -> serde_json::Value {
        let comparisons = self.shadows.iter().filter_map(|shadow| {
            let live = self.get(shadow.live_name())?;
            shadow.is_ready().then(|| shadow.comparison(live))
        });
        serde_json::json!({ "candidates": comparisons.collect::<Vec<_>>() })
    }
}

// === impl Plugin ===

impl Plugin {
    /// Shows what can be counted of it at zero.
    fn begin_metrics(&self) {
        let policy = self.config.failure_policy.as_str();
        for phase in [Phase::Mutate, Phase::Validate] {
            match &self.state {
                PluginState::Disabled => {}
                PluginState::Failed { .. } => self.metrics.expect(phase, &UNLOADED, policy),
                PluginState::Loaded(loaded) if loaded.guest.interfaces().exports(phase) => {
                    self.metrics.expect(phase, &kinds(phase), policy);
                    self.metrics.begin(phase);
                }
                PluginState::Loaded(_) => {}
            }
        }
    }

    /// What it is asked about in this phase. One that never loaded and whose rules are not in the configuration is
    /// asked about everything: what it would have judged is not known, and skipping it would open the gate.
    pub(crate) fn asked(&self, phase: Phase) -> Asked<'_> {
        match &self.state {
            PluginState::Disabled => Asked::Nothing,
            PluginState::Loaded(loaded) => {
                if loaded.guest.interfaces().exports(phase) {
                    Asked::About(&loaded.matching)
                } else {
                    Asked::Nothing
                }
            }
            PluginState::Failed { .. } => match &self.config.matching {
                Some(matching) => Asked::About(matching),
                None => Asked::Everything,
            },
        }
    }

    pub(super) fn status(&self) -> serde_json::Value {
        let mut status = serde_json::json!({
            "name": self.config.name.as_str(),
            "source": self.config.source.to_string(),
            "digest": &*self.digest,
            "mode": self.config.mode.as_str(),
            "failurePolicy": self.config.failure_policy.as_str(),
            "reinvocationPolicy": self.config.reinvocation_policy.as_str(),
            "conflicts": self.config.conflicts.as_str(),
            "existingViolations": self.config.existing_violations.as_str(),
            "exceptions": self.config.exceptions.iter().map(exception).collect::<Vec<_>>(),
            "limits": limits(&self.config.limits),
        });
        if let Some(matching) = &self.config.matching {
            status["match"] = narrowed(matching);
        }
        let more = match &self.state {
            PluginState::Disabled => serde_json::json!({ "state": "disabled" }),
            PluginState::Failed { reason } => {
                serde_json::json!({ "state": "failed", "reason": reason })
            }
            PluginState::Loaded(loaded) => {
                let interfaces = loaded.guest.interfaces();
                let mut exports = Vec::new();
                if interfaces.mutating {
                    exports.push("mutate");
                }
                if interfaces.validating {
                    exports.push("validate");
                }
                let configure = match loaded.guest.configured() {
                    ConfiguredBy::Snapshot => serde_json::json!({ "once": true }),
                    ConfiguredBy::EachCall { reason, .. } => {
                        serde_json::json!({ "once": false, "reason": reason })
                    }
                };
                serde_json::json!({
                    "state": "loaded",
                    "manifest": {
                        "name": loaded.manifest.name,
                        "version": loaded.manifest.version,
                        "description": loaded.manifest.description,
                        "labels": loaded.manifest.labels.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
                    },
                    "exports": exports,
                    "rules": loaded.matching.rules().iter().map(ToString::to_string).collect::<Vec<_>>(),
                    "rulesFrom": if self.config.matching.is_some() { "configuration" } else { "plugin" },
                    "configured": configure,
                })
            }
        };
        if let (Some(status), serde_json::Value::Object(more)) = (status.as_object_mut(), more) {
            status.extend(more);
        }
        status
    }
}

/// With the configuration's keys, and whether it still counts.
fn exception(exception: &Exception) -> serde_json::Value {
    let state = if exception.is_active(SystemTime::now()) {
        "active"
    } else {
        "expired"
    };
    let mut status = serde_json::json!({
        "state": state,
        "until": exception.until(),
        "reason": exception.reason(),
    });
    for (key, list) in exception.lists() {
        status[key] = list.iter().map(|name| &**name).collect();
    }
    status
}

/// What the configuration says beside the rules, with its keys.
fn narrowed(matching: &Match) -> serde_json::Value {
    let mut status = serde_json::json!({});
    for (key, list) in [
        ("namespaces", &matching.namespaces),
        ("excludeNamespaces", &matching.exclude_namespaces),
        ("excludeUsers", &matching.exclude_users),
        ("excludeGroups", &matching.exclude_groups),
    ] {
        if !list.is_empty() {
            status[key] = list.iter().map(|name| &**name).collect();
        }
    }
    let selector = matching.object_selector.to_string();
    if !selector.is_empty() {
        status["objectSelector"] = selector.into();
    }
    if !matching.conditions.is_empty() {
        let conditions = matching.conditions.iter().map(|condition| {
            serde_json::json!({ "name": condition.name(), "expression": condition.text() })
        });
        status["matchConditions"] = conditions.collect();
    }
    status
}

/// By the configuration's keys and in its units.
fn limits(limits: &Limits) -> serde_json::Value {
    serde_json::json!({
        "fuel": format_count(limits.fuel),
        "cpuTime": format_duration(limits.cpu_time),
        "timeout": format_duration(limits.timeout),
        "memory": format_bytes(limits.memory_bytes),
        "memories": limits.memories,
        "tables": limits.tables,
        "tableElements": limits.table_elements,
        "instances": limits.instances,
        "output": format_bytes(limits.output_bytes),
        "patchOperations": limits.patch_operations,
        "warnings": limits.warnings,
        "annotations": limits.annotations,
        "logLines": limits.log_lines,
        "concurrency": limits.concurrency,
    })
}
