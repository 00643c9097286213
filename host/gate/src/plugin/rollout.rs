//! A rollout in the set of serving plugins. It chooses the version of a plugin that answers a request, and counts
//! the observations of both.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate_config::{Mode, PluginName, Rollout as Plan};
use tollgate_rollout::{Observations, Part, Stage};
use tollgate_telemetry::metrics::{Metrics, RolloutReview};

use super::set::{Plugin, PluginSet};
use super::shadow::Shadow;

/// A rollout at one of its steps. Another step is another value, with another tally.
pub(crate) struct Rollout {
    name: PluginName,
    plan: Arc<Plan>,
    stage: Stage,
    /// The new version; none if it cannot be called.
    versions: Option<Versions>,
    pub(crate) tally: Arc<Tally>,
    /// Why the old version answers everything; none if a step is under way.
    reason: Arc<str>,
}

/// The new version in its parts, and the old one where its answer is only compared.
pub(crate) struct Versions {
    /// The new version as it answers.
    pub(crate) answering: Arc<Plugin>,
    /// The new version as it warns.
    pub(crate) warning: Arc<Plugin>,
    /// The old version, called to see whether a denial is new.
    pub(crate) reference: Arc<Plugin>,
}

/// The observations of the two versions in one step.
pub(crate) struct Tally {
    plugin: PluginName,
    /// Whether denials of the old version deny requests.
    old_enforces: bool,
    observed: Mutex<Observations>,
    metrics: Arc<Metrics>,
}

/// The version of a plugin that is called for a request.
#[derive(Clone, Copy)]
pub(crate) struct Answering<'s> {
    /// The version that is called.
    pub(crate) plugin: &'s Arc<Plugin>,
    /// The part of the rollout; none if the plugin has no rollout.
    pub(crate) rollout: Option<InRollout<'s>>,
}

/// A rollout, as it treats one request.
#[derive(Clone, Copy)]
pub(crate) struct InRollout<'s> {
    rollout: &'s Rollout,
    pub(crate) part: Part,
    /// The old version.
    pub(crate) old: &'s Arc<Plugin>,
}

/// The work that remains after the call of the version that answers.
#[derive(Clone, Copy)]
pub(crate) enum FollowUp<'s> {
    /// No work remains.
    Nothing,
    /// The new version faulted: call the old version, whose answer counts.
    CallOld,
    /// The new version denies: call this version to see whether the denial is new.
    Compare(&'s Arc<Plugin>),
    /// Call the new version, whose denial is a warning.
    Warn(&'s Arc<Plugin>),
}

/// How a version's call ended, as far as a rollout looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passes,
    Denies,
    Faults,
}

// === impl Rollout ===

impl Rollout {
    /// A rollout at a step. `reason` says why, where the old version answers everything.
    pub(crate) fn new(
        name: PluginName,
        plan: Arc<Plan>,
        stage: Stage,
        versions: Option<Versions>,
        tally: Arc<Tally>,
        reason: &str,
    ) -> Self {
        Self {
            name,
            plan,
            stage: if versions.is_some() {
                stage
            } else {
                Stage::Old
            },
            versions,
            tally,
            reason: Arc::from(reason),
        }
    }

    /// Whether the new version is compared after the answers.
    pub(super) fn is_shadowing(&self) -> bool {
        matches!(self.stage, Stage::Step(index) if self.plan.steps.get(index).is_some_and(|step| {
            step.mode == tollgate_config::StepMode::Shadow
        }))
    }

    fn step(&self) -> String {
        match self.stage {
            Stage::Step(index) => match self.plan.steps.get(index) {
                Some(step) => format!(
                    "step {} of {}, {} in {}",
                    index + 1,
                    self.plan.steps.len(),
                    step.mode.as_str(),
                    step.share
                ),
                None => String::new(),
            },
            Stage::Old | Stage::Promoted => String::new(),
        }
    }
}

// === impl PluginSet ===

impl PluginSet {
    /// Adds the rollouts under way to a set.
    #[must_use]
    pub(crate) fn with_rollouts(mut self, rollouts: Vec<Rollout>) -> Self {
        for rollout in &rollouts {
            if rollout.is_shadowing() {
                let tally = &rollout.tally;
                self.tally_shadow(rollout.name.as_str(), tally);
            }
        }
        self.rollouts = rollouts;
        self
    }

    /// The plugins, with each promoted version in place of its old one.
    pub(crate) fn promoted(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        self.iter().map(move |plugin| {
            let answering = self.answering(plugin, None);
            let promoted = answering.rollout.filter(|one| one.part == Part::Promoted);
            promoted.map_or(plugin, |_| answering.plugin)
        })
    }

