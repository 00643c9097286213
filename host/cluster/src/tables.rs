//! The objects of the cluster that lookups show to plugins.
//!
//! Each table is filled from a list and followed with a watch. Plugins with equal lookups share a table. A table that no
//! plugin uses any more goes after a while, so that a change of the configuration does not fetch everything again.

mod decode;
mod follow;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tollgate_config::lookup::{Lookup, LookupNamespaces};
use tollgate_lookups::{Projection, Table, Tables};

use self::follow::{FirstLists, Follower, Health, Part};

/// Time for which a table without a plugin stays.
const LINGER: Duration = Duration::from_secs(60);

/// Tables from kube-apiserver. Dropping it ends all watches.
pub struct ClusterTables {
    client: Client,
    runtime: Handle,
    tables: Arc<Mutex<HashMap<Lookup, Followed>>>,
    _sweep: AbortOnDropHandle<()>,
}

/// A table with the tasks that fill it.
struct Followed {
    table: Arc<Table>,
    /// References to the table that are not of plugins.
    own_references: usize,
    /// Since when no plugin uses the table.
    unused_since: Option<Instant>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// Ends the watches of tables that no plugin has used for a while.
async fn sweep(tables: Arc<Mutex<HashMap<Lookup, Followed>>>) {
    loop {
        sleep(LINGER / 2).await;
        let mut tables = tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|_, followed| followed.stays(Instant::now()));
    }
}

// === impl ClusterTables ===

impl ClusterTables {
    /// Must be called within a tokio runtime. Fetches no objects before a plugin needs them.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let tables = Arc::default();
        let sweep = tokio::spawn(sweep(Arc::clone(&tables)));
        Self {
            client,
            runtime: Handle::current(),
            tables,
            _sweep: AbortOnDropHandle::new(sweep),
        }
    }

    fn follow(&self, lookup: &Lookup) -> Followed {
        let table = Arc::new(Table::new(lookup));
        let writer = Arc::new(Mutex::new(table.writer()));
        let projection = Arc::new(Projection::new(lookup));
        let selector = Some(lookup.label_selector.to_string()).filter(|text| !text.is_empty());
        let failing = Arc::default();
        let follower = |namespace: Option<&str>, part: Option<Part>| Follower {
            health: Health::new(&failing),
            client: self.client.clone(),
            path: path(lookup, namespace),
            selector: selector.clone(),
            is_metadata: lookup.is_metadata_only(),
            projection: projection.clone(),
            writer: writer.clone(),
            part,
        };
        let followers = match &lookup.namespaces {
            LookupNamespaces::All => vec![follower(None, None)],
            LookupNamespaces::Named(names) => {
                writer
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .begin();
                let lists = Arc::new(FirstLists::of(names.len()));
                let part = |namespace: &str| Part {
                    lists: lists.clone(),
                    names: None,
                    namespace: namespace.to_owned(),
                };
                let follower = |name: &str| follower(Some(name), Some(part(name)));
                names.iter().map(|name| follower(name)).collect()
            }
        };
        let spawn = |follower: Follower| AbortOnDropHandle::new(self.runtime.spawn(follower.run()));
        let tasks = followers.into_iter().map(spawn).collect();
        drop(writer);
        Followed {
            own_references: Arc::strong_count(&table),
            table,
            unused_since: None,
            _tasks: tasks,
        }
    }
}

impl Tables for ClusterTables {
    fn table(&self, lookup: &Lookup) -> Result<Arc<Table>, String> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let followed = tables
            .entry(lookup.clone())
            .or_insert_with(|| self.follow(lookup));
        followed.unused_since = None;
        Ok(followed.table.clone())
    }
}

impl fmt::Debug for ClusterTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterTables").finish_non_exhaustive()
    }
}

// === impl Followed ===

impl Followed {
    /// Returns whether the table is used, or was a moment ago.
    fn stays(&mut self, now: Instant) -> bool {
        if Arc::strong_count(&self.table) > self.own_references {
            self.unused_since = None;
            return true;
        }
        let since = *self.unused_since.get_or_insert(now);
        now.duration_since(since) < LINGER
    }
}

/// Returns the path of the collection in kube-apiserver.
fn path(lookup: &Lookup, namespace: Option<&str>) -> String {
    let resource = &lookup.resource;
    let mut path = match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    if let Some(namespace) = namespace {
        path += &format!("/namespaces/{namespace}");
    }
    format!("{path}/{}", resource.resource)
}
