//! The rollout of one plugin: its two versions, its state and its observations.

use std::sync::Arc;

use tollgate_config::{PluginName, Rollout as Plan};
use tollgate_rollout::{Identity, Observations, Phase, Stage, State, Wait};
use tollgate_telemetry::metrics::Metrics;

use super::versions;
use crate::plugin::{Plugin, PluginState, Rollout, Tally};

/// The rollout of one plugin.
pub(super) struct Running {
    pub(super) plan: Arc<Plan>,
    pub(super) old: Arc<Plugin>,
    /// The new version, as it is loaded; none if it is not known.
    pub(super) new: Option<Arc<Plugin>>,
    /// Why the new version cannot be called; none if it can.
    pub(super) blocked: Option<String>,
    /// What is rolled out. Without the digest of the new version while that is not known.
    pub(super) identity: Identity,
    /// The state; none before the new version is loaded for the first time, and while the leader has not begun a common
    /// rollout.
    pub(super) state: Option<State>,
    /// Whether the leader of the replicas decides.
    pub(super) is_common: bool,
    /// The run and revision of the last common state that was seen.
    pub(super) obeyed: Option<(u64, u64)>,
    /// Whether an administrator asked this replica for the next step, which only the leader begins.
    pub(super) asks_for_promotion: bool,
    pub(super) tally: Arc<Tally>,
    pub(super) wait: Wait,
    /// Whether the state is not written yet.
    pub(super) is_dirty: bool,
    /// Whether the last write failed.
    pub(super) has_failed: bool,
    /// Why the file of the state cannot be used, for as long as it cannot be read or written.
    pub(super) file_problem: Option<String>,
    /// Whether there is a file that cannot be read. It may have a later state, so it is not replaced.
    pub(super) is_unreadable: bool,
    /// The observations that were written last.
    pub(super) written: Observations,
}

// === impl Running ===

impl Running {
    /// The state with the observations up to now.
    pub(super) fn seen(&self) -> Option<State> {
        let observed = self.tally.observed();
        let state = self.state.clone()?;
        Some(State { observed, ..state })
    }

    /// Whether the state makes the new version answer some requests, also while it cannot be called.
    pub(super) fn enforces(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|state| state.stage(true).enforces(&self.plan))
    }

    /// Whether the code of the new version is there.
    pub(super) fn is_loaded(&self) -> bool {
        let new = self.new.as_ref();
        new.is_some_and(|new| matches!(new.state, PluginState::Loaded(_)))
    }

    pub(super) fn stage(&self) -> Stage {
        let state = self.state.as_ref();
        state.map_or(Stage::Old, |state| state.stage(self.blocked.is_none()))
    }

    pub(super) fn rollout(&self, name: &PluginName, metrics: &Arc<Metrics>) -> Rollout {
        let is_promoted = self.stage() == Stage::Promoted;
        let (old, new) = (&self.old, self.new.as_ref());
        // Before the promotion, the old version answers for one that cannot be called.
        let versions = if is_promoted || self.blocked.is_none() {
            versions::versions(old, new, &self.plan, is_promoted, metrics)
        } else {
            None
        };
        let reason = match (&self.blocked, &self.state) {
            (Some(blocked), _) => format!("old version: {blocked}"),
            (None, Some(state)) if state.phase == Phase::RolledBack => {
                let reason = state.last().map_or("", |change| &change.reason);
                format!("old version: the rollout was rolled back: {reason}")
            }
            (None, None) if self.is_common => {
                "old version: the leader of the replicas has not begun the rollout".to_owned()
            }
            _ => "old version".to_owned(),
        };
        Rollout::new(
            name.clone(),
            self.plan.clone(),
            self.stage(),
            versions,
            self.tally.clone(),
            &reason,
        )
    }
}
