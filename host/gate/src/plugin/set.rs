//! The set of plugins that one request sees from start to end.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tollgate_admission::Phase;
use tollgate_config::{
    FailurePolicy, Limits, Match, Mode, PluginConfig, format_bytes, format_count, format_duration,
};
use tollgate_engine::{ConfiguredBy, Guest, Interfaces, UNLOADED, kinds};
use tollgate_oci::Hold;
use tollgate_telemetry::metrics::{Metrics, PluginMetrics};

use super::group::{self, Group};
use super::protocol::Manifest;
use super::rollout::{Rollout, Tally};
use super::shadow::Shadow;
use super::worker::Unfinished;
use super::{excepting, lookups};

/// All plugins in the order in which mutators run, and the shadows of some of them.
#[derive(Default)]
pub struct PluginSet {
    plugins: Vec<Arc<Plugin>>,
    shadows: Vec<Arc<Shadow>>,
    pub(super) rollouts: Vec<Rollout>,
}

/// A configured plugin, whether loaded or not.
pub struct Plugin {
    /// Configuration of the plugin.
    pub config: PluginConfig,
    /// SHA-256 of the file as `sha256:…`; `None` if the plugin is disabled or the file could not be read.
    pub digest: Option<Arc<str>>,
    /// Whether the plugin can be called.
    pub state: PluginState,
    /// Metrics of the plugin's calls.
    pub metrics: PluginMetrics,
    /// The members, if the plugin is a group.
    pub group: Option<Arc<Group>>,
}

/// Whether a plugin can be called.
pub enum PluginState {
    /// The plugin can be called.
    Loaded(Box<LoadedPlugin>),
    /// The configuration disables the plugin, so it gets no requests.
    Disabled,
    /// The plugin cannot be called. Its `failurePolicy` applies to the requests that it would match.
    Failed {
        /// The reason why the plugin could not be loaded.
        reason: String,
    },
}

/// The requests that a plugin evaluates.
pub(crate) enum RequestFilter<'p> {
    /// No request.
    Nothing,
    /// The requests that match.
    Matching(&'p Match),
    /// Every request.
    Everything,
}

/// A plugin's code, independent of its rules.
pub(crate) struct PluginCode {
    pub(crate) guest: Arc<Guest>,
    pub(crate) manifest: Manifest,
    /// What is left to do while the guest has interim code. It has the whole component.
    pub(super) unfinished: Mutex<Option<Box<Unfinished>>>,
    /// Keeps the plugin's artifact in the cache.
    pub(crate) _hold: Hold,
}

/// A plugin that can be called.
pub struct LoadedPlugin {
    /// The linked code. Plugins share it when only the configuration around it has changed. None for a group: its members
    /// have the code.
    pub guest: Option<Arc<Guest>>,
    /// The plugin's description of itself.
    pub manifest: Manifest,
    /// Rules for the plugin's requests: from the configuration, or else from the manifest.
    pub matching: Match,
}

// === impl PluginSet ===

impl PluginSet {
    /// Creates a set in the given order, puts the members of groups together, and assigns each shadow to its plugin.
    #[must_use]
    pub fn new(plugins: Vec<Arc<Plugin>>) -> Self {
        let (shadows, plugins): (Vec<_>, Vec<_>) = plugins
            .into_iter()
            .partition(|plugin| plugin.config.is_shadow());
        let mut set = Self {
            plugins: group::assemble(plugins),
            shadows: Vec::new(),
            rollouts: Vec::new(),
        };
        let shadows = shadows.into_iter().map(|shadow| {
            let live = set.get(shadow.config.name.entry());
            Arc::new(Shadow::new(shadow, live))
        });
        set.shadows = shadows.collect();
        set
    }

    /// Continues the comparisons of an earlier set, for each shadow whose code and whose plugin's code are unchanged.
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

    /// Counts the comparisons of a plugin's shadow for its rollout, too.
    pub(super) fn tally_shadow(&mut self, name: &str, tally: &Arc<Tally>) {
        for shadow in &mut self.shadows {
            if shadow.live_name() == name {
                *shadow = Arc::new(shadow.tallied(tally.clone()));
            }
        }
    }

