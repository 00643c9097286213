//! Starts the tasks of a replica, and the handle on them.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tollgate_admission::Endpoint;
use tollgate_admission::canary::Prover;
use tollgate_telemetry::metrics::Metrics;

use crate::Installation;
use crate::authority::{Certificate, keep};
use crate::canary::{Key, Own, Prober, Sightings};
use crate::lead::Lead;
use crate::lease::{self, Election, Leadership, Members, Replicas};
use crate::options::{Certificates, Options, Timing, Trust};
use crate::plugin::{Desired, Serving};
use crate::registrar::{Inputs, Live, Owner, Registered, Registrar, Report, follow, follow_owner};

/// Time limit for the orderly end of all tasks.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// The tasks of a replica for its installation. Dropping it ends the tasks without a handover.
#[derive(Debug)]
pub struct Handle {
    timing: Timing,
    /// The name of this replica's Lease.
    own: String,
    leadership: watch::Receiver<Leadership>,
    registered: watch::Receiver<Registered>,
    live: watch::Receiver<Live>,
    certificate: watch::Receiver<Option<Arc<Certificate>>>,
    report: watch::Receiver<Report>,
    replicas: watch::Receiver<Replicas>,
    sightings: watch::Receiver<Sightings>,
    prover: Option<Arc<dyn Prover>>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    /// The registrar, which must have ended before another replica leads.
    registrar: JoinSet<()>,
    /// Tasks that end in order when `stop` is cancelled.
    orderly: JoinSet<()>,
    /// Tasks that are aborted.
    others: JoinSet<()>,
}

/// Starts the tasks of a replica for its installation.
///
/// `desired` has the plugins that the installation shall serve; it is `None` until they are known. `serving` has what
/// this replica serves now. The documentation of the crate says how they are wired, and which rights the client needs.
///
/// It must be called within a tokio runtime. No request is awaited, so kube-apiserver may be away.
#[must_use]
pub fn spawn(
    client: Client,
    installation: Installation,
    options: Options,
    desired: watch::Receiver<Option<Desired>>,
    serving: watch::Receiver<Serving>,
) -> Handle {
    let timing = options.timing;
    let own = installation.replica_lease();
    let stop = CancellationToken::new();
    let (mut orderly, mut others) = (JoinSet::new(), JoinSet::new());
    let mut writer = JoinSet::new();
    let leases: Api<Lease> = Api::namespaced(client.clone(), &installation.namespace);

    let key = Key::generate().map(Arc::new);
    if key.is_none() {
        tracing::error!("the system has no random numbers; the condition Effective stays Unknown");
    }

    // Leases.
    let (leadership_sender, leadership) = watch::channel(Leadership::default());
    let (replicas_sender, replicas) = watch::channel(Replicas::default());
    let freed = Arc::new(Notify::new());
    let identity = format!("{}_{:08x}", installation.replica, random());
    orderly.spawn(lease::lead(
        leases.clone(),
        installation.clone(),
        Election::new(identity, timing.election),
        Arc::clone(&freed),
        leadership_sender,
        stop.clone(),
    ));
    orderly.spawn(lease::announce(
        leases.clone(),
        installation.clone(),
        timing,
        serving,
        key.as_ref().map(|key| key.public()),
        stop.clone(),
    ));
    others.spawn(lease::watch(
        leases,
        installation.clone(),
        replicas_sender,
        freed,
    ));

    // The certificate.
    let (certificate_sender, certificate) = watch::channel(None);
    let trust = match &options.certificates {
        Certificates::Own { names } => {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &installation.namespace);
            others.spawn(keep(
                secrets,
                installation.clone(),
                names.clone(),
                timing,
                options.clock.clone(),
                certificate_sender,
            ));
            let (sender, trust) = watch::channel(Trust::Pending);
            others.spawn(trust_in(certificate.clone(), sender));
            trust
        }
        Certificates::Given(trust) => trust.clone(),
    };

    // The webhook configurations.
    let (live, live_receiver) = watch::channel(Live::default());
    for endpoint in [Endpoint::Mutate, Endpoint::Validate] {
        let name = installation.webhook_configuration();
        others.spawn(follow(client.clone(), endpoint, name, live.clone()));
    }
    let (registered_sender, registered) = watch::channel(Registered::default());
    others.spawn(registered_in(live_receiver.clone(), registered_sender));
    let (owner_sender, owner) = watch::channel(Owner::default());
    let (namespace, anchor) = (installation.namespace.clone(), options.anchor.clone());
    others.spawn(follow_owner(
        client.clone(),
        namespace,
        anchor,
        owner_sender,
    ));
    let (report_sender, report) = watch::channel(Report::default());
    let inputs = Inputs {
        desired,
        replicas: replicas.clone(),
        leadership: leadership.clone(),
        live,
        trust,
        owner,
    };

    // Canaries.
    let (sightings_sender, sightings) = watch::channel(Sightings::default());
    let metrics = options.metrics.clone();
    let prover = key.clone().map(|key| {
        let prover: Arc<dyn Prover> = Arc::new(Own::new(key, &installation, replicas.clone()));
        prover
    });
    if let Some(key) = key {
        let prober = Prober {
            client: client.clone(),
            installation: installation.clone(),
            key,
            report: report.clone(),
            replicas: replicas.clone(),
            leadership: leadership.clone(),
            sightings: sightings_sender,
            metrics: metrics.clone(),
            interval: timing.canary,
            gone_after: timing.replica_gone,
        };
        others.spawn(prober.run());
    }
    let registrar = Registrar::new(client, installation, options, inputs, report_sender);
    writer.spawn(registrar.run());

    Handle {
        timing,
        own,
        leadership,
        registered,
        live: live_receiver,
        certificate,
        report,
        replicas,
        sightings,
        prover,
        metrics,
        stop,
        registrar: writer,
        orderly,
        others,
    }
}

