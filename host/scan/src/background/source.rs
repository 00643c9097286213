//! The interfaces to the cluster and to the plugins that a scan needs. Tests implement them in a
//! simpler way.

use tollgate_cluster::{Client, InventoryError, Part, Served, Versions};
use tracing::Dispatch;
use tracing::instrument::WithSubscriber as _;

use crate::judge::{Bench, Outcome};
use crate::key::Key;
use crate::object::Item;
use crate::state::Seen;

/// The objects of a cluster.
pub(crate) trait Objects {
    /// Returns a page of the versions of all objects of a resource.
    async fn versions(
        &self,
        resource: &Served,
        continued: Option<&str>,
        limit: u32,
    ) -> Result<Versions, InventoryError>;

    /// Returns the same page with the whole objects.
    async fn page(
        &self,
        resource: &Served,
        continued: Option<&str>,
        limit: u32,
    ) -> Result<Vec<u8>, InventoryError>;

    /// Returns an object. None if it does not exist any more.
    async fn object(
        &self,
        resource: &Served,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Vec<u8>>, InventoryError>;
}

/// The plugins.
pub(crate) trait Judges {
    /// Returns the key of all plugins whose rules could match objects of a resource.
    fn key_of(&self, resource: &Served) -> Option<Key>;

    /// Returns a key of a Namespace. None if it cannot be known now.
    async fn namespace(&self, name: Option<&str>) -> Option<Key>;

    /// Judges an object.
    async fn judge(&self, item: Item, known: Option<&Seen>, judged_by: Option<Key>) -> Outcome;
}

/// The cluster that the server runs in.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) max_page_bytes: u64,
}

// === impl Cluster ===

impl Objects for Cluster {
    async fn versions(
        &self,
        resource: &Served,
        continued: Option<&str>,
        limit: u32,
    ) -> Result<Versions, InventoryError> {
        let part = self.part(continued, limit);
        tollgate_cluster::versions(&self.client, resource, "", part).await
    }

    async fn page(
        &self,
        resource: &Served,
        continued: Option<&str>,
        limit: u32,
    ) -> Result<Vec<u8>, InventoryError> {
        let part = self.part(continued, limit);
        tollgate_cluster::part(&self.client, resource, part).await
    }

    async fn object(
        &self,
        resource: &Served,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Vec<u8>>, InventoryError> {
        let most = self.max_page_bytes;
        tollgate_cluster::object(&self.client, resource, namespace, name, most).await
    }
}

impl Cluster {
    fn part<'a>(&self, continued: Option<&'a str>, limit: u32) -> Part<'a> {
        Part {
            continued,
            limit,
            max_bytes: self.max_page_bytes,
        }
    }
}

// === impl Bench ===

impl Judges for Bench {
    fn key_of(&self, resource: &Served) -> Option<Key> {
        Self::key_of(self, resource)
    }

    async fn namespace(&self, name: Option<&str>) -> Option<Key> {
        Self::namespace(self, name).await
    }

    /// The log of the server is about reviews: a denial in it is one that a user saw.
    async fn judge(&self, item: Item, known: Option<&Seen>, judged_by: Option<Key>) -> Outcome {
        let judging = Self::judge(self, item, known, judged_by);
        judging.with_subscriber(Dispatch::none()).await
    }
}
