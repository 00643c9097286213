//! `cargo xtask scan`: the figures of the background scan, with a real kube-apiserver.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Args;

use crate::figures::Measured;
use crate::workspace::Workspace;
use crate::{kubernetes, terminal};

/// Measure a background scan with 16 plugins in a real kube-apiserver.
///
/// Prints the seconds of the first and the second scan, the latency of admission beside a scan and without one, and the
/// bytes in etcd. Another plugin always traps. Fails if the second scan evaluates an object again or writes a report.
/// Takes some minutes, and builds kube-apiserver and etcd the first time.
#[derive(Args, Debug)]
pub(crate) struct Scan {
    /// Number of objects.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    objects: u32,
    /// Folder with the sources of Policy Reporter (github.com/kyverno/policy-reporter). Builds it, and fails if it
    /// shows other counts than the reports. Needs Go and a C compiler.
    #[arg(long, value_name = "FOLDER")]
    policy_reporter: Option<PathBuf>,
    #[command(flatten)]
    measured: Measured,
}

/// The module with the definitions of reports, which Policy Reporter needs, too.
const REPORTS_MODULE: &str = "github.com/openreports/reports-api";

// === impl Scan ===

impl Scan {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        kubernetes::require()?;
        let mut variables = vec![(
            "TOLLGATE_SCAN_OBJECTS",
            OsString::from(self.objects.to_string()),
        )];
        if let Some(sources) = &self.policy_reporter {
            let program = workspace.target().join("policy-reporter");
            terminal::paragraph(
                "  ",
                &format!("building Policy Reporter in {}", sources.display()),
            );
            // Its database is SQLite, which is written in C.
            let build = ["build", "-trimpath", "-buildvcs=false", "-o"].map(OsString::from);
            let arguments = build
                .into_iter()
                .chain([program.clone().into(), ".".into()]);
            go(sources, arguments)?;
            let list = ["list", "-m", "-f", "{{.Dir}}", REPORTS_MODULE].map(OsString::from);
            let folder = go(sources, list)?;
            let definitions = Path::new(folder.trim()).join("config/crd");
            variables.push(("TOLLGATE_POLICY_REPORTER", program.into()));
            variables.push(("TOLLGATE_OPENREPORTS_DEFINITIONS", definitions.into()));
        }
        self.measured.run(
            &workspace,
            "kube_apiserver",
            "prints_figures_of_a_scan",
            &variables,
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs Go with cgo in a folder, and returns its output.
fn go(folder: &Path, arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<String> {
    let mut command = Command::new("go");
    command.current_dir(folder).env("CGO_ENABLED", "1");
    let output = command.args(arguments).output();
    let output = output.with_context(|| format!("cannot run go in {}", folder.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?} failed: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
