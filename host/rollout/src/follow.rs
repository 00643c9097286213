//! How a replica follows the common state of a rollout. It goes on only when the leader says so, and goes back by itself.

use tollgate_config::Rollout;

use crate::decide::{Decision, Wait, decide};
use crate::state::{Observations, Phase, State};

/// Whether a replica takes over the common state in place of its own one.
///
/// - Without a state of its own, the replica takes over the common one.
/// - A replica that has rolled back stays so until the common state has a later run. A replica that has stopped stays so
///   until the leader has decided after it, or all roll back.
/// - Otherwise the common state counts, also when it is an earlier step.
#[must_use]
pub fn obeys(own: Option<&State>, common: &State) -> bool {
    let Some(own) = own else {
        return true;
    };
    if !own.identity.may_be(&common.identity) {
        return false;
    }
    let point = |state: &State| (state.run, state.revision, state.phase, state.step);
    match own.phase {
        Phase::RolledBack if common.run <= own.run => {
            // The leader's words about the same rollback have all reasons.
            common.phase == Phase::RolledBack
                && (common.run, common.revision) > (own.run, own.revision)
        }
        // A rollback of another replica counts, although its leader did not know of the stop.
        Phase::Stopped if common.run == own.run && common.revision <= own.revision => {
            common.phase == Phase::RolledBack
        }
        _ => point(own) != point(common),
    }
}

/// Decides what follows from a replica's own observations: it stays, stops or rolls back, and never goes on.
#[must_use]
pub fn hold(
    plan: &Rollout,
    state: &State,
    observed: &Observations,
    is_available: bool,
    now: u64,
) -> Decision {
    match decide(plan, state, observed, is_available, now) {
        Decision::Change(next) if matches!(next.phase, Phase::Running | Phase::Promoted) => {
            Decision::Stay(Wait::Leader)
        }
        // The other replicas may have seen enough.
        Decision::Stay(Wait::Reviews { .. } | Wait::OldTime { .. }) => Decision::Stay(Wait::Leader),
        decision => decision,
    }
}
