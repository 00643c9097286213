//! Merges custom resources into the configuration. Pure: the resources come in, and a [`Plan`] goes out.
//!
//! - An entry of the file wins over a resource of the same name.
//! - A resource that cannot be used keeps its last valid version.
//! - Before the first lists are read, the last known good stands for the resources.
//! - Plugins and exceptions of namespaces do what `tenancy` allows, and nothing beyond their namespaces.

mod exceptions;
mod tenants;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_config::problem::Collector;
use tollgate_config::{Config, PluginConfig, PluginName, SettingsSource, Tenancy};

use crate::kinds::Resource;
use crate::settings::{self, Held, Holder, HolderKind};

/// The objects of the cluster that the plan depends on, as they were last seen.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// The plugins by name. None before they were listed.
    pub(crate) plugins: Option<BTreeMap<String, Resource>>,
    /// The plugins of namespaces by namespace and name. None before they were listed.
    pub(crate) tenants: Option<BTreeMap<String, Resource>>,
    /// The exceptions by name; those of other namespaces than the installation's by namespace and name. None before they
    /// were listed.
    pub(crate) exceptions: Option<BTreeMap<String, Resource>>,
    /// The objects that hold settings.
    pub(crate) held: BTreeMap<Holder, Held>,
    /// The namespace of the installation. None if the resources come from files, and nobody has said it.
    pub(crate) namespace: Option<String>,
    /// The kinds of objects that may hold settings for plugins of namespaces. None if namespaces have no plugins: the
    /// process was started without `tenancy`.
    pub(crate) tenancy: Option<BTreeSet<SettingsSource>>,
}

/// The entries that resources desired when they last were valid, by name.
pub(crate) type Kept = BTreeMap<String, Entry>;

/// A plugin with its shadow version or the members of a group, and the place in the order.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The resource that it comes from. None for an entry of the last known good.
    pub(crate) uid: Option<String>,
    /// The section that allowed the entry, if it is a plugin of a namespace.
    pub(crate) tenancy: Option<Arc<Tenancy>>,
    pub(crate) order: i64,
    /// The plugin. The members, if the entry is a group.
    pub(crate) plugins: Vec<PluginConfig>,
    pub(crate) shadow: Option<PluginConfig>,
}

/// The desired plugins, and the verdict about each resource.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The configuration with all plugins, those of the file and those of resources.
    pub config: Config,
    /// The verdict about each `ClusterAdmissionPlugin`, by name, and about each `AdmissionPlugin`, by namespace and name
    /// with a slash between them.
    pub plugins: BTreeMap<String, Verdict>,
    /// The verdict about each `PluginException`, by name. For exceptions of other namespaces than the installation's,
    /// the name has the form `NAMESPACE/NAME`.
    pub exceptions: BTreeMap<String, Verdict>,
}

/// The result of reading a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The resource's uid.
    pub uid: String,
    /// The generation that was read.
    pub generation: i64,
    /// The reason why the resource does not have the desired effect, if there is one.
    pub refusal: Option<Refusal>,
    /// Whether an earlier version of the resource stays in effect.
    pub is_kept: bool,
}

/// The reason why a resource has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason in CamelCase, for programs.
    pub reason: &'static str,
    /// The problem and its remedy, for people.
    pub message: String,
}

/// Without a leader, nobody decides for all replicas.
const NO_LEADER: &str = "spec.rollout: needs cluster.registration, because the leader of the replicas decides about a rollout: \
    enable it, or write the plugin into the configuration file";

/// The spec of a resource, as an entry of the file would be written.
struct Stripped {
    spec: Value,
    order: i64,
    /// Whether settings come from a Secret.
    is_secret: bool,
}

/// The place of the file's entries in the order.
const ORDER_OF_FILE: i64 = 0;