    /// The version of a plugin that answers a request about this namespace; none for cluster-scoped objects.
    pub(crate) fn answering<'s>(
        &'s self,
        plugin: &'s Arc<Plugin>,
        namespace: Option<&str>,
    ) -> Answering<'s> {
        // Most sets have no rollouts.
        let mut rollouts = self.rollouts.iter();
        let Some(rollout) = rollouts.find(|rollout| rollout.name == plugin.config.name) else {
            return Answering {
                plugin,
                rollout: None,
            };
        };
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        let part = rollout.stage.part(&rollout.plan, &rollout.name, namespace);
        let called = match (&rollout.versions, part) {
            (Some(versions), Part::Enforced | Part::Promoted) => &versions.answering,
            // The old version denies nothing, so nobody misses its answer.
            (Some(versions), Part::Warned) if !rollout.tally.old_enforces => &versions.warning,
            _ => plugin,
        };
        Answering {
            plugin: called,
            rollout: Some(InRollout {
                rollout,
                part,
                old: plugin,
            }),
        }
    }
}

// === impl Answering ===

impl Answering<'_> {
    /// When the call must end. While the new version is on trial, half of the time is kept for the old version.
    pub(crate) fn deadline(&self, deadline: Instant) -> Instant {
        let is_on_trial = |rollout: &InRollout<'_>| rollout.part == Part::Enforced;
        if !self.rollout.as_ref().is_some_and(is_on_trial) {
            return deadline;
        }
        let now = Instant::now();
        now + deadline.saturating_duration_since(now) / 2
    }

    /// The shadow that is compared with this call.
    pub(crate) fn shadow<'p>(&self, plugins: &'p PluginSet) -> Option<&'p Arc<Shadow>> {
        match &self.rollout {
            Some(rollout) if rollout.part != Part::Shadowed => None,
            _ => plugins.shadow_of(self.plugin),
        }
    }
}

// === impl InRollout ===

impl<'s> InRollout<'s> {
    /// Returns the work that remains after the call, given its result.
    pub(crate) fn follow_up(&self, ended: Outcome) -> FollowUp<'s> {
        let Some(versions) = &self.rollout.versions else {
            return FollowUp::Nothing;
        };
        let is_fault = ended == Outcome::Faults;
        match self.part {
            Part::Enforced
                if is_fault && self.part.decided_by(true) == tollgate_rollout::Version::Old =>
            {
                FollowUp::CallOld
            }
            Part::Enforced if ended == Outcome::Denies && self.rollout.tally.old_enforces => {
                FollowUp::Compare(&versions.reference)
            }
            Part::Warned if self.rollout.tally.old_enforces => FollowUp::Warn(&versions.warning),
            _ => FollowUp::Nothing,
        }
    }

    /// Counts the call of the version that answers, if nothing follows up on it.
    pub(crate) fn answered(&self, ended: Outcome, cpu: Duration) {
        let tally = &self.rollout.tally;
        match self.part {
            Part::Old | Part::Shadowed => tally.old_call(cpu),
            Part::Warned if tally.old_enforces => tally.old_call(cpu),
            Part::Warned | Part::Enforced => {
                tally.new_call(cpu);
                // Where the old version enforces, a denial is compared before it is counted.
                tally.judged(ended, Outcome::Passes);
            }
            Part::Promoted => {}
        }
    }

    /// Counts a call of the old version.
    pub(crate) fn old_called(&self, cpu: Duration) {
        self.rollout.tally.old_call(cpu);
    }

    /// Counts the new version's answer, compared with the old version's.
    pub(crate) fn compared(&self, new: Outcome, new_cpu: Duration, old: Outcome) {
        self.rollout.tally.new_call(new_cpu);
        self.rollout.tally.judged(new, old);
    }

    /// Counts a fault of the new version.
    pub(crate) fn faulted(&self) {
        self.rollout.tally.judged(Outcome::Faults, Outcome::Passes);
    }

    /// Says for the decision which version answers, and why.
    pub(crate) fn why(&self) -> Arc<str> {
        let rollout = self.rollout;
        let text = match self.part {
            Part::Promoted => "new version: the rollout is promoted".to_owned(),
            Part::Enforced => format!("new version: {}", rollout.step()),
            Part::Warned if rollout.tally.old_enforces => {
                format!("old version: {} only warns", rollout.step())
            }
            Part::Warned => format!("new version, in mode warn: {}", rollout.step()),
            Part::Shadowed => format!("old version: {} only compares", rollout.step()),
            Part::Old if matches!(rollout.stage, Stage::Step(_)) => {
                format!("old version: outside the share of {}", rollout.step())
            }
            Part::Old => return rollout.reason.clone(),
        };
        text.into()
    }

    /// Says for the decision why the old version answers although the new one was called.
    pub(crate) fn why_old(&self, fault: &str) -> Arc<str> {
        format!(
            "old version, because the new version faulted ({fault}): {}",
            self.rollout.step()
        )
        .into()
    }

    /// Says for the decision why the new version was called in addition.
    pub(crate) fn why_warned(&self) -> Arc<str> {
        format!(
            "new version, whose denials are warnings: {}",
            self.rollout.step()
        )
        .into()
    }
}

