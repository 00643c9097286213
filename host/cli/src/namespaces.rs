//! Namespaces from files and suites, for reviews without a cluster.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tollgate_admission::namespaces::{FixedNamespaces, Namespaces};
use tollgate_json::document::Json;

use crate::review::input;

/// Reads the Namespaces of a file. Other objects in it are left out, so the dump of a cluster will do.
pub(crate) fn read(file: &Path) -> anyhow::Result<Arc<dyn Namespaces>> {
    let documents = input::read(file)?;
    let file = file.display();
    let objects = documents.iter().map(|document| &document.content);
    let namespaces = FixedNamespaces::from_objects(&format!("in {file}"), objects)
        .with_context(|| file.to_string())?;
    ensure!(
        !namespaces.is_empty(),
        "{file}: contains no Namespace, expected objects of apiVersion v1 and kind Namespace"
    );
    Ok(Arc::new(namespaces))
}

/// Takes the Namespaces of a list. Its elements may leave out apiVersion and kind.
pub(crate) fn of_list(place: &str, objects: &[Json]) -> anyhow::Result<Arc<dyn Namespaces>> {
    let objects: Vec<Json> = objects.iter().map(completed).collect();
    let namespaces = FixedNamespaces::from_objects(place, &objects)?;
    ensure!(
        namespaces.len() == objects.len(),
        "an object is of another kind, expected Namespaces only"
    );
    Ok(Arc::new(namespaces))
}

fn completed(object: &Json) -> Json {
    let Json::Object(members) = object else {
        return object.clone();
    };
    let mut members = (***members).clone();
    for (name, value) in [("apiVersion", "v1"), ("kind", "Namespace")] {
        members
            .entry(name.into())
            .or_insert_with(|| Json::text(value));
    }
    Json::from(members)
}
