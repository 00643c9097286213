//! The table of a lookup: one writer, many readers.

mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use tollgate_config::lookup::{Lookup, LookupNamespaces};

use crate::content::{Content, Name, Staged, shared};
use crate::intern::Interner;
use crate::page::{Entry, Failure, Page};
use crate::projection::Projected;
pub use state::{LONGEST_CUT, State, Synchronisation};

/// The objects of one lookup.
///
/// Readers wait for a writer as long as it takes to put one object in its place, or to exchange two pointers.
pub struct Table {
    namespaces: LookupNamespaces,
    /// The names of the indexes. An index's number is its place here.
    indexes: Vec<Box<str>>,
    shared: RwLock<Shared>,
}

/// How much a table holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The number of objects.
    pub objects: usize,
    /// An estimate of the resident memory in bytes.
    pub bytes: usize,
}

/// Changes a table. A table has one writer.
pub struct Writer {
    table: Arc<Table>,
    interner: Interner,
    staged: Staged,
}

struct Shared {
    content: Content,
    state: State,
    /// The memory of the texts, in bytes.
    text_bytes: usize,
}

// === impl Table ===

impl Table {
    /// Creates an empty table, which is not synchronised.
    #[must_use]
    pub fn new(lookup: &Lookup) -> Self {
        let indexes: Vec<Box<str>> = lookup.indexes.keys().cloned().collect();
        let shared = Shared {
            content: Content::new(indexes.len()),
            state: State::default(),
            text_bytes: 0,
        };
        Self {
            namespaces: lookup.namespaces.clone(),
            indexes,
            shared: RwLock::new(shared),
        }
    }

    /// Returns the writer. Ask for one writer of each table: a second one does not share texts with the first.
    #[must_use]
    pub fn writer(self: &Arc<Self>) -> Writer {
        Writer {
            table: self.clone(),
            interner: Interner::default(),
            staged: Staged::default(),
        }
    }

    /// Returns whether the table answers, and how old its content is.
    #[must_use]
    pub fn state(&self) -> State {
        self.read().state.clone()
    }

    /// Returns how much the table holds.
    #[must_use]
    pub fn size(&self) -> Size {
        let shared = self.read();
        Size {
            objects: shared.content.len(),
            bytes: shared.content.bytes() + shared.text_bytes,
        }
    }

    /// Returns an object by its name.
    ///
    /// # Errors
    /// When the lookup does not cover the namespace, or the table is not synchronised.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Entry>, Failure> {
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        self.covers(namespace.unwrap_or_default())?;
        Ok(self.synchronised()?.content.get(namespace, name))
    }

    /// Returns the objects that have a key in an index.
    ///
    /// # Errors
    /// When there is no such index, or the table is not synchronised.
    pub fn find(&self, index: &str, key: &str, after: Option<&str>) -> Result<Page, Failure> {
        let number = self.indexes.iter().position(|name| **name == *index);
        let number = number.ok_or_else(|| Failure::NotGranted(self.no_index(index)))?;
        Ok(self.synchronised()?.content.find(number, key, after))
    }

    /// Returns all objects, or those of one namespace.
    ///
    /// # Errors
    /// When the lookup does not cover the namespace, or the table is not synchronised.
    pub fn list(&self, namespace: Option<&str>, after: Option<&str>) -> Result<Page, Failure> {
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        if let Some(namespace) = namespace {
            self.covers(namespace)?;
        }
        Ok(self.synchronised()?.content.list(namespace, after))
    }

    fn covers(&self, namespace: &str) -> Result<(), Failure> {
        if self.namespaces.covers(namespace) {
            return Ok(());
        }
        let namespace: String = namespace.chars().take(64).collect();
        let text = match namespace.as_str() {
            "" => "it covers objects in some namespaces only, so name a namespace".to_owned(),
            _ => format!("it does not cover the namespace {namespace:?}"),
        };
        Err(Failure::NotGranted(text))
    }

    fn no_index(&self, index: &str) -> String {
        let index: String = index.chars().take(64).collect();
        match self.indexes.as_slice() {
            [] => format!("it has no index {index:?}, and no other"),
            names => format!("it has no index {index:?}, only {}", names.join(", ")),
        }
    }

    fn synchronised(&self) -> Result<RwLockReadGuard<'_, Shared>, Failure> {
        let shared = self.read();
        match shared.state.why_silent(Instant::now()) {
            None => Ok(shared),
            Some(reason) => Err(Failure::NotSynchronised(reason)),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Shared> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shared> {
        self.shared.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows the size and the state, and nothing of the objects.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("size", &self.size())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

// === impl Writer ===

impl Writer {
    /// The table that this writer changes.
    #[must_use]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Begins a new list. The old content stays visible until [`Writer::finish`].
    pub fn begin(&mut self) {
        self.staged = Staged::default();
    }

    /// Adds an object to the list that has begun.
    pub fn add(&mut self, object: Projected) {
        self.staged.add(&object, &mut self.interner);
    }

    /// Ends the list: its objects replace the old ones, and the table is synchronised.
    pub fn finish(&mut self, resource_version: &str) {
        let staged = std::mem::take(&mut self.staged);
        let content = staged.finish(self.table.indexes.len());
        let old = {
            let mut shared = self.table.write();
            shared.state.synchronises(resource_version);
            std::mem::replace(&mut shared.content, content)
        };
        // Readers do not wait for this.
        drop(old);
        self.interner.sweep();
        self.table.write().text_bytes = self.interner.bytes();
    }

    /// Adds an object, or replaces the one with its name.
    pub fn apply(&mut self, object: Projected, resource_version: &str) {
        let (name, stored) = shared(&object, &mut self.interner);
        {
            let mut shared = self.table.write();
            shared.content.put(name, stored);
            shared.state.advances(resource_version);
        }
        // Readers do not wait for this.
        self.interner.sweep_if_due();
        self.table.write().text_bytes = self.interner.bytes();
    }

    /// Removes an object. An unknown object is ignored.
    pub fn delete(&mut self, namespace: Option<&str>, name: &str, resource_version: &str) {
        let name = Name::new(namespace, name);
        let mut shared = self.table.write();
        shared.content.remove(&name);
        shared.state.advances(resource_version);
    }

    /// Records that nothing has changed up to a version, as a bookmark says.
    pub fn progress(&mut self, resource_version: &str) {
        self.table.write().state.advances(resource_version);
    }

    /// Records that no watch of the table is cut any more.
    pub fn recover(&mut self) {
        self.table.write().state.recovers();
    }

    /// Records that nobody follows the table any more. It does not answer from now on.
    pub fn end(&mut self, reason: &str) {
        self.table.write().state.ends(reason);
    }

    /// Records that the watch is cut, or that a list has failed. The content stays. [`Table::state`] says since when.
    pub fn fail(&mut self, reason: &str) {
        self.table.write().state.fails(reason, Instant::now());
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Writer").field(&self.table).finish()
    }
}
