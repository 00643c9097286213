//! The command line: subcommands, shared flags and exit codes.

// `println!` and `eprintln!` panic when the reader closes the pipe. `say!` and `tell!` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod access;
mod admin;
mod asked;
mod bench;
mod build;
mod called;
mod catalogue;
mod check;
mod completions;
#[cfg(all(target_arch = "x86_64", any(test, target_env = "musl")))]
mod copy;
mod crds;
mod custom_resources;
mod dev;
mod doctor;
mod explain;
mod images;
mod import;
mod inspect;
mod kubectl;
mod language;
mod last_known_good;
mod manifests;
mod memory;
mod namespaces;
mod new;
mod objects;
mod page;
mod recording;
mod registering;
mod registry;
mod replay;
mod review;
mod rollout;
mod scan;
mod schema;
mod serve;
mod terminal;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use mimalloc::MiMalloc;
use tollgate::Preparer;
use tollgate_config::Config;
use tollgate_telemetry::logs::LogFormat;

/// A large part of a review's cost is allocations of a few dozen bytes. mimalloc halves that part.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A WebAssembly plugin host for Kubernetes admission.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, about, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve admission reviews over HTTPS.
    Serve(serve::Serve),
    /// Check a configuration and everything that it names, as `serve` would load it.
    Check(check::Check),
    /// Review manifests or AdmissionReviews through the whole configuration, without a server.
    Review(review::Review),
    /// Create a policy project from a template, with unit tests and a test suite.
    New(new::New),
    /// Build the policy in a folder, and check it as the host would.
    Build(build::Build),
    /// Watch a policy project: build it, serve it on this machine and run its suites, again at every change.
    Dev(dev::Dev),
    /// Run the test suites of a policy through the code that the server runs.
    Test(test::Test),
    /// Judge recorded reviews by another configuration, and show what would be different.
    Replay(replay::Replay),
    /// Judge the objects that exist, in a dump or in a cluster, and report which of them would be denied today.
    Scan(scan::Scan),
    /// Show a recording, or make one from an audit log.
    Recording(recording::RecordingArgs),
    /// Translate policies of other engines, such as Gatekeeper's templates, into a configuration.
    Import(import::Import),
    /// Measure the calls of a plugin, and how the cost grows with the object.
    Bench(bench::Bench),
    /// Explain a decision of a running server: the plugins that were called, the reasons, their verdicts and their
    /// changes.
    Explain(explain::Explain),
    /// Show, promote or roll back the rollouts of a running server.
    Rollout(rollout::RolloutArgs),
    /// Show plugins, decisions, exceptions and costs of running replicas in a browser.
    Page(page::ShowPage),
    /// Print the webhook configurations that register this host with kube-apiserver, as YAML.
    Manifests(manifests::Manifests),
    /// Find what in a cluster can lock users out or keep Tollgate from its work, with the fix for each problem.
    Doctor(doctor::Doctor),
    /// Print the definitions of the custom resources, as YAML.
    Crds(crds::Crds),
    /// Print the JSON Schema of a kind of file, for editors.
    Schema(schema::Schema),
    /// Push a plugin to a registry.
    Push(registry::Push),
    /// Pull a plugin from a registry into a file.
    Pull(registry::Pull),
    /// Show what a plugin is, from a file or from an artifact in a registry.
    Inspect(inspect::Inspect),
    /// Write a page that lists artifacts, from what their manifests say.
    Catalogue(catalogue::Catalogue),
    /// Verify that a plugin in a registry is signed by one of the given keys, and that its bytes are the signed ones.
    Verify(registry::Verify),
    /// Print a completion script for a shell.
    Completions(completions::Completions),
    /// Prepare one plugin for the parent process, over standard input and output.
    #[command(hide = true)]
    Prepare,
}

/// The source of the configuration.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Origin {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of plugins, used in place of a configuration file. Each `*.wasm` in it is a plugin. Plugins run in the
    /// order of their names, with the rules from their own manifests and with every limit at its default.
    #[arg(long, value_name = "FOLDER")]
    plugins: Option<PathBuf>,
}

