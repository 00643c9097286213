//! Types that the server and the gate exchange: a call, and the reply to it.

use std::future::Future;
use std::time::Instant;

use bytes::Bytes;

use crate::scan::ScanSearch;
use crate::search::Search;
use crate::trace::TraceParent;

/// The endpoint that a webhook call is for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Endpoint {
    /// `POST /mutate` or `/mutate/<plugin>`.
    Mutate,
    /// `POST /validate` or `/validate/<plugin>`.
    Validate,
}

/// One review as read from the wire; the server has not parsed its body.
#[derive(Debug)]
pub struct Call {
    /// The endpoint that was called.
    pub endpoint: Endpoint,
    /// The plugin named in the path. If set, only this plugin runs.
    pub plugin: Option<String>,
    /// When the server had read the head of the request.
    pub received: Instant,
    /// When the answer must be ready: `received` plus `?timeout=`, minus the configured margin.
    pub deadline: Instant,
    /// The caller's place in its trace, if the caller is authenticated and reviews are traced.
    pub trace: Option<TraceParent>,
    /// The body, or the part of it that fits under the cap.
    pub body: Body,
}

/// The body of a call.
///
/// The bytes count against the cap on bytes in flight until the last clone is dropped. Work that continues after the
/// answer (audit mode) therefore stays accounted for.
#[derive(Clone, Debug)]
pub enum Body {
    /// The complete body.
    Whole(Bytes),
    /// A body that exceeds the cap for one body. The gate decides the answer. A plain 413 would apply the webhook's
    /// failurePolicy, although plugins may have different ones.
    TooLarge {
        /// The bytes that were read before the cap was exceeded, at most 64 KiB.
        head: Bytes,
        /// The cap, `requests.maxBody`.
        limit_bytes: u64,
    },
}

/// The gate's answer to a call.
#[derive(Debug)]
pub enum Reply {
    /// 200: an AdmissionReview.
    Review(Bytes),
    /// 429 with `Retry-After: 1`. kube-apiserver retries within its deadline.
    Overloaded,
    /// The same 429: other reviews have used up the memory for decoded documents.
    Crowded,
    /// 503 with `Retry-After: 1`: no plugins are loaded yet. kube-apiserver retries this too.
    Starting,
    /// 503 with `Retry-After: 1`: no plugin has the name in the path, but the configuration may be on its way.
    NotYet(String),
    /// 400: the body is not an AdmissionReview. The text must not quote the body.
    BadRequest(String),
    /// 404: no plugin has the name in the path.
    NoSuchPlugin(String),
    /// 413: the body exceeds the cap. The text names the limit.
    TooLarge(String),
    /// 500: the host failed. The text must not quote the body.
    Internal(String),
}

/// Whether the host should get traffic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Readiness {
    /// `/readyz` returns 200 if set, else 503. A drain overrides this with 503.
    pub ready: bool,
    /// Whether every plugin without which requests are denied is loaded. `/readyz` sends it in the header [`COMPLETE`](crate::COMPLETE).
    pub complete: bool,
    /// One line per fact, shown with `?verbose` and whenever the host is not ready.
    pub detail: Vec<String>,
}

/// The result of a reload.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// Whether everything that is configured is now serving: `POST /reload` returns 200, else 500.
    pub complete: bool,
    /// The changes that were made and those that failed.
    pub report: serde_json::Value,
}

/// A change of a rollout that an administrator asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RolloutChange {
    /// Begin the next step, or begin again after a rollback.
    Promote,
    /// Let the old version answer everything.
    RollBack,
}

/// The answer to a change of a rollout.
#[derive(Clone, Debug)]
pub enum RolloutAnswer {
    /// The change is in effect. Holds the rollout after the change.
    Done(serde_json::Value),
    /// The plugin has no rollout.
    Unknown,
    /// The change is not possible, for this reason.
    Refused(String),
}

/// Answers reviews for the server: the plugins, or something simpler in tests.
pub trait Gate: Send + Sync + 'static {
    /// Answers one review. The future is dropped when the client disconnects or the call's whole timeout is over.
    fn review(&self, call: Call) -> impl Future<Output = Reply> + Send;
    /// Returns the content of `/plugins`.
    fn plugins(&self) -> serde_json::Value;
    /// Returns the content of `/shadows`: an object with the list `shadows`. The default list is empty.
    fn shadows(&self) -> serde_json::Value {
        serde_json::json!({ "shadows": [] })
    }
    /// Returns the content of `/decisions`: an object with the list `decisions`, newest first. With a uid, the list
    /// holds the full decisions of that review. The default list is empty.
    fn decisions(&self, uid: Option<&str>) -> serde_json::Value {
        let _ = uid;
        serde_json::json!({ "decisions": [] })
    }
    /// Returns the content of `/rollouts`: an object with the list `rollouts`. The default list is empty.
    fn rollouts(&self) -> serde_json::Value {
        serde_json::json!({ "rollouts": [] })
    }
    /// Changes the rollout of a plugin, for `POST /rollouts/<plugin>/promote` and `…/rollback`.
    fn change_rollout(
        &self,
        plugin: &str,
        change: RolloutChange,
    ) -> impl Future<Output = RolloutAnswer> + Send {
        let _ = (plugin, change);
        std::future::ready(RolloutAnswer::Unknown)
    }
    /// Returns the overviews of the selected decisions: an object with the list `decisions`, newest first, and the
    /// numbers `kept` and `matched`. Each decision has its `number`. The default list is empty.
    fn search(&self, search: &Search) -> serde_json::Value {
        let _ = search;
        serde_json::json!({ "decisions": [], "kept": 0, "matched": 0 })
    }
    /// Returns what each plugin cost in the kept decisions: an object with the list `costs`, the most expensive plugin
    /// first. The default list is empty.
    fn costs(&self) -> serde_json::Value {
        serde_json::json!({ "costs": [], "decisions": 0 })
    }
    /// Returns the content of `/scan`: an object with the list `results`, the most failures first, and with `total`,
    /// `matched` and `next`. By default no background scan runs.
    fn scan(&self, search: &ScanSearch) -> serde_json::Value {
        let _ = search;
        crate::scan::disabled()
    }
    /// Reads the configuration and the plugins again, for `POST /reload`. Returns none if there is nothing to read.
    fn reload(&self) -> impl Future<Output = Option<Reloaded>> + Send {
        std::future::ready(None)
    }
    /// Returns the content of `/readyz`.
    fn readiness(&self) -> Readiness;
}

// === impl RolloutChange ===

impl RolloutChange {
    /// Returns the change as paths name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Promote => "promote",
            Self::RollBack => "rollback",
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// Returns `mutate` or `validate`, as used in the path and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}
