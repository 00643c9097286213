//! `tollgate serve`

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::SignalKind;
use tokio_util::task::AbortOnDropHandle;

use super::host::Host;
use super::{FAILURE, Logging, Origin};
use crate::config::{self, Config};
use crate::live::{Keeper, Live};
use crate::memory;
use crate::pipeline::Pipeline;
use crate::registry::LastGood;
use crate::server::{Listen, Server, Signals};

/// Serve admission reviews over HTTPS.
#[derive(Args, Debug)]
pub(super) struct Serve {
    #[command(flatten)]
    origin: Origin,
    /// Where to serve HTTPS, over what the configuration says.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Where to serve /livez, /readyz, /metrics, /plugins, /candidates and /decisions in the clear, over what the
    /// configuration says.
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin_listen: Option<SocketAddr>,
    #[command(flatten)]
    logging: Logging,
}

// === impl Serve ===

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let origin = self.origin.resolve()?;
        let config = origin.load()?;
        crate::telemetry::install(self.logging.log_format, self.logging.log.as_deref())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("tollgate")
            .on_thread_start(memory::begin)
            .on_thread_park(memory::idle)
            .build()
            .context("the threads cannot be started")?;
        let ended = runtime.block_on(self.serve(origin, config));
        // What still blocks is a client that holds on or a file system that hangs: neither is waited for.
        runtime.shutdown_background();
        ended
    }

    async fn serve(self, origin: config::Origin, config: Config) -> anyhow::Result<ExitCode> {
        let mut signals = Signals::listen().context("no signal handler could be set up")?;
        let hangups = tokio::signal::unix::signal(SignalKind::hangup());
        let hangups = hangups.context("no signal handler could be set up")?;
        let last_good = LastGood::new(&config.registries, origin.path());
        let others = last_good.as_ref().map(LastGood::limits).unwrap_or_default();
        let host = Host::with_room_for(&config, &others)?;
        let metrics = host.metrics.clone();
        let keeper = Keeper::new(origin, config.clone(), host.loader, metrics, hangups);
        let mut keeper = keeper.with_last_good(last_good);
        let live = Arc::new(Live::new(&keeper));
        let max_concurrent_calls = config.engine.max_concurrent_calls as usize;
        let max_depth = config.requests.max_depth;
        let max_decoded_bytes = config.requests.max_decoded_bytes;
        let listen = Listen {
            address: self.listen.unwrap_or(config.listen),
            admin_address: self.admin_listen.unwrap_or(config.admin_listen),
            tls: config.tls,
            authentication: config.authentication,
        };
        let grace_period = config.requests.shutdown_grace_period;
        let metrics = host.metrics.clone();
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
        // A start may take long, and a probe must not take it for a hang.
        listening.announce_start();
        let mut loading = AbortOnDropHandle::new(tokio::spawn(async move {
            let set = keeper.load().await;
            (keeper, set)
        }));
        let loaded = tokio::select! {
            loaded = &mut loading => loaded,
            _ = &mut running => return Ok(ExitCode::SUCCESS),
            _ = signals.next() => return Ok(ExitCode::from(FAILURE)),
        };
        let (keeper, set) = loaded.context("the plugins could not be loaded")?;
        let pipeline = Pipeline::new(
            host.engine.clone(),
            set,
            host.metrics.clone(),
            max_depth,
            max_concurrent_calls,
        );
        let pipeline = pipeline
            .with_room(max_decoded_bytes)
            .with_decisions(config.decisions);
        let pipeline = Arc::new(pipeline);
        let keeper = tokio::spawn(keeper.run(pipeline.clone()));
        live.open(pipeline.clone());
        listening.announce();
        tokio::select! {
            _ = &mut running => return Ok(ExitCode::SUCCESS),
            signal = signals.next() => {
                tracing::info!("stopping");
                keeper.abort();
                let _: Result<(), _> = stop.send(signal);
            }
        }
        let end = tokio::time::Instant::now() + grace_period;
        tokio::select! {
            _ = &mut running => {}
            _ = signals.next() => return Ok(ExitCode::from(FAILURE)),
        }
        if tokio::time::timeout_at(end, pipeline.finish())
            .await
            .is_err()
        {
            tracing::warn!(
                "audits were still under way at the end of requests.shutdownGracePeriod"
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
