//! Keeps the serving plugins in line with the configuration and the plugins' files, without a restart and without a
//! failed call.
//!
//! ```text
//! a file changes, SIGHUP, POST /reload, a custom resource changes              watch, desired
//!   → read the configuration and stamp the files
//!   → reconcile: compare desired and serving, and decide on steps (pure)       reconcile
//!   → run the steps: load → prepare (child process) → link; publish; record    task, load
//!   → report: /plugins, /readyz, the log, the metrics, custom resources        status, note, serving
//! ```
//!
//! Tollgate polls the files ten times a second and does not use inotify, for three reasons:
//!
//! - A poll costs microseconds.
//! - Polling works the same for a mounted ConfigMap, a Secret, NFS and an overlay.
//! - Polling follows every link on the path, without special code for links.

mod desired;
mod grace;
mod load;
mod note;
mod reclaim;
mod reconcile;
mod rollout;
mod roots;
mod serving;
mod status;
mod task;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, oneshot};
use tollgate_admission::scan::{self, ScanSearch, Scans};
use tollgate_admission::search::Search;
use tollgate_admission::{
    Body, Call, Gate, Instance, Readiness, Reloaded, Reply, RolloutAnswer, RolloutChange,
};
use tollgate_config::Startup;

pub use desired::Additions;
pub use reclaim::Reclaim;
pub use rollout::Link;
pub use task::{Begin, Reconciler};

use crate::pipeline::Pipeline;
use crate::plugin::PluginSet;
use grace::Grace;
use rollout::{Page, RolloutRequest};
use status::Status;

/// The channel to a caller who asked for a reload and waits for the result.
type ReloadRequest = oneshot::Sender<Reloaded>;

/// The gate in front of plugins that may change while they serve.
pub struct Live {
    /// Unset until the first plugins are loaded. Until then every review is answered with `Reply::Starting`, so that no
    /// request passes for lack of plugins.
    pipeline: OnceLock<Arc<Pipeline>>,
    status: Arc<Status>,
    reload_sender: mpsc::Sender<ReloadRequest>,
    rollouts: Page,
    rollout_sender: mpsc::Sender<RolloutRequest>,
    grace: Arc<Grace>,
    reclaim: Arc<Reclaim>,
    /// The reason why this replica must not be ready yet, beside missing plugins.
    waits: Option<Box<dyn Fn() -> Option<String> + Send + Sync>>,
    /// The reports of the cluster's replicas about each plugin.
    replicas: Option<Box<Replicas>>,
    /// The results of the background scan of this replica. None if it is off.
    scan: Option<Arc<dyn Scans>>,
}

/// Returns what each replica says about each plugin, by the plugin's name.
type Replicas = dyn Fn() -> BTreeMap<String, Vec<serde_json::Value>> + Send + Sync;

// === impl Live ===

impl Live {
    /// A gate to the plugins that `reconciler` publishes. The gate stays closed until [`Live::open`]. `startup` and
    /// `instance` decide when the gate is ready although plugins are missing.
    #[must_use]
    pub fn new(reconciler: &Reconciler, startup: Startup, instance: Instance) -> Self {
        Self {
            pipeline: OnceLock::new(),
            status: reconciler.status(),
            reload_sender: reconciler.reload_sender(),
            rollouts: reconciler.rollout_page(),
            rollout_sender: reconciler.rollout_sender(),
            grace: Arc::new(Grace::new(startup, instance)),
            reclaim: reconciler.reclaim(),
            waits: None,
            replicas: None,
            scan: None,
        }
    }

    /// Makes the gate unready for as long as `waits` returns a reason.
    #[must_use]
    pub fn waiting_for(self, waits: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            waits: Some(Box::new(waits)),
            ..self
        }
    }

    /// Adds what the replicas of the cluster say about each plugin to `/plugins`.
    #[must_use]
    pub fn with_replicas(
        self,
        replicas: impl Fn() -> BTreeMap<String, Vec<serde_json::Value>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            replicas: Some(Box::new(replicas)),
            ..self
        }
    }

    /// Adds what the background scan found: the content of `/scan`, and whether exceptions are still needed.
    #[must_use]
    pub fn with_scan(self, scan: Arc<dyn Scans>) -> Self {
        Self {
            scan: Some(scan),
            ..self
        }
    }

    /// Opens the gate: from now on, `pipeline` answers the reviews.
    pub fn open(&self, pipeline: Arc<Pipeline>) {
        self.pipeline.get_or_init(|| pipeline);
    }

    /// Waits until all awaited plugins are loaded, or until this replica is ready without them.
    pub async fn ready(&self, pipeline: Arc<Pipeline>) {
        Arc::clone(&self.grace).run(pipeline).await;
    }
}

