//! `tollgate dev`

mod existing;
mod playground;
mod round;
mod show;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tollgate::setup::Options;
use tollgate_admission::Instance;
use tollgate_config::{Admin, Authentication, Config, SelfSigned, Tls};
use tollgate_server::{Listen, Listening, Server, Signals};
use tollgate_telemetry::logs::LogFormat;
use tollgate_telemetry::metrics::Metrics;

use self::existing::{Existing, FromCluster};
use self::playground::Playground;
use self::round::Workshop;
use super::terminal::{FAINT, GOOD, STRONG, plain, say};
use crate::test::watch;

/// Watch a policy project: build it, serve it on this machine and run its suites, again at every change.
///
/// Each review that arrives is shown with its verdict, its changes and its cost. If a build fails, the last good version
/// keeps answering.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Dev {
    /// Project folder.
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Configuration file [default: tollgate.yaml in the project]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// HTTPS listen address. Port 0 takes a free port. The addresses in the configuration do not count.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = LISTEN)]
    listen: SocketAddr,
    /// Files or folders with objects to review again after every build. May be given several times.
    #[arg(long = "review", value_name = "FILE|FOLDER")]
    reviewed: Vec<PathBuf>,
    /// Resource whose objects in the cluster of kubectl are reviewed again after every build, such as pods or
    /// deployments.apps. Read once, at the start. Nothing is written to the cluster. May be given several times.
    #[arg(long, value_name = "RESOURCE")]
    from_cluster: Vec<String>,
    /// Context of the kubeconfig file. [default: the current one]
    #[arg(long, value_name = "NAME", requires = "from_cluster")]
    context: Option<String>,
    /// File with the Namespaces of the cluster, for plugins and selectors that need their labels.
    #[arg(long, value_name = "FILE", conflicts_with = "from_cluster")]
    namespaces: Option<PathBuf>,
    /// File or folder with objects of the cluster, for plugins with lookups. For the plugins, no other objects exist.
    #[arg(long, value_name = "FILE|FOLDER")]
    objects: Option<PathBuf>,
    /// File with what users may do, under the key `access` as in a suite, for plugins that ask for rights.
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,
    /// File with images and who has signed them, under the key `images` as in a suite, for plugins that verify images.
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// Do not run the test suites.
    #[arg(long)]
    no_test: bool,
    /// Show every plugin for every review, including plugins that were not called, with the reason.
    #[arg(short, long)]
    verbose: bool,
    /// Log to standard error, with a level or target=level pairs such as warn,plugin=debug. [default: warn,plugin=trace]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

/// Only this machine can connect.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8443);
/// The admin and probes listeners take any free port.
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const CONFIGURATION: &str = "tollgate.yaml";
/// The author of a plugin wants to read all of its log.
const LOG: &str = "warn,plugin=trace";

const EXAMPLES: &str = "\
Examples:
  tollgate dev                                the project in this folder, on https://127.0.0.1:8443
  tollgate dev --review deploy/               with the changes to some manifests after every build
  tollgate dev --from-cluster pods --from-cluster deployments.apps
                                              with what of a cluster would be denied or changed
  tollgate review --config tollgate.yaml deploy.yaml -o request
                                              the AdmissionReview of a manifest, to send to the server

Exit code: 0 after Ctrl-C, 2 when the server could not start.";

// === impl Dev ===

