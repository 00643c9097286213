//! `tenancy`: what plugins of namespaces may do, and how much of the host they may use together.
//!
//! An `AdmissionPlugin` is a plugin of a namespace. Its author has rights in that namespace, and perhaps nowhere else.
//! Everything that an author could turn against the rest of the cluster is therefore allowed here, by an administrator
//! of the cluster. Without the section, namespaces have no plugins of their own.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::cluster::Cluster;
use super::limit::{self, Limits};
use super::plugin::{Capability, Defaults, FailurePolicy, Mode};
use super::read::{Fields, Node};
use super::registry::Reference;
use super::server::EngineConfig;
use super::signature::Signatures;

pub use entry::TenantRefusal;

/// The permissions of plugins of namespaces.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenancy {
    /// Registries and repositories that artifacts may come from, such as `registry.example.com/tenants`.
    pub registries: Vec<Box<str>>,
    /// The signatures and attestations that every artifact must have.
    pub signatures: Signatures,
    /// The capabilities that a plugin may have.
    pub capabilities: BTreeSet<Capability>,
    /// The modes that a plugin may have. The first one is that of a plugin that names none.
    pub modes: Vec<Mode>,
    /// The failure policies that a plugin may have. The first one is that of a plugin that names none.
    pub failure_policies: Vec<FailurePolicy>,
    /// The kinds of objects in the plugin's namespace that settings may come from.
    pub settings_from: BTreeSet<SettingsSource>,
    /// The largest limits that a plugin may have, which are also its default.
    pub limits: Limits,
    /// Maximum number of plugins of all namespaces.
    pub max_plugins: u32,
    /// Maximum number of plugins of one namespace.
    pub max_plugins_per_namespace: u32,
    /// How much of the host all of them may use.
    pub budget: TenantBudget,
}

/// How much of the host the plugins of namespaces may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantBudget {
    /// Maximum number of concurrent calls. A namespace gets at most half of them.
    pub calls: u32,
    /// Fuel per second, for all namespaces together.
    pub fuel: u64,
    /// Fuel per second, for one namespace.
    pub fuel_per_namespace: u64,
    /// CPU time per second, for all namespaces together.
    pub cpu_time: Duration,
    /// CPU time per second, for one namespace.
    pub cpu_time_per_namespace: Duration,
}

/// A kind of object that settings come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingsSource {
    /// ConfigMaps.
    ConfigMap,
    /// Secrets.
    Secret,
}

const KEY: &str = "tenancy";
const REGISTRY_EXPECTED: &str = "a registry, and perhaps the beginning of a repository in whole parts, such as \
    registry.example.com/tenants";
const REGISTRIES_EXPECTED: &str = "at least one registry, such as registry.example.com/tenants; to let namespaces have \
    no plugins, leave `tenancy` out";
const WORDS_EXPECTED: &str = "at least one word, or leave the key out to allow all";

// === impl Tenancy ===

impl Tenancy {
    pub(super) fn read(
        fields: &mut Fields<'_>,
        folder: &Path,
        cluster: &Cluster,
        engine: &EngineConfig,
        defaults: &Defaults,
    ) -> Option<Self> {
        let node = fields.optional(KEY)?;
        let section = node.object()?;
        if !cluster.enabled || cluster.registration.is_none() {
            fields.problem(
                KEY,
                "needs cluster.enabled: true and cluster.registration, because custom resources bring the plugins of \
                 namespaces, and Tollgate registers them in webhooks of their own",
            );
        }
        Self::read_section(section, folder, engine, defaults)
    }

    fn read_section(
        mut section: Fields<'_>,
        folder: &Path,
        engine: &EngineConfig,
        defaults: &Defaults,
    ) -> Option<Self> {
        let registries = section
            .required("registries", REGISTRIES_EXPECTED)
            .and_then(|node| read_registries(&node));
        let signatures =
            Signatures::read(section.section("signatures"), folder, &defaults.signatures);
        let capabilities = read_words(&mut section, "capabilities", Capability::WORDS);
        let modes = read_some(&mut section, "modes", Mode::WORDS);
        let failure_policies = read_some(&mut section, "failurePolicies", FailurePolicy::WORDS);
        let settings_from = read_words(&mut section, "settingsFrom", SettingsSource::WORDS);
        let limits = Limits::read(
            section.section("limits"),
            &defaults.limits,
            engine.max_concurrent_calls,
        );
        let max_plugins = section.amount_u32(&limit::MAX_TENANTS, limit::MAX_TENANTS.default_u32());
        let max_plugins_per_namespace = section.amount_u32(
            &limit::MAX_TENANTS_PER_NAMESPACE,
            limit::MAX_TENANTS_PER_NAMESPACE.default_u32(),
        );
        let budget = TenantBudget::read(section.section("budget"), engine, &limits);
        section.finish();
        Some(Self {
            registries: registries?,
            signatures,
            capabilities: capabilities.into_iter().collect(),
            modes,
            failure_policies,
            settings_from: settings_from.into_iter().collect(),
            limits,
            max_plugins,
            max_plugins_per_namespace,
            budget,
        })
    }