/// Flags for logging.
#[derive(Args, Debug)]
struct Logging {
    /// Log format: json or text
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    log_format: LogFormat,
    /// Log filter: a level, or target=level pairs such as info,plugin=debug. [env: TOLLGATE_LOG] [default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate serve --plugins ./plugins        every .wasm in a folder, self-signed certificate
  tollgate serve --config tollgate.yaml     the plugins and settings of a configuration file
  tollgate check --config tollgate.yaml     all problems of the configuration and its plugins
  tollgate review --config tollgate.yaml deploy.yaml
                                            the verdict and the changes for a manifest
  tollgate new trusted-registries --lang rust
                                            a new policy project
  tollgate build                            the plugin of the project in this folder
  tollgate dev                              the same, served on this machine, at every change
  tollgate test                             all test suites below this folder
  tollgate replay recording --config new.yaml
                                            what a change would do to recorded reviews
  tollgate scan --config tollgate.yaml --cluster
                                            what of a cluster would be denied today
  tollgate import policies/ -o tollgate.yaml
                                            Gatekeeper's templates and constraints as plugins
  tollgate explain 705ab4f5-6393-11e8-b7cc-42010a800002
                                            why a running server allowed or denied a review
  tollgate rollout rollback image-rewrite   let the old version answer everything again
  tollgate page                             plugins, decisions and costs of a running server, in a browser
  tollgate manifests --config tollgate.yaml --service tollgate-system/tollgate | kubectl apply -f -
                                            register it with kube-apiserver
  tollgate doctor --config tollgate.yaml    what in the cluster of kubectl can lock users out
  tollgate push plugin.wasm oci://registry.example.com/policies/plugin:1.0
                                            put a plugin where `source` finds it";

/// Exit code of a command that ran to its end with a negative result.
const FAILURE: u8 = 1;
/// Exit code of a command that could not be carried out, for example because its input is wrong.
const USAGE: u8 = 2;

// === impl Origin ===

impl Origin {
    fn load(&self) -> anyhow::Result<Config> {
        Ok(self.resolve()?.load()?)
    }

    fn resolve(&self) -> anyhow::Result<tollgate_config::Origin> {
        match (&self.config, &self.plugins) {
            (Some(file), _) => Ok(tollgate_config::Origin::File(file.clone())),
            (None, Some(folder)) => Ok(tollgate_config::Origin::Directory(folder.clone())),
            (None, None) => anyhow::bail!("--config or --plugins is required"),
        }
    }
}

fn main() -> ExitCode {
    // A child needs nothing of the command line, and reading it takes milliseconds.
    Preparer::run_if_child();
    let result = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Check(check) => check.run(),
        Command::Review(review) => review.run(),
        Command::New(new) => new.run(),
        Command::Build(build) => build.run(),
        Command::Dev(dev) => dev.run(),
        Command::Test(test) => test.run(),
        Command::Replay(replay) => replay.run(),
        Command::Scan(scan) => scan.run(),
        Command::Recording(recording) => recording.run(),
        Command::Import(import) => import.run(),
        Command::Bench(bench) => bench.run(),
        Command::Explain(explain) => explain.run(),
        Command::Rollout(rollout) => rollout.run(),
        Command::Page(page) => page.run(),
        Command::Manifests(manifests) => manifests.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Crds(crds) => crds.run(),
        Command::Schema(schema) => schema.run(),
        Command::Push(push) => push.run(),
        Command::Pull(pull) => pull.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Catalogue(catalogue) => catalogue.run(),
        Command::Verify(verify) => verify.run(),
        Command::Completions(completions) => completions.run(),
        Command::Prepare => {
            tollgate_gate::plugin::prepare::run(std::io::stdin().lock(), std::io::stdout().lock())
                .map(|()| ExitCode::SUCCESS)
        }
    };
    let code = result.unwrap_or_else(|error| {
        terminal::tell!("tollgate: {error:#}");
        ExitCode::from(USAGE)
    });
    terminal::exit_code(code)
}
