//! Plugins of namespaces: `AdmissionPlugin`, within the limits of `tenancy`.
//!
//! - A change of `tenancy` takes effect at once. An entry that an earlier `tenancy` allowed is not kept.
//! - The oldest resources count, so that a new one never takes the place of one that serves. All replicas decide alike.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tollgate_config::{Config, MOST_MEMBERS, Tenancy, TenantRefusal};
use tollgate_registration::EXCLUDED_NAMESPACES;

use super::{Entry, Kept, Refusal, Stripped, Verdict, World, invalid, keep};
use crate::kinds::Resource;

const REMEDY: &str = "ask the administrator of the cluster";
/// The leader of the replicas decides about rollouts of the cluster's plugins only.
const ROLLOUT: &str = "spec.rollout: not supported in an AdmissionPlugin: change spec.source";

/// Whether the name of an entry is that of a plugin of a namespace.
pub(super) fn is_tenant(name: &str) -> bool {
    name.contains('/')
}

/// Reads the plugins of namespaces, and keeps those that are allowed.
pub(super) fn add(
    file: &Config,
    folder: &Path,
    world: &World,
    kept: &mut Kept,
    verdicts: &mut BTreeMap<String, Verdict>,
) {
    let tenancy = file.tenancy.clone().filter(|_| world.tenancy.is_some());
    let tenancy = tenancy.map(Arc::new);
    kept.retain(|name, entry| !is_tenant(name) || (tenancy.is_some() && entry.tenancy == tenancy));
    let Some(resources) = &world.tenants else {
        return;
    };
    kept.retain(|name, entry| {
        let resource = resources.get(name);
        let is_same = resource.is_some_and(|resource| entry.uid.as_ref() == Some(&resource.uid));
        !is_tenant(name) || is_same
    });
    let mut by_age: Vec<(&String, &Resource)> = resources.iter().collect();
    by_age.sort_by(|(_, one), (_, other)| one.age().cmp(&other.age()));
    let mut places = Places::default();
    for (name, resource) in by_age {
        let read = match &tenancy {
            None => Err(without_tenancy(file)),
            Some(tenancy) => places
                .take(resource, tenancy)
                .and_then(|()| entry(file, folder, world, resource, tenancy)),
        };
        verdicts.insert(name.clone(), keep(name, resource, read, kept));
    }
}

fn without_tenancy(file: &Config) -> Refusal {
    let why = if file.tenancy.is_some() {
        "the configuration has `tenancy` since this replica was started, and needs a restart"
    } else {
        "namespaces have no plugins of their own here, because the configuration has no `tenancy`"
    };
    Refusal {
        reason: "NoTenancy",
        message: format!("{why}: {REMEDY}"),
    }
}

fn not_allowed(message: String) -> Refusal {
    Refusal {
        reason: "NotAllowed",
        message,
    }
}

/// Reads the entry of a resource.
fn entry(
    file: &Config,
    folder: &Path,
    world: &World,
    resource: &Resource,
    tenancy: &Arc<Tenancy>,
) -> Result<Entry, Refusal> {
    let namespace = resource.namespace.as_deref().unwrap_or_default();
    let is_own = world.namespace.as_deref() == Some(namespace);
    if is_own || EXCLUDED_NAMESPACES.contains(&namespace) {
        return Err(not_allowed(format!(
            "the webhooks of Tollgate leave the namespace {namespace} out, so that nothing can lock the cluster: create \
             the resource in another namespace"
        )));
    }
    if resource.spec.get("rollout").is_some() {
        return Err(invalid(ROLLOUT.to_owned()));
    }
    let Stripped {
        spec,
        order,
        is_secret,
    } = Stripped::of(resource, Some(namespace), &world.held, |kind| {
        let checked = tenancy.check_settings_from(kind.source());
        checked.map_err(not_allowed)
    })?;
    let read = file.read_tenant(namespace, &resource.name, &spec, folder);
    let mut plugins = read.map_err(|refusal| match refusal {
        TenantRefusal::NoTenancy => without_tenancy(file),
        TenantRefusal::Invalid(problems) => invalid(problems.to_string()),
        TenantRefusal::NotAllowed(problems) => not_allowed(format!("{problems}\n{REMEDY}")),
    })?;
    for plugin in &mut plugins {
        plugin.secret_settings = is_secret;
    }
    Ok(Entry {
        uid: Some(resource.uid.clone()),
        tenancy: Some(tenancy.clone()),
        order,
        plugins,
        shadow: None,
    })
}

/// Counts resources, whether or not they are valid: one that becomes valid must not displace another one.
#[derive(Default)]
struct Places<'r> {
    all: u32,
    by_namespace: BTreeMap<&'r str, u32>,
}

// === impl Places ===

impl<'r> Places<'r> {
    fn take(&mut self, resource: &'r Resource, tenancy: &Tenancy) -> Result<(), Refusal> {
        let namespace = resource.namespace.as_deref().unwrap_or_default();
        let own = self.by_namespace.entry(namespace).or_default();
        // Each member of a group is a plugin.
        let members = resource.spec.pointer("/group/members");
        let count = members.and_then(Value::as_array).map_or(1, Vec::len);
        let count = u32::try_from(count.clamp(1, MOST_MEMBERS)).unwrap_or(1);
        *own += count;
        let (most, whose, key) = if *own > tenancy.max_plugins_per_namespace {
            let most = tenancy.max_plugins_per_namespace;
            (most, "of this namespace", "maxPluginsPerNamespace")
        } else {
            self.all += count;
            if self.all <= tenancy.max_plugins {
                return Ok(());
            }
            (tenancy.max_plugins, "of the cluster", "maxPlugins")
        };
        let message = format!(
            "only the {most} oldest AdmissionPlugins {whose} count (tenancy.{key}): delete others, or {REMEDY}"
        );
        Err(Refusal {
            reason: "TooMany",
            message,
        })
    }
}
