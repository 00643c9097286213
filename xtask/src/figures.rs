//! The parts that the commands for figures share: the binary that they measure, and the test that measures it.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::workspace::Workspace;
use crate::{cargo, toolchain};

/// Variable with the binary that the tests run.
const BINARY_VARIABLE: &str = "TOLLGATE_BIN";

/// The binary that is measured.
#[derive(Args, Debug)]
pub(crate) struct Measured {
    /// Measure this binary, such as a released one, and build none. The variable `TOLLGATE_BIN` does the same.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

// === impl Measured ===

impl Measured {
    /// Runs a test that measures, with variables for it.
    pub(crate) fn run(
        self,
        workspace: &Workspace,
        suite: &str,
        test: &str,
        variables: &[(&str, OsString)],
    ) -> anyhow::Result<()> {
        toolchain::ensure_wasm_target()?;
        let given = self
            .binary
            .or_else(|| Some(std::env::var_os(BINARY_VARIABLE)?.into()));
        let binary = match given {
            // The tests run in another folder.
            Some(file) => file
                .canonicalize()
                .with_context(|| format!("cannot find the binary {}", file.display()))?,
            None => build(workspace)?,
        };
        println!("measuring {}", binary.display());
        let mut command = workspace.cargo();
        command
            .args(["test", "--workspace", "--test", suite, "--"])
            .args(["--ignored", "--nocapture", test])
            .env(BINARY_VARIABLE, &binary)
            .envs(variables.iter().map(|(name, value)| (name, value)));
        cargo::run(&mut command)
    }
}

/// Builds the binary as users get it.
fn build(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let mut build = workspace.cargo();
    build.args(["build", "--workspace", "--release", "--bin", "tollgate"]);
    cargo::run(&mut build)?;
    Ok(workspace.target().join("release/tollgate"))
}
