//! Decides whether a rollout stays at its step, begins the next step, stops or rolls back. A pure function of its
//! arguments.

use std::fmt;
use std::time::Duration;

use tollgate_config::{OnFailure, Rollout, StepMode, format_duration};

use crate::state::{By, Observations, Phase, State};

/// The decision that follows from the observations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The state stays, and waits for this.
    Stay(Wait),
    /// The state changes.
    Change(Box<State>),
}

/// The condition that a rollout waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The new version is not loaded.
    Version,
    /// The step is not over yet.
    Time {
        /// The time that is left.
        left: Duration,
    },
    /// The new version has not been called often enough.
    Reviews {
        /// Number of calls so far.
        seen: u64,
        /// Number of calls that are needed.
        needed: u64,
    },
    /// Too few calls of the old version are known to compare times.
    OldTime {
        /// Number of calls so far.
        seen: u64,
        /// Number of calls that are needed.
        needed: u64,
    },
    /// The rollout was stopped, and an administrator has to decide.
    Operator,
    /// This replica sees nothing against the next step. The leader decides about it.
    Leader,
    /// The leader does not know enough of a replica to begin the next step.
    Replica {
        /// The replica's name.
        name: String,
        /// What is missing.
        why: Lack,
    },
    /// The rollout is over.
    Nothing,
}

/// What the leader does not know of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The replica reports nothing about the rollout.
    Report,
    /// The replica has not loaded the new version, or cannot call it.
    Version,
    /// The replica has loaded other bytes, or follows another version of the resource.
    Identity,
    /// The replica has not reached the step.
    Step,
    /// The replica has not reported since the step could end.
    End,
}

/// A gate that does not pass.
struct Failure {
    reason: String,
    /// Whether the rollout rolls back whatever `onFailure` says.
    is_fault: bool,
}

/// A longer time is shown in minutes.
const LONGEST_IN_SECONDS: u64 = 600;

/// Decides what follows from the observations of the current step. `is_available` says whether the new version is
/// loaded, and `now` is the time in milliseconds since 1970.
#[must_use]
pub fn decide(
    plan: &Rollout,
    state: &State,
    observed: &Observations,
    is_available: bool,
    now: u64,
) -> Decision {
    match state.phase {
        Phase::Promoted | Phase::RolledBack => return Decision::Stay(Wait::Nothing),
        Phase::Running | Phase::Stopped => {}
    }
    let Some(step) = plan.steps.get(state.step) else {
        // The plan is part of the identity, so only a damaged state has such a step.
        let reason = format!("the plan has no step {}", state.step.saturating_add(1));
        return roll_back(state, observed, reason, now);
    };
    let is_stopped = state.phase == Phase::Stopped;
    if let Some(failure) = failure(plan, step.mode, observed) {
        if failure.is_fault || (plan.on_failure == OnFailure::RollBack && !is_stopped) {
            return roll_back(state, observed, failure.reason, now);
        }
        if !is_stopped {
            let seen = seen(state, observed);
            let next = seen.changed(Phase::Stopped, state.step, By::Gates, failure.reason, now);
            return Decision::Change(Box::new(next));
        }
    }
    if is_stopped {
        return Decision::Stay(Wait::Operator);
    }
    match wait(plan, state, observed, is_available, now) {
        Some(wait) => Decision::Stay(wait),
        None => go_on(plan, state, observed, now),
    }
}

fn seen(state: &State, observed: &Observations) -> State {
    State {
        observed: *observed,
        ..state.clone()
    }
}

fn roll_back(state: &State, observed: &Observations, reason: String, now: u64) -> Decision {
    let seen = seen(state, observed);
    let next = seen.changed(Phase::RolledBack, state.step, By::Gates, reason, now);
    Decision::Change(Box::new(next))
}

fn go_on(plan: &Rollout, state: &State, observed: &Observations, now: u64) -> Decision {
    let seen = seen(state, observed);
    let reason = format!(
        "step {} passed: {} review(s), {} new denial(s), {} fault(s)",
        state.step + 1,
        observed.reviews,
        observed.new_denials,
        observed.faults
    );
    let next = state.step + 1;
    let (phase, step) = if next < plan.steps.len() {
        (Phase::Running, next)
    } else {
        (Phase::Promoted, state.step)
    };
    Decision::Change(Box::new(seen.changed(phase, step, By::Gates, reason, now)))
}

