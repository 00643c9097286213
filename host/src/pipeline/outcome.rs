//! What each plugin reported, and what the host makes of all reports together.
//!
//! Plain data between the stages: the pipeline writes [`Report`]s, merging turns them into one [`Outcome`], and
//! the response is written from that.

use std::sync::Arc;

use crate::config::{FailurePolicy, Mode, PluginConfig, PluginName};
use crate::metrics::Cost;
use crate::patch::Operation;

/// How one plugin's turn in a review went.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which plugin.
    pub plugin: PluginName,
    /// What its verdict counts for.
    pub mode: Mode,
    /// What its failing counts for.
    pub failure_policy: FailurePolicy,
    /// What it answered, or how it failed to.
    pub ended: Ended,
    /// What it has to say to the user, as it said it.
    pub warnings: Vec<String>,
    /// What it wants recorded, as it said it.
    pub annotations: Vec<(String, String)>,
    /// The places that it changed, as pointers.
    pub changed: Vec<String>,
    /// The places where it changed what an earlier plugin wrote, and which plugin that was.
    pub conflicts: Vec<(String, PluginName)>,
    /// What it would have refused, were it not as bad in the old object.
    pub existing: Option<Denial>,
    /// How its second call ended, where there was one.
    pub reinvoked: Option<&'static str>,
    /// The places that it would change once more in the final object, after its second call.
    pub unsettled: Vec<String>,
    /// What its call took.
    pub cost: Cost,
    /// The plugin's content, as `sha256:…`.
    pub digest: Arc<str>,
}

/// The end of a plugin's turn.
#[derive(Clone, Debug)]
pub enum Ended {
    /// A validator has nothing against the request.
    Allowed,
    /// A mutator left the object as it is.
    Unchanged,
    /// A mutator changed the object.
    Patched,
    /// It refuses the request.
    Denied(Denial),
    /// It did not come to an answer that counts.
    Faulted(FaultReport),
    /// It was not asked, for the reason that stands in the configuration.
    Excepted(String),
}

/// A plugin's refusal, in its own words.
#[derive(Clone, Debug, Default)]
pub struct Denial {
    /// What the user reads first.
    pub message: String,
    /// The HTTP status that it wants.
    pub code: Option<u16>,
    /// The StatusReason that it wants.
    pub reason: Option<String>,
    /// The single reasons.
    pub causes: Vec<Cause>,
}

/// One reason for a refusal, in the plugin's own words.
#[derive(Clone, Debug, Default)]
pub struct Cause {
    /// The offending field, as a pointer.
    pub field: Option<String>,
    /// What is wrong.
    pub message: String,
    /// A CauseType.
    pub reason: Option<String>,
}

/// How a plugin failed.
#[derive(Clone, Debug)]
pub struct FaultReport {
    /// The fault's name, such as `out-of-fuel`.
    pub kind: &'static str,
    /// For whoever has to act; holds nothing that must not be shown.
    pub message: String,
}

/// The one answer that all reports come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The verdict.
    pub allowed: bool,
    /// Why not; set exactly when not allowed.
    pub status: Option<Status>,
    /// What turns the request's object into the final one; empty when not allowed.
    pub patch: Vec<Operation>,
    /// For the user, ready to be sent.
    pub warnings: Vec<String>,
    /// For the audit log, ready to be sent: valid, distinct keys.
    pub audit_annotations: Vec<(String, String)>,
}

/// A refusal as Kubernetes' `metav1.Status` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// HTTP status, 400 or above.
    pub code: u16,
    /// A StatusReason that fits the code.
    pub reason: &'static str,
    /// What the user reads; never empty.
    pub message: String,
    /// What it is about.
    pub details: Option<StatusDetails>,
}

/// `metav1.StatusDetails`; empty strings are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusDetails {
    /// The object's name.
    pub name: String,
    /// The group of its kind.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its uid.
    pub uid: String,
    /// The single reasons.
    pub causes: Vec<StatusCause>,
}

/// `metav1.StatusCause`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusCause {
    /// A CauseType that Kubernetes knows.
    pub reason: &'static str,
    /// What is wrong, after the plugin's name.
    pub message: String,
    /// The field, written as Kubernetes writes it.
    pub field: Option<String>,
}

// === impl Report ===

impl Report {
    /// A report that says no more than how the turn ended.
    #[must_use]
    pub fn new(config: &PluginConfig, digest: Arc<str>, ended: Ended) -> Self {
        Self {
            plugin: config.name.clone(),
            mode: config.mode,
            failure_policy: config.failure_policy,
            ended,
            warnings: Vec::new(),
            annotations: Vec::new(),
            changed: Vec::new(),
            conflicts: Vec::new(),
            existing: None,
            reinvoked: None,
            unsettled: Vec::new(),
            cost: Cost::default(),
            digest,
        }
    }

    /// Adds what the same plugin's second call came to.
    pub fn add(&mut self, second: Self) {
        self.reinvoked = Some(second.ended.as_str());
        for place in second.changed {
            if !self.changed.contains(&place) {
                self.changed.push(place);
            }
        }
        self.conflicts.extend(second.conflicts);
        self.cost.duration += second.cost.duration;
        self.cost.cpu_time += second.cost.cpu_time;
        self.cost.fuel += second.cost.fuel;
        self.warnings.extend(second.warnings);
        self.annotations.extend(second.annotations);
        // What the first call changed stands, whatever the second one left.
        if !matches!(second.ended, Ended::Unchanged) {
            self.ended = second.ended;
        }
    }

    /// Whether it refuses the request.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.mode == Mode::Enforce
            && match self.ended {
                Ended::Denied(_) => true,
                Ended::Faulted(_) => self.failure_policy == FailurePolicy::Fail,
                _ => false,
            }
    }
}

// === impl Ended ===

impl Ended {
    /// The end's name, as a log line or a metric's label has it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Unchanged => "unchanged",
            Self::Patched => "patched",
            Self::Denied(_) => "denied",
            Self::Faulted(_) => "fault",
            Self::Excepted(_) => "excepted",
        }
    }
}
