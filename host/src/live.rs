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

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

pub use keeper::Keeper;

use crate::pipeline::Pipeline;
use crate::server::{Call, Gate, Readiness, Reloaded, Reply};
use grace::Grace;
use status::Status;

/// Somebody who wants to know what comes of a reload.
type Ask = oneshot::Sender<Reloaded>;

/// The gate over plugins that change while they serve.
pub struct Live {
    pipeline: Arc<Pipeline>,
    status: Arc<Status>,
    asks: mpsc::Sender<Ask>,
    grace: Grace,
}

// === impl Live ===

impl Live {
    /// The gate to what `keeper` keeps.
    #[must_use]
    pub fn new(pipeline: Arc<Pipeline>, keeper: &Keeper) -> Self {
        Self {
            pipeline,
            status: keeper.status(),
            asks: keeper.asks(),
            grace: keeper.grace(),
        }
    }
}

impl Gate for Live {
    fn review(&self, call: Call) -> impl Future<Output = Reply> + Send {
        self.pipeline.review(call)
    }

    fn plugins(&self) -> serde_json::Value {
        let mut plugins = self.pipeline.plugins();
        self.status.tell(&mut plugins);
        plugins
    }

    fn candidates(&self) -> serde_json::Value {
        self.pipeline.candidates()
    }

    fn decisions(&self, uid: Option<&str>) -> serde_json::Value {
        self.pipeline.decisions(uid)
    }

    fn readiness(&self) -> Readiness {
        let mut readiness = self.pipeline.readiness();
        let live = self.pipeline.live();
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
