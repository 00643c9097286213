//! `tollgate serve`

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::SignalKind;
use tokio_util::task::AbortOnDropHandle;
use tollgate::setup::{Options, Setup};
use tollgate_admission::Instance;
use tollgate_admission::tokens::TokenReviewer;
use tollgate_cluster::ClusterTokens;
use tollgate_config::Config;
use tollgate_gate::export::Exports;
use tollgate_gate::live::{Begin, Live, Reclaim, Reconciler};
use tollgate_gate::pipeline::Pipeline;
use tollgate_gate::plugin::PluginSet;
use tollgate_gate::recording::Recording;
use tollgate_oci::LastGood;
use tollgate_otlp::message::Resource;
use tollgate_scan::background::{Background, Board, Parts};
use tollgate_server::{Listen, Server, Signals};

use super::last_known_good::LastKnownGood;
use super::{FAILURE, Logging, Origin};
use crate::custom_resources::CustomResources;
use crate::memory;
use crate::registering::Registering;
use tollgate_config as config;

/// Serve admission reviews over HTTPS.
#[derive(Args, Debug)]
pub(super) struct Serve {
    #[command(flatten)]
    origin: Origin,
    /// HTTPS listen address (overrides `listen`).
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Listen address of /page/, /plugins, /exceptions, /shadows, /rollouts, /decisions, /costs, /scan, /replica and
    /// /reload (overrides `admin.listen`).
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    admin_listen: Option<SocketAddr>,
    /// Listen address of /livez, /readyz and /metrics (overrides `probes.listen`).
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    probes_listen: Option<SocketAddr>,
    #[command(flatten)]
    last_known_good: LastKnownGood,
    #[command(flatten)]
    logging: Logging,
}

/// Reads a listen address.
fn address(text: &str) -> Result<SocketAddr, String> {
    let read = text.parse();
    read.map_err(|_| "expected an IP address and a port, such as 0.0.0.0:8443".to_owned())
}

/// Returns who verifies tokens of the cluster, if the admin listener accepts them.
fn reviewer(
    resources: Option<&CustomResources>,
    admin: &config::Admin,
) -> Option<Arc<dyn TokenReviewer>> {
    let settings = admin.authentication.as_ref()?.token_review.as_ref()?;
    let client = resources?.client();
    Some(Arc::new(ClusterTokens::new(
        client,
        settings.audiences.clone(),
    )))
}

/// The parts of the configuration that the background scan needs.
struct Scanning {
    scan: config::Scan,
    config: Config,
    board: Arc<Board>,
}

/// Describes this process to collectors.
fn resource(cluster: &config::Cluster) -> Resource {
    let replica = cluster.replica.clone();
    let replica = replica.or_else(|| std::env::var("POD_NAME").ok());
    let replica = replica.or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
        host.ok().map(|name| name.trim().to_owned())
    });
    Resource::new(&[
        ("service.name", "tollgate"),
        ("service.namespace", &*cluster.installation),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", &*replica.unwrap_or_default()),
    ])
}

/// The longest time for the exporters to send their queues at the end. The queued items do not justify a longer
/// stop.
const EXPORT_PATIENCE: Duration = Duration::from_secs(2);
/// The recorder writes for at least this long at the end, even if requests used up the grace period.
const RECORDING_PATIENCE: Duration = Duration::from_secs(1);

// === impl Scanning ===

impl Scanning {
    fn new(config: &Config) -> Option<Self> {
        let scan = config.scan.clone()?;
        Some(Self {
            board: Arc::new(Board::new(&scan)),
            scan,
            config: config.clone(),
        })
    }
}

