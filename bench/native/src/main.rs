//! Serves the checks of a configuration's plugins in native Rust: `tollgate serve` without WebAssembly.

/// The same copies of memory as in the host, so that the benchmark does not compare those of a libc.
#[cfg(all(target_arch = "x86_64", target_env = "musl"))]
#[path = "../../../host/cli/src/copy.rs"]
mod copy;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Parser};
use mimalloc::MiMalloc;
use tollgate_admission::Instance;
use tollgate_config::Config;
use tollgate_native::Control;
use tollgate_server::{Listen, Server, Signals};
use tollgate_telemetry::logs::LogFormat;
use tollgate_telemetry::metrics::Metrics;

/// The same allocator as in the host, so that the benchmark does not compare allocators.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The native control of the benchmark.
#[derive(Debug, Parser)]
#[command(name = "native-control", about)]
enum Cli {
    Serve(Serve),
}

/// Serve admission reviews over HTTPS, with the checks compiled in.
#[derive(Args, Debug)]
struct Serve {
    /// Configuration file, as for `tollgate serve`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check nothing: read the review and allow it.
    #[arg(long)]
    empty: bool,
}

fn main() -> ExitCode {
    let Cli::Serve(serve) = Cli::parse();
    match serve.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("native-control: {error:#}");
            ExitCode::FAILURE
        }
    }
}

// === impl Serve ===

impl Serve {
    fn run(self) -> anyhow::Result<()> {
        let config = Config::load(&self.config)?;
        tollgate_telemetry::logs::install(LogFormat::Json, None)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the worker threads")?;
        runtime.block_on(self.serve(config))
    }

    async fn serve(self, config: Config) -> anyhow::Result<()> {
        let mut signals = Signals::listen().context("cannot set up signal handlers")?;
        let plugins: &[_] = if self.empty { &[] } else { &config.plugins };
        let control = Control::new(plugins, config.requests.max_depth)?;
        let listen = Listen {
            address: config.listen,
            admin: config.admin,
            probes_address: config.probes_listen,
            tls: config.tls,
            authentication: config.authentication,
            token_reviewer: None,
            instance: Instance::new(),
            traces: false,
            registered_authorities: None,
        };
        let server = Server::bind(&listen, config.requests, Arc::new(control), Metrics::new());
        let server = server.await?;
        server.listening().announce();
        server.run(async move { signals.next().await }).await;
        Ok(())
    }
}
