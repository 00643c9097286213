//! Chooses the version of a plugin that answers a request.

use tollgate_config::{PluginName, Rollout, StepMode};

/// The point that a rollout has reached, as far as requests are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The old version answers everything: the rollout was rolled back, or the new version is not loaded.
    Old,
    /// The step with this index is under way.
    Step(usize),
    /// The new version answers everything.
    Promoted,
}

/// The part of the new version in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The new version has no part: the request is outside the share, or nothing is rolled out.
    Old,
    /// The old version answers. The new version is called after the answer and compared.
    Shadowed,
    /// The old version answers. The new version is called before the answer, and its denials are warnings.
    Warned,
    /// The new version answers. If it faults, the old version answers.
    Enforced,
    /// The new version answers. If it faults, its `failurePolicy` decides.
    Promoted,
}

/// One of the two versions of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// The version of the entry.
    Old,
    /// The version of `rollout.to`, or the entry's own version with the mode `enforce`.
    New,
}

// === impl Stage ===

impl Stage {
    /// Returns the part of the new version in a request about this namespace; none for cluster-scoped objects.
    #[must_use]
    pub fn part(self, plan: &Rollout, plugin: &PluginName, namespace: Option<&str>) -> Part {
        let step = match self {
            Self::Old => None,
            Self::Promoted => return Part::Promoted,
            Self::Step(index) => plan.steps.get(index),
        };
        match step {
            Some(step) if step.share.contains(plugin, namespace) => match step.mode {
                StepMode::Shadow => Part::Shadowed,
                StepMode::Warn => Part::Warned,
                StepMode::Enforce => Part::Enforced,
            },
            _ => Part::Old,
        }
    }

    /// Whether the new version answers at least some requests.
    #[must_use]
    pub fn enforces(self, plan: &Rollout) -> bool {
        match self {
            Self::Old => false,
            Self::Promoted => true,
            Self::Step(index) => plan
                .steps
                .get(index)
                .is_some_and(|step| step.mode == StepMode::Enforce),
        }
    }

    /// Whether the new version answers all requests.
    #[must_use]
    pub fn enforces_everywhere(self, plan: &Rollout) -> bool {
        match self {
            Self::Old => false,
            Self::Promoted => true,
            Self::Step(index) => plan
                .steps
                .get(index)
                .is_some_and(|step| step.mode == StepMode::Enforce && step.share.is_all()),
        }
    }
}

// === impl Part ===

impl Part {
    /// Returns the version whose answer decides the request, given whether the new version faults on it.
    ///
    /// Before the promotion, a fault of the new version does not decide, so a fault never makes the answer weaker than
    /// the old version's.
    #[must_use]
    pub fn decided_by(self, new_faults: bool) -> Version {
        match self {
            Self::Old | Self::Shadowed | Self::Warned => Version::Old,
            Self::Enforced if new_faults => Version::Old,
            Self::Enforced | Self::Promoted => Version::New,
        }
    }
}
