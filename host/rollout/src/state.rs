//! The state of a rollout: the step that it has reached, and how it got there.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use tollgate_config::Rollout;

use crate::identity::Identity;
use crate::part::Stage;

/// The state of a rollout. All times are milliseconds since 1970, UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The identity of the rollout.
    pub identity: Identity,
    /// Number of times that the rollout has begun. Somebody may begin it again after it was rolled back.
    pub run: u64,
    /// Number of changes in this run.
    pub revision: u64,
    /// Whether the rollout continues.
    pub phase: Phase,
    /// Index of the step, in the phases `running` and `stopped`.
    pub step: usize,
    /// When this run began.
    pub started_at: u64,
    /// When the step began.
    pub step_since: u64,
    /// The observations of this step when the state was last written.
    pub observed: Observations,
    /// The last changes, oldest first.
    pub history: Vec<Change>,
}

/// Whether a rollout continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The step is under way.
    Running,
    /// A gate did not pass. The step stays in effect until somebody decides.
    Stopped,
    /// The new version answers everything.
    Promoted,
    /// The old version answers everything.
    RolledBack,
}

/// A change of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// When the change was made.
    pub at: u64,
    /// The phase after the change.
    pub phase: Phase,
    /// Index of the step after the change.
    pub step: usize,
    /// The origin of the change.
    pub by: By,
    /// Why the change was made.
    pub reason: String,
}

/// The origin of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The configuration began the rollout.
    Configuration,
    /// The gates passed, or one of them did not.
    Gates,
    /// An administrator asked for it.
    Operator,
}

/// The observations of the two versions in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Observations {
    /// Calls of the new version with a result.
    pub reviews: u64,
    /// Requests that the new version denies, and that are not denied by the old version.
    pub new_denials: u64,
    /// Faults of the new version.
    pub faults: u64,
    /// Calls of the new version before an answer.
    pub new_time: Mean,
    /// Calls of the old version before an answer, in all steps of this run.
    pub old_time: Mean,
}

/// The mean CPU time of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mean {
    /// The number of calls.
    pub calls: u64,
    /// Their CPU time together, in microseconds.
    pub microseconds: u64,
}

/// Maximum number of changes kept.
const MOST_CHANGES: usize = 32;
/// A plan has fewer steps, so only a damaged state has such a step.
const MOST_STEPS: usize = 64;

// === impl State ===

impl State {
    /// The state of a rollout that begins now.
    #[must_use]
    pub fn begin(identity: Identity, now: u64) -> Self {
        Self::run(
            identity,
            1,
            By::Configuration,
            "the configuration has a new rollout",
            now,
        )
    }

    fn run(identity: Identity, run: u64, by: By, reason: &str, now: u64) -> Self {
        Self {
            identity,
            run,
            revision: 1,
            phase: Phase::Running,
            step: 0,
            started_at: now,
            step_since: now,
            observed: Observations::default(),
            history: vec![Change {
                at: now,
                phase: Phase::Running,
                step: 0,
                by,
                reason: reason.to_owned(),
            }],
        }
    }

    /// Begins a rollout anew, because its state was lost. `reason` says why.
    #[must_use]
    pub fn begin_anew(identity: Identity, reason: &str, now: u64) -> Self {
        Self::run(identity, 1, By::Configuration, reason, now)
    }

    /// Returns what the state means for requests. `is_available` says whether the new version can be called.
    ///
    /// Before the promotion, the old version answers for a new one that cannot be called. A promoted version counts as
    /// configured: without it, its `failurePolicy` decides.
    #[must_use]
    pub fn stage(&self, is_available: bool) -> Stage {
        match self.phase {
            Phase::Promoted => Stage::Promoted,
            Phase::RolledBack => Stage::Old,
            Phase::Running | Phase::Stopped if is_available => Stage::Step(self.step),
            Phase::Running | Phase::Stopped => Stage::Old,
        }
    }

    /// Returns the state as that of a rollout with this identity. None if it is the state of another rollout.
    #[must_use]
    pub fn about(&self, identity: &Identity) -> Option<Self> {
        let is_it = self.identity.may_be(identity);
        let known = [identity, &self.identity].into_iter();
        let identity = known.max_by_key(|identity| identity.has_bytes())?.clone();
        is_it.then(|| Self {
            identity,
            ..self.clone()
        })
    }

