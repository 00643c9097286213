//! What is served follows the configuration and the plugins' files, without a restart and without a failed call.
//!
//! ```text
//! a file changes, SIGHUP, POST /reload            watch, desired
//!   → read the configuration and stamp the files
//!   → reconcile: what is desired, what serves, what is to be done about it (pure)
//!   → carry it out: load → prepare (child process) → link; publish; record     task, load
//!   → tell: /plugins, /readyz, the log, the metrics                            status, note
//! ```
//!
//! Files are looked at ten times a second and not by inotify: a look costs microseconds, sees what a mounted ConfigMap,
//! a Secret, NFS and an overlay have in common, and follows every link on the way without knowing of it.

mod desired;
mod grace;
mod load;
mod note;
mod reconcile;
mod status;
mod task;
mod watch;

use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, oneshot};

pub use task::{Begin, Reconciler};

use crate::config::Startup;
use crate::pipeline::Pipeline;
use crate::plugin::PluginSet;
use crate::server::{Call, Gate, Instance, Readiness, Reloaded, Reply};
use grace::Grace;
use status::Status;

/// A caller who asks for a reload and waits for what comes of it.
type Asking = oneshot::Sender<Reloaded>;

/// The gate over plugins that change while they serve.
pub struct Live {
    /// None before the first set is loaded: nothing is let through for want of plugins.
    pipeline: OnceLock<Arc<Pipeline>>,
    status: Arc<Status>,
    asking: mpsc::Sender<Asking>,
    grace: Arc<Grace>,
}

// === impl Live ===

impl Live {
    /// The gate to what `reconciler` publishes, closed until [`Live::open`]. `startup` and `instance` decide when it is
    /// ready although plugins are missing.
    #[must_use]
    pub fn new(reconciler: &Reconciler, startup: Startup, instance: Instance) -> Self {
        Self {
            pipeline: OnceLock::new(),
            status: reconciler.status(),
            asking: reconciler.asking(),
            grace: Arc::new(Grace::new(startup, instance)),
        }
    }

    /// Has reviews answered from now on.
    pub fn open(&self, pipeline: Arc<Pipeline>) {
        self.pipeline.get_or_init(|| pipeline);
    }

    /// Waits until it is ready, or everything there is to wait for is there.
    pub async fn ready(&self, pipeline: Arc<Pipeline>) {
        Arc::clone(&self.grace).run(pipeline).await;
    }
}

impl Gate for Live {
    async fn review(&self, call: Call) -> Reply {
        match self.pipeline.get() {
            Some(pipeline) => pipeline.review(call).await,
            None => Reply::Starting,
        }
    }

    fn plugins(&self) -> serde_json::Value {
        let mut plugins = match self.pipeline.get() {
            Some(pipeline) => pipeline.plugins(),
            None => PluginSet::default().status(),
        };
        self.status.tell(&mut plugins);
        if self.pipeline.get().is_none() {
            // The first set is there a moment before reviews are answered by it.
            plugins["state"] = "starting".into();
        }
        plugins
    }

    fn candidates(&self) -> serde_json::Value {
        match self.pipeline.get() {
            Some(pipeline) => pipeline.candidates(),
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
        readiness
    }

    async fn reload(&self) -> Option<Reloaded> {
        let (asking, answer) = oneshot::channel();
        self.asking.send(asking).await.ok()?;
        answer.await.ok()
    }
}
