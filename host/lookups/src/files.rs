//! Tables from objects in files, for reviews without a cluster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_config::kubernetes::Kinds;
use tollgate_config::lookup::{Lookup, LookupResource};
use tollgate_json::document::Json;

use crate::projection::Projection;
use crate::source::Tables;
use crate::table::Table;

/// Tables from a fixed list of objects, such as a dump of a cluster. Other objects do not exist.
#[derive(Debug)]
pub struct FileTables {
    /// The place of the objects, as part of a sentence, such as "in dump.yaml".
    place: String,
    by_resource: HashMap<LookupResource, Vec<Json>>,
    tables: Mutex<HashMap<Lookup, Arc<Table>>>,
}

/// The version of tables that never change.
const FIXED: &str = "0";

// === impl FileTables ===

impl FileTables {
    /// Takes the objects of a list. A CustomResourceDefinition in the list says what its objects' resource is. Without
    /// one, the plural is formed of the kind, as Kubernetes does for its own kinds.
    ///
    /// `place` is part of messages, such as "in dump.yaml".
    ///
    /// # Errors
    /// When a document is not an object with apiVersion, kind and metadata.name.
    pub fn from_objects<'o>(
        place: &str,
        objects: impl IntoIterator<Item = &'o Json, IntoIter: Clone>,
    ) -> Result<Self, String> {
        let objects = objects.into_iter();
        let mut kinds = Kinds::default();
        objects.clone().for_each(|object| kinds.learn(object));
        let mut by_resource: HashMap<LookupResource, Vec<Json>> = HashMap::new();
        for (index, object) in objects.enumerate() {
            let resource = resource_of(object, &kinds)
                .ok_or_else(|| format!("the object at index {index} {place} is not whole, expected an object with apiVersion, kind and metadata.name"))?;
            by_resource
                .entry(resource)
                .or_default()
                .push(object.clone());
        }
        Ok(Self {
            place: place.to_owned(),
            by_resource,
            tables: Mutex::default(),
        })
    }

    fn fill(&self, lookup: &Lookup) -> Result<Arc<Table>, String> {
        let table = Arc::new(Table::new(lookup));
        let projection = Projection::new(lookup);
        let mut writer = table.writer();
        writer.begin();
        for object in self.objects(lookup)? {
            let namespace = metadata(object, "namespace").unwrap_or_default();
            let is_selected = lookup.label_selector.selects(Some(object), None);
            if !is_selected || !lookup.namespaces.covers(namespace) {
                continue;
            }
            let object = projection.decode(object.to_text().as_bytes());
            let object = object.map_err(|error| {
                let (place, resource) = (&self.place, &lookup.resource);
                format!("an object of {resource} {place} cannot be read: {error}")
            })?;
            writer.add(object);
        }
        writer.finish(FIXED);
        Ok(table)
    }

    /// Objects of another version are not those that the lookup means. To take them for none would be wrong.
    fn objects(&self, lookup: &Lookup) -> Result<&[Json], String> {
        let wanted = &lookup.resource;
        if let Some(objects) = self.by_resource.get(wanted) {
            return Ok(objects);
        }
        let mut resources = self.by_resource.keys();
        let other =
            resources.find(|had| (&had.group, &had.resource) == (&wanted.group, &wanted.resource));
        match other {
            None => Ok(&[]),
            Some(other) => Err(format!(
                "the {} {} have the version {}, and the lookup names {}: give the objects in that version",
                wanted.resource, self.place, other.version, wanted.version,
            )),
        }
    }
}

impl Tables for FileTables {
    fn table(&self, lookup: &Lookup) -> Result<Arc<Table>, String> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(lookup) {
            return Ok(table.clone());
        }
        let table = self.fill(lookup)?;
        tables.insert(lookup.clone(), table.clone());
        Ok(table)
    }
}

fn resource_of(object: &Json, kinds: &Kinds) -> Option<LookupResource> {
    let text = |member| object.member(member).and_then(Json::as_text);
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    metadata(object, "name").filter(|name| !name.is_empty())?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = kinds.resource(group, kind);
    Some(LookupResource::new(group, version, &resource.plural))
}

fn metadata<'o>(object: &'o Json, member: &str) -> Option<&'o str> {
    object.member("metadata")?.member(member)?.as_text()
}

#[cfg(test)]
mod tests;
