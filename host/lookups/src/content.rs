//! The objects of a table, and the indexes over them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::intern::Interner;
use crate::page::{Entry, Page, parse_cursor};
use crate::projection::Projected;

/// A namespace and a name. The namespace of a cluster-scoped object is the empty text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    namespace: Arc<str>,
    name: Arc<str>,
}

/// The parts of an object that a table keeps, without its name.
pub(crate) struct Stored {
    fields: Arc<str>,
    /// The keys of the object in the indexes, by the indexes' numbers.
    keys: Box<[(u8, Arc<str>)]>,
}

/// Objects by name, and their names by the keys of each index.
///
/// An index is one ordered set of keys and names. A map from keys to sets would take a node for each key, and most keys
/// belong to one object.
#[derive(Default)]
pub(crate) struct Content {
    objects: BTreeMap<Name, Stored>,
    indexes: Vec<BTreeSet<(Arc<str>, Name)>>,
    /// Number of elements of all indexes.
    keys: usize,
}

/// Objects of a list, before they become a content.
#[derive(Default)]
pub(crate) struct Staged(Vec<(Name, Stored)>);

/// The share of a B-tree's memory that is not elements: inner nodes, and places that are free after changes.
const TREE_NUMERATOR: usize = 5;
const TREE_DENOMINATOR: usize = 4;

// === impl Name ===

impl Name {
    pub(crate) fn new(namespace: Option<&str>, name: &str) -> Self {
        Self {
            namespace: Arc::from(namespace.unwrap_or_default()),
            name: Arc::from(name),
        }
    }

    fn entry(&self, stored: &Stored) -> Entry {
        let is_namespaced = !self.namespace.is_empty();
        Entry {
            namespace: is_namespaced.then(|| self.namespace.clone()),
            name: self.name.clone(),
            fields: stored.fields.clone(),
        }
    }
}

// === impl Staged ===

impl Staged {
    pub(crate) fn add(&mut self, object: &Projected, interner: &mut Interner) {
        self.0.push(shared(object, interner));
    }

    /// Builds the content. Of two objects with one name, the later counts.
    pub(crate) fn finish(self, indexes: usize) -> Content {
        let mut objects = self.0;
        objects.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut keys: Vec<Vec<(Arc<str>, Name)>> = vec![Vec::new(); indexes];
        // A map of a sorted list has full nodes.
        let objects: BTreeMap<Name, Stored> = objects.into_iter().collect();
        for (name, stored) in &objects {
            for (index, key) in &stored.keys {
                if let Some(index) = keys.get_mut(usize::from(*index)) {
                    index.push((key.clone(), name.clone()));
                }
            }
        }
        let count = keys.iter().map(Vec::len).sum();
        Content {
            objects,
            indexes: keys.into_iter().map(BTreeSet::from_iter).collect(),
            keys: count,
        }
    }
}

/// Brings an object into the form that a table keeps.
pub(crate) fn shared(object: &Projected, interner: &mut Interner) -> (Name, Stored) {
    let name = Name {
        namespace: interner.text(object.namespace().unwrap_or_default()),
        name: interner.text(object.name()),
    };
    let keys = object.keys();
    let keys = keys.map(|(index, key)| (index, interner.text(key)));
    let stored = Stored {
        keys: keys.collect(),
        fields: interner.text(object.fields()),
    };
    (name, stored)
}

// === impl Content ===

impl Content {
    pub(crate) fn new(indexes: usize) -> Self {
        Staged::default().finish(indexes)
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// An estimate of the memory without the texts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let objects = self.objects.len() * size_of::<(Name, Stored)>();
        let sets = self.keys * size_of::<(Arc<str>, Name)>();
        let lists = self.keys * size_of::<(u8, Arc<str>)>();
        (objects + sets) * TREE_NUMERATOR / TREE_DENOMINATOR + lists
    }

    /// Adds an object, or replaces the one with its name.
    pub(crate) fn put(&mut self, name: Name, stored: Stored) {
        self.remove(&name);
        for (index, key) in &stored.keys {
            if let Some(set) = self.indexes.get_mut(usize::from(*index)) {
                self.keys += usize::from(set.insert((key.clone(), name.clone())));
            }
        }
        self.objects.insert(name, stored);
    }

    /// Removes an object. Returns whether there was one.
    pub(crate) fn remove(&mut self, name: &Name) -> bool {
        let Some((name, stored)) = self.objects.remove_entry(name) else {
            return false;
        };
        for (index, key) in stored.keys {
            if let Some(set) = self.indexes.get_mut(usize::from(index)) {
                self.keys -= usize::from(set.remove(&(key, name.clone())));
            }
        }
        true
    }

    pub(crate) fn get(&self, namespace: Option<&str>, name: &str) -> Option<Entry> {
        let (name, stored) = self.objects.get_key_value(&Name::new(namespace, name))?;
        Some(name.entry(stored))
    }

    /// The objects with a key, from `after` on.
    pub(crate) fn find(&self, index: usize, key: &str, after: Option<&str>) -> Page {
        let Some(set) = self.indexes.get(index) else {
            return Page::default();
        };
        // No name is empty, so this is before every name.
        let (namespace, name) = after.map_or(("", ""), parse_cursor);
        let from = (Arc::from(key), Name::new(Some(namespace), name));
        let found = set.range((Bound::Excluded(from), Bound::Unbounded));
        let found = found.take_while(|(found, _)| **found == *key);
        Page::of(found.filter_map(|(_, name)| Some(name.entry(self.objects.get(name)?))))
    }

    /// All objects or those of a namespace, from `after` on.
    pub(crate) fn list(&self, namespace: Option<&str>, after: Option<&str>) -> Page {
        let first = (namespace.unwrap_or_default(), "");
        let (from_namespace, from_name) =
            after.map_or(first, |after| parse_cursor(after).max(first));
        let from = Name::new(Some(from_namespace), from_name);
        let objects = self
            .objects
            .range((Bound::Excluded(from), Bound::Unbounded));
        let objects = objects.take_while(|(name, _)| {
            namespace.is_none_or(|namespace| *name.namespace == *namespace)
        });
        Page::of(objects.map(|(name, stored)| name.entry(stored)))
    }
}
