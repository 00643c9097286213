//! The metrics of rollouts.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::Metrics;

/// The families of rollouts.
#[derive(Debug, Default)]
pub(super) struct RolloutMetrics {
    phase: Family<PhaseLabels, Gauge>,
    step: Family<PluginLabels, Gauge>,
    changes: Family<ChangeLabels, Counter>,
    reviews: Family<ReviewLabels, Counter>,
}

/// The result of one call of the new version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RolloutReview {
    /// The new version denies nothing that the old one does not deny.
    Passed,
    /// The new version denies a request that the old version does not deny.
    NewDenial,
    /// The new version faulted.
    Fault,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PluginLabels {
    plugin: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PhaseLabels {
    plugin: String,
    phase: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ChangeLabels {
    plugin: String,
    phase: &'static str,
    by: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReviewLabels {
    plugin: String,
    result: &'static str,
}

/// The phases after which a change counts, with those who make it.
const CHANGES: [(&str, &str); 8] = [
    ("running", "configuration"),
    ("running", "gates"),
    ("running", "operator"),
    ("stopped", "gates"),
    ("promoted", "gates"),
    ("promoted", "operator"),
    ("rolled-back", "gates"),
    ("rolled-back", "operator"),
];
const PHASES: [&str; 4] = ["running", "stopped", "promoted", "rolled-back"];

// === impl RolloutMetrics ===

impl RolloutMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "rollout_phase",
            "1 for the phase of a plugin's rollout, otherwise 0",
            metrics.phase.clone(),
        );
        registry.register(
            "rollout_step",
            "Number of the step that a plugin's rollout has reached, from 1",
            metrics.step.clone(),
        );
        registry.register(
            "rollout_changes",
            "Changes of a plugin's rollout, by the phase after it and by who made it",
            metrics.changes.clone(),
        );
        registry.register(
            "rollout_reviews",
            "Calls of the new version of a plugin in a rollout, by result",
            metrics.reviews.clone(),
        );
        metrics
    }

    pub(super) fn begin(&self, plugin: &str) {
        for (phase, by) in CHANGES {
            drop(self.changes.get_or_create(&ChangeLabels {
                plugin: plugin.to_owned(),
                phase,
                by,
            }));
        }
        for result in RolloutReview::ALL.map(RolloutReview::name) {
            drop(self.reviews.get_or_create(&ReviewLabels {
                plugin: plugin.to_owned(),
                result,
            }));
        }
    }

    pub(super) fn reached(&self, plugin: &str, phase: &'static str, step: usize) {
        for one in PHASES {
            let labels = PhaseLabels {
                plugin: plugin.to_owned(),
                phase: one,
            };
            let gauge = self.phase.get_or_create(&labels);
            gauge.set(i64::from(one == phase));
        }
        let labels = PluginLabels {
            plugin: plugin.to_owned(),
        };
        let step = i64::try_from(step + 1).unwrap_or(i64::MAX);
        self.step.get_or_create(&labels).set(step);
    }

    pub(super) fn changed(&self, plugin: &str, phase: &'static str, by: &'static str) {
        let plugin = plugin.to_owned();
        self.changes
            .get_or_create(&ChangeLabels { plugin, phase, by })
            .inc();
    }

    pub(super) fn reviewed(&self, plugin: &str, result: RolloutReview) {
        let labels = ReviewLabels {
            plugin: plugin.to_owned(),
            result: result.name(),
        };
        self.reviews.get_or_create(&labels).inc();
    }

    /// Removes the gauges of a plugin that has no rollout any more.
    pub(super) fn gone(&self, plugin: &str) {
        let plugin = plugin.to_owned();
        for phase in PHASES {
            let plugin = plugin.clone();
            self.phase.remove(&PhaseLabels { plugin, phase });
        }
        self.step.remove(&PluginLabels { plugin });
    }
}

// === impl Metrics ===

impl Metrics {
    /// Shows a rollout of a plugin at zero, before its first event.
    pub fn rollout_begins(&self, plugin: &str) {
        self.rollouts.begin(plugin);
    }

    /// Shows the phase of a rollout, and the index of its step.
    pub fn rollout_reached(&self, plugin: &str, phase: &'static str, step: usize) {
        self.rollouts.reached(plugin, phase, step);
    }

    /// Counts a change of a rollout. `by` says who made it.
    pub fn rollout_changed(&self, plugin: &str, phase: &'static str, by: &'static str) {
        self.rollouts.changed(plugin, phase, by);
    }

    /// Counts a call of the new version.
    pub fn rollout_reviewed(&self, plugin: &str, result: RolloutReview) {
        self.rollouts.reviewed(plugin, result);
    }

    /// Removes the gauges of a plugin that has no rollout any more.
    pub fn rollout_gone(&self, plugin: &str) {
        self.rollouts.gone(plugin);
    }
}

// === impl RolloutReview ===

impl RolloutReview {
    const ALL: [Self; 3] = [Self::Passed, Self::NewDenial, Self::Fault];

    fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::NewDenial => "new-denial",
            Self::Fault => "fault",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Metrics, RolloutReview};

    #[test]
    fn shows_phase_step_changes_and_reviews() {
        let metrics = Metrics::new();
        metrics.rollout_begins("guard");
        metrics.rollout_reached("guard", "running", 1);
        metrics.rollout_changed("guard", "rolled-back", "gates");
        metrics.rollout_reviewed("guard", RolloutReview::Fault);
        let text = metrics.encode();
        for line in [
            "tollgate_rollout_phase{plugin=\"guard\",phase=\"running\"} 1",
            "tollgate_rollout_phase{plugin=\"guard\",phase=\"rolled-back\"} 0",
            "tollgate_rollout_step{plugin=\"guard\"} 2",
            "tollgate_rollout_changes_total{plugin=\"guard\",phase=\"rolled-back\",by=\"gates\"} 1",
            "tollgate_rollout_changes_total{plugin=\"guard\",phase=\"promoted\",by=\"operator\"} 0",
            "tollgate_rollout_reviews_total{plugin=\"guard\",result=\"fault\"} 1",
            "tollgate_rollout_reviews_total{plugin=\"guard\",result=\"new-denial\"} 0",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        metrics.rollout_gone("guard");
        let text = metrics.encode();
        assert!(!text.contains("rollout_step{plugin=\"guard\"}"));
        assert!(text.contains("rollout_changes_total{plugin=\"guard\""));
    }
}