/// Adds the resources to the configuration that the file holds.
pub(crate) fn plan(file: &Config, folder: &Path, world: &World, kept: &mut Kept) -> Plan {
    let mut verdicts = BTreeMap::new();
    kept.retain(|name, _| !has(file, name));
    if let Some(resources) = &world.plugins {
        kept.retain(|name, entry| {
            let resource = resources.get(name);
            tenants::is_tenant(name)
                || resource.is_some_and(|resource| {
                    entry.uid.as_ref().is_none_or(|uid| *uid == resource.uid)
                })
        });
        for (name, resource) in resources {
            let read = entry(file, folder, resource, &world.held);
            verdicts.insert(name.clone(), keep(name, resource, read, kept));
        }
    }
    tenants::add(file, folder, world, kept, &mut verdicts);
    let mut config = merge(file, kept);
    let is_unserved = |(name, verdict): &(&String, &Verdict)| {
        verdict.refusal.is_some() && !verdict.is_kept && !has(file, name)
    };
    let unserved = verdicts.iter().filter(is_unserved);
    config.refused = unserved.map(|(name, _)| name.clone()).collect();
    let exceptions = exceptions::add(&mut config, world);
    Plan {
        config,
        plugins: verdicts,
        exceptions,
    }
}

/// Keeps the entry of a resource if it is valid, and the earlier one if there is one otherwise.
fn keep(name: &str, resource: &Resource, read: Result<Entry, Refusal>, kept: &mut Kept) -> Verdict {
    let refusal = match read {
        Ok(entry) => {
            kept.insert(name.to_owned(), entry);
            None
        }
        Err(refusal) => Some(refusal),
    };
    Verdict {
        uid: resource.uid.clone(),
        generation: resource.generation,
        is_kept: refusal.is_some() && kept.contains_key(name),
        refusal,
    }
}

fn has(file: &Config, name: &str) -> bool {
    file.plugins.iter().any(|entry| entry.name.entry() == name)
}

/// Reads the entry of a resource.
fn entry(
    file: &Config,
    folder: &Path,
    resource: &Resource,
    held: &BTreeMap<Holder, Held>,
) -> Result<Entry, Refusal> {
    let name = &resource.name;
    if has(file, name) {
        let message = format!(
            "the configuration file has a plugin named {name}, and the file wins: remove it from the file, or give this \
             resource another name"
        );
        return Err(Refusal {
            reason: "NameTaken",
            message,
        });
    }
    if PluginName::parse(name).is_err() {
        let message = format!(
            "{name} cannot name a plugin: expected at most 40 characters of a-z, 0-9 and -"
        );
        return Err(invalid(message));
    }
    let has_leader = !file.cluster.enabled || file.cluster.registration.is_some();
    if !has_leader && resource.spec.get("rollout").is_some() {
        return Err(invalid(NO_LEADER.to_owned()));
    }
    let Stripped {
        mut spec,
        order,
        is_secret,
    } = Stripped::of(resource, None, held, |_| Ok(()))?;
    if let Some(keys) = spec.as_object_mut() {
        keys.insert("name".to_owned(), json!(name));
    }
    let read = file.read_entry(&spec, "spec", folder);
    let (mut plugins, mut shadow) = read.map_err(|problems| invalid(problems.to_string()))?;
    for plugin in plugins.iter_mut().chain(&mut shadow) {
        plugin.secret_settings = is_secret;
    }
    Ok(Entry {
        uid: Some(resource.uid.clone()),
        tenancy: None,
        order,
        plugins,
        shadow,
    })
}

fn invalid(message: String) -> Refusal {
    Refusal {
        reason: "Invalid",
        message,
    }
}

/// Merges the entries by their order. At the same order, the file's come first, and the others by name. The plugins of
/// namespaces come last: each of them has a separate webhook.
fn merge(file: &Config, kept: &Kept) -> Config {
    let mut config = file.clone();
    let of_file = std::mem::take(&mut config.plugins).into_iter();
    let mut all: Vec<(i64, PluginConfig)> = of_file.map(|plugin| (ORDER_OF_FILE, plugin)).collect();
    for entry in kept.values() {
        let plugins = entry.plugins.iter().cloned();
        all.extend(plugins.map(|plugin| (entry.order, plugin)));
        config.shadows.extend(entry.shadow.clone());
    }
    all.sort_by_key(|(order, plugin)| (plugin.name.namespace().is_some(), *order));
    config.plugins = all.into_iter().map(|(_, plugin)| plugin).collect();
    config
}

