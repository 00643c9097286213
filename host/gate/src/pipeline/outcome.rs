//! The reports of single plugins, and the outcome that the host merges them into.
//!
//! These types are plain data between the stages: the pipeline writes [`Report`]s, merging turns them into one
//! [`Outcome`], and the response is written from that.

use std::sync::Arc;

use tollgate_admission::review::template::Workload;
pub use tollgate_admission::{Cost, Denial};
use tollgate_config::{FailurePolicy, Mode, PluginConfig, PluginName};
use tollgate_json::patch::Operation;

/// The result of one plugin's turn in a review.
#[derive(Clone, Debug)]
pub struct Report {
    /// The plugin's name.
    pub plugin: PluginName,
    /// The effect of the plugin's verdict.
    pub mode: Mode,
    /// The effect of the plugin's fault.
    pub failure_policy: FailurePolicy,
    /// The plugin's answer, or its fault.
    pub ended: Ended,
    /// Warnings for the user, as the plugin wrote them.
    pub warnings: Vec<String>,
    /// Audit annotations, as the plugin wrote them.
    pub annotations: Vec<(String, String)>,
    /// The places that the plugin changed, as pointers.
    pub changed: Vec<String>,
    /// The places where the plugin changed an earlier plugin's write, with that plugin's name.
    pub conflicts: Vec<(String, PluginName)>,
    /// Violations that the plugin would have denied if the old object had not had them already.
    pub existing: Option<Denial>,
    /// The result of the plugin's second call, if there was one.
    pub reinvoked: Option<&'static str>,
    /// The places that the plugin would change again in the final object, after its second call.
    pub unsettled: Vec<String>,
    /// The cost of the plugin's calls.
    pub cost: Cost,
    /// The digest of the plugin's content, as `sha256:…`; `None` if the file could not be read.
    pub digest: Option<Arc<str>>,
    /// The version of the plugin and the reason for it; `None` if nothing is rolled out.
    pub rollout: Option<Arc<str>>,
    /// The kind of the workload whose pod template the plugin got; `None` if it got the object itself.
    pub template: Option<&'static Workload>,
    /// The members that were asked, in order, if the plugin is a group.
    pub members: Vec<MemberReport>,
}

/// The part of a member in the verdict of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// The member's name in its group.
    pub name: Arc<str>,
    /// How the call ended: `allowed`, `denied` or `fault`.
    pub ended: &'static str,
    /// Fuel that the member used.
    pub fuel: u64,
}

/// The end of a plugin's turn.
#[derive(Clone, Debug)]
pub enum Ended {
    /// The validator has nothing against the request.
    Allowed,
    /// The mutator left the object unchanged.
    Unchanged,
    /// The mutator changed the object.
    Patched,
    /// The plugin denies the request.
    Denied(Denial),
    /// The plugin failed to give a valid answer.
    Faulted(FaultReport),
    /// The plugin was not called, because of an exception in the configuration. Holds its reason.
    Excepted(String),
}

/// A plugin's fault.
#[derive(Clone, Debug)]
pub struct FaultReport {
    /// The kind of the fault, such as `out-of-fuel`.
    pub kind: &'static str,
    /// The text for the person who has to act. Holds nothing that must not be shown.
    pub message: String,
}

/// The single answer that all reports are merged into.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The reason for a denied request. Set exactly when `allowed` is false.
    pub status: Option<Status>,
    /// The operations that turn the request's object into the final one. Empty when `allowed` is false.
    pub patch: Vec<Operation>,
    /// Warnings for the user, ready to be sent.
    pub warnings: Vec<String>,
    /// Audit annotations, ready to be sent. Their keys are valid and distinct.
    pub audit_annotations: Vec<(String, String)>,
}

/// A denial as Kubernetes' `metav1.Status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// HTTP status, 400 or above.
    pub code: u16,
    /// StatusReason that fits the code.
    pub reason: &'static str,
    /// Message for the user, never empty.
    pub message: String,
    /// The object and the single reasons.
    pub details: Option<StatusDetails>,
}

/// Kubernetes' `metav1.StatusDetails`. Empty strings are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusDetails {
    /// The object's name.
    pub name: String,
    /// The group of its kind.
    pub group: String,
    /// The object's kind.
    pub kind: String,
    /// The object's uid.
    pub uid: String,
    /// The single reasons.
    pub causes: Vec<StatusCause>,
}

/// Kubernetes' `metav1.StatusCause`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusCause {
    /// CauseType that Kubernetes knows.
    pub reason: &'static str,
    /// The plugin's name and the description of the problem.
    pub message: String,
    /// The field path, in the notation of Kubernetes.
    pub field: Option<String>,
}

// === impl Report ===

impl Report {
    /// Creates a report that holds only how the turn ended.
    #[must_use]
    pub fn new(config: &PluginConfig, digest: Option<Arc<str>>, ended: Ended) -> Self {
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
            rollout: None,
            template: None,
            members: Vec::new(),
        }
    }

    /// Adds the report of the same plugin's second call.
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
        self.cost.reused += second.cost.reused;
        self.cost.fuel_of_one_call = self.cost.fuel_of_one_call.max(second.cost.fuel_of_one_call);
        self.warnings.extend(second.warnings);
        self.annotations.extend(second.annotations);
        // If the second call changed nothing, the first call's change still stands.
        if !matches!(second.ended, Ended::Unchanged) {
            self.ended = second.ended;
        }
    }

    /// Whether this report denies the request.
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
    /// Returns the name for log lines and metric labels.
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
