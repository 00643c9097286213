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
mod serving;
mod status;
mod task;
mod watch;

use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, oneshot};
use tollgate_admission::{Body, Call, Gate, Instance, Readiness, Reloaded, Reply};
use tollgate_config::Startup;

pub use desired::Additions;
pub use reclaim::Reclaim;
pub use task::{Begin, Reconciler};

use crate::pipeline::Pipeline;
use crate::plugin::PluginSet;
use grace::Grace;
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
    grace: Arc<Grace>,
    reclaim: Arc<Reclaim>,
    /// The reason why this replica must not be ready yet, beside missing plugins.
    waits: Option<Box<dyn Fn() -> Option<String> + Send + Sync>>,
}

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
            grace: Arc::new(Grace::new(startup, instance)),
            reclaim: reconciler.reclaim(),
            waits: None,
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

    async fn reload(&self) -> Option<Reloaded> {
        let (request, answer) = oneshot::channel();
        self.reload_sender.send(request).await.ok()?;
        answer.await.ok()
    }
}