// === impl Serve ===

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let origin = self.origin.resolve()?;
        tollgate_telemetry::logs::install(self.logging.log_format, self.logging.log.as_deref())?;
        let (config, is_last_known_good) = match origin.load() {
            Ok(config) => (config, false),
            Err(error) => match self.last_known_good.find(&origin) {
                Some(config) => (config, true),
                None => return Err(error.into()),
            },
        };
        let reclaim = Arc::new(Reclaim::new(memory::idle));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("tollgate")
            .on_thread_start({
                let reclaim = Arc::clone(&reclaim);
                move || memory::begin(&reclaim)
            })
            .on_thread_park({
                let reclaim = Arc::clone(&reclaim);
                move || memory::idle(&reclaim)
            })
            .build()
            .context("cannot start the runtime")?;
        let ended = runtime.block_on(self.serve(origin, config, is_last_known_good, reclaim));
        // Only a client that keeps its connection open or a hanging file system can still block here. Tollgate waits
        // for neither.
        runtime.shutdown_background();
        ended
    }

    async fn serve(
        self,
        origin: config::Origin,
        config: Config,
        is_last_known_good: bool,
        reclaim: Arc<Reclaim>,
    ) -> anyhow::Result<ExitCode> {
        let mut signals = Signals::listen().context("cannot set up the signal handlers")?;
        let hangups = tokio::signal::unix::signal(SignalKind::hangup());
        let hangups = hangups.context("cannot set up the signal handlers")?;
        let last_good = LastGood::new(&config.registries, origin.path());
        let resources = CustomResources::start(&config, &origin, last_good.as_ref()).await?;
        // The last known good contains what the resources desired.
        let config = match &resources {
            Some(resources) if !is_last_known_good => resources.add(config),
            _ => config,
        };
        let others = last_good.as_ref().map(LastGood::limits).unwrap_or_default();
        let options = Options {
            others: &others,
            reuses_answers: true,
            namespaces: resources.as_ref().map(CustomResources::namespaces),
            tables: resources.as_ref().map(CustomResources::tables),
            authorizer: resources.as_ref().map(CustomResources::authorizer),
            pull_secrets: resources.as_ref().map(CustomResources::pull_secrets),
            ..Options::default()
        };
        let setup = Setup::new(&config, &options)?;
        let metrics = setup.metrics.clone();
        if let Some(resources) = &resources {
            resources.count_in(&metrics);
        }
        let mut registering = Registering::start(resources.as_ref(), &config, &metrics);
        let scanning = Scanning::new(&config);
        let begin = Begin {
            origin,
            config: config.clone(),
            is_last_known_good,
            last_good,
            reclaim,
            additions: resources.as_ref().map(CustomResources::additions),
        };
        let reconciler = Reconciler::new(begin, setup.loader, metrics, hangups);
        let instance = Instance::new();
        let mut live = Live::new(&reconciler, config.startup, instance);
        if let Some(scanning) = &scanning {
            live = live.with_scan(scanning.board.clone());
        }
        let live = Arc::new(match &resources {
            Some(resources) => {
                let waiting = resources.waiting();
                let lacking = registering.as_ref().map(|one| one.waiting(resources));
                live.waiting_for(move || waiting().or_else(|| lacking.as_ref()?()))
                    .with_replicas(resources.replicas())
            }
            None => live,
        });
        if let (Some(registering), Some(resources)) = (&mut registering, &resources) {
            registering.relay(resources, live.clone());
        }
        let max_concurrent_calls = config.engine.max_concurrent_calls as usize;
        let max_depth = config.requests.max_depth;
        let max_decoded_bytes = config.requests.max_decoded_bytes;
        let token_reviewer = reviewer(resources.as_ref(), &config.admin);
        let listen = Listen {
            address: self.listen.unwrap_or(config.listen),
            admin: config::Admin {
                listen: self.admin_listen.unwrap_or(config.admin.listen),
                ..config.admin
            },
            probes_address: self.probes_listen.unwrap_or(config.probes_listen),
            tls: match &mut registering {
                Some(registering) => registering.tls(config.tls).await?,
                None => config.tls,
            },
            token_reviewer,
            traces: config.telemetry.traces.is_some(),
            registered_authorities: registering.as_ref().map(Registering::authorities),
            authentication: config.authentication,
            instance,
        };
        let grace_period = config.requests.shutdown_grace_period;
        let recording = match config.record {
            Some(record) => Some(Arc::new(Recording::start(record, setup.metrics.clone())?)),
            None => None,
        };
        let resource = resource(&config.cluster);
        let exports = Exports::start(&config.telemetry, &resource, &setup.metrics)?.map(Arc::new);
        let metrics = setup.metrics.clone();
        let server = Server::bind(&listen, config.requests, live.clone(), metrics).await?;
        let listening = server.listening();
        let (stop, stopping) = tokio::sync::oneshot::channel();
        let running = server.run(async move {
            match stopping.await {
                Ok(stop) => stop,
                Err(_) => std::future::pending().await,
            }
        });
        tokio::pin!(running);
        // A start can take long. Probes must be answered meanwhile, so that nobody takes the start for a hang.
        listening.announce_start();
        let pipeline = Pipeline::new(
            setup.engine.clone(),
            PluginSet::default(),
            setup.metrics.clone(),
            max_depth,
            max_concurrent_calls,
        );
        let pipeline = pipeline
            .with_room(max_decoded_bytes)
            .with_decisions(config.decisions)
            .with_recording(recording.clone())
            .with_prover(registering.as_ref().and_then(Registering::prover))
            .with_exports(exports.clone());
        let pipeline = Arc::new(pipeline);
        let (opened, opening) = tokio::sync::oneshot::channel();
        let reconciling = reconciler.run(pipeline.clone(), opened);
        let reconciling = AbortOnDropHandle::new(tokio::spawn(reconciling));
        tokio::select! {
            opened = opening => opened.context("loading the plugins ended unexpectedly")?,
            _ = &mut running => return Ok(ExitCode::SUCCESS),
            _ = signals.next() => return Ok(ExitCode::from(FAILURE)),
        }
        live.open(pipeline.clone());
        let readiness = {
            let (live, pipeline) = (live.clone(), pipeline.clone());
            async move { live.ready(pipeline).await }
        };
        let _readiness = AbortOnDropHandle::new(tokio::spawn(readiness));
        let scanning = match (scanning, &registering, &resources) {
            (Some(scanning), Some(registering), Some(resources)) => {
                let parts = Parts {
                    scan: scanning.scan,
                    config: scanning.config,
                    engine: setup.engine.clone(),
                    pipeline: pipeline.clone(),
                    namespaces: resources.namespaces(),
                    members: registering.members(),
                    metrics: setup.metrics.clone(),
                    board: scanning.board,
                };
                let started = Background::start(parts);
                Some(started.context("cannot start the thread of the background scan")?)
            }
            _ => None,
        };
        listening.announce();
        tokio::select! {
            _ = &mut running => return Ok(ExitCode::SUCCESS),
            signal = signals.next() => {
                tracing::info!("stopping");
                reconciling.abort();
                drop(scanning);
                let _: Result<(), _> = stop.send(signal);
            }
        }
        let end = tokio::time::Instant::now() + grace_period;
        let leaving = async {
            if let Some(registering) = registering {
                registering.shutdown().await;
            }
            if let Some(resources) = resources {
                resources.leave().await;
            }
        };
        let leaving = AbortOnDropHandle::new(tokio::spawn(leaving));
        tokio::select! {
            _ = &mut running => {}
            _ = signals.next() => return Ok(ExitCode::from(FAILURE)),
        }
        if tokio::time::timeout_at(end, pipeline.finish())
            .await
            .is_err()
        {
            tracing::warn!(
                "stopping before all audits finished, because requests.shutdownGracePeriod is over"
            );
        }
        if let Some(recording) = recording {
            let patience = end.saturating_duration_since(tokio::time::Instant::now());
            let patience = patience.max(RECORDING_PATIENCE);
            let finished = tokio::task::spawn_blocking(move || recording.finish(patience)).await;
            if !finished.unwrap_or(false) {
                tracing::warn!("stopping before the whole recording is written");
            }
        }
        if let Some(exports) = exports {
            let finished =
                tokio::task::spawn_blocking(move || exports.finish(EXPORT_PATIENCE)).await;
            if !finished.unwrap_or(false) {
                tracing::warn!("stopping before all traces and decisions are exported");
            }
        }
        // The task has a short time limit of its own. It cannot fail.
        drop(leaving.await);
        Ok(ExitCode::SUCCESS)
    }
}
