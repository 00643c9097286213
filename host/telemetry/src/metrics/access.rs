//! The metrics of questions about rights.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::Metrics;

/// The families.
#[derive(Debug)]
pub(super) struct AccessMetrics {
    reviews: Family<ResultLabels, Counter>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ResultLabels {
    result: &'static str,
}

/// What kube-apiserver answered. Whether the user may do it is not told: it is about a user.
const ANSWERED: &str = "answered";
const UNAVAILABLE: &str = "unavailable";

// === impl AccessMetrics ===

impl AccessMetrics {
    /// Registers the family, with every series at zero.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reviews: Family::default(),
        };
        registry.register(
            "access_reviews",
            "SubjectAccessReviews that kube-apiserver was asked for, by result",
            metrics.reviews.clone(),
        );
        for result in [ANSWERED, UNAVAILABLE] {
            drop(metrics.reviews.get_or_create(&ResultLabels { result }));
        }
        metrics
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts that kube-apiserver was asked what somebody may do.
    pub fn access_reviewed(&self, is_answered: bool) {
        let result = if is_answered { ANSWERED } else { UNAVAILABLE };
        let labels = ResultLabels { result };
        self.access.reviews.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_result_from_zero() {
        let metrics = Metrics::new();
        metrics.access_reviewed(true);
        let text = metrics.encode();
        for line in [
            "tollgate_access_reviews_total{result=\"answered\"} 1",
            "tollgate_access_reviews_total{result=\"unavailable\"} 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