// === impl Stripped ===

impl Stripped {
    /// Takes the keys out of a spec that only custom resources have. Settings come from objects in `namespace`, or else
    /// in that of the installation. `allows` refuses kinds of such objects.
    fn of(
        resource: &Resource,
        namespace: Option<&str>,
        held: &BTreeMap<Holder, Held>,
        allows: impl Fn(HolderKind) -> Result<(), Refusal>,
    ) -> Result<Self, Refusal> {
        let mut spec = resource.spec.clone();
        let Some(keys) = spec.as_object_mut() else {
            return Err(invalid("spec: missing".to_owned()));
        };
        let order = keys.remove("order").as_ref().map_or(Some(0), Value::as_i64);
        let Some(order) = order else {
            return Err(invalid("spec.order: expected an integer".to_owned()));
        };
        let problems = Collector::default();
        let refs = settings::read(&resource.spec, namespace, &problems);
        problems
            .finish(Some(()))
            .map_err(|problems| invalid(problems.to_string()))?;
        let kinds = || refs.iter().map(|reference| reference.holder.kind);
        kinds().try_for_each(allows)?;
        let is_secret = kinds().any(|kind| kind == HolderKind::Secret);
        keys.remove("settingsFrom");
        // A value of the wrong type stays, and the parser reports it.
        if !refs.is_empty() && keys.get("settings").is_none_or(Value::is_object) {
            let settings = settings::merge(&resource.spec, &refs, held)?;
            keys.insert("settings".to_owned(), settings);
        }
        Ok(Self {
            spec,
            order,
            is_secret,
        })
    }
}

// === impl World ===

impl World {
    /// Lists the objects that hold settings for the plugins. Tollgate asks for no object that `tenancy` does not allow.
    pub(crate) fn holders(&self) -> BTreeSet<Holder> {
        let plugins = self.plugins.iter().flat_map(BTreeMap::values);
        let own = plugins.flat_map(|resource| settings::holders(&resource.spec, None));
        let tenants = self.tenants.iter().flat_map(BTreeMap::values);
        let allowed = self.tenancy.as_ref();
        let is_allowed = move |holder: &Holder| {
            allowed.is_some_and(|allowed| allowed.contains(&holder.kind.source()))
        };
        let of_tenants = tenants
            .flat_map(|resource| settings::holders(&resource.spec, resource.namespace.as_deref()))
            .filter(is_allowed);
        own.chain(of_tenants).collect()
    }

    /// Returns whether every kind has been listed that the plan depends on. Without `tenancy`, plugins of namespaces have
    /// no effect, and the lack of their list has none either.
    pub(crate) fn is_listed(&self) -> bool {
        let has_tenants = self.tenancy.is_none() || self.tenants.is_some();
        self.plugins.is_some() && self.exceptions.is_some() && has_tenants
    }

    /// Returns whether everything has been read that the plan depends on.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_listed()
            && self
                .holders()
                .iter()
                .all(|holder| self.held.contains_key(holder))
    }
}

// === impl Entry ===

impl Entry {
    /// The entries of a recorded configuration.
    pub(crate) fn recorded(config: Config) -> Kept {
        let Config {
            plugins, shadows, ..
        } = config;
        let mut kept = Kept::new();
        for mut plugin in plugins {
            // Nobody recorded where the settings came from.
            plugin.secret_settings = true;
            let name = plugin.name.entry();
            let shadow = shadows.iter().find(|shadow| shadow.name.entry() == name);
            let entry = kept.entry(name.to_owned()).or_insert_with(|| Self {
                uid: None,
                tenancy: None,
                order: ORDER_OF_FILE,
                shadow: shadow.cloned(),
                plugins: Vec::new(),
            });
            entry.plugins.push(plugin);
        }
        kept
    }
}
