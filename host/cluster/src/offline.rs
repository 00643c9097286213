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
/// If the configuration names the namespace of the installation, exceptions, ConfigMaps and Secrets of other namespaces
/// are ignored, as they are in a cluster.
#[must_use]
pub fn merge_objects(file: &Config, folder: &Path, objects: &[Value]) -> Plan {
    let namespace = file.cluster.namespace.as_deref();
    let counts = |object: &Value| {
        namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace)
    };
    let mut world = World::default();
    let plugins = of_kind(objects, Kind::Plugin);
    world.plugins = Some(plugins.map(resource).collect());
    let exceptions = of_kind(objects, Kind::Exception).filter(|object| counts(object));
    world.exceptions = Some(exceptions.map(resource).collect());
    for holder in world.holders() {
        world.held.insert(holder, Held::Missing);
    }
    for object in objects.iter().filter(|object| counts(object)) {
        let kind = match object["kind"].as_str() {
            Some("ConfigMap") => HolderKind::ConfigMap,
            Some("Secret") => HolderKind::Secret,
            _ => continue,
        };
        let name = text(&object["metadata"]["name"]);
        if let Some(held) = world.held.get_mut(&Holder { kind, name }) {
            *held = Held::Keys(keys(object, kind));
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

fn resource(object: &Value) -> (String, Resource) {
    let name = text(&object["metadata"]["name"]);
    let namespace = object["metadata"]["namespace"].as_str();
    let resource = Resource {
        name: name.clone(),
        namespace: namespace.map(str::to_owned),
        uid: name.clone(),
        generation: 0,
        spec: object["spec"].clone(),
        status: Value::Null,
    };
    (name, resource)
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
