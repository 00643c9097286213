//! `data.inventory`: objects in the layout that Gatekeeper gives them.

use serde_json::{Map, Value as Json};
use tollgate_sdk::{Pointer, SettingsErrors};

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
