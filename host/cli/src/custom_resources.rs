//! The custom resources of the cluster that the server runs in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;
use tokio::sync::watch;
use tollgate_admission::access::Authorizer;
use tollgate_admission::images::PullSecrets;
use tollgate_admission::namespaces::Namespaces;
use tollgate_cluster::{
    Client, ClusterAuthorizer, ClusterNamespaces, ClusterPullSecrets, ClusterTables, GROUP, Handle,
    Installation, Kind, Plan, Source, VERSION, connect, merge_objects,
};
use tollgate_config::{Config, Origin, Serving, folder_of};
use tollgate_gate::live::{Additions, Link};
use tollgate_lookups::Tables;
use tollgate_oci::LastGood;
use tollgate_telemetry::metrics::Metrics;

use crate::review::input;
use crate::terminal::{NOTABLE, tell};

/// Custom resources from files.
#[derive(Args, Debug)]
pub(crate) struct ResourceFiles {
    /// File with custom resources to merge into the configuration, as a server in the cluster would. ConfigMaps and
    /// Secrets in it give `settingsFrom`. May be given several times.
    #[arg(long, value_name = "FILE")]
    resources: Vec<PathBuf>,
}

/// The custom resources as a source of plugins.
pub(crate) struct CustomResources {
    source: Source,
    client: Client,
    installation: Installation,
    namespaces: Arc<ClusterNamespaces>,
    tables: Arc<ClusterTables>,
    authorizer: Arc<ClusterAuthorizer>,
    pull_secrets: Arc<ClusterPullSecrets>,
}

/// How long a start waits for the first lists before it loads what the file and the last known good desire. The replica
/// is not ready meanwhile, and may stay unready for longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a stop waits for kube-apiserver to take this replica out of the status of the resources.
const LONGEST_LEAVE: Duration = Duration::from_secs(3);

// === impl ResourceFiles ===

impl ResourceFiles {
    /// Adds the resources of the files to the configuration. Reports resources that change nothing.
    ///
    /// # Errors
    /// When a file cannot be read, or a resource has no effect.
    pub(crate) fn add_to(&self, config: Config, origin: &Origin) -> anyhow::Result<Config> {
        let (config, refused) = self.merge(config, origin)?;
        refuse(refused)?;
        Ok(config)
    }

    /// Like [`Self::add_to`]. Also returns the number of resources that have no effect.
    pub(crate) fn merge(&self, config: Config, origin: &Origin) -> anyhow::Result<(Config, usize)> {
        let mut objects = Vec::new();
        for file in &self.resources {
            let before = objects.len();
            for document in input::read(file)? {
                let place = format!("{}, document {}", document.file, document.number);
                let object = serde_json::from_str(&document.content.to_text());
                let object: Value = object.with_context(|| place.clone())?;
                if is_read(&object, &place)? {
                    objects.push(object);
                }
            }
            anyhow::ensure!(
                objects.len() > before,
                "--resources {}: no custom resource of Tollgate, ConfigMap or Secret is in it",
                file.display()
            );
        }
        if self.resources.is_empty() {
            return Ok((config, 0));
        }
        if !config.cluster.enabled {
            tell!(
                "{NOTABLE}--resources: a server with this configuration does not read custom resources, because cluster.enabled is \
                 false{NOTABLE:#}"
            );
        }
        let plan = merge_objects(&config, folder_of(origin.path()), &objects);
        let plugins = plan.plugins.iter().zip(std::iter::repeat("plugin"));
        let exceptions = plan.exceptions.iter().zip(std::iter::repeat("exception"));
        let mut invalid = 0;
        for ((name, verdict), kind) in plugins.chain(exceptions) {
            if let Some(refusal) = &verdict.refusal {
                tell!(
                    "tollgate: {kind} {name}: {}: {}",
                    refusal.reason,
                    refusal.message
                );
                // An exception that is over, or a plugin that the file replaces, is no mistake of the files.
                invalid += usize::from(!matches!(refusal.reason, "Expired" | "NameTaken"));
            }
        }
        Ok((plan.config, invalid))
    }
}

/// Refuses custom resources that have no effect.
pub(crate) fn refuse(resources: usize) -> anyhow::Result<()> {
    anyhow::ensure!(
        resources == 0,
        "{resources} custom resource(s) have no effect"
    );
    Ok(())
}

