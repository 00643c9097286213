//! The metrics of verified images.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::Metrics;

/// The families.
#[derive(Debug)]
pub(super) struct ImageMetrics {
    looks: Family<ResultLabels, Counter>,
    requests: Counter,
    last_known_good: Counter,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ResultLabels {
    result: &'static str,
}

/// The results of asking a registry.
const RESULTS: [&str; 6] = [
    "resolved",
    "verified",
    "unsigned",
    "untrusted",
    "not-found",
    "unavailable",
];

// === impl ImageMetrics ===

impl ImageMetrics {
    /// Registers the families, with every series at zero.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            looks: Family::default(),
            requests: Counter::default(),
            last_known_good: Counter::default(),
        };
        registry.register(
            "image_verifications",
            "Tags that were resolved and digests that were verified with a registry, by result",
            metrics.looks.clone(),
        );
        registry.register(
            "image_registry_requests",
            "Requests to registries for the verification of images",
            metrics.requests.clone(),
        );
        registry.register(
            "image_last_known_good",
            "Answers to plugins by an earlier verification, because a registry did not answer",
            metrics.last_known_good.clone(),
        );
        for result in RESULTS {
            drop(metrics.looks.get_or_create(&ResultLabels { result }));
        }
        metrics
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts that a registry was asked about a tag or a digest of an image. `result` is a word from a fixed list.
    pub fn image_looked(&self, result: &'static str) {
        let labels = ResultLabels { result };
        self.images.looks.get_or_create(&labels).inc();
    }

    /// Counts a request to a registry for the verification of an image.
    pub fn image_requested(&self) {
        self.images.requests.inc();
    }

    /// Counts an answer to a plugin by an earlier verification.
    pub fn image_last_known_good(&self) {
        self.images.last_known_good.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_result_from_zero() {
        let metrics = Metrics::new();
        metrics.image_looked("verified");
        metrics.image_requested();
        let text = metrics.encode();
        for line in [
            "tollgate_image_verifications_total{result=\"verified\"} 1",
            "tollgate_image_verifications_total{result=\"unavailable\"} 0",
            "tollgate_image_registry_requests_total 1",
            "tollgate_image_last_known_good_total 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
