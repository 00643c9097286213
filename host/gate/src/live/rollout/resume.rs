//! Finds the state that a rollout goes on with: from memory, from its file, or from the first step.

use std::sync::Arc;

use tollgate_config::{PluginName, Rollout as Plan};
use tollgate_rollout::{Identity, State, Unusable, Wait};

use super::running::Running;
use super::{Rollouts, versions};
use crate::plugin::Plugin;

/// The state to begin with.
#[derive(Default)]
struct Begun {
    state: Option<State>,
    /// Whether the rollout is new.
    is_new: bool,
    file_problem: Option<String>,
    is_unreadable: bool,
}

pub(super) const UNREADABLE: &str = "cannot read the state of the rollout, and does not replace its file; it goes on from memory, and takes the \
                                     state over when the file can be read again";
const DAMAGED: &str = "the state of the rollout is lost, so it begins again at its first step; promote it or roll it back with `tollgate \
                       rollout`";

// === impl Rollouts ===

impl Rollouts {
    /// Goes on with a rollout, or begins one. A rollout whose version is not loaded keeps its state.
    pub(super) fn resume(
        &self,
        earlier: Option<Running>,
        plan: &Arc<Plan>,
        old: &Arc<Plugin>,
        new: Option<Arc<Plugin>>,
        now: u64,
    ) -> Running {
        let name = &old.config.name;
        let is_common = self.is_common(name);
        let digest = new.as_ref().and_then(|new| new.digest.as_deref());
        // A version that serves goes on under its entry, while that of the plan is being loaded.
        let version = new.as_ref().map(|new| &new.config);
        let version = version.or(plan.to.as_deref()).unwrap_or(&old.config);
        let identity = Identity::of(plan, &old.config, version, digest);
        let blocked = versions::blocked(old, new.as_deref());
        let earlier = earlier.filter(|earlier| earlier.identity.may_be(&identity));
        let before = earlier.as_ref().and_then(Running::seen);
        let known = before.as_ref().and_then(|before| before.about(&identity));
        let same = earlier.as_ref().filter(|_| known.is_some());
        let obeyed = same.and_then(|earlier| earlier.obeyed);
        let asks_for_promotion = same.is_some_and(|earlier| earlier.asks_for_promotion);
        let is_unwritten = same.is_some_and(|earlier| earlier.is_dirty);
        let Begun {
            state,
            is_new,
            file_problem,
            is_unreadable,
        } = match known {
            // The state is written anew when the bytes of the version are known at last.
            Some(known) => Begun {
                is_new: false,
                file_problem: same.and_then(|earlier| earlier.file_problem.clone()),
                is_unreadable: same.is_some_and(|earlier| earlier.is_unreadable),
                state: Some(known),
            },
            None => {
                let earlier = earlier.as_ref().and_then(|one| one.file_problem.as_deref());
                self.begin(name, &identity, digest.is_some(), earlier, now)
            }
        };
        // A state of a file may have been written without the bytes of the version, and gets a name with them now.
        let is_renamed = state.as_ref().is_some_and(|state| {
            let before = before.as_ref().map(|before| &before.identity);
            before != Some(&state.identity)
        });
        let observed = state
            .as_ref()
            .map(|state| state.observed)
            .unwrap_or_default();
        if state.is_some() || is_common {
            self.metrics.rollout_begins(name.as_str());
        }
        if let Some(state) = &state {
            let phase = state.phase.as_str();
            self.metrics
                .rollout_reached(name.as_str(), phase, state.step);
            if is_new {
                self.note(name, state);
            }
        }
        Running {
            plan: plan.clone(),
            old: old.clone(),
            new,
            blocked,
            tally: self.tally(old, observed),
            identity,
            state,
            is_common,
            obeyed,
            asks_for_promotion,
            wait: Wait::Version,
            is_dirty: is_renamed || is_unwritten,
            has_failed: false,
            file_problem,
            is_unreadable,
            written: observed,
        }
    }

    /// The state to begin with.
    ///
    /// - A rollout of the file begins when its version is loaded for the first time. `is_known` says whether it is.
    /// - A common rollout has no state before the leader has begun it: the old version answers everything.
    fn begin(
        &self,
        name: &PluginName,
        identity: &Identity,
        is_known: bool,
        earlier_problem: Option<&str>,
        now: u64,
    ) -> Begun {
        let stored = match &self.store {
            None => Ok(None),
            Some(store) => store.read(name, identity),
        };
        if let Err(error) = &stored
            && earlier_problem != Some(&error.to_string())
        {
            let what = match error {
                Unusable::Unreadable { .. } => UNREADABLE,
                Unusable::Damaged { .. } => DAMAGED,
            };
            tracing::warn!(plugin = %name, %error, "{what}");
        }
        if let Some(link) = self.link.as_ref().filter(|_| self.is_common(name)) {
            // The leader has the state. The counts of the file may be those of another replica.
            let state = stored.ok().flatten().map(|state| State {
                observed: link.reported(name, &state),
                ..state
            });
            return Begun {
                state,
                ..Begun::default()
            };
        }
        match stored {
            Ok(Some(state)) => Begun {
                state: Some(state),
                ..Begun::default()
            },
            Ok(None) => Begun {
                state: is_known.then(|| State::begin(identity.clone(), now)),
                is_new: is_known,
                ..Begun::default()
            },
            Err(error) => {
                let reason =
                    format!("the state of the rollout is lost, so it begins again: {error}");
                Begun {
                    state: is_known.then(|| State::begin_anew(identity.clone(), &reason, now)),
                    is_new: is_known,
                    file_problem: Some(error.to_string()),
                    is_unreadable: matches!(error, Unusable::Unreadable { .. }),
                }
            }
        }
    }
}