    /// The plugins in order, without shadows.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        self.plugins.iter()
    }

    /// The plugins in order, then the shadows.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        let shadows = self.shadows.iter().map(|shadow| &shadow.plugin);
        self.plugins.iter().chain(shadows)
    }

    /// The plugins and shadows that a set like this one is made of: the members in place of their groups.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        self.all().flat_map(|plugin| match &plugin.group {
            Some(group) => group.members.as_slice(),
            None => std::slice::from_ref(plugin),
        })
    }

    /// Returns the same plugins for calls beside those of reviews, without shadows and without the new versions of rollouts. The calls take no place of a review's
    /// call and count in these metrics. A call may take `longest`, so in general only fuel ends it.
    #[must_use]
    pub fn apart(&self, metrics: &Metrics, longest: Duration) -> Self {
        let plugins = self.plugins.iter();
        Self {
            plugins: plugins
                .map(|plugin| Arc::new(plugin.apart(metrics, longest)))
                .collect(),
            shadows: Vec::new(),
            rollouts: Vec::new(),
        }
    }

    /// Returns the plugins that have exceptions, without these, as [`PluginSet::apart`] does.
    #[must_use]
    pub fn without_exceptions(&self, metrics: &Metrics, longest: Duration) -> Self {
        let plugins = self.plugins.iter();
        let excepting = plugins.filter(|plugin| !plugin.config.exceptions.is_empty());
        Self {
            plugins: excepting
                .map(|plugin| {
                    let mut plugin = plugin.apart(metrics, longest);
                    plugin.config.exceptions.clear();
                    Arc::new(plugin)
                })
                .collect(),
            shadows: Vec::new(),
            rollouts: Vec::new(),
        }
    }

    /// Whether the set has no plugin.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plugins.is_empty()
    }

    /// Finds a plugin or a shadow by name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Plugin>> {
        self.all()
            .find(|plugin| plugin.config.name.as_str() == name)
    }

    /// A plugin's shadow, if both can be called.
    pub(crate) fn shadow_of(&self, plugin: &Plugin) -> Option<&Arc<Shadow>> {
        // Most sets have no shadows.
        self.shadows
            .iter()
            .find(|shadow| shadow.live_name() == plugin.config.name.as_str())
            .filter(|shadow| shadow.is_ready())
    }

    /// Finds a plugin by name, but never a shadow.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Plugin>> {
        self.plugins
            .iter()
            .find(|plugin| plugin.config.name.as_str() == name)
    }

    /// The plugins that traffic should wait for.
    ///
    /// Such a plugin was never loaded or has a lookup whose objects have never been read, is enforced and has
    /// `failurePolicy: Fail`. Tollgate denies the requests that it would match, or the plugin does. A plugin of a
    /// namespace is never awaited: its author must not keep replicas from serving the cluster.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = &PluginConfig> {
        let awaited = self.promoted().filter(|plugin| {
            let is_missing = match &plugin.state {
                PluginState::Failed { .. } => true,
                PluginState::Loaded(_) => plugin.waits_for().is_some(),
                PluginState::Disabled => false,
            };
            is_missing
                && plugin.config.name.namespace().is_none()
                && plugin.config.failure_policy == FailurePolicy::Fail
                && plugin.config.mode == Mode::Enforce
        });
        awaited.map(|plugin| &plugin.config)
    }

    /// Updates the metrics when this set replaces the earlier one.
    pub(crate) fn announce(&self, earlier: &Self, metrics: &Metrics) {
        let (now, before) = (self.serving(), earlier.serving());
        for (name, digest, version) in before.difference(&now) {
            metrics.plugin_unloaded(name, digest, version);
        }
        for (name, digest, version) in now.difference(&before) {
            metrics.plugin_loaded(name, digest, version);
        }
        for plugin in self.all().filter(|plugin| plugin.group.is_some()) {
            plugin.begin_metrics();
        }
        for plugin in self.parts() {
            plugin.begin_metrics();
        }
        let probes = self.parts().flat_map(|plugin| lookups::probes(plugin));
        metrics.observe_lookups(probes.collect());
    }

    /// Names, digests and versions of the loaded plugins.
    fn serving(&self) -> BTreeSet<(&str, &str, &str)> {
        let loaded = self.parts().filter(|plugin| !plugin.config.is_shadow());
        let loaded = loaded.filter_map(|plugin| {
            let PluginState::Loaded(loaded) = &plugin.state else {
                return None;
            };
            let name = plugin.config.name.as_str();
            let digest = plugin.digest.as_deref().unwrap_or_default();
            Some((name, digest, loaded.manifest.version.as_str()))
        });
        loaded.collect()
    }

    /// The response of `/plugins`.
    #[must_use]
    pub fn status(&self) -> serde_json::Value {
        let plugins = self.plugins.iter().map(|plugin| {
            let mut status = plugin.status();
            let name = plugin.config.name.as_str();
            let mut shadows = self.shadows.iter();
            if let Some(shadow) = shadows.find(|shadow| shadow.live_name() == name) {
                status["shadow"] = shadow.status();
            }
            status
        });
        serde_json::json!({ "plugins": plugins.collect::<Vec<_>>() })
    }

    /// The response of `/shadows`.
    pub(crate) fn comparisons(&self) -> serde_json::Value {
        let comparisons = self.shadows.iter().filter_map(|shadow| {
            let live = self.get(shadow.live_name())?;
            shadow.is_ready().then(|| shadow.comparison(live))
        });
        serde_json::json!({ "shadows": comparisons.collect::<Vec<_>>() })
    }
}