// === impl Tally ===

impl Tally {
    /// Returns a tally that continues from earlier observations.
    pub(crate) fn new(
        plugin: PluginName,
        old_mode: Mode,
        observed: Observations,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            plugin,
            old_enforces: old_mode == Mode::Enforce,
            observed: Mutex::new(observed),
            metrics,
        }
    }

    /// Returns the observations so far.
    pub(crate) fn observed(&self) -> Observations {
        *self.lock()
    }

    fn old_call(&self, cpu: Duration) {
        self.lock().old_time.add(microseconds(cpu));
    }

    fn new_call(&self, cpu: Duration) {
        self.lock().new_time.add(microseconds(cpu));
    }

    /// Counts an answer of the new version, given what the old version says about the same request.
    pub(crate) fn judged(&self, new: Outcome, old: Outcome) {
        let old_denies = self.old_enforces && old != Outcome::Passes;
        let result = match new {
            Outcome::Faults => RolloutReview::Fault,
            Outcome::Denies if !old_denies => RolloutReview::NewDenial,
            Outcome::Denies | Outcome::Passes => RolloutReview::Passed,
        };
        {
            let mut observed = self.lock();
            observed.reviews = observed.reviews.saturating_add(1);
            match result {
                RolloutReview::Fault => observed.faults = observed.faults.saturating_add(1),
                RolloutReview::NewDenial => {
                    observed.new_denials = observed.new_denials.saturating_add(1);
                }
                RolloutReview::Passed => {}
            }
        }
        self.metrics.rollout_reviewed(self.plugin.as_str(), result);
    }

    fn lock(&self) -> MutexGuard<'_, Observations> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(old_mode: Mode) -> Tally {
        let name = PluginName::parse("guard").unwrap();
        Tally::new(name, old_mode, Observations::default(), Metrics::new())
    }

    #[test]
    fn denial_is_new_where_the_old_version_lets_the_request_pass() {
        let table = [
            (Mode::Enforce, Outcome::Denies, Outcome::Passes, (1, 0)),
            (Mode::Enforce, Outcome::Denies, Outcome::Denies, (0, 0)),
            // Nobody knows what the old version would have said.
            (Mode::Enforce, Outcome::Denies, Outcome::Faults, (0, 0)),
            (Mode::Enforce, Outcome::Passes, Outcome::Denies, (0, 0)),
            (Mode::Enforce, Outcome::Faults, Outcome::Faults, (0, 1)),
            // A denial that only warned did not deny.
            (Mode::Warn, Outcome::Denies, Outcome::Denies, (1, 0)),
            (Mode::Audit, Outcome::Denies, Outcome::Denies, (1, 0)),
        ];
        for (mode, new, old, expected) in table {
            let tally = tally(mode);
            tally.judged(new, old);
            let observed = tally.observed();
            assert_eq!(observed.reviews, 1);
            let seen = (observed.new_denials, observed.faults);
            assert_eq!(seen, expected, "{mode} {new:?} {old:?}");
        }
    }

    #[test]
    fn tally_goes_on_from_what_was_seen_before_a_restart() {
        let tally = tally(Mode::Enforce);
        tally.judged(Outcome::Denies, Outcome::Passes);
        tally.old_call(Duration::from_micros(7));
        let name = PluginName::parse("guard").unwrap();
        let after = Tally::new(name, Mode::Enforce, tally.observed(), Metrics::new());
        after.judged(Outcome::Passes, Outcome::Passes);
        after.new_call(Duration::from_micros(9));
        let observed = after.observed();
        assert_eq!((observed.reviews, observed.new_denials), (2, 1));
        assert_eq!(observed.old_time.value(), Some(7));
        assert_eq!(observed.new_time.value(), Some(9));
    }
}
