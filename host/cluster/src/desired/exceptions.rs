//! Exceptions: from the installation's namespace for the plugins of the cluster, and from other namespaces for what
//! happens in them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use tollgate_config::{Config, Exception, PluginConfig, SharedException};

use super::{Refusal, Verdict, World, invalid};
use crate::kinds::Resource;

/// Most exceptions of one namespace that count, and most of all namespaces together. Every request that one of the
/// cluster's plugins matches is compared with its exceptions.
const MOST_OF_NAMESPACE: usize = 16;
const MOST_OF_ALL: usize = 512;

/// Adds the exceptions to their plugins. Returns the verdict about each.
pub(super) fn add(config: &mut Config, world: &World) -> BTreeMap<String, Verdict> {
    let mut by_age: Vec<(&String, &Resource)> = world.exceptions.iter().flatten().collect();
    by_age.sort_by(|(_, one), (_, other)| one.age().cmp(&other.age()));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = 0;
    let mut verdicts = BTreeMap::new();
    for (key, resource) in by_age {
        let added = match key.split_once('/') {
            None => of_installation(config, resource),
            Some((namespace, _)) => {
                let count = counts.entry(namespace).or_default();
                *count += 1;
                let is_in = *count <= MOST_OF_NAMESPACE && all < MOST_OF_ALL;
                all += usize::from(is_in);
                if is_in {
                    of_namespace(config, resource, namespace, world)
                } else {
                    Err(too_many())
                }
            }
        };
        let verdict = Verdict {
            uid: resource.uid.clone(),
            generation: resource.generation,
            refusal: added.err(),
            is_kept: false,
        };
        verdicts.insert(key.clone(), verdict);
    }
    verdicts
}

fn too_many() -> Refusal {
    let message = format!(
        "only the {MOST_OF_NAMESPACE} oldest exceptions of a namespace count, and the {MOST_OF_ALL} oldest of all \
         namespaces: delete others"
    );
    Refusal {
        reason: "TooMany",
        message,
    }
}

fn read(resource: &Resource) -> Result<SharedException, Refusal> {
    let shared = SharedException::read(&resource.spec);
    shared.map_err(|problems| invalid(problems.to_string()))
}

/// Returns the plugin with this name, or the members of the group.
fn find<'c>(config: &'c mut Config, name: &str) -> Vec<&'c mut PluginConfig> {
    let plugins = config.plugins.iter_mut();
    plugins
        .filter(|plugin| plugin.name.entry() == name)
        .collect()
}

fn add_to(plugins: Vec<&mut PluginConfig>, exception: &Exception) {
    for plugin in plugins {
        plugin.add_exception(exception.clone());
    }
}

/// Adds an exception of the installation's namespace, for objects anywhere.
fn of_installation(config: &mut Config, resource: &Resource) -> Result<(), Refusal> {
    let shared = read(resource)?;
    let mut unknown = Vec::new();
    for name in &shared.plugins {
        let plugins = find(config, name.as_str());
        if plugins.is_empty() {
            unknown.push(name.as_str());
        }
        add_to(plugins, &shared.exception.clone().named(&resource.name));
    }
    check_end(&shared.exception)?;
    check_known(&unknown)
}

/// Adds an exception of another namespace, for objects of that namespace. It counts for the plugins of the namespace,
/// and for those of the cluster that allow it. If a plugin of the namespace and one of the cluster have the same name,
/// the exception is for that of the namespace.
fn of_namespace(
    config: &mut Config,
    resource: &Resource,
    namespace: &str,
    world: &World,
) -> Result<(), Refusal> {
    if config.tenancy.is_none() || world.tenancy.is_none() {
        let message = "the configuration has no `tenancy`, so exceptions count in the namespace of the installation only"
            .to_owned();
        return Err(Refusal {
            reason: "NoTenancy",
            message,
        });
    }
    let shared = read(resource)?;
    if let Some(other) = shared
        .exception
        .namespaces
        .iter()
        .find(|name| ***name != *namespace)
    {
        let message = format!(
            "spec.namespaces: got {other:?}: an exception of the namespace {namespace} counts for its objects only"
        );
        return Err(Refusal {
            reason: "NotAllowed",
            message,
        });
    }
    let label = format!("{namespace}/{}", resource.name);
    let exception = shared.exception.named(&label).confined_to(namespace);
    let (mut unknown, mut refused) = (Vec::new(), Vec::new());
    for name in &shared.plugins {
        let own = format!("{namespace}/{name}");
        let plugins = find(config, &own);
        if !plugins.is_empty() {
            add_to(plugins, &exception);
            continue;
        }
        let plugins = find(config, name.as_str());
        match plugins.first() {
            Some(plugin) if plugin.allow_namespace_exceptions => add_to(plugins, &exception),
            Some(_) => refused.push(name.as_str()),
            None => unknown.push(name.as_str()),
        }
    }
    if !refused.is_empty() {
        let message = format!(
            "plugin {} of the cluster takes no exceptions of namespaces (allowNamespaceExceptions): ask the administrator \
             of the cluster; the exception applies to the other plugins",
            refused.join(" and ")
        );
        return Err(Refusal {
            reason: "NotAllowed",
            message,
        });
    }
    check_end(&exception)?;
    check_known(&unknown)
}

fn check_end(exception: &Exception) -> Result<(), Refusal> {
    if exception.is_active(SystemTime::now()) {
        return Ok(());
    }
    let message = "the exception is over; delete it, or change spec.expires".to_owned();
    Err(Refusal {
        reason: "Expired",
        message,
    })
}

fn check_known(unknown: &[&str]) -> Result<(), Refusal> {
    if unknown.is_empty() {
        return Ok(());
    }
    let message = format!(
        "no plugin has the name {}: correct spec.plugins, or create the plugin; the exception applies to the other plugins",
        unknown.join(" or ")
    );
    Err(Refusal {
        reason: "PluginUnknown",
        message,
    })
}
