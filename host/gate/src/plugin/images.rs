//! Connects the images that plugins have verified with the metrics.

use std::sync::Arc;

use tollgate_admission::images::PullSecrets;
use tollgate_config::Registries;
use tollgate_oci::{ImageObserver, Images, TrustedRoots};
use tollgate_telemetry::metrics::Metrics;

/// Counts what happens about images.
#[derive(Debug)]
struct Counted(Arc<Metrics>);

/// Creates the client that verifies images with these registries, and with the credentials of Pods if there is a reader.
pub(super) fn of(
    registries: Registries,
    roots: &Arc<TrustedRoots>,
    metrics: &Arc<Metrics>,
    pull_secrets: Option<Arc<dyn PullSecrets>>,
) -> Images {
    let observer = Arc::new(Counted(metrics.clone()));
    Images::new(registries, roots.clone(), observer, pull_secrets)
}

// === impl Counted ===

impl ImageObserver for Counted {
    fn looked(&self, result: &'static str) {
        self.0.image_looked(result);
    }

    fn fell_back(&self) {
        self.0.image_last_known_good();
    }

    fn requested(&self) {
        self.0.image_requested();
    }
}