impl Dev {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        tollgate_telemetry::logs::install(
            LogFormat::Text,
            Some(self.log.as_deref().unwrap_or(LOG)),
        )?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let runtime = Arc::new(runtime);
        // Holds the certificate and the compiled code. Deleted at the end.
        let scratch = tempfile::Builder::new().prefix("tollgate-dev-").tempdir();
        let scratch =
            scratch.context("cannot create a temporary folder: check that TMPDIR is writable")?;
        let (playground, seen) = Playground::new();
        let playground = Arc::new(playground);
        let listening = runtime.block_on(self.serve(playground.clone(), &scratch))?;
        let is_verbose = self.verbose;
        std::thread::spawn(move || {
            for seen in seen {
                show::seen(&seen, is_verbose);
            }
        });
        let workshop = self.workshop(&runtime, playground, &listening, scratch.path())?;
        workshop.greet();
        let runtime_of_rounds = runtime.clone();
        std::thread::spawn(move || {
            let mut workshop = workshop;
            watch::forever(|watched| workshop.round(&runtime_of_rounds, watched));
        });
        runtime.block_on(async {
            let mut signals = Signals::listen().context("cannot set up the signal handlers")?;
            signals.next().await;
            anyhow::Ok(())
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// Starts the server. It answers 503 until the first build is done.
    async fn serve(
        &self,
        playground: Arc<Playground>,
        scratch: &TempDir,
    ) -> anyhow::Result<Listening> {
        let listen = Listen {
            address: self.listen,
            admin: Admin {
                listen: ANY_PORT,
                authentication: None,
                hosts: Vec::new(),
            },
            probes_address: ANY_PORT,
            tls: Tls::SelfSigned(SelfSigned {
                directory: scratch.path().join("tls"),
                names: names(self.listen),
                service: None,
            }),
            authentication: Authentication::default(),
            token_reviewer: None,
            instance: Instance::new(),
            traces: false,
            registered_authorities: None,
        };
        let defaults = Config::parse("allowEmpty: true", Path::new("."))?;
        let server = Server::bind(&listen, defaults.requests, playground, Metrics::new());
        let server = server.await.with_context(|| {
            format!(
                "cannot serve on {}; choose another address with --listen, such as 127.0.0.1:0",
                self.listen
            )
        })?;
        let listening = server.listening();
        tokio::spawn(server.run(std::future::pending()));
        Ok(listening)
    }

    fn workshop(
        &self,
        runtime: &Runtime,
        playground: Arc<Playground>,
        listening: &Listening,
        scratch: &Path,
    ) -> anyhow::Result<Workshop> {
        let namespaces = self.namespaces.as_deref();
        let namespaces = namespaces.map(super::namespaces::read).transpose()?;
        let tables = self.objects.as_deref();
        let tables = tables.map(super::objects::read).transpose()?;
        let access = self.access.as_deref();
        let authorizer = access.map(super::access::read).transpose()?;
        let images = super::images::of_file(self.images.as_deref())?;
        let mut options = Options {
            namespaces,
            tables,
            authorizer,
            images: Some(images),
            ..Options::default()
        };
        let mut from_cluster = None;
        if !self.from_cluster.is_empty() {
            say!(
                "{FAINT}reading {} from the cluster{FAINT:#}",
                plain(&self.from_cluster.join(", "))
            );
            let read = FromCluster::read(&self.from_cluster, self.context.as_deref());
            let read = runtime.block_on(read)?;
            options.namespaces = Some(read.namespaces.clone());
            from_cluster = Some(read);
        }
        let config = self.config.clone();
        Ok(Workshop {
            config: config.unwrap_or_else(|| in_folder(&self.folder, CONFIGURATION)),
            folder: self.folder.clone(),
            runs_tests: !self.no_test,
            code: scratch.join("code"),
            address: listening.address,
            ca_bundle: listening.ca_bundle.clone(),
            existing: Existing::new(self.reviewed.clone(), from_cluster),
            options,
            playground,
            served: None,
        })
    }
}

/// Returns the path of a file in a folder, without a leading `./`.
fn in_folder(folder: &Path, name: &str) -> PathBuf {
    match folder == Path::new(".") {
        true => PathBuf::from(name),
        false => folder.join(name),
    }
}

/// Returns the names in the certificate, beside those of this machine itself.
fn names(listen: SocketAddr) -> Vec<String> {
    let ip = listen.ip();
    match ip.is_loopback() || ip.is_unspecified() {
        true => Vec::new(),
        false => vec![ip.to_string()],
    }
}

/// Says where the server listens, and how to send it a review.
fn tell_address(workshop: &Workshop, endpoint: &str) {
    let address = workshop.address;
    let ca_bundle = workshop.ca_bundle.as_deref().unwrap_or(Path::new(""));
    let config = workshop.config.display();
    say!("{STRONG}send it a review{STRONG:#}");
    say!("  tollgate review --config {config} FILE -o request |");
    say!(
        "    curl --cacert {} -H 'Content-Type: application/json' --data-binary @- https://{address}/{endpoint}",
        ca_bundle.display()
    );
    say!("{FAINT}or review a file without the server{FAINT:#}");
    say!("  tollgate review --config {config} FILE\n");
}

/// Says that the server listens.
fn tell_listening(address: SocketAddr) {
    say!(
        "{GOOD}serving{GOOD:#} https://{} {FAINT}(503 until the first build is loaded){FAINT:#}",
        address
    );
}
