//! Decodes lists and watch events. Objects are reduced while they are read, so that none is ever held as a whole.

use std::fmt;

use kube::core::Status;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tollgate_lookups::{Projected, Projection};

/// A page of a list.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) objects: Vec<Projected>,
    pub(super) resource_version: String,
    /// What the request for the next page passes.
    pub(super) next: Option<String>,
}

/// An event of a watch.
#[derive(Debug)]
pub(super) enum Change {
    Applied(Projected, String),
    Deleted(Projected, String),
    /// Nothing has changed up to a resource version.
    Bookmark(String),
    Failed(Box<Status>),
}

/// Decodes a page of a list.
pub(super) fn list(projection: &Projection, text: &str) -> Result<List, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let list = ListSeed(projection).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(list)
}

/// Decodes a line of a watch.
pub(super) fn change(projection: &Projection, line: &str) -> Result<Change, serde_json::Error> {
    #[derive(Deserialize)]
    struct Typed<T> {
        object: T,
    }
    #[derive(Deserialize)]
    struct Versioned {
        metadata: Version,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        resource_version: String,
    }

    #[derive(Deserialize)]
    struct Kind<'t> {
        r#type: &'t str,
    }

    let Kind { r#type: kind } = serde_json::from_str(line)?;
    if kind == "ERROR" {
        let Typed { object } = serde_json::from_str(line)?;
        return Ok(Change::Failed(object));
    }
    let Typed::<Versioned> { object } = serde_json::from_str(line)?;
    let version = object.metadata.resource_version;
    if kind == "BOOKMARK" {
        return Ok(Change::Bookmark(version));
    }
    let mut deserializer = serde_json::Deserializer::from_str(line);
    let object = ObjectSeed(projection).deserialize(&mut deserializer)?;
    match kind {
        "ADDED" | "MODIFIED" => Ok(Change::Applied(object, version)),
        "DELETED" => Ok(Change::Deleted(object, version)),
        other => Err(de::Error::unknown_variant(
            other,
            &["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"],
        )),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    r#continue: Option<String>,
}

/// Reads a list object.
struct ListSeed<'p>(&'p Projection);

/// Reads the `items` of a list.
struct ItemsSeed<'p>(&'p Projection);

/// Reads the `object` of a watch event.
struct ObjectSeed<'p>(&'p Projection);

// === impl ListSeed ===

impl<'de> DeserializeSeed<'de> for ListSeed<'_> {
    type Value = List;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<List, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_> {
    type Value = List;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<List, A::Error> {
        let mut list = List::default();
        let mut has_items = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metadata" => {
                    let meta: ListMeta = map.next_value()?;
                    list.resource_version = meta.resource_version;
                    list.next = meta.r#continue.filter(|next| !next.is_empty());
                }
                "items" => {
                    list.objects = map.next_value_seed(ItemsSeed(self.0))?;
                    has_items = true;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if list.resource_version.is_empty() {
            return Err(de::Error::missing_field("metadata.resourceVersion"));
        }
        if !has_items {
            return Err(de::Error::missing_field("items"));
        }
        Ok(list)
    }
}

// === impl ItemsSeed ===

impl<'de> DeserializeSeed<'de> for ItemsSeed<'_> {
    type Value = Vec<Projected>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        // Go writes an empty list as null.
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed<'_> {
    type Value = Vec<Projected>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects or null")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut objects = Vec::new();
        while let Some(object) = items.next_element_seed(self.0.seed())? {
            objects.push(object);
        }
        Ok(objects)
    }
}

// === impl ObjectSeed ===

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_> {
    type Value = Projected;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Projected, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_> {
    type Value = Projected;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event with an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Projected, A::Error> {
        let mut object = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == "object" {
                object = Some(map.next_value_seed(self.0.seed())?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        object.ok_or_else(|| de::Error::missing_field("object"))
    }
}
