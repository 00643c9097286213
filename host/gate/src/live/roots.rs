//! Refreshes the trusted roots that come from TUF repositories, beside everything else.
//!
//! A new trusted root is a changed file, like a new key: the reconciler sees it at its next poll and loads the plugins
//! again that are verified with it. The serving plugins answer until then.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;
use tollgate_config::TufSource;
use tollgate_oci::{Refreshed, RootReport, TrustedRoots};
use tollgate_telemetry::metrics::Metrics;

/// The refresh that is under way.
#[derive(Default)]
pub(super) struct RootRefresh {
    under_way: Option<AbortOnDropHandle<()>>,
    had_sources: bool,
}

/// How often Tollgate looks whether a refresh is due.
pub(super) const PERIOD: Duration = Duration::from_secs(5);

// === impl RootRefresh ===

impl RootRefresh {
    /// Begins the refreshes that are due, unless earlier ones are still under way.
    pub(super) fn begin(
        &mut self,
        roots: &Arc<TrustedRoots>,
        metrics: &Arc<Metrics>,
        sources: Vec<Arc<TufSource>>,
    ) {
        let is_busy = self
            .under_way
            .as_ref()
            .is_some_and(|task| !task.is_finished());
        let had_sources = std::mem::replace(&mut self.had_sources, !sources.is_empty());
        if is_busy || (sources.is_empty() && !had_sources) {
            return;
        }
        let (roots, metrics) = (roots.clone(), metrics.clone());
        let refresh = async move {
            let reports = roots.refresh_due(&sources).await;
            for report in &reports {
                note(report, &metrics);
            }
            if !reports.is_empty() || sources.is_empty() {
                let (expires, is_degraded) = roots.summary(&sources);
                let expires = expires.map(time::OffsetDateTime::unix_timestamp);
                metrics.trusted_roots(expires, is_degraded);
            }
        };
        self.under_way = Some(AbortOnDropHandle::new(tokio::spawn(refresh)));
    }
}

fn note(report: &RootReport, metrics: &Metrics) {
    let url = report.url.as_str();
    metrics.trusted_root_refreshed(report.refreshed.name());
    match (&report.refreshed, &report.in_use) {
        (Refreshed::Changed, Ok(root)) => {
            tracing::info!(root, "trusted root changed (signatures.tuf)");
        }
        (Refreshed::Unchanged, Ok(root)) => tracing::debug!(root, "trusted root is current"),
        (Refreshed::Failed(_), Ok(root)) => {
            tracing::warn!(
                root,
                "failed to refresh the trusted root; keeping the previous one (signatures.tuf)"
            );
        }
        (_, Err(reason)) => {
            tracing::error!(
                url,
                reason,
                "no trusted root; keyless signatures cannot be verified (signatures.tuf)"
            );
        }
    }
}