// === impl LoadedPlugin ===

impl LoadedPlugin {
    /// Whether the plugin's code is only there until the optimised code is ready.
    fn is_interim(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.is_interim())
    }

    /// What the plugin is called for. A group only validates.
    #[must_use]
    pub fn interfaces(&self) -> Interfaces {
        match &self.guest {
            Some(guest) => guest.interfaces(),
            None => Interfaces {
                mutating: false,
                validating: true,
            },
        }
    }
}

// === impl Plugin ===

impl Plugin {
    fn apart(&self, metrics: &Metrics, longest: Duration) -> Self {
        let mut config = self.config.clone();
        config.limits.cpu_time = longest;
        config.limits.timeout = longest;
        let state = match &self.state {
            PluginState::Loaded(loaded) => PluginState::Loaded(Box::new(LoadedPlugin {
                guest: loaded.guest.as_ref().map(|guest| {
                    Arc::new(guest.apart(Limits {
                        cpu_time: longest,
                        timeout: longest,
                        ..guest.limits().clone()
                    }))
                }),
                manifest: loaded.manifest.clone(),
                matching: loaded.matching.clone(),
            })),
            PluginState::Disabled => PluginState::Disabled,
            PluginState::Failed { reason } => PluginState::Failed {
                reason: reason.clone(),
            },
        };
        let group = self.group.as_ref();
        Self {
            metrics: metrics.plugin(config.name.as_str()),
            config,
            digest: self.digest.clone(),
            state,
            group: group.map(|group| group.apart(|member| member.apart(metrics, longest))),
        }
    }

    /// The objects that the plugin waits for, in words. None if it has all of them.
    pub(crate) fn waits_for(&self) -> Option<String> {
        if let Some(group) = &self.group {
            return group.members.iter().find_map(|member| member.waits_for());
        }
        match &self.state {
            PluginState::Loaded(loaded) => loaded.guest.as_ref()?.lookups().waits_for(),
            PluginState::Failed { .. } | PluginState::Disabled => None,
        }
    }

    /// Creates the plugin's counters, so that they show zero before the first event.
    fn begin_metrics(&self) {
        if !matches!(self.state, PluginState::Disabled) {
            for (index, exception) in self.config.exceptions.iter().enumerate() {
                self.metrics.expect_exception(&exception.label(index));
            }
        }
        let policy = self.config.failure_policy.as_str();
        for phase in [Phase::Mutate, Phase::Validate] {
            match &self.state {
                PluginState::Disabled => {}
                PluginState::Failed { .. } => self.metrics.expect(phase, &UNLOADED, policy),
                PluginState::Loaded(loaded) if loaded.interfaces().exports(phase) => {
                    self.metrics.expect(phase, &kinds(phase), policy);
                    self.metrics.begin(phase);
                }
                PluginState::Loaded(_) => {}
            }
        }
    }

