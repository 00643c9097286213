//! The records of rollouts: the log, the metrics, and the files of the states.

use tollgate_config::PluginName;
use tollgate_rollout::{Phase, State};

use super::Rollouts;

// === impl Rollouts ===

impl Rollouts {
    /// Logs and counts the last change of a state.
    pub(super) fn note(&self, name: &PluginName, state: &State) {
        let plugin = name.as_str();
        let phase = state.phase.as_str();
        self.metrics.rollout_reached(plugin, phase, state.step);
        let Some(change) = state.last() else { return };
        self.metrics
            .rollout_changed(plugin, phase, change.by.as_str());
        let (step, by, reason) = (
            state.step.saturating_add(1),
            change.by.as_str(),
            &change.reason,
        );
        match state.phase {
            Phase::Running => {
                tracing::info!(plugin, step, by, reason, "rollout: step begins");
            }
            Phase::Promoted => {
                tracing::info!(
                    plugin,
                    step,
                    by,
                    reason,
                    "rollout: the new version answers everything"
                );
            }
            Phase::Stopped => {
                tracing::warn!(
                    plugin,
                    step,
                    by,
                    reason,
                    "rollout: stopped; promote it or roll it back with `tollgate rollout`"
                );
            }
            Phase::RolledBack => {
                tracing::warn!(
                    plugin,
                    step,
                    by,
                    reason,
                    "rollout: rolled back; the old version answers everything"
                );
            }
        }
    }

    /// Writes a state that has changed, and from time to time the observations.
    pub(super) fn save(&mut self, name: &PluginName, is_time: bool) {
        let (Some(store), Some(running)) = (&self.store, self.running.get_mut(name)) else {
            return;
        };
        // The file may have a later state than this one.
        if running.is_unreadable {
            return;
        }
        let Some(state) = running.seen() else { return };
        let is_due = if running.has_failed {
            is_time
        } else {
            running.is_dirty || (is_time && state.observed != running.written)
        };
        if !is_due {
            return;
        }
        match store.write(name, &state) {
            Ok(()) => {
                running.is_dirty = false;
                running.has_failed = false;
                running.file_problem = None;
                running.written = state.observed;
            }
            Err(_) if running.has_failed => {}
            Err(error) => {
                running.has_failed = true;
                running.file_problem = Some(format!("the state cannot be written: {error}"));
                tracing::warn!(
                    plugin = %name, %error,
                    "failed to write the state of the rollout (registries.cacheDirectory); a restart would go back to the state before"
                );
            }
        }
    }

    pub(super) fn tidy(&self) {
        let Some(store) = &self.store else { return };
        let rollouts = self.running.iter().map(|(name, running)| {
            let state = running.state.as_ref();
            (name, state.map(|state| &state.identity))
        });
        store.retain(&rollouts.collect());
    }
}
