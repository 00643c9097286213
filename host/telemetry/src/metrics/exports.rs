//! The metrics of exports to collectors.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::Metrics;

/// Why spans or decisions were not exported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExportDrop {
    /// Too much was waiting.
    Queue,
    /// The collector did not accept the request.
    Failed,
    /// The collector accepted the request without these records.
    Rejected,
}

/// The families.
#[derive(Debug)]
pub(super) struct ExportMetrics {
    exported: Family<SignalLabels, Counter>,
    dropped: Family<DropLabels, Counter>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SignalLabels {
    signal: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct DropLabels {
    signal: &'static str,
    reason: &'static str,
}

/// Everything that can be exported.
const SIGNALS: [&str; 2] = ["traces", "decisions"];

// === impl ExportMetrics ===

impl ExportMetrics {
    /// Registers the families, with every series at zero.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            exported: Family::default(),
            dropped: Family::default(),
        };
        registry.register(
            "telemetry_exported",
            "Spans and decisions that a collector accepted",
            metrics.exported.clone(),
        );
        registry.register(
            "telemetry_dropped",
            "Spans and decisions that should have been exported and were not, by reason",
            metrics.dropped.clone(),
        );
        for signal in SIGNALS {
            drop(metrics.exported.get_or_create(&SignalLabels { signal }));
            for reason in ExportDrop::ALL.map(ExportDrop::name) {
                let labels = DropLabels { signal, reason };
                drop(metrics.dropped.get_or_create(&labels));
            }
        }
        metrics
    }
}

// === impl ExportDrop ===

impl ExportDrop {
    const ALL: [Self; 3] = [Self::Queue, Self::Failed, Self::Rejected];

    fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts spans or decisions that a collector accepted. `signal` is `traces` or `decisions`.
    pub fn exported(&self, signal: &'static str, records: u64) {
        self.exports
            .exported
            .get_or_create(&SignalLabels { signal })
            .inc_by(records);
    }

    /// Counts spans or decisions that were not exported. `signal` is `traces` or `decisions`.
    pub fn export_dropped(&self, signal: &'static str, reason: ExportDrop, records: u64) {
        let reason = reason.name();
        self.exports
            .dropped
            .get_or_create(&DropLabels { signal, reason })
            .inc_by(records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_signal_and_reason_from_zero() {
        let metrics = Metrics::new();
        metrics.exported("traces", 3);
        metrics.export_dropped("decisions", ExportDrop::Failed, 2);
        let text = metrics.encode();
        for line in [
            "tollgate_telemetry_exported_total{signal=\"traces\"} 3",
            "tollgate_telemetry_exported_total{signal=\"decisions\"} 0",
            "tollgate_telemetry_dropped_total{signal=\"decisions\",reason=\"failed\"} 2",
            "tollgate_telemetry_dropped_total{signal=\"traces\",reason=\"queue\"} 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