    /// The requests that the plugin gets in this phase.
    ///
    /// A plugin that never loaded gets every request, unless the configuration has its rules. Tollgate does not know
    /// the rules in its manifest, and skipping the plugin would open the gate.
    pub(crate) fn request_filter(&self, phase: Phase) -> RequestFilter<'_> {
        match &self.state {
            PluginState::Disabled => RequestFilter::Nothing,
            PluginState::Loaded(loaded) => {
                if loaded.interfaces().exports(phase) {
                    RequestFilter::Matching(&loaded.matching)
                } else {
                    RequestFilter::Nothing
                }
            }
            PluginState::Failed { .. } => match &self.config.matching {
                Some(matching) => RequestFilter::Matching(matching),
                None => RequestFilter::Everything,
            },
        }
    }

    /// Returns the status of a plugin that is a part of an entry, such as a member of a group. It lacks the keys that the
    /// entry around it has, or that have no meaning for a part.
    pub(super) fn own_status(&self) -> serde_json::Value {
        let mut status = self.status();
        if let Some(status) = status.as_object_mut() {
            for key in [
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
        status
    }

    pub(super) fn status(&self) -> serde_json::Value {
        let mut status = serde_json::json!({
            "name": self.config.name.as_str(),
            "source": self.config.source.to_string(),
            "digest": self.digest.as_deref().unwrap_or_default(),
            "mode": self.config.mode.as_str(),
            "failurePolicy": self.config.failure_policy.as_str(),
            "reinvocationPolicy": self.config.reinvocation_policy.as_str(),
            "conflicts": self.config.conflicts.as_str(),
            "existingViolations": self.config.existing_violations.as_str(),
            "exceptions": excepting::status(&self.config.exceptions, &self.metrics, SystemTime::now()),
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
                let interfaces = loaded.interfaces();
                let mut exports = Vec::new();
                if interfaces.mutating {
                    exports.push("mutate");
                }
                if interfaces.validating {
                    exports.push("validate");
                }
                let configure = match loaded.guest.as_ref().map(|guest| guest.configured()) {
                    None | Some(ConfiguredBy::Snapshot) => serde_json::json!({ "once": true }),
                    Some(ConfiguredBy::EachCall { reason, .. }) => {
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
                    "code": if loaded.is_interim() { "interim" } else { "optimised" },
                    "keepsInstances": loaded.guest.as_ref().is_some_and(|guest| guest.has_keeper()),
                    "idleInstances": loaded.guest.as_ref().map_or(0, |guest| guest.idle_instances()),
                })
            }
        };
        if let PluginState::Loaded(loaded) = &self.state
            && !self.config.lookups.is_empty()
            && let Some(guest) = &loaded.guest
        {
            status["lookups"] = lookups::status(guest);
        }
        if let (Some(status), serde_json::Value::Object(more)) = (status.as_object_mut(), more) {
            status.extend(more);
        }
        if let Some(group) = &self.group {
            group.add_to(&mut status);
        }
        status
    }
}

/// Shows the restrictions in addition to the rules, with the configuration's keys.
fn narrowed(matching: &Match) -> serde_json::Value {
    let mut status = serde_json::json!({});
    if matching.pod_templates {
        status["podTemplates"] = true.into();
    }
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
    for (key, selector) in [
        ("namespaceSelector", &matching.namespace_selector),
        ("objectSelector", &matching.object_selector),
    ] {
        let selector = selector.to_string();
        if !selector.is_empty() {
            status[key] = selector.into();
        }
    }
    if !matching.conditions.is_empty() {
        let conditions = matching.conditions.iter().map(|condition| {
            serde_json::json!({ "name": condition.name(), "expression": condition.text() })
        });
        status["matchConditions"] = conditions.collect();
    }
    status
}

/// Shows limits with the configuration's keys and units.
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
