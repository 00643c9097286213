//! `data.inventory`: objects in the layout that Gatekeeper gives them, from the settings or from the cluster.

mod rewrite;

use std::collections::BTreeSet;

use regorus::Value as Rego;
use serde_json::{Map, Value as Json};
use tollgate_sdk::cluster::{self, Object, Objects, OrFault as _};
use tollgate_sdk::{Document, Node, Pointer, Review, SettingsErrors, Value, pointer};

use crate::subject::Subjects;

pub(crate) use rewrite::Rewritten;

/// Objects of the cluster in `data.inventory`: those of one lookup.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Live {
    /// The name of the lookup in the configuration.
    lookup: String,
    /// The `apiVersion` of the objects.
    api_version: String,
    /// The `kind` of the objects.
    kind: String,
    /// Which of the objects the Rego gets. None: all.
    #[serde(default)]
    only: Option<Only>,
}

/// A part of a lookup's objects.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
enum Only {
    /// Those in the namespace of the reviewed object.
    SameNamespace {},
    /// Those that have a key in common with the reviewed object.
    SameKey {
        /// An index of the lookup.
        index: String,
        /// The places of the keys in the reviewed object, such as `/spec/rules/*/host`.
        at: String,
    },
}

/// The member of the input that the Rego reads in place of `data.inventory`. `data` belongs to the prepared program.
pub(crate) const MEMBER: &str = "tollgate_inventory";

/// Builds the document `data.inventory` from objects.
pub(crate) fn build(objects: &[Json], at: &Pointer, errors: &mut SettingsErrors) -> Json {
    let mut inventory = serde_json::json!({ "cluster": {}, "namespace": {} });
    for (index, object) in objects.iter().enumerate() {
        let text = |pointer: &str| object.pointer(pointer).and_then(Json::as_str);
        let (Some(version), Some(kind), Some(name)) =
            (text("/apiVersion"), text("/kind"), text("/metadata/name"))
        else {
            errors.at(
                at.child(index),
                "is no object with apiVersion, kind and metadata.name",
            );
            continue;
        };
        let namespace = text("/metadata/namespace").filter(|namespace| !namespace.is_empty());
        let path = match namespace {
            Some(namespace) => vec!["namespace", namespace, version, kind],
            None => vec!["cluster", version, kind],
        };
        let mut place = &mut inventory;
        for token in path.into_iter().chain([name]) {
            if !place.is_object() {
                *place = Json::Object(Map::new());
            }
            place = &mut place[token];
        }
        *place = object.clone();
    }
    inventory
}

/// Checks the sources, and whether they have anything to do. `reads` is whether the Rego reads the inventory.
pub(crate) fn check(live: &[Live], has_objects: bool, reads: bool, errors: &mut SettingsErrors) {
    if live.is_empty() {
        return;
    }
    let at = pointer!["inventoryFrom"];
    if has_objects {
        errors.at(
            at.clone(),
            "cannot be used with `inventory`: the objects come from the cluster or from the settings",
        );
    }
    if !reads {
        errors.at(at, "the Rego does not read data.inventory");
    }
}

/// Reads the objects that a review needs.
///
/// # Panics
/// If a lookup has no answer, or the host's JSON is none. That is a fault of the call, so its failure policy decides.
pub(crate) fn read(live: &[Live], review: &Review, subjects: &Subjects) -> Rego {
    let mut inventory = empty();
    for source in live {
        match &source.only {
            None => add_all(&mut inventory, source, cluster::list(&source.lookup, None)),
            Some(Only::SameNamespace {}) => {
                let namespace = review.request().namespace.clone();
                // A cluster-scoped object has no namespace in common with another one.
                if let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) {
                    let objects = cluster::list(&source.lookup, Some(&namespace));
                    add_all(&mut inventory, source, objects);
                }
            }
            Some(Only::SameKey { index, at }) => match keys(&subjects.object(review), at) {
                Some(keys) => {
                    for key in keys {
                        let objects = cluster::find(&source.lookup, index, key);
                        add_all(&mut inventory, source, objects);
                    }
                }
                None => add_all(&mut inventory, source, cluster::list(&source.lookup, None)),
            },
        }
    }
    inventory
}

/// The inventory without objects.
pub(crate) fn empty() -> Rego {
    let mut inventory = Rego::new_object();
    for scope in ["cluster", "namespace"] {
        let _ = member(&mut inventory, scope);
    }
    inventory
}

/// Returns the keys of the reviewed object, as an index has them. None if a value is in no index: another object can have
/// the same list, object or null, or write the same number in another way.
fn keys(object: &Document, at: &str) -> Option<BTreeSet<String>> {
    let nodes = object.select(at).into_iter();
    let key = |node: Node| match node.value {
        Value::Text(text) => Some(text),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(boolean) => Some(boolean.to_string()),
        Value::Number(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    nodes.map(key).collect()
}

fn add_all(inventory: &mut Rego, source: &Live, objects: Objects) {
    for object in objects {
        add(inventory, source, &object.or_fault());
    }
}

/// Adds an object at its place, with the names that a lookup does not keep as fields.
fn add(inventory: &mut Rego, source: &Live, object: &Object) {
    let text = object.json("").expect("an object has fields");
    let mut value = Rego::from_json_str(&text).expect("the host gives valid JSON");
    put(&mut value, "apiVersion", &source.api_version);
    put(&mut value, "kind", &source.kind);
    let mut place = match object.namespace() {
        Some(namespace) => {
            let all = member(inventory, "namespace");
            all.and_then(|all| member(all, namespace))
        }
        None => member(inventory, "cluster"),
    };
    if let Some(metadata) = member(&mut value, "metadata") {
        put(metadata, "name", object.name());
        if let Some(namespace) = object.namespace() {
            put(metadata, "namespace", namespace);
        }
    }
    for key in [&source.api_version, &source.kind] {
        place = place.and_then(|place| member(place, key));
    }
    if let Some(members) = place.and_then(|place| place.as_object_mut().ok()) {
        members.insert(Rego::from(object.name()), value);
    }
}

/// Returns a member of an object, which is made if it is missing.
fn member<'v>(value: &'v mut Rego, key: &str) -> Option<&'v mut Rego> {
    let members = value.as_object_mut().ok()?;
    let key = Rego::from(key);
    if !members.contains_key(&key) {
        members.insert(key.clone(), Rego::new_object());
    }
    members.get_mut(&key)
}

fn put(value: &mut Rego, key: &str, text: &str) {
    if let Ok(members) = value.as_object_mut() {
        members.insert(Rego::from(key), Rego::from(text));
    }
}
