//! The command line.

// They panic when their reader goes away: `say!` and `tell!` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod admin;
mod bench;
mod build;
mod called;
mod check;
mod completions;
mod explain;
mod host;
mod inspect;
mod language;
mod last_known_good;
mod manifests;
mod new;
mod registry;
mod review;
mod serve;
mod terminal;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::Config;
use crate::telemetry::LogFormat;

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
    /// Check a configuration, and everything that it names, as `serve` would load it.
    Check(check::Check),
    /// Review manifests or AdmissionReviews through the whole configuration, without a server.
    Review(review::Review),
    /// Make a project with a policy that is worth reading, its tests and its suite.
    New(new::New),
    /// Build the policy in a folder, and check it as the host would.
    Build(build::Build),
    /// Run the suites of a policy: reviews through the code that the server runs, and what is expected of them.
    Test(test::Test),
    /// Measure what the calls of a plugin take, and how that grows with the object.
    Bench(bench::Bench),
    /// Explain a decision of a running server: which plugins were called, why, and what they said and changed.
    Explain(explain::Explain),
    /// Print the webhook configurations that register this host with kube-apiserver, as YAML.
    Manifests(manifests::Manifests),
    /// Push a plugin to a registry.
    Push(registry::Push),
    /// Pull a plugin from a registry into a file.
    Pull(registry::Pull),
    /// Show what a plugin is: of a file, or of an artifact in a registry.
    Inspect(inspect::Inspect),
    /// Verify that a plugin in a registry is signed by one of some keys, and that its bytes are those that were signed.
    Verify(registry::Verify),
    /// Print what a shell needs to complete the command line.
    Completions(completions::Completions),
    /// Prepares one plugin for the process that started this one. Speaks over standard input and output.
    #[command(hide = true)]
    Prepare,
}

/// Where the configuration comes from.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Origin {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A folder of plugins: each `*.wasm` in it is one, in the order of their names, with the rules that it
    /// brings itself and every limit at its default.
    #[arg(long, value_name = "FOLDER")]
    plugins: Option<PathBuf>,
}

/// How to log.
#[derive(Args, Debug)]
struct Logging {
    /// json or text
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    log_format: LogFormat,
    /// What to log: a level, or target=level pairs such as info,plugin=debug. [env: TOLLGATE_LOG] [default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate serve --plugins ./plugins        every .wasm in a folder, self-signed certificate
  tollgate serve --config tollgate.yaml     as configured
  tollgate check --config tollgate.yaml     everything that is wrong with it, at once
  tollgate review --config tollgate.yaml deploy.yaml
                                            what would become of it
  tollgate new trusted-registries --lang rust
                                            a policy of one's own
  tollgate build                            the component of the project in this folder
  tollgate test                             the suites below this folder
  tollgate explain 705ab4f5-6393-11e8-b7cc-42010a800002
                                            why a running server decided as it did
  tollgate manifests --config tollgate.yaml --service tollgate-system/tollgate | kubectl apply -f -
                                            register it with kube-apiserver
  tollgate push plugin.wasm oci://registry.example.com/policies/plugin:1.0
                                            put a plugin where `source` finds it";

/// Exit code of a command that did not do what it was asked.
const FAILURE: u8 = 1;
/// Exit code of a command that could not be carried out: what it was given is wrong.
const USAGE: u8 = 2;

// === impl Origin ===

impl Origin {
    fn load(&self) -> anyhow::Result<Config> {
        Ok(self.resolve()?.load()?)
    }

    fn resolve(&self) -> anyhow::Result<crate::config::Origin> {
        match (&self.config, &self.plugins) {
            (Some(file), _) => Ok(crate::config::Origin::File(file.clone())),
            (None, Some(folder)) => Ok(crate::config::Origin::Directory(folder.clone())),
            (None, None) => anyhow::bail!("one of --config and --plugins is needed"),
        }
    }
}

/// Runs the command that the process was started with.
#[must_use]
pub fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Check(check) => check.run(),
        Command::Review(review) => review.run(),
        Command::New(new) => new.run(),
        Command::Build(build) => build.run(),
        Command::Test(test) => test.run(),
        Command::Bench(bench) => bench.run(),
        Command::Explain(explain) => explain.run(),
        Command::Manifests(manifests) => manifests.run(),
        Command::Push(push) => push.run(),
        Command::Pull(pull) => pull.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Verify(verify) => verify.run(),
        Command::Completions(completions) => completions.run(),
        Command::Prepare => {
            crate::plugin::prepare::run(std::io::stdin().lock(), std::io::stdout().lock())
                .map(|()| ExitCode::SUCCESS)
        }
    };
    let code = result.unwrap_or_else(|error| {
        terminal::tell!("tollgate: {error:#}");
        ExitCode::from(USAGE)
    });
    terminal::exit_code(code)
}
