//! Decides for all replicas, by the sum of their reports. A pure function of its arguments.
//!
//! - Backward needs one report, and forward needs all of them.
//! - Nothing goes forward that a replica has not confirmed after the end of the step.

use std::collections::BTreeMap;

use tollgate_config::Rollout;

use crate::decide::{Decision, Lack, Wait, decide};
use crate::identity::Identity;
use crate::report::{Asked, Report};
use crate::state::{By, Observations, Phase, State};

/// The state that all replicas share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// The state, with the sum of all observations when it was written.
    pub state: State,
    /// What replicas saw that are gone since: in this step, and for the time of the old version in this run.
    pub carried: Observations,
}

/// What the leader knows.
#[derive(Clone, Copy, Debug)]
pub struct View<'v> {
    /// What the leader itself rolls out. None if it has not loaded the new version.
    pub identity: Option<&'v Identity>,
    /// The reports of the replicas. A replica that must report and has not done so has none.
    pub replicas: &'v BTreeMap<String, Option<Report>>,
    /// What an administrator asks for at the resource.
    pub asked: Option<Asked>,
    /// Whether all replicas are known that must report.
    pub is_complete: bool,
    /// The time in milliseconds since 1970.
    pub now: u64,
}

/// The leader's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Led {
    /// The state stays, and waits for this. Holds the sum of the observations.
    Stay(Wait, Observations),
    /// The state changes.
    Change(Box<Common>),
}

/// Decides what follows from the reports of all replicas. Without a common state, or with one of another rollout, the
/// rollout begins.
#[must_use]
pub fn lead(plan: &Rollout, common: Option<&Common>, view: &View<'_>) -> Led {
    let current = common.filter(|common| {
        let own = view.identity;
        own.is_none_or(|own| *own == common.state.identity)
    });
    let Some(common) = current else {
        return match view.identity {
            Some(identity) => change(
                State::begin(identity.clone(), view.now),
                &Observations::default(),
            ),
            None => Led::Stay(Wait::Version, Observations::default()),
        };
    };
    let state = &common.state;
    let observed = sum(common, view);
    let seen = State {
        observed,
        ..state.clone()
    };
    if let Some(next) = objection(&seen, view) {
        return changed(common, next);
    }
    if let Some(next) = wish(plan, &seen, view) {
        return changed(common, next);
    }
    match decide(plan, state, &observed, true, view.now) {
        Decision::Stay(wait) => Led::Stay(wait, observed),
        Decision::Change(next) => match next.phase {
            Phase::Stopped | Phase::RolledBack => changed(common, *next),
            Phase::Running | Phase::Promoted => match lacking(state, view) {
                Some(wait) => Led::Stay(wait, observed),
                None => changed(common, *next),
            },
        },
    }
}

/// Returns what replicas saw in the current step that are gone since, or that began to count anew. `before` are the
/// reports of the last look.
#[must_use]
pub fn departed(
    before: &BTreeMap<String, Report>,
    now: &BTreeMap<String, Option<Report>>,
    state: &State,
) -> Observations {
    let gone = before.iter().filter(|(name, before)| {
        let now = now.get(*name).and_then(Option::as_ref);
        let goes_on = now.is_some_and(|now| {
            now.is_about(state) && now.observed.reviews >= before.observed.reviews
        });
        before.is_about(state) && !goes_on
    });
    gone.fold(Observations::default(), |sum, (_, report)| {
        sum.plus(&report.observed)
    })
}

/// The sum of what was seen in the step.
fn sum(common: &Common, view: &View<'_>) -> Observations {
    let reports = view.replicas.values().flatten();
    let reports = reports.filter(|report| report.is_about(&common.state));
    reports.fold(common.carried, |sum, report| sum.plus(&report.observed))
}