/// Whether a server in the cluster would read an object. Other objects are left out.
///
/// # Errors
/// When the object is meant for Tollgate, and kube-apiserver has no such kind.
fn is_read(object: &Value, place: &str) -> anyhow::Result<bool> {
    let text = |member: &str| object[member].as_str().unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    if version == "v1" && ["ConfigMap", "Secret"].contains(&kind) {
        return Ok(true);
    }
    let kinds = Kind::ALL.map(Kind::name);
    let is_kind = kinds.contains(&kind);
    if version == format!("{GROUP}/{VERSION}") && is_kind {
        return Ok(true);
    }
    let is_of_group = version.split('/').next() == Some(GROUP);
    anyhow::ensure!(
        !is_of_group && !is_kind,
        "{place}: there is no {kind} in {version}: expected {} in {GROUP}/{VERSION}",
        kinds.join(", ")
    );
    Ok(false)
}

// === impl CustomResources ===

impl CustomResources {
    /// Connects to kube-apiserver and lists the resources. None if the configuration does not use them.
    pub(crate) async fn start(
        config: &Config,
        origin: &Origin,
        last_good: Option<&LastGood>,
    ) -> anyhow::Result<Option<Self>> {
        if !config.cluster.enabled {
            return Ok(None);
        }
        let client = connect().await.context("cluster.enabled is set")?;
        let installation = Installation::new(&config.cluster, &client)?;
        let folder = folder_of(origin.path());
        let recorded = last_good.and_then(LastGood::configuration);
        let recorded = recorded.and_then(|document| Config::of_document(&document, folder).ok());
        tracing::info!(
            installation = installation.name,
            namespace = installation.namespace,
            replica = installation.replica,
            "taking plugins from custom resources"
        );
        let tenancy = config.tenancy.as_ref();
        let source = Source::start(&client, &installation, folder.to_owned(), recorded, tenancy);
        source.listed(PATIENCE).await;
        Ok(Some(Self {
            source,
            namespaces: Arc::new(ClusterNamespaces::start(client.clone())),
            tables: Arc::new(ClusterTables::new(client.clone())),
            authorizer: Arc::new(ClusterAuthorizer::new(client.clone())),
            pull_secrets: Arc::new(ClusterPullSecrets::new(client.clone())),
            client,
            installation,
        }))
    }

    /// Adds the resources to the configuration that the file holds.
    pub(crate) fn add(&self, config: Config) -> Config {
        self.source.add()(config)
    }

    /// Tells the status who registers the webhooks.
    pub(crate) fn registered_by(&self, handle: Option<&Handle>) {
        self.source.registered_by(handle);
    }

    /// Returns the connection between the resources and the reconciler.
    pub(crate) fn additions(&self) -> Additions {
        Additions {
            add: self.source.add(),
            changed: self.source.changed(),
            serving: self.source.serving(),
            rollouts: Link {
                commons: self.source.commons(),
                reports: self.source.rollouts(),
            },
        }
    }

    /// Returns the function that says why the replica must not be ready yet.
    pub(crate) fn waiting(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        self.source.waiting()
    }

    /// Removes what this replica says from the status of the resources.
    pub(crate) async fn leave(self) {
        self.source.leave(LONGEST_LEAVE).await;
    }

    /// Returns the function that returns what each replica says about each plugin.
    pub(crate) fn replicas(
        &self,
    ) -> impl Fn() -> BTreeMap<String, Vec<serde_json::Value>> + Send + Sync + 'static {
        self.source.replicas()
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Returns where plugins and selectors learn about Namespaces.
    pub(crate) fn namespaces(&self) -> Arc<dyn Namespaces> {
        self.namespaces.clone()
    }

    /// Returns the Namespaces of the cluster.
    pub(crate) fn cluster_namespaces(&self) -> Arc<ClusterNamespaces> {
        self.namespaces.clone()
    }

    /// Returns where the objects of lookups come from.
    pub(crate) fn tables(&self) -> Arc<dyn Tables> {
        self.tables.clone()
    }

    /// Counts questions about rights in these metrics.
    pub(crate) fn count_in(&self, metrics: &Arc<Metrics>) {
        self.authorizer.count_in(metrics.clone());
    }

    /// Returns who says what users may do.
    pub(crate) fn authorizer(&self) -> Arc<dyn Authorizer> {
        self.authorizer.clone()
    }

    /// Returns who reads the `imagePullSecrets` of Pods.
    pub(crate) fn pull_secrets(&self) -> Arc<dyn PullSecrets> {
        self.pull_secrets.clone()
    }

    /// Returns the desired plugins.
    pub(crate) fn plan(&self) -> watch::Receiver<Option<Arc<Plan>>> {
        self.source.plan()
    }

    /// Returns what this replica serves.
    pub(crate) fn serving(&self) -> watch::Receiver<Arc<Serving>> {
        self.source.serving().subscribe()
    }
}
