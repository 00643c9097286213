//! Custom resources from files, for the command line: the same merge as in a cluster.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tollgate_config::Config;

use crate::desired::{Kept, Plan, World, plan};
use crate::kinds::{Kind, Resource, api_version};
use crate::settings::{Held, Holder, HolderKind};

/// Merges the custom resources among these objects into the configuration that the file holds. ConfigMaps and Secrets
/// among them give `settingsFrom`. Other objects are ignored.
///
/// If the configuration names the namespace of the installation, ConfigMaps and Secrets of other namespaces give settings
/// to `AdmissionPlugin` alone, as they do in a cluster. Exceptions of other namespaces count as `tenancy` says. Without
/// `tenancy` they are ignored.
#[must_use]
pub fn merge_objects(file: &Config, folder: &Path, objects: &[Value]) -> Plan {
    let installation = file.cluster.namespace.as_deref();
    let is_of_installation = |object: &Value| {
        installation.is_none_or(|namespace| object["metadata"]["namespace"] == namespace)
    };
    let mut world = World {
        namespace: installation.map(str::to_owned),
        tenancy: file
            .tenancy
            .as_ref()
            .map(|tenancy| tenancy.settings_from.clone()),
        ..World::default()
    };
    let resources = |kind| {
        let named = of_kind(objects, kind).map(resource);
        let named = named.map(move |resource| (resource.key(kind, installation), resource));
        named.collect::<BTreeMap<_, _>>()
    };
    world.plugins = Some(resources(Kind::Plugin));
    world.tenants = Some(resources(Kind::TenantPlugin));
    let mut exceptions = resources(Kind::Exception);
    if world.tenancy.is_none() {
        exceptions = of_kind(objects, Kind::Exception)
            .filter(|object| is_of_installation(object))
            .map(resource)
            .map(|resource| (resource.name.clone(), resource))
            .collect();
    }
    world.exceptions = Some(exceptions);
    for holder in world.holders() {
        world.held.insert(holder, Held::Missing);
    }
    for object in objects {
        let kind = match object["kind"].as_str() {
            Some("ConfigMap") => HolderKind::ConfigMap,
            Some("Secret") => HolderKind::Secret,
            _ => continue,
        };
        let name = text(&object["metadata"]["name"]);
        let own = object["metadata"]["namespace"].as_str();
        let own = own.map(str::to_owned);
        let of_installation = is_of_installation(object).then_some(None);
        for namespace in of_installation.into_iter().chain(own.map(Some)) {
            let name = name.clone();
            let holder = Holder {
                kind,
                namespace,
                name,
            };
            if let Some(held) = world.held.get_mut(&holder) {
                *held = Held::Keys(keys(object, kind));
            }
        }
    }
    plan(file, folder, &world, &mut Kept::new())
}

fn of_kind(objects: &[Value], kind: Kind) -> impl Iterator<Item = &Value> {
    let api_version = api_version();
    objects.iter().filter(move |object| {
        object["kind"] == kind.name() && object["apiVersion"] == api_version.as_str()
    })
}

fn resource(object: &Value) -> Resource {
    let name = text(&object["metadata"]["name"]);
    let namespace = object["metadata"]["namespace"].as_str();
    Resource {
        name: name.clone(),
        namespace: namespace.map(str::to_owned),
        uid: name,
        generation: 0,
        version: String::new(),
        asked: None,
        created: text(&object["metadata"]["creationTimestamp"]),
        spec: object["spec"].clone(),
        status: Value::Null,
    }
}

/// Returns the texts of a ConfigMap or a Secret. A manifest of a Secret has plain texts under `stringData`.
fn keys(object: &Value, kind: HolderKind) -> BTreeMap<String, Vec<u8>> {
    let texts = match kind {
        HolderKind::ConfigMap => &object["data"],
        HolderKind::Secret => &object["stringData"],
    };
    let texts = texts.as_object().into_iter().flatten();
    let mut keys: BTreeMap<_, _> = texts
        .map(|(key, value)| (key.clone(), text(value).into_bytes()))
        .collect();
    if kind == HolderKind::Secret {
        let secret = serde_json::from_value::<BTreeMap<String, k8s_openapi::ByteString>>(
            object["data"].clone(),
        );
        for (key, bytes) in secret.unwrap_or_default() {
            keys.entry(key).or_insert(bytes.0);
        }
    }
    keys
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
