//! A single item to inject: a volume, an init container or a container.

use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};
use tollgate_sdk::NewValue;
use tollgate_sdk::prelude::*;

/// The item, with the data to recognise it.
pub(crate) struct Item {
    list: List,
    name: String,
    json: String,
    hash: String,
    /// The place of the hash in the Pod.
    annotation: Pointer,
}

/// A list of a Pod into which items are injected.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum List {
    Volumes,
    InitContainers,
    Containers,
}

/// The state of an item in a Pod.
pub(crate) enum State {
    /// The item exists, with these settings.
    Injected,
    /// The item does not exist.
    Missing,
    /// The item exists at this place with other settings. The Pod was exported some time ago and is created again.
    Outdated(Pointer),
    /// The user has another item with this name.
    Conflict(Pointer),
}

/// The longest name, of an item and in an annotation's key.
const MAX_NAME: usize = 63;

/// Reads the settings, in the order of the lists.
pub(crate) fn read(lists: [(List, &Vec<Json>); 3]) -> Result<Vec<Item>, SettingsErrors> {
    let mut errors = SettingsErrors::new();
    let mut items: Vec<Item> = Vec::new();
    for (list, settings) in lists {
        for (index, json) in settings.iter().enumerate() {
            let at = pointer![list.name(), index];
            if list != List::Volumes && !json["image"].is_string() {
                errors.at(at.child("image"), "must be the container's image");
            }
            let Some(name) = json["name"].as_str().filter(|name| is_name(name)) else {
                errors.at(
                    at.child("name"),
                    "must be at most 63 lower-case letters, digits and dashes",
                );
                continue;
            };
            let item = Item::new(list, name, json);
            if items
                .iter()
                .any(|other| other.annotation == item.annotation)
            {
                errors.at(at.child("name"), "is the name of another one, too");
            }
            items.push(item);
        }
    }
    errors.or(items)
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

// === impl Item ===

impl Item {
    fn new(list: List, name: &str, json: &Json) -> Self {
        let json = json.to_string();
        let mut hash = format!("{:x}", Sha256::digest(&json));
        // This length is enough to distinguish settings, and nobody has a reason to forge a hash.
        hash.truncate(16);
        // Containers and init containers share their names.
        let kind = match list {
            List::Volumes => "volume",
            List::InitContainers | List::Containers => "container",
        };
        let key = format!("{kind}.sidecar-inject.tollgate.dev/{name}");
        Self {
            list,
            name: name.to_owned(),
            json,
            hash,
            annotation: pointer!["metadata", "annotations", key],
        }
    }

    pub(crate) fn list(&self) -> List {
        self.list
    }

    pub(crate) fn value(&self) -> NewValue {
        NewValue::Json(self.json.clone())
    }

    /// Marks the item in the Pod as injected.
    pub(crate) fn annotate(&self, pod: Document, patch: Patch) -> Patch {
        patch.set(pod, &self.annotation, self.hash.as_str())
    }

    pub(crate) fn state(&self, pod: Document) -> State {
        let lists: &[List] = match self.list {
            List::Volumes => &[List::Volumes],
            List::InitContainers | List::Containers => &[List::InitContainers, List::Containers],
        };
        let named = |list: &List| {
            let mut names = pod
                .select(list.place().child("*").child("name"))
                .into_iter();
            let name = names.find(|name| name.value.as_text() == Some(&self.name))?;
            Some((*list, Pointer::from(name.pointer)))
        };
        let Some((list, name)) = lists.iter().find_map(named) else {
            return State::Missing;
        };
        match pod.text(&self.annotation) {
            Some(hash) if hash == self.hash && list == self.list => State::Injected,
            Some(_) if list == self.list => State::Outdated(name.parent().unwrap_or_default()),
            _ => State::Conflict(name),
        }
    }
}

// === impl List ===

impl List {
    /// The name of the list, in a Pod and in the settings.
    fn name(self) -> &'static str {
        match self {
            Self::Volumes => "volumes",
            Self::InitContainers => "initContainers",
            Self::Containers => "containers",
        }
    }

    pub(crate) fn place(self) -> Pointer {
        pointer!["spec", self.name()]
    }
}
