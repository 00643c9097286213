//! The gate of `tollgate dev`: the last version that could be built and loaded.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate::setup::Setup;
use tollgate_admission::{Body, Call, Endpoint, Gate, Readiness, Reply};
use tollgate_config::Requests;
use tollgate_gate::pipeline::{Examined, Pipeline};

/// Answers reviews with the last good version, and hands each review to who shows it.
pub(super) struct Playground {
    serving: RwLock<Option<Arc<Serving>>>,
    seen: SyncSender<Seen>,
}

/// A version of the project that answers reviews.
pub(super) struct Serving {
    pub(super) pipeline: Pipeline,
    pub(super) requests: Requests,
    /// Names of the plugins.
    pub(super) plugins: Vec<String>,
    /// The engine of the pipeline.
    pub(super) _setup: Setup,
}

/// A review that was answered.
pub(super) struct Seen {
    pub(super) endpoint: Endpoint,
    /// None if the body is larger than a body may be.
    pub(super) body: Option<Bytes>,
    pub(super) examined: Examined,
}

/// Number of reviews that wait to be shown. A terminal that is slow or stopped delays no answer.
const WAITING: usize = 1000;

// === impl Playground ===

impl Playground {
    pub(super) fn new() -> (Self, Receiver<Seen>) {
        let (seen, receiver) = sync_channel(WAITING);
        let playground = Self {
            serving: RwLock::new(None),
            seen,
        };
        (playground, receiver)
    }

    /// Serves a version from the next review on.
    pub(super) fn swap(&self, serving: Arc<Serving>) {
        *self.serving.write().unwrap_or_else(PoisonError::into_inner) = Some(serving);
    }

    pub(super) fn serving(&self) -> Option<Arc<Serving>> {
        let serving = self.serving.read();
        serving.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Gate for Playground {
    async fn review(&self, call: Call) -> Reply {
        let Some(serving) = self.serving() else {
            return Reply::Starting;
        };
        if let Some(name) = &call.plugin
            && !serving.plugins.contains(name)
        {
            return Reply::NoSuchPlugin(format!(
                "tollgate: no plugin is named {name:?}, expected {}",
                serving.plugins.join(" or ")
            ));
        }
        let endpoint = call.endpoint;
        let body = match &call.body {
            Body::Whole(body) => Some(body.clone()),
            Body::TooLarge { .. } => None,
        };
        let mut examined = serving.pipeline.examine(call).await;
        let reply = std::mem::replace(&mut examined.reply, Reply::Starting);
        if let Reply::BadRequest(text) | Reply::TooLarge(text) | Reply::Internal(text) = &reply {
            examined.reply = Reply::Internal(text.clone());
        }
        // A review that finds no place is answered and not shown.
        let _: Result<(), _> = self.seen.try_send(Seen {
            endpoint,
            body,
            examined,
        });
        reply
    }

    fn plugins(&self) -> Value {
        match self.serving() {
            Some(serving) => serving.pipeline.plugins(),
            None => json!({ "plugins": [] }),
        }
    }

    fn readiness(&self) -> Readiness {
        match self.serving() {
            Some(serving) => serving.pipeline.readiness(),
            None => Readiness {
                detail: vec!["no version could be built and loaded yet".to_owned()],
                ..Readiness::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[tokio::test]
    async fn answers_nothing_before_the_first_version() {
        let (playground, seen) = Playground::new();
        let received = Instant::now();
        let call = Call {
            endpoint: Endpoint::Validate,
            plugin: None,
            received,
            deadline: received + Duration::from_secs(10),
            body: Body::Whole(Bytes::from_static(b"{}")),
            trace: None,
        };
        assert!(matches!(playground.review(call).await, Reply::Starting));
        assert!(!playground.readiness().ready);
        assert!(seen.try_recv().is_err(), "nothing is shown");
    }
}
