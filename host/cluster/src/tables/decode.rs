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
    /// The token to pass in the request for the next page.
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

/// The type of an event.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// The result of one pass over an event.
#[derive(Debug)]
pub(super) enum Event {
    Read(Change),
    /// The object came before the type, or there is none.
    Unread(Kind),
}

/// Decodes a page of a list.
pub(super) fn list(projection: &Projection, text: &str) -> Result<List, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let list = ListSeed(projection).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(list)
}

/// Decodes a line of a watch.
///
/// kube-apiserver writes the type first, so the line is read once. The type says what the object is.
pub(super) fn change(projection: &Projection, line: &str) -> Result<Change, serde_json::Error> {
    let read = |kind: Option<Kind>| -> Result<Event, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(line);
        let event = event(projection, kind, &mut deserializer)?;
        deserializer.end().map(|()| event)
    };
    let event = match read(None)? {
        Event::Unread(kind) => read(Some(kind))?,
        event => event,
    };
    match event {
        Event::Read(change) => Ok(change),
        Event::Unread(_) => Err(de::Error::missing_field("object")),
    }
}

/// Reads an event in one pass. Without the type, an object before the type is skipped.
pub(super) fn event<'de, D: Deserializer<'de>>(
    projection: &Projection,
    kind: Option<Kind>,
    deserializer: D,
) -> Result<Event, D::Error> {
    EventSeed { projection, kind }.deserialize(deserializer)
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

/// Reads a watch event.
struct EventSeed<'p> {
    projection: &'p Projection,
    kind: Option<Kind>,
}

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

// === impl EventSeed ===

impl EventSeed<'_> {
    /// Reads the object of an event of a type.
    fn change<'de, A: MapAccess<'de>>(&self, kind: Kind, map: &mut A) -> Result<Change, A::Error> {
        #[derive(Deserialize)]
        struct Versioned {
            metadata: Version,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            resource_version: String,
        }

        match kind {
            Kind::Error => return map.next_value().map(Change::Failed),
            // The object of a bookmark has no name.
            Kind::Bookmark => {
                let object: Versioned = map.next_value()?;
                return Ok(Change::Bookmark(object.metadata.resource_version));
            }
            Kind::Added | Kind::Modified | Kind::Deleted => {}
        }
        let object = map.next_value_seed(self.projection.seed())?;
        let Some(version) = object.resource_version().map(str::to_owned) else {
            return Err(de::Error::missing_field("resourceVersion"));
        };
        Ok(match kind {
            Kind::Deleted => Change::Deleted(object, version),
            _ => Change::Applied(object, version),
        })
    }
}

impl<'de> DeserializeSeed<'de> for EventSeed<'_> {
    type Value = Event;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Event, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EventSeed<'_> {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event with a type and an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
        let mut kind = self.kind;
        let mut change = None;
        while let Some(key) = map.next_key::<String>()? {
            match (key.as_str(), kind) {
                ("type", _) => kind = Some(map.next_value()?),
                ("object", Some(kind)) => change = Some(self.change(kind, &mut map)?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let Some(kind) = kind else {
            return Err(de::Error::missing_field("type"));
        };
        Ok(change.map_or(Event::Unread(kind), Event::Read))
    }
}
