//! The connection from the registration to the writer of the status.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tollgate_telemetry::metrics::Metrics;

use crate::canary::Sightings;
use crate::lease::{Leadership, Replicas};
use crate::registrar::Report;

/// Whether the installation registers its webhooks itself.
#[derive(Clone, Debug, Default)]
pub(crate) enum Management {
    /// Not known yet, because the replica starts.
    #[default]
    Unknown,
    /// No: others register them.
    Others,
    /// Yes: the leader of the installation registers them.
    Own(Lead),
}

/// The state of the registration, as this replica sees it.
#[derive(Clone, Debug)]
pub(crate) struct Lead {
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) replicas: watch::Receiver<Replicas>,
    pub(crate) report: watch::Receiver<Report>,
    /// The results of the leader's canaries.
    pub(crate) sightings: watch::Receiver<Sightings>,
    /// The metrics of the host, which know when a plugin was called last.
    pub(crate) metrics: Arc<Metrics>,
    /// Time without a renewal after which a replica counts as gone.
    pub(crate) gone_after: Duration,
}

// === impl Management ===

impl Management {
    /// Notes that the report has been read. Only a later report counts as a change.
    pub(crate) fn mark_seen(&mut self) {
        if let Self::Own(lead) = self {
            lead.report.mark_unchanged();
            lead.sightings.mark_unchanged();
        }
    }

    /// Waits for another report of the leader. Renewals of Leases are no change: the status follows them by the clock.
    pub(crate) async fn changed(&mut self) {
        if let Self::Own(lead) = self {
            tokio::select! {
                Ok(()) = lead.report.changed() => return,
                Ok(()) = lead.sightings.changed() => return,
                else => {}
            }
        }
        std::future::pending().await
    }
}

// === impl Lead ===

impl Lead {
    /// Whether this replica leads now.
    pub(crate) fn leads(&self, now: Instant) -> bool {
        self.leadership.borrow().until(now).is_some()
    }
}
