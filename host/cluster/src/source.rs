//! Custom resources as a source of plugins.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tollgate_config::{Config, Serving, Tenancy};
use tollgate_rollout::{Commons, Reports as RolloutReports};

use crate::Installation;
use crate::desired::{Entry, Plan};
use crate::kinds::Kind;
use crate::lead::Management;
use crate::report::{Reports, leave};
use crate::run::Handle;
use crate::status;
use crate::store::Store;
use crate::watch::{follow, follow_holders};

/// The custom resources of a cluster: the source of their desired state, and the writer of their status. Dropping it
/// ends its tasks.
pub struct Source {
    client: Client,
    replica: String,
    store: Arc<Store>,
    serving: watch::Sender<Arc<Serving>>,
    management: watch::Sender<Management>,
    rollouts: watch::Sender<Arc<RolloutReports>>,
    tasks: Vec<AbortOnDropHandle<()>>,
}

/// How often the start looks whether the first lists have been read.
const PERIOD: Duration = Duration::from_millis(20);

// === impl Source ===

impl Source {
    /// Begins to watch the resources. Relative paths in them start at `folder`. `recorded` is the last known good
    /// configuration: its entries stand for the resources until these have been listed. With `tenancy`, plugins of
    /// namespaces count, and exceptions of all namespaces.
    #[must_use]
    pub fn start(
        client: &Client,
        installation: &Installation,
        folder: PathBuf,
        recorded: Option<Config>,
        tenancy: Option<&Tenancy>,
    ) -> Self {
        let kept = recorded.map(Entry::recorded).unwrap_or_default();
        let store = Store::new(folder, kept, installation, tenancy);
        let store = Arc::new(store);
        let serving = watch::Sender::new(Arc::new(Serving::default()));
        let management = watch::Sender::new(Management::default());
        let rollouts = watch::Sender::new(Arc::new(RolloutReports::default()));
        let plugins = Api::all_with(client.clone(), &Kind::Plugin.resource());
        let tenants = Api::all_with(client.clone(), &Kind::TenantPlugin.resource());
        let (resource, client) = (Kind::Exception.resource(), client.clone());
        let exceptions = match tenancy {
            Some(_) => Api::all_with(client.clone(), &resource),
            None => Api::namespaced_with(client.clone(), &installation.namespace, &resource),
        };
        let reports = Reports::new(
            client.clone(),
            installation.clone(),
            store.clone(),
            serving.subscribe(),
            management.subscribe(),
            rollouts.subscribe(),
        );
        let tasks = [
            tokio::spawn(follow(plugins, Kind::Plugin, store.clone())),
            tokio::spawn(follow(tenants, Kind::TenantPlugin, store.clone())),
            tokio::spawn(follow(exceptions, Kind::Exception, store.clone())),
            tokio::spawn(follow_holders(
                client.clone(),
                installation.clone(),
                store.clone(),
            )),
            tokio::spawn(reports.run()),
        ];
        Self {
            client,
            replica: installation.replica.clone(),
            store,
            serving,
            management,
            rollouts,
            tasks: tasks.into_iter().map(AbortOnDropHandle::new).collect(),
        }
    }

    /// Ends the tasks, and removes what this replica says from every status, within `patience`.
    pub async fn leave(mut self, patience: Duration) {
        for task in self.tasks.drain(..) {
            task.abort();
            // An aborted task ends with an error.
            drop(task.await);
        }
        let leaving = leave(&self.client, &self.store, &self.replica);
        if timeout(patience, leaving).await.is_err() {
            tracing::debug!(
                "stopping before this replica's entries were removed from every status"
            );
        }
    }

    /// Waits until the resources and their settings have been read, but no longer than `patience`.
    pub async fn listed(&self, patience: Duration) {
        let end = Instant::now() + patience;
        while !self.store.is_complete() && Instant::now() < end {
            sleep(PERIOD).await;
        }
    }

    /// Returns the function that adds the resources to the configuration that the file holds.
    pub fn add(&self) -> Arc<dyn Fn(Config) -> Config + Send + Sync> {
        let store = self.store.clone();
        Arc::new(move |file| store.add(&file))
    }

    /// Returns the `Notify` that fires when [`Source::add`] would return something else.
    #[must_use]
    pub fn changed(&self) -> Arc<Notify> {
        self.store.changed.clone()
    }

    /// Tells the writer of the status who registers the webhooks: the tasks of the handle, or somebody else.
    pub fn registered_by(&self, handle: Option<&Handle>) {
        let management = handle.map_or(Management::Others, |handle| Management::Own(handle.lead()));
        self.management.send_replace(management);
    }

    /// Returns the channel on which the replica announces the plugins that it serves.
    #[must_use]
    pub fn serving(&self) -> watch::Sender<Arc<Serving>> {
        self.serving.clone()
    }

    /// Returns where the replica says what it sees of rollouts.
    #[must_use]
    pub fn rollouts(&self) -> watch::Sender<Arc<RolloutReports>> {
        self.rollouts.clone()
    }

    /// Returns what the status of the resources says about rollouts.
    #[must_use]
    pub fn commons(&self) -> watch::Receiver<Arc<Commons>> {
        self.store.commons.subscribe()
    }

    /// Returns the desired plugins, with the verdict about each resource. None before the configuration was first read.
    #[must_use]
    pub fn plan(&self) -> watch::Receiver<Option<Arc<Plan>>> {
        self.store.plan.subscribe()
    }

    /// Returns the function that returns what each replica says in the status of each plugin, by the plugin's name.
    pub fn replicas(
        &self,
    ) -> impl Fn() -> BTreeMap<String, Vec<serde_json::Value>> + Send + Sync + 'static {
        let store = self.store.clone();
        move || {
            let resources = store.resources(Kind::Plugin).into_iter();
            let said = resources.map(|resource| {
                let entries = status::entries(&resource);
                let entries = entries.iter().map(|entry| entry.shown(resource.generation));
                (resource.name.clone(), entries.collect())
            });
            said.collect()
        }
    }

    /// Returns the function that says why the replica must not be ready yet.
    pub fn waiting(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let store = self.store.clone();
        move || store.waiting()
    }
}
