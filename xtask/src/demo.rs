//! `cargo xtask demo`: the shortest way from a clone to a running Tollgate.
//!
//! The demo builds the sample plugins and the host, and starts the host as an operator would. It sends AdmissionReviews
//! over TLS as kube-apiserver would, and explains the answers. The demo checks everything that it shows, and fails on a
//! wrong answer.

mod answer;
mod client;
mod commands;
mod configuration;
mod costs;
mod server;
mod show;
mod story;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;

use self::client::Client;
use self::configuration::PLUGINS;
use self::server::Server;
use self::story::Stage;
use crate::terminal::{self, FAINT, GOOD, STRONG};
use crate::workspace::{PLUGIN_PROFILE, WASM, Workspace};
use crate::{cargo, toolchain};

/// Build Tollgate and three plugins, serve them, send AdmissionReviews over TLS and explain the answers.
///
/// Writes only to the target folder. The first build takes minutes, later runs take seconds.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Keep serving until Ctrl-C, for trying things out with curl.
    #[arg(long)]
    keep: bool,
}

const STEPS: usize = 5;

// === impl Demo ===

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let began = Instant::now();
        let workspace = Workspace::find()?;
        anstream::println!(
            "{STRONG}Tollgate: a WebAssembly plugin host for Kubernetes admission.{STRONG:#}"
        );
        terminal::paragraph(
            "",
            "This demo needs no cluster. It sends a running Tollgate what kube-apiserver would send it, over TLS, and \
             shows what comes back.",
        );
        heading(1, "tools");
        timed(check_toolchain)?;
        heading(2, "three plugins, from Rust to WebAssembly");
        timed(|| build_plugins(&workspace))?;
        heading(3, "the host");
        timed(|| build_host(&workspace))?;
        heading(4, "a configuration");
        let file = configuration::write(&workspace)?;
        println!("  {}", workspace.shown(&file));
        configuration::show();
        heading(5, "tollgate serve");
        let server = timed(|| start(&workspace, &file))?;

        let mut stage = Stage::new(Client::new(&server)?);
        story::play(&mut stage)?;
        let problems = stage.problems() + commands::show(&workspace, &file, &server)?;

        terminal::heading("done");
        if problems > 0 {
            anyhow::bail!("{problems} properties of the answers are wrong; look for ✗ above");
        }
        anstream::println!(
            "{GOOD}Every answer was right.{GOOD:#} {FAINT}({} in all; the log: {}){FAINT:#}",
            terminal::time(began.elapsed()),
            workspace.shown(server.log())
        );
        what_next();
        if self.keep {
            keep(&workspace, server)?;
        } else {
            server.stop()?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn heading(step: usize, title: &str) {
    terminal::heading(&format!("{step}/{STEPS} {title}"));
}

fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let began = Instant::now();
    let result = work()?;
    anstream::println!("  {FAINT}{}{FAINT:#}", terminal::time(began.elapsed()));
    Ok(result)
}

fn check_toolchain() -> anyhow::Result<()> {
    println!("  {}", toolchain::rustc_version()?);
    toolchain::ensure_wasm_target()?;
    println!("  the target {WASM}");
    Ok(())
}

fn build_plugins(workspace: &Workspace) -> anyhow::Result<()> {
    let mut command = workspace.cargo();
    command.args(["build", "--profile", PLUGIN_PROFILE, "--target", WASM]);
    for package in PLUGINS {
        command.args(["--package", package]);
    }
    println!("  $ {}", cargo::typed(&command));
    cargo::run(&mut command)?;
    for package in PLUGINS {
        let file = workspace.guest_file(package);
        let size = file
            .metadata()
            .with_context(|| format!("cargo did not build {}", file.display()))?
            .len();
        println!("  {:>4} kB  {}", size / 1000, workspace.shown(&file));
    }
    Ok(())
}

fn build_host(workspace: &Workspace) -> anyhow::Result<()> {
    let mut command = workspace.cargo();
    // Selects all packages, so that cargo selects the same features as for `cargo xtask test`. Otherwise it would build
    // wasmtime twice.
    command.args(["build", "--workspace", "--bin", "tollgate"]);
    println!("  $ {}", cargo::typed(&command));
    if !workspace.target().join("debug/tollgate").exists() {
        terminal::paragraph(
            "  ",
            "The first build takes about 10 minutes on two cores: it compiles wasmtime and its compiler with \
             optimisations. `cargo xtask test` shares it.",
        );
    }
    cargo::run(&mut command)
}

fn start(workspace: &Workspace, file: &std::path::Path) -> anyhow::Result<Server> {
    let folder = workspace.root();
    let executable = workspace.target().join("debug/tollgate");
    println!(
        "  $ {} serve --config {}",
        workspace.shown(&executable),
        workspace.shown(file)
    );
    let server = Server::start(&executable, file, folder)?;
    println!("  reviews          {}/mutate and /validate", server.url());
    println!(
        "  caBundle         {} (self-signed, created just now)",
        workspace.shown(server.ca())
    );
    println!("  probes, metrics  {}", server.probes_url());
    println!("  admin            {}", server.admin_url());
    anstream::println!(
        "  {FAINT}(a build for development: a release is faster than the times below){FAINT:#}"
    );
    Ok(server)
}

fn keep(workspace: &Workspace, server: Server) -> anyhow::Result<()> {
    let post = format!(
        "curl --cacert {} --header 'Content-Type: application/json' --data @xtask/demo/create-pod.json",
        workspace.shown(server.ca())
    );
    terminal::heading("still serving: press Ctrl-C to stop");
    println!(
        "  {post} '{url}/mutate?timeout=10s'\n  \
         {post} {url}/validate/required-labels\n  \
         curl {admin}/plugins\n  \
         curl {probes}/metrics\n  \
         curl '{probes}/readyz?verbose'",
        url = server.url(),
        admin = server.admin_url(),
        probes = server.probes_url(),
    );
    server.wait()
}

fn what_next() {
    println!(
        "\nWhat to read next\n  \
         docs/guides/writing-plugins.md   a plugin of your own, from cargo new to a served one\n  \
         docs/reference/configuration.md     every key and every limit\n  \
         docs/guides/reviewing.md         tollgate review and tollgate explain\n  \
         docs/architecture.md      how a request goes through the host, and why like that\n  \
         plugins/                  the plugins that you have just seen, and others\n\
         What to run next\n  \
         cargo xtask demo --keep   leaves the server running, with curl lines to try\n  \
         cargo xtask test          all tests"
    );
}