impl Gate for Live {
    async fn review(&self, call: Call) -> Reply {
        match self.pipeline.get() {
            Some(pipeline) => {
                let _reviewed = self.reclaim.review(match &call.body {
                    Body::Whole(bytes) => bytes.len(),
                    Body::TooLarge { .. } => 0,
                });
                pipeline.review(call).await
            }
            None => Reply::Starting,
        }
    }

    fn plugins(&self) -> serde_json::Value {
        let mut plugins = match self.pipeline.get() {
            Some(pipeline) => pipeline.plugins(),
            None => PluginSet::default().status(),
        };
        self.status.add_to_page(&mut plugins);
        if let Some(replicas) = &self.replicas {
            status::add_replicas(&mut plugins, replicas());
        }
        if let Some(scan) = &self.scan {
            scan.add_to_exceptions(&mut plugins);
        }
        if self.pipeline.get().is_none() {
            // The first plugins are published a moment before the gate opens.
            plugins["state"] = "starting".into();
        }
        plugins
    }

    fn shadows(&self) -> serde_json::Value {
        match self.pipeline.get() {
            Some(pipeline) => pipeline.shadows(),
            None => PluginSet::default().comparisons(),
        }
    }

    fn decisions(&self, uid: Option<&str>) -> serde_json::Value {
        match self.pipeline.get() {
            Some(pipeline) => pipeline.decisions(uid),
            None => serde_json::json!({ "decisions": [] }),
        }
    }

    fn search(&self, search: &Search) -> serde_json::Value {
        match self.pipeline.get() {
            Some(pipeline) => pipeline.search(search),
            None => crate::decision::search(&[], search, |_| serde_json::Value::Null),
        }
    }

    fn costs(&self) -> serde_json::Value {
        match self.pipeline.get() {
            Some(pipeline) => pipeline.costs(),
            None => crate::decision::costs(&[]),
        }
    }

    fn scan(&self, search: &ScanSearch) -> serde_json::Value {
        match &self.scan {
            Some(scan) => scan.page(search),
            None => scan::disabled(),
        }
    }

    fn readiness(&self) -> Readiness {
        let Some(pipeline) = self.pipeline.get() else {
            return Readiness {
                ready: false,
                complete: false,
                detail: vec![self.status.start()],
            };
        };
        let mut readiness = pipeline.readiness();
        let live = pipeline.live();
        readiness.detail.extend(self.status.lines(&live));
        if let Some(waiting) = self.grace.waiting(&live) {
            readiness.ready = false;
            readiness.detail.push(waiting);
        }
        if let Some(waiting) = self.waits.as_ref().and_then(|waits| waits()) {
            readiness.ready = false;
            readiness.complete = false;
            readiness.detail.push(waiting);
        }
        readiness
    }

    fn rollouts(&self) -> serde_json::Value {
        self.rollouts.content()
    }

    async fn change_rollout(&self, plugin: &str, change: RolloutChange) -> RolloutAnswer {
        let (answer, answered) = oneshot::channel();
        let request = RolloutRequest {
            plugin: plugin.to_owned(),
            change,
            answer,
        };
        if self.rollout_sender.send(request).await.is_err() {
            return RolloutAnswer::Refused("the server is stopping".to_owned());
        }
        let stopping = || RolloutAnswer::Refused("the server is stopping".to_owned());
        answered.await.unwrap_or_else(|_| stopping())
    }

    async fn reload(&self) -> Option<Reloaded> {
        let (request, answer) = oneshot::channel();
        self.reload_sender.send(request).await.ok()?;
        answer.await.ok()
    }
}
