//! `cargo xtask soak`: runs a server under load while everything around it fails.

use std::process::ExitCode;

use clap::Args;

use crate::workspace::Workspace;
use crate::{cargo, toolchain};

/// Send reviews at 70 % of the server's capacity, through reloads, faults and hanging clients.
///
/// Plugins spin and trap, certificates and plugins are replaced, the registry fails, and clients hang. Prints requests,
/// failures and memory as a table. Fails if a request fails, or if memory grows by more than a tenth after the first
/// sixth of the time.
#[derive(Args, Debug)]
pub(crate) struct Soak {
    /// Minutes to run.
    #[arg(long, value_name = "MINUTES", default_value_t = 30)]
    minutes: u32,
}

// === impl Soak ===

impl Soak {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        toolchain::ensure_wasm_target()?;
        let mut build = workspace.cargo();
        build.args(["build", "--workspace", "--bin", "tollgate"]);
        cargo::run(&mut build)?;
        let mut test = workspace.cargo();
        test.args(["test", "--workspace", "--test", "soak"])
            .args(["--", "--ignored", "--nocapture"])
            .arg("memory_does_not_grow_during_minutes_of_faults")
            .env("TOLLGATE_SOAK_MINUTES", self.minutes.to_string());
        cargo::run(&mut test)?;
        Ok(ExitCode::SUCCESS)
    }
}
