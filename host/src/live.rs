//! What is served follows the configuration and the plugins' files, without a restart and without a failed call.
//!
//! ```text
//! a file changes, SIGHUP, POST /reload, a retry is due
//!   → read the configuration
//!   → for each plugin: kept | the same code under another configuration | fetch → prepare (child process) → link
//!       one that fails: what was there goes on, and it is tried again, less and less often
//!   → one swap of the whole set; requests in flight keep theirs
//! ```
//!
//! Files are looked at ten times a second and not by inotify: a look costs microseconds, sees what a mounted ConfigMap,
//! a Secret, NFS and an overlay have in common, and follows every link on the way without knowing of it.

mod candidate;
mod grace;
mod keeper;
mod status;
mod trouble;
mod watch;

use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, oneshot};

pub use keeper::Keeper;

use crate::config::Startup;
use crate::pipeline::Pipeline;
use crate::plugin::PluginSet;
use crate::server::{Call, Gate, Instance, Readiness, Reloaded, Reply};
use grace::Grace;
use status::Status;

/// Somebody who wants to know what comes of a reload.
type Ask = oneshot::Sender<Reloaded>;

/// The gate over plugins that change while they serve.
pub struct Live {
    /// None before the first set is loaded: nothing is let through for want of plugins.
    pipeline: OnceLock<Arc<Pipeline>>,
    status: Arc<Status>,
    asks: mpsc::Sender<Ask>,
    grace: Arc<Grace>,
}

// === impl Live ===

impl Live {
    /// The gate to what `keeper` keeps, closed until [`Live::open`]. `startup` and `instance` decide when it is ready although
    /// plugins are missing.
    #[must_use]
    pub fn new(keeper: &Keeper, startup: Startup, instance: Instance) -> Self {
        Self {
            pipeline: OnceLock::new(),
            status: keeper.status(),
            asks: keeper.asks(),
            grace: Arc::new(Grace::new(startup, instance)),
        }
    }

    /// Has reviews answered from now on.
    pub fn open(&self, pipeline: Arc<Pipeline>) {
        self.pipeline.get_or_init(|| pipeline);
        self.status.lock().starting = None;
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
        let (ask, answer) = oneshot::channel();
        self.asks.send(ask).await.ok()?;
        answer.await.ok()
    }
}
