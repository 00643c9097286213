//! `cargo xtask scan`: the figures of the background scan, with a real kube-apiserver.

use std::process::ExitCode;

use clap::Args;

use crate::workspace::Workspace;
use crate::{cargo, kubernetes, toolchain};

/// Measure a background scan with 16 plugins in a real kube-apiserver.
///
/// Prints the seconds of the first and the second scan, the latency of admission beside a scan and without one, and the
/// bytes in etcd. Fails if the second scan calls a plugin or writes a report. Takes some minutes, and builds
/// kube-apiserver and etcd the first time.
#[derive(Args, Debug)]
pub(crate) struct Scan {
    /// Number of objects.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    objects: u32,
}

// === impl Scan ===

impl Scan {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        toolchain::ensure_wasm_target()?;
        kubernetes::require()?;
        let mut build = workspace.cargo();
        build.args(["build", "--workspace", "--release", "--bin", "tollgate"]);
        cargo::run(&mut build)?;
        let mut test = workspace.cargo();
        test.args([
            "test",
            "--workspace",
            "--release",
            "--test",
            "kube_apiserver",
        ])
        .args(["--", "--ignored", "--nocapture", "prints_figures_of_a_scan"])
        .env("TOLLGATE_SCAN_OBJECTS", self.objects.to_string());
        cargo::run(&mut test)?;
        Ok(ExitCode::SUCCESS)
    }
}