    /// Whether artifacts may come from there.
    fn allows(&self, reference: &Reference) -> bool {
        let name = format!("{}/{}", reference.registry, reference.repository);
        self.registries.iter().any(|allowed| {
            let rest = name.strip_prefix(&**allowed);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

fn read_registries(node: &Node<'_>) -> Option<Vec<Box<str>>> {
    let nodes = node.elements("registries")?;
    if nodes.is_empty() {
        node.reject(REGISTRIES_EXPECTED);
        return None;
    }
    let registries = nodes.iter().map(|node| {
        let text = node.quotable_text(REGISTRY_EXPECTED)?;
        let is_beginning = Reference::parse(&format!("{text}/a:1")).is_ok();
        if !is_beginning {
            node.reject(REGISTRY_EXPECTED);
        }
        is_beginning.then(|| Box::from(text))
    });
    // Every one is read before a failure is returned, so that every problem is reported.
    let registries: Vec<Option<Box<str>>> = registries.collect();
    registries.into_iter().collect()
}

/// Reads a list of words. Without the key, the list is empty.
fn read_words<T: Copy>(fields: &mut Fields<'_>, key: &'static str, words: &[(&str, T)]) -> Vec<T> {
    let nodes = fields
        .optional(key)
        .and_then(|node| node.elements("words"))
        .unwrap_or_default();
    nodes.iter().filter_map(|node| node.word(words)).collect()
}

/// Reads a list of words that is not empty. Without the key, all words are in it.
fn read_some<T: Copy>(fields: &mut Fields<'_>, key: &'static str, words: &[(&str, T)]) -> Vec<T> {
    let is_given = fields.has(key);
    let given = read_words(fields, key, words);
    if !given.is_empty() {
        return given;
    }
    if is_given {
        fields.problem(
            key,
            format!("got no word that counts, expected {WORDS_EXPECTED}"),
        );
    }
    words.iter().map(|(_, word)| *word).collect()
}

// === impl TenantBudget ===

impl TenantBudget {
    fn read(mut section: Fields<'_>, engine: &EngineConfig, limits: &Limits) -> Self {
        let most_calls = Self::most_calls(engine, limits);
        let default = limit::TENANT_CALLS.default_u32().min(most_calls);
        let calls = section.amount_u32(&limit::TENANT_CALLS, default);
        if calls > most_calls {
            section.problem(
                limit::TENANT_CALLS.name(),
                format!(
                    "got {calls}, expected at most {most_calls}: a quarter of engine.maxConcurrentCalls, whose memory \
                     (tenancy.limits.memory) is at most half of engine.maxMemory, so that other plugins keep the rest"
                ),
            );
        }
        let budget = Self {
            calls,
            fuel: section.amount(&limit::TENANT_FUEL, limit::TENANT_FUEL.default),
            fuel_per_namespace: section.amount(
                &limit::TENANT_NAMESPACE_FUEL,
                limit::TENANT_NAMESPACE_FUEL.default,
            ),
            cpu_time: section.duration(
                &limit::TENANT_CPU_TIME,
                limit::TENANT_CPU_TIME.default_duration(),
            ),
            cpu_time_per_namespace: section.duration(
                &limit::TENANT_NAMESPACE_CPU_TIME,
                limit::TENANT_NAMESPACE_CPU_TIME.default_duration(),
            ),
        };
        section.finish();
        budget
    }

    /// The largest number of concurrent calls that leaves enough for other plugins.
    fn most_calls(engine: &EngineConfig, limits: &Limits) -> u32 {
        let by_memory = engine.max_memory_bytes / 2 / limits.memory_bytes.max(1);
        let by_memory = u32::try_from(by_memory).unwrap_or(u32::MAX);
        (engine.max_concurrent_calls / 4).min(by_memory).max(1)
    }

    /// Maximum number of concurrent calls of one namespace.
    #[must_use]
    pub fn calls_per_namespace(&self) -> u32 {
        self.calls.div_ceil(2)
    }
}

// === impl SettingsSource ===

impl SettingsSource {
    const WORDS: &'static [(&'static str, Self)] =
        &[("ConfigMap", Self::ConfigMap), ("Secret", Self::Secret)];

    /// Returns the kind as it is written in a configuration file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

impl fmt::Display for SettingsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
