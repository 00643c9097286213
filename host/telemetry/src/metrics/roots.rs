//! The metrics of trusted roots that come from TUF repositories.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::Metrics;

/// The families.
#[derive(Debug)]
pub(super) struct RootMetrics {
    refreshes: Family<ResultLabels, Counter>,
    expiry: Gauge,
    degraded: Gauge,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ResultLabels {
    result: &'static str,
}

/// The results of a refresh.
const RESULTS: [&str; 3] = ["changed", "unchanged", "failed"];

// === impl RootMetrics ===

impl RootMetrics {
    /// Registers the families, with every series at zero.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            refreshes: Family::default(),
            expiry: Gauge::default(),
            degraded: Gauge::default(),
        };
        registry.register(
            "trusted_root_refreshes",
            "Refreshes of trusted roots from TUF repositories, by result",
            metrics.refreshes.clone(),
        );
        registry.register(
            "trusted_root_expiry_timestamp_seconds",
            "Expiry of the metadata of the trusted root that expires first, in seconds since 1970; 0 without signatures.tuf",
            metrics.expiry.clone(),
        );
        registry.register(
            "trusted_root_degraded",
            "1 while the last refresh of a trusted root has failed, or none can be used",
            metrics.degraded.clone(),
        );
        for result in RESULTS {
            drop(metrics.refreshes.get_or_create(&ResultLabels { result }));
        }
        metrics
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts a refresh of a trusted root. `result` is a word from a fixed list.
    pub fn trusted_root_refreshed(&self, result: &'static str) {
        self.roots
            .refreshes
            .get_or_create(&ResultLabels { result })
            .inc();
    }

    /// Sets the first expiry of all trusted roots from TUF repositories, in seconds since 1970, and whether one of them is
    /// not current.
    pub fn trusted_roots(&self, expires: Option<i64>, is_degraded: bool) {
        self.roots.expiry.set(expires.unwrap_or_default());
        self.roots.degraded.set(i64::from(is_degraded));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_result_from_zero() {
        let metrics = Metrics::new();
        metrics.trusted_root_refreshed("failed");
        let text = metrics.encode();
        for line in [
            "tollgate_trusted_root_refreshes_total{result=\"changed\"} 0",
            "tollgate_trusted_root_refreshes_total{result=\"failed\"} 1",
            "tollgate_trusted_root_expiry_timestamp_seconds 0",
            "tollgate_trusted_root_degraded 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        metrics.trusted_roots(Some(1_900_000_000), true);
        let text = metrics.encode();
        assert!(text.contains("tollgate_trusted_root_expiry_timestamp_seconds 1900000000"));
        assert!(text.contains("tollgate_trusted_root_degraded 1"));
        metrics.trusted_roots(None, false);
        assert!(
            metrics
                .encode()
                .contains("tollgate_trusted_root_expiry_timestamp_seconds 0")
        );
    }
}
