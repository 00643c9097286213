//! Follows all Leases of the installation.

use std::sync::Arc;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, ResourceExt as _};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::announcement::Announcement;
use super::replicas::Replicas;
use super::{INSTALLATION_LABEL, SERVING_ANNOTATION};
use crate::Installation;
use crate::api::words;

/// Follows the Leases, for as long as the process lives. Wakes `freed` when nobody holds the leader's Lease.
pub(crate) async fn watch(
    api: Api<Lease>,
    installation: Installation,
    replicas: watch::Sender<Replicas>,
    freed: Arc<Notify>,
) {
    let leader = installation.leader_lease();
    let labels = format!("{INSTALLATION_LABEL}={}", installation.name);
    let config = Config::default().labels(&labels);
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut listed = Vec::new();
    let mut failed = false;
    while let Some(event) = events.next().await {
        let now = Instant::now();
        let event = match event {
            Ok(event) => {
                failed = false;
                event
            }
            Err(error) => {
                if !failed {
                    let error = words(&error);
                    tracing::warn!(error, "cannot watch the Leases of the replicas; retrying");
                }
                failed = true;
                continue;
            }
        };
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(lease) => {
                listed.push(lease.name_any());
                see(&lease, &leader, &replicas, &freed, now);
            }
            Event::InitDone => {
                replicas.send_modify(|replicas| replicas.complete(&listed));
            }
            Event::Apply(lease) => see(&lease, &leader, &replicas, &freed, now),
            Event::Delete(lease) => {
                let name = lease.name_any();
                if name == leader {
                    freed.notify_one();
                } else {
                    replicas.send_modify(|replicas| replicas.forget(&name));
                }
            }
        }
    }
}

fn see(
    lease: &Lease,
    leader: &str,
    replicas: &watch::Sender<Replicas>,
    freed: &Notify,
    now: Instant,
) {
    let name = lease.name_any();
    if name == leader {
        let spec = lease.spec.as_ref();
        if spec
            .and_then(|spec| spec.holder_identity.as_deref())
            .unwrap_or_default()
            .is_empty()
        {
            freed.notify_one();
        }
        return;
    }
    // A Lease without an announcement is not of a replica.
    let announcement = lease.annotations().get(SERVING_ANNOTATION);
    let Some(announcement) = announcement.and_then(|text| Announcement::decode(text)) else {
        return;
    };
    let version = lease.resource_version().unwrap_or_default();
    replicas.send_modify(|replicas| replicas.see(name, version, announcement, now));
}