/// Returns the state after the objection of a replica: it has rolled back, or stopped.
fn objection(state: &State, view: &View<'_>) -> Option<State> {
    if state.phase == Phase::RolledBack {
        return None;
    }
    let reports = || {
        let named = view.replicas.iter();
        let named = named.filter_map(|(name, report)| Some((name, report.as_ref()?)));
        // A replica that rolled back without the bytes of the new version cannot name them.
        named.filter(|(_, report)| {
            let identity = report.identity.as_ref();
            identity.is_some_and(|identity| identity.may_be(&state.identity))
        })
    };
    let because = |name: &str, report: &Report| {
        let reason = report.reason.as_deref().unwrap_or("no reason is known");
        format!("replica {name}: {reason}")
    };
    let by_of = |report: &Report| match report.by {
        By::Operator => By::Operator,
        By::Configuration | By::Gates => By::Gates,
    };
    let mut all = reports();
    let back = all.find(|(_, report)| report.phase == Phase::RolledBack && report.run >= state.run);
    if let Some((name, report)) = back {
        let state = State {
            run: report.run,
            ..state.clone()
        };
        let (by, reason) = (by_of(report), because(name, report));
        return Some(state.changed(Phase::RolledBack, state.step, by, reason, view.now));
    }
    if state.phase != Phase::Running {
        return None;
    }
    let mut all = reports();
    let (name, report) = all.find(|(_, report)| {
        report.phase == Phase::Stopped
            && report.run == state.run
            && report.revision >= state.revision
    })?;
    let step = report.step.min(state.step);
    let state = State {
        revision: state.revision.max(report.revision),
        ..state.clone()
    };
    let (by, reason) = (by_of(report), because(name, report));
    Some(state.changed(Phase::Stopped, step, by, reason, view.now))
}

/// Returns the state that an administrator asks for.
fn wish(plan: &Rollout, state: &State, view: &View<'_>) -> Option<State> {
    if view.asked.is_some_and(|asked| asked.rolls_back(state)) {
        return state.rolled_back(view.now).ok();
    }
    let reports = view.replicas.values().flatten();
    let mut asking = reports.filter(|report| {
        let point = (report.run, report.revision) == (state.run, state.revision);
        report.asks_for_promotion && point && report.identity.as_ref() == Some(&state.identity)
    });
    let is_asked = view.asked.is_some_and(|asked| asked.promotes(state)) || asking.next().is_some();
    // Without the new version, the leader cannot know whether it can be called at all.
    if !is_asked || view.identity.is_none() {
        return None;
    }
    state.promoted(plan, view.now).ok()
}

/// Returns what the leader does not know of the replicas.
fn lacking(state: &State, view: &View<'_>) -> Option<Wait> {
    if view.identity.is_none() {
        return Some(Wait::Version);
    }
    let mut lacks = view.replicas.iter().filter_map(|(name, report)| {
        let why = match report {
            None => Lack::Report,
            Some(report) if report.identity.is_none() || !report.is_available => Lack::Version,
            Some(report) if report.identity.as_ref() != Some(&state.identity) => Lack::Identity,
            Some(report)
                if (report.run, report.revision, report.step)
                    != (state.run, state.revision, state.step) =>
            {
                Lack::Step
            }
            Some(report) if !report.is_over => Lack::End,
            Some(_) => return None,
        };
        let name = name.clone();
        Some(Wait::Replica { name, why })
    });
    let first = lacks.next();
    if first.is_none() && (!view.is_complete || view.replicas.is_empty()) {
        let name = "(unknown)".to_owned();
        let why = Lack::Report;
        return Some(Wait::Replica { name, why });
    }
    first
}

/// The common state after a change. What replicas saw in a step before counts no more, except for the time of the old
/// version.
fn changed(before: &Common, next: State) -> Led {
    let is_same_run = before.state.run == next.run;
    let carried = if is_same_run && before.state.step == next.step {
        before.carried
    } else if is_same_run {
        Observations {
            old_time: before.carried.old_time,
            ..Observations::default()
        }
    } else {
        Observations::default()
    };
    change(next, &carried)
}

fn change(state: State, carried: &Observations) -> Led {
    Led::Change(Box::new(Common {
        state,
        carried: *carried,
    }))
}
