//! The lookups of one plugin, with their tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_config::lookup::Lookups;

use crate::page::{Entry, Failure, Page};
use crate::source::Tables;
use crate::table::Table;

/// The lookups of one plugin by their names, each with its table. A clone is cheap. Most plugins have no lookups, and
/// nothing is allocated for them.
#[derive(Clone, Debug, Default)]
pub struct Granted(Option<Arc<Grants>>);

type Grants = BTreeMap<Box<str>, Grant>;

#[derive(Debug)]
struct Grant {
    /// The name and the resource, for messages.
    subject: String,
    secrets: bool,
    /// The table, or why there can be none.
    table: Result<Arc<Table>, String>,
}

// === impl Granted ===

impl Granted {
    /// Takes the tables of a plugin's lookups from a source.
    pub fn bind(lookups: &Lookups, source: &dyn Tables) -> Self {
        let grants = lookups.iter().map(|(name, lookup)| {
            let grant = Grant {
                subject: format!("the lookup `{name}` of {}", lookup.resource),
                secrets: lookup.secrets,
                table: source.table(lookup),
            };
            (name.clone(), grant)
        });
        let grants: Grants = grants.collect();
        Self((!grants.is_empty()).then(|| Arc::new(grants)))
    }

    fn grants(&self) -> impl Iterator<Item = (&Box<str>, &Grant)> {
        self.0.iter().flat_map(|grants| grants.iter())
    }

    fn grant(&self, lookup: &str) -> Option<&Grant> {
        self.0.as_ref()?.get(lookup)
    }

    /// Whether there are no lookups.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a lookup reads Secrets.
    #[must_use]
    pub fn reads_secrets(&self, lookup: &str) -> bool {
        self.grant(lookup).is_some_and(|grant| grant.secrets)
    }

    /// Lists the tables by the names of the lookups. A lookup without a table is left out.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &Arc<Table>)> {
        self.grants()
            .filter_map(|(name, grant)| Some((&**name, grant.table.as_ref().ok()?)))
    }

    /// Says which lookup's objects have never been read, and why. None if there is nothing to wait for.
    ///
    /// A table that has lost its watch is not waited for. Other replicas lose their watches at the same time, and taking
    /// all of them out of service would help nobody. A lookup without a table never gets one.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        self.grants().find_map(|(_, grant)| {
            let reason = grant.table.as_ref().ok()?.state().pending()?;
            Some(format!("{}: {reason}", grant.subject))
        })
    }

    /// Returns an object by its name.
    ///
    /// # Errors
    /// [`Failure`], with a text that names the lookup. The same holds for the other reads.
    pub fn get(
        &self,
        lookup: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Entry>, Failure> {
        self.read(lookup, |table| table.get(namespace, name))
    }

    /// Returns objects by a key of an index.
    ///
    /// # Errors
    /// See [`Granted::get`].
    pub fn find(
        &self,
        lookup: &str,
        index: &str,
        key: &str,
        after: Option<&str>,
    ) -> Result<Page, Failure> {
        self.read(lookup, |table| table.find(index, key, after))
    }

    /// Returns all objects of a lookup, or those of one namespace.
    ///
    /// # Errors
    /// See [`Granted::get`].
    pub fn list(
        &self,
        lookup: &str,
        namespace: Option<&str>,
        after: Option<&str>,
    ) -> Result<Page, Failure> {
        self.read(lookup, |table| table.list(namespace, after))
    }

    fn read<T>(
        &self,
        lookup: &str,
        read: impl FnOnce(&Table) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(grant) = self.grant(lookup) else {
            return Err(Failure::NotGranted(self.unknown(lookup)));
        };
        let table = grant.table.as_ref();
        let answer = table
            .map_err(|reason| Failure::NotSynchronised(reason.clone()))
            .and_then(|table| read(table));
        answer.map_err(|failure| failure.of(&grant.subject))
    }

    fn unknown(&self, lookup: &str) -> String {
        let lookup: String = lookup.chars().take(64).collect();
        let names: Vec<&str> = self.grants().map(|(name, _)| &**name).collect();
        let known = match names.as_slice() {
            [] => "the plugin's configuration has no `lookups`".to_owned(),
            names => format!("the plugin's configuration has {}", names.join(", ")),
        };
        format!("there is no lookup {lookup:?}: {known}")
    }
}