/// Sends the bundle of each certificate.
async fn trust_in(
    mut certificate: watch::Receiver<Option<Arc<Certificate>>>,
    trust: watch::Sender<Trust>,
) {
    loop {
        let bundle = certificate
            .borrow_and_update()
            .as_ref()
            .map(|certificate| certificate.bundle.clone());
        if let Some(bundle) = bundle {
            trust.send_replace(Trust::Bundle(bundle.into_bytes()));
        }
        if certificate.changed().await.is_err() {
            return;
        }
    }
}

/// Sends which plugins are registered, when that changes.
async fn registered_in(mut live: watch::Receiver<Live>, registered: watch::Sender<Registered>) {
    loop {
        let now = live.borrow_and_update().registered();
        registered.send_if_modified(|before| {
            let is_news = *before != now;
            *before = now;
            is_news
        });
        if live.changed().await.is_err() {
            return;
        }
    }
}

/// A number that differs from process to process. Two processes of one pod must not take each other's Lease.
fn random() -> u32 {
    let bytes = RandomState::new().build_hasher().finish().to_be_bytes();
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

// === impl Handle ===

impl Handle {
    /// Whether this replica leads now.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leadership.borrow().until(Instant::now()).is_some()
    }

    /// The plugins that have rules in the live webhook configurations. A replica that does not serve all of them should
    /// not become ready.
    #[must_use]
    pub fn registered(&self) -> watch::Receiver<Registered> {
        self.registered.clone()
    }

    /// Returns a function that says which CAs the live webhook configurations have, in PEM: one bundle for each webhook
    /// that has one. None while that is not known. The function does not borrow the handle.
    pub fn bundles(
        &self,
    ) -> impl Fn() -> Option<BTreeSet<Vec<u8>>> + Send + Sync + 'static + use<> {
        let live = self.live.clone();
        move || live.borrow().bundles()
    }

    /// The certificate for the server. It is `None` until the Secret has been read, and always with
    /// [`Certificates::Given`].
    #[must_use]
    pub fn certificate(&self) -> watch::Receiver<Option<Arc<Certificate>>> {
        self.certificate.clone()
    }

    /// The state of the registrar, for status and metrics.
    #[must_use]
    pub fn report(&self) -> watch::Receiver<Report> {
        self.report.clone()
    }

    /// Proves to the leader, through kube-apiserver, that this replica answers reviews. None if the system has no random
    /// numbers.
    #[must_use]
    pub fn prover(&self) -> Option<Arc<dyn Prover>> {
        self.prover.clone()
    }

    /// The replicas that share work.
    #[must_use]
    pub fn members(&self) -> Members {
        Members::new(
            self.replicas.clone(),
            self.own.clone(),
            self.timing.replica_gone,
        )
    }

    /// Returns the facts that the writer of the status needs.
    pub(crate) fn lead(&self) -> Lead {
        Lead {
            leadership: self.leadership.clone(),
            replicas: self.replicas.clone(),
            report: self.report.clone(),
            sightings: self.sightings.clone(),
            metrics: self.metrics.clone(),
            gone_after: self.timing.replica_gone,
        }
    }

    /// Withdraws the announcement of this replica, hands over the lead, and ends all tasks. Takes five seconds at most.
    pub async fn shutdown(mut self) {
        self.registrar.shutdown().await;
        self.stop.cancel();
        let orderly = async { while self.orderly.join_next().await.is_some() {} };
        if timeout(SHUTDOWN_LIMIT, orderly).await.is_err() {
            tracing::warn!(
                "the handover took too long; another replica leads when the Lease expires"
            );
        }
        self.others.shutdown().await;
    }
}
