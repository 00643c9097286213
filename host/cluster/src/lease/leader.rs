//! Carries out the election against kube-apiserver.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::election::{Action, Election, Look};
use crate::Installation;
use crate::api::{is_conflict, labels, words};

/// Time limit for giving up the Lease at shutdown.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// Whether this replica leads, and until when. Readers must compare the moment with the clock: nobody sends a change
/// when it passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leadership {
    until: Option<Instant>,
}

// === impl Leadership ===

impl Leadership {
    /// A replica that leads until then.
    #[cfg(test)]
    pub(crate) fn of(until: Instant) -> Self {
        Self { until: Some(until) }
    }

    /// Until when this replica leads. None if it does not lead now.
    pub(crate) fn until(self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }
}

/// Takes part in the election until `stop`, and then gives up the Lease.
///
/// `freed` wakes this task when another replica has given up the Lease.
pub(crate) async fn lead(
    api: Api<Lease>,
    installation: Installation,
    mut election: Election,
    freed: Arc<Notify>,
    leadership: watch::Sender<Leadership>,
    stop: CancellationToken,
) {
    let name = installation.leader_lease();
    let mut led = false;
    let mut failed = false;
    loop {
        let limit = election.timing().retry * 2;
        let outcome = timeout(limit, step(&api, &name, &installation, &mut election)).await;
        match outcome {
            Ok(Ok(())) => failed = false,
            Ok(Err(error)) => {
                if !failed {
                    let error = words(&error);
                    tracing::warn!(
                        lease = name,
                        error,
                        "cannot read or renew the leader's Lease; retrying"
                    );
                }
                failed = true;
            }
            Err(_) => {
                if !failed {
                    tracing::warn!(
                        lease = name,
                        "kube-apiserver does not answer; retrying to renew the leader's Lease"
                    );
                }
                failed = true;
            }
        }
        let until = election.leads_until(Instant::now());
        leadership.send_replace(Leadership { until });
        if led != until.is_some() {
            led = until.is_some();
            if led {
                tracing::info!(lease = name, "leading: this replica registers the webhooks");
            } else {
                tracing::info!(lease = name, "no longer leading");
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep(election.timing().retry) => {}
            () = freed.notified(), if until.is_none() => {}
        }
    }
    // From here on, this replica writes nothing as the leader. Then another one may lead.
    leadership.send_replace(Leadership::default());
    if led && let Ok(Err(error)) = timeout(RELEASE_LIMIT, release(&api, &name, &election)).await {
        let error = words(&error);
        tracing::warn!(
            lease = name,
            error,
            "cannot give up the leader's Lease; another replica leads when it expires"
        );
    }
}

/// Looks at the Lease once, and writes it if needed.
async fn step(
    api: &Api<Lease>,
    name: &str,
    installation: &Installation,
    election: &mut Election,
) -> Result<(), kube::Error> {
    let began = Instant::now();
    let lease = api.get_opt(name).await?;
    let look = lease.as_ref().map(look);
    let written = match election.look(look.as_ref(), Instant::now()) {
        Action::Wait => return Ok(()),
        Action::Create => {
            let lease = held(None, name, installation, election);
            api.create(&PostParams::default(), &lease).await
        }
        Action::Take | Action::Renew => {
            let lease = held(lease, name, installation, election);
            api.replace(name, &PostParams::default(), &lease).await
        }
    };
    match written {
        Ok(lease) => {
            // Another look must not take the own write for a change by somebody else.
            election.look(Some(&self::look(&lease)), Instant::now());
            election.wrote(began);
            Ok(())
        }
        Err(error) if is_conflict(&error) => {
            election.lost();
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn look(lease: &Lease) -> Look {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
    Look {
        holder: spec.and_then(|spec| spec.holder_identity.clone()),
        resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
        lease: Duration::from_secs(
            seconds
                .and_then(|seconds| seconds.try_into().ok())
                .unwrap_or(1),
        ),
    }
}

/// The Lease with this replica as its holder.
fn held(
    previous: Option<Lease>,
    name: &str,
    installation: &Installation,
    election: &Election,
) -> Lease {
    let now = MicroTime(Timestamp::now());
    let mut lease = previous.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(installation.namespace.clone()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    lease
        .metadata
        .labels
        .get_or_insert_default()
        .extend(labels(installation));
    let before = lease.spec.take().unwrap_or_default();
    let is_own = before.holder_identity.as_deref() == Some(election.identity());
    let transitions = before.lease_transitions.unwrap_or_default();
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(election.identity().to_owned()),
        lease_duration_seconds: Some(seconds(election.timing().lease)),
        lease_transitions: Some(if is_own {
            transitions
        } else {
            transitions.saturating_add(1)
        }),
        acquire_time: before
            .acquire_time
            .filter(|_| is_own)
            .or_else(|| Some(now.clone())),
        renew_time: Some(now),
        ..LeaseSpec::default()
    });
    lease
}

/// Gives up the Lease, unless another replica holds it by now.
async fn release(api: &Api<Lease>, name: &str, election: &Election) -> Result<(), kube::Error> {
    let Some(mut lease) = api.get_opt(name).await? else {
        return Ok(());
    };
    let Some(spec) = lease.spec.as_mut() else {
        return Ok(());
    };
    if spec.holder_identity.as_deref() != Some(election.identity()) {
        return Ok(());
    }
    spec.holder_identity = None;
    spec.acquire_time = None;
    spec.renew_time = None;
    api.replace(name, &PostParams::default(), &lease).await?;
    tracing::info!(lease = name, "gave up the leader's Lease");
    Ok(())
}

pub(super) fn seconds(duration: Duration) -> i32 {
    duration.as_secs().max(1).try_into().unwrap_or(i32::MAX)
}