    /// Whether a host can have written the state. If not, it is damaged.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        let has_step = |step: usize| step < MOST_STEPS;
        has_step(self.step) && self.history.iter().all(|change| has_step(change.step))
    }

    /// Returns the last change.
    #[must_use]
    pub fn last(&self) -> Option<&Change> {
        self.history.last()
    }

    /// Returns the state after a change. `observed` are the observations so far.
    #[must_use]
    pub fn changed(&self, phase: Phase, step: usize, by: By, reason: String, now: u64) -> Self {
        let mut next = self.clone();
        next.revision = next.revision.saturating_add(1);
        next.phase = phase;
        if step != self.step {
            next.step = step;
            next.step_since = now;
            // The time of the old version is compared in all steps.
            next.observed = Observations {
                old_time: self.observed.old_time,
                ..Observations::default()
            };
        }
        next.history.push(Change {
            at: now,
            phase,
            step,
            by,
            reason,
        });
        let excess = next.history.len().saturating_sub(MOST_CHANGES);
        next.history.drain(..excess);
        next
    }

    /// Begins the next step, as an administrator asks for it. After a rollback, the rollout begins again.
    ///
    /// # Errors
    /// When the new version already answers everything.
    pub fn promoted(&self, plan: &Rollout, now: u64) -> Result<Self, &'static str> {
        let by = By::Operator;
        match self.phase {
            Phase::Promoted => Err("the new version already answers everything"),
            Phase::RolledBack => {
                let reason = "an administrator began the rollout again";
                let identity = self.identity.clone();
                Ok(Self::run(
                    identity,
                    self.run.saturating_add(1),
                    by,
                    reason,
                    now,
                ))
            }
            Phase::Running | Phase::Stopped => {
                let next = self.step.saturating_add(1);
                let (phase, step, reason) = if next < plan.steps.len() {
                    (Phase::Running, next, "an administrator began the next step")
                } else {
                    let reason = "an administrator promoted the new version";
                    (Phase::Promoted, self.step, reason)
                };
                Ok(self.changed(phase, step, by, reason.to_owned(), now))
            }
        }
    }

    /// Rolls back, as an administrator asks for it.
    ///
    /// # Errors
    /// When the old version already answers everything.
    pub fn rolled_back(&self, now: u64) -> Result<Self, &'static str> {
        if self.phase == Phase::RolledBack {
            return Err("the old version already answers everything");
        }
        let reason = "an administrator rolled back".to_owned();
        Ok(self.changed(Phase::RolledBack, self.step, By::Operator, reason, now))
    }

    /// Whether another replica's state of the same rollout takes precedence over this one. Replicas that share a folder
    /// adopt the state with precedence, so that all of them agree on one state.
    ///
    /// The state of a later run takes precedence. Within a run, a rollback does. Then the state with more changes does,
    /// at the same number the more careful one, and then the one whose step began earlier.
    #[must_use]
    pub fn yields_to(&self, other: &Self) -> bool {
        self.identity.may_be(&other.identity) && other.rank() > self.rank()
    }

    fn rank(&self) -> (u64, bool, u64, Reverse<(u8, usize)>, Reverse<u64>) {
        let boldness = match self.phase {
            Phase::RolledBack => 0,
            Phase::Stopped => 1,
            Phase::Running => 2,
            Phase::Promoted => 3,
        };
        (
            self.run,
            self.phase == Phase::RolledBack,
            self.revision,
            Reverse((boldness, self.step)),
            Reverse(self.step_since),
        )
    }
}

// === impl Phase, By ===

impl Phase {
    /// All phases.
    pub const ALL: [Self; 4] = [
        Self::Running,
        Self::Stopped,
        Self::Promoted,
        Self::RolledBack,
    ];

    /// Returns the phase with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == name)
    }

    /// Returns the phase as status and metrics show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Promoted => "promoted",
            Self::RolledBack => "rolled-back",
        }
    }
}

impl By {
    /// Returns the actor with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let all = [Self::Configuration, Self::Gates, Self::Operator];
        all.into_iter().find(|by| by.as_str() == name)
    }

    /// Returns the actor as status and metrics show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Gates => "gates",
            Self::Operator => "operator",
        }
    }
}

// === impl Observations ===

impl Observations {
    /// Returns what was seen here and there together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            reviews: self.reviews.saturating_add(other.reviews),
            new_denials: self.new_denials.saturating_add(other.new_denials),
            faults: self.faults.saturating_add(other.faults),
            new_time: self.new_time.plus(other.new_time),
            old_time: self.old_time.plus(other.old_time),
        }
    }
}

// === impl Mean ===

impl Mean {
    /// Returns the calls of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            microseconds: self.microseconds.saturating_add(other.microseconds),
        }
    }

    /// Adds a call.
    pub fn add(&mut self, microseconds: u64) {
        self.calls = self.calls.saturating_add(1);
        self.microseconds = self.microseconds.saturating_add(microseconds);
    }

    /// Returns the mean in microseconds. None without calls.
    #[must_use]
    pub fn value(&self) -> Option<u64> {
        self.microseconds.checked_div(self.calls)
    }
}