/// Returns the first gate that does not pass.
fn failure(plan: &Rollout, mode: StepMode, observed: &Observations) -> Option<Failure> {
    let gates = &plan.gates;
    if observed.faults > gates.faults {
        return Some(Failure {
            reason: format!(
                "{} fault(s) of the new version, at most {} allowed (gates.faults)",
                observed.faults, gates.faults
            ),
            is_fault: true,
        });
    }
    if observed.new_denials > gates.new_denials {
        return Some(Failure {
            reason: format!(
                "{} new denial(s), at most {} allowed (gates.newDenials)",
                observed.new_denials, gates.new_denials
            ),
            is_fault: false,
        });
    }
    // A shadow runs when no other call needs the processor, so its time says little.
    let most = gates.added_time.filter(|_| mode != StepMode::Shadow)?;
    if observed.new_time.calls.min(observed.old_time.calls) < gates.min_reviews {
        return None;
    }
    let added = observed
        .new_time
        .value()?
        .saturating_sub(observed.old_time.value()?);
    let added = Duration::from_micros(added);
    (added > most).then(|| Failure {
        reason: format!(
            "a call of the new version takes {} longer on average, at most {} allowed (gates.addedTime)",
            format_duration(added),
            format_duration(most)
        ),
        is_fault: false,
    })
}

/// Returns the time until the step may end.
pub(crate) fn left(plan: &Rollout, state: &State, now: u64) -> Duration {
    let elapsed = Duration::from_millis(now.saturating_sub(state.step_since));
    let step = plan.steps.get(state.step);
    step.map_or(Duration::ZERO, |step| step.duration.saturating_sub(elapsed))
}

/// Returns what the step still waits for.
fn wait(
    plan: &Rollout,
    state: &State,
    observed: &Observations,
    is_available: bool,
    now: u64,
) -> Option<Wait> {
    if !is_available {
        return Some(Wait::Version);
    }
    let step = plan.steps.get(state.step)?;
    let left = left(plan, state, now);
    if !left.is_zero() {
        return Some(Wait::Time { left });
    }
    let needed = plan.gates.min_reviews;
    let is_timed = plan.gates.added_time.is_some() && step.mode != StepMode::Shadow;
    let seen = if is_timed {
        observed.reviews.min(observed.new_time.calls)
    } else {
        observed.reviews
    };
    if seen < needed {
        return Some(Wait::Reviews { seen, needed });
    }
    let seen = observed.old_time.calls;
    (is_timed && seen < needed).then_some(Wait::OldTime { seen, needed })
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("waits until the new version is loaded"),
            Self::Time { left } => {
                let seconds = left.as_secs().max(1);
                let shown = if seconds > LONGEST_IN_SECONDS {
                    seconds.div_ceil(60) * 60
                } else {
                    seconds
                };
                let shown = Duration::from_secs(shown);
                write!(f, "waits {} more", format_duration(shown))
            }
            Self::Reviews { seen, needed } => write!(
                f,
                "waits for calls of the new version: {seen} of {needed} (gates.minReviews)"
            ),
            Self::OldTime { seen, needed } => write!(
                f,
                "waits for calls of the old version, to compare times: {seen} of {needed} (gates.addedTime)"
            ),
            Self::Operator => {
                f.write_str("stopped: promote it or roll it back with `tollgate rollout`")
            }
            Self::Leader => {
                f.write_str("waits for the leader of the replicas to begin the next step")
            }
            Self::Replica { name, why } => write!(f, "waits for replica {name}, which {why}"),
            Self::Nothing => f.write_str("waits for nothing"),
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Report => "has reported nothing about the rollout",
            Self::Version => "cannot call the new version yet",
            Self::Identity => "has loaded other bytes of the new version, or follows an earlier version of the resource",
            Self::Step => "has not reached the step yet",
            Self::End => "has not reported what it saw until the end of the step",
        })
    }
}
