//! What happens to the webhook configurations when the Namespace or the anchor is gone.

use tokio::time::Instant;
use tollgate_admission::Endpoint;

use super::owner::is_owned_by;
use super::problem::Problem;
use super::standing::{Outlook, standings};
use super::task::{ENDPOINTS, REMOVAL_LIMIT, Registrar, Report};
use crate::api::words;
use crate::lease::Leadership;

// === impl Registrar ===

impl Registrar {
    /// Removes the configurations, because the installation goes. With a missing anchor, only those that it owns.
    ///
    /// An anchor that somebody deleted by mistake takes the configurations with it, because the garbage collector deletes
    /// what it owned. Other configurations stay: the name of the anchor may be misspelt.
    pub(super) async fn remove_all(&mut self, anchor: Option<&str>) {
        for (index, endpoint) in ENDPOINTS.into_iter().enumerate() {
            let live = self
                .inputs
                .live
                .borrow()
                .object(endpoint)
                .flatten()
                .cloned();
            let Some(live) = live else {
                continue;
            };
            if self.refuse_foreign(&live).is_err() {
                continue;
            }
            if anchor.is_some_and(|anchor| !is_owned_by(&live, anchor)) {
                continue;
            }
            self.applied[index] = None;
            match self.remove(endpoint, Instant::now() + REMOVAL_LIMIT).await {
                Ok(()) => log_removal(endpoint, anchor),
                Err(problem) => {
                    let error = words(&problem);
                    tracing::debug!(
                        endpoint = endpoint.name(),
                        error,
                        "left the webhook configuration to the garbage collector"
                    );
                }
            }
        }
    }

    /// Reports as the leader that nothing is registered without the anchor: in the log, by an Event, and for the
    /// conditions and the metrics.
    pub(super) async fn report_missing(&mut self, anchor: String, leadership: Leadership) {
        let Some(until) = leadership.until(Instant::now()) else {
            self.publish(Report::default());
            return;
        };
        let problem = Problem::AnchorMissing { anchor };
        let (reason, text) = (problem.reason(), words(&problem));
        let is_news = self.report.borrow().problem.as_ref() != Some(&text);
        let desired = self.inputs.desired.borrow_and_update().clone();
        let desired = desired.unwrap_or_default();
        let outlooks = ENDPOINTS.map(|endpoint| {
            let outlook = Outlook {
                problem: Some((reason, text.clone())),
                ..Outlook::default()
            };
            (endpoint, outlook)
        });
        let examined = self.examine(&desired, [false; 2]);
        self.publish(Report {
            leads: true,
            problem: Some(text.clone()),
            plugins: standings(&desired, &outlooks),
            entries: examined.entries,
            shortfalls: examined.shortfalls,
            unexamined: examined.undecided,
            ..Report::default()
        });
        if is_news {
            tracing::error!(problem = text, "the webhooks are not registered as desired");
            self.events.warn(reason, "Register", &text, until).await;
        }
    }
}

fn log_removal(endpoint: Endpoint, anchor: Option<&str>) {
    let endpoint = endpoint.name();
    match anchor {
        None => tracing::info!(
            endpoint,
            "removed the webhook configuration: the installation is being removed"
        ),
        // Nobody meant to switch the plugins off, if this is no uninstallation.
        Some(anchor) => tracing::warn!(
            endpoint,
            anchor,
            "removed the webhook configuration, because somebody deleted the ClusterRole that owns it; no plugin is enforced until it exists again"
        ),
    }
}
