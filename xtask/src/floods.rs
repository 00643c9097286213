//! `cargo xtask floods`: measures a well-behaved client beside hostile clients.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::workspace::Workspace;
use crate::{cargo, toolchain};

/// Flood a server in ten ways while a client sends reviews, and print the client's results.
///
/// Prints a table: answered and failed requests, their times, and the server's peak memory. With --baseline, prints the
/// same for another binary beside it. All traffic stays on the loopback interface. Takes about 5 minutes per binary.
#[derive(Args, Debug)]
pub(crate) struct Floods {
    /// Another `tollgate` binary for the same floods.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Duration of each flood, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u32,
}

// === impl Floods ===

impl Floods {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        toolchain::ensure_wasm_target()?;
        let mut build = workspace.cargo();
        build.args(["build", "--package", "tollgate", "--bin", "tollgate"]);
        cargo::run(&mut build)?;
        let mut test = workspace.cargo();
        test.args(["test", "--package", "tollgate-tests", "--test", "floods"])
            .args(["--", "--ignored", "--nocapture", "the_whole_table"])
            .env("TOLLGATE_FLOOD_SECONDS", self.seconds.to_string());
        if let Some(baseline) = self.baseline {
            test.env("TOLLGATE_BASELINE", std::path::absolute(baseline)?);
        }
        cargo::run(&mut test)?;
        Ok(ExitCode::SUCCESS)
    }
}
