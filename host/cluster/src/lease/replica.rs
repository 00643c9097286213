//! Keeps this replica's Lease, which announces the plugins that it serves. Renews it every few
//! seconds, and deletes it at shutdown.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::SERVING_ANNOTATION;
use super::announcement::{Announced, Announcement};
use super::leader::seconds;
use crate::api::{is_not_found, labels, words};
use crate::plugin::Serving;
use crate::{Installation, Timing};

/// Least time between two writes, so that a burst of changes is one write.
const PAUSE: Duration = Duration::from_millis(100);

/// Pause after a write that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Time limit of one write.
const LIMIT: Duration = Duration::from_secs(5);

/// Writes this replica's Lease until `stop`, and then deletes it.
pub(crate) async fn announce(
    api: Api<Lease>,
    installation: Installation,
    timing: Timing,
    mut serving: watch::Receiver<Serving>,
    canary: Option<String>,
    stop: CancellationToken,
) {
    let name = installation.replica_lease();
    let manager = PatchParams::apply(&format!("tollgate-replica-{}", installation.name)).force();
    let mut failed = false;
    loop {
        let announcement = Announcement {
            canary: canary.clone(),
            ..Announcement::of(&serving.borrow_and_update())
        };
        let lease = lease(&name, &installation, timing, &announcement);
        let patch = Patch::Apply(&lease);
        let write = timeout(LIMIT, api.patch(&name, &manager, &patch));
        let pause = match write.await {
            Ok(Ok(_)) => {
                failed = false;
                timing.announce
            }
            outcome => {
                if !failed {
                    let error = outcome.ok().and_then(Result::err);
                    let error = error.as_ref().map(|error| words(error));
                    tracing::warn!(
                        lease = name,
                        error,
                        "cannot announce what this replica serves; retrying"
                    );
                }
                failed = true;
                RETRY
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep(pause) => {}
            Ok(()) = serving.changed() => sleep(PAUSE).await,
        }
    }
    match timeout(LIMIT, api.delete(&name, &DeleteParams::default())).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if is_not_found(&error) => {}
        _ => tracing::warn!(
            lease = name,
            "cannot delete this replica's Lease; the leader deletes it when it expires"
        ),
    }
}

fn lease(
    name: &str,
    installation: &Installation,
    timing: Timing,
    announcement: &Announcement,
) -> serde_json::Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": installation.namespace,
            "labels": labels(installation),
            "annotations": { SERVING_ANNOTATION: announcement.encode() },
        },
        "spec": {
            "holderIdentity": installation.replica,
            "leaseDurationSeconds": seconds(timing.replica_gone),
            "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        },
    })
}

// === impl Announcement ===

impl Announcement {
    fn of(serving: &Serving) -> Self {
        let plugins: BTreeMap<String, Announced> = serving
            .plugins
            .iter()
            .map(|plugin| {
                let announced = Announced {
                    digest: Some(plugin.digest.clone()).filter(|digest| !digest.is_empty()),
                    rules: plugin.rules_digest(),
                };
                (plugin.name.clone(), announced)
            })
            .collect();
        Self {
            ready: serving.ready,
            plugins,
            canary: None,
        }
    }
}
