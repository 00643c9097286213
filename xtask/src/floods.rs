//! `cargo xtask floods`: a well-behaved client beside clients that attack.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::workspace::Workspace;
use crate::{cargo, toolchain};

/// Flood a server in ten ways while a client sends reviews, and print the client's results.
///
/// Prints a table: requests answered and failed, their times, and the server's peak memory. With --baseline, prints the
/// same for another binary beside it. Everything stays on the loopback interface. Takes about 5 minutes for each
/// binary.
#[derive(Args, Debug)]
pub(crate) struct Floods {
    /// Another `tollgate` binary to run the same floods against.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Seconds for which each flood lasts.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u32,
}

// === impl Floods ===

impl Floods {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        toolchain::ensure_wasm_target()?;
        let mut build = workspace.cargo();
        build.args(["build", "--workspace", "--bin", "tollgate"]);
        cargo::run(&mut build)?;
        let mut test = workspace.cargo();
        test.args(["test", "--workspace", "--test", "floods"])
            .args([
                "--",
                "--ignored",
                "--nocapture",
                "prints_table_of_all_floods",
            ])
            .env("TOLLGATE_FLOOD_SECONDS", self.seconds.to_string());
        if let Some(baseline) = self.baseline {
            test.env("TOLLGATE_BASELINE", std::path::absolute(baseline)?);
        }
        cargo::run(&mut test)?;
        Ok(ExitCode::SUCCESS)
    }
}
