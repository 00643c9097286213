//! The command line.

mod called;
mod check;
mod explain;
mod host;
mod manifests;
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
    /// Run the suites of a policy: reviews through the code that the server runs, and what is expected of them.
    Test(test::Test),
    /// Explain a decision of a running server: which plugins were called, why, and what they said and changed.
    Explain(explain::Explain),
    /// Print the webhook configurations that register this host with kube-apiserver, as YAML.
    Manifests(manifests::Manifests),
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
  tollgate test                             the suites below this folder
  tollgate explain 705ab4f5-6393-11e8-b7cc-42010a800002
                                            why a running server decided as it did
  tollgate manifests --config tollgate.yaml --service tollgate-system/tollgate | kubectl apply -f -
                                            register it with kube-apiserver";

/// Exit code of a command that did not do what it was asked.
const FAILURE: u8 = 1;
/// Exit code of a command that could not be carried out: what it was given is wrong.
const USAGE: u8 = 2;

// === impl Origin ===

impl Origin {
    fn load(&self) -> anyhow::Result<Config> {
        match (&self.config, &self.plugins) {
            (Some(file), _) => Ok(Config::load(file)?),
            (None, Some(folder)) => Ok(Config::for_directory(folder)?),
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
        Command::Test(test) => test.run(),
        Command::Explain(explain) => explain.run(),
        Command::Manifests(manifests) => manifests.run(),
        Command::Prepare => {
            crate::plugin::prepare::run(std::io::stdin().lock(), std::io::stdout().lock())
                .map(|()| ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("tollgate: {error:#}");
        ExitCode::from(USAGE)
    })
}
